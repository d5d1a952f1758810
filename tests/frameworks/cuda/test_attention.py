"""Attention on the device beyond the table: weights, and heads wider than a warp covers."""

from dataclasses import replace

import numpy as np
import pytest

from ...support.cases import PHASES, variants
from ...support.graphs import drawn
from .host import COMPILER, Host
from .on_device import DEVICE, OPERATORS, on_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
CASES = {name: [*variants(OPERATORS[name])] for name in ("gat", "gat_v2", "transformer_conv")}
SCORED = {"gat": "attention", "gat_v2": "attention", "transformer_conv": "query"}
"""Inputs to which the scores are proportional."""
every_operator = pytest.mark.parametrize("name", CASES)


@pytest.mark.parametrize("case", [case for some in CASES.values() for case in some], ids=str)
def test_weights(case):
    problem = case.problem(drawn(9, 7, 600))
    _, expected = problem.run("forward", return_attention=True)
    with on_device(Host()):
        _, got = problem.run("forward", return_attention=True)
    assert abs(got - expected).max() < 1e-14


@pytest.mark.parametrize(("heads", "width"), [(1, 128), (1, 130), (3, 300), (9, 4), (70, 2)])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("case", [some[i] for some in CASES.values() for i in (0, -1)], ids=str)
def test_shapes_of_heads(case, phase, heads, width):
    problem = case.problem(drawn(5, 4, 300), heads=heads, width=width)
    expected = problem.run(phase)
    for order in 0, 1:
        with on_device(Host(order)):
            got = problem.run(phase)
        for a, b in zip(got, expected, strict=True):
            if b is not None:
                assert abs(a - b).max(initial=0) <= 1e-12 * abs(b).max(initial=1)


@pytest.mark.parametrize("score", [1e4, -1e4])
@every_operator
def test_large_scores(name, score):
    """The softmax is shifted: exponentials do not overflow, and equal scores give the mean."""
    problem = CASES[name][0].problem(drawn(9, 7, 600)).map(np.float32)
    far = problem.having(**{SCORED[name]: problem.arrays[SCORED[name]] * np.float32(score)})
    with on_device(Host()):
        results = [far.run(phase) for phase in PHASES]
    assert all(np.isfinite(a).all() for some in results for a in some if a is not None)


LAUNCHES = [
    ("gat", "forward", 3), ("gat", "backward", 8), ("gat", "double_backward", 30),
    ("gat_v2", "forward", 3), ("gat_v2", "backward", 12), ("gat_v2", "double_backward", 16),
    ("transformer_conv", "forward", 3), ("transformer_conv", "backward", 9),
    ("transformer_conv", "double_backward", 13),
]  # fmt: skip


@pytest.mark.skipif(DEVICE, reason="counted where this machine runs them")
@pytest.mark.parametrize(("name", "phase", "most"), LAUNCHES)
def test_launches(name, phase, most):
    """A launch costs as much as a megabyte of reads: there are few if no row is long."""
    plain = replace(CASES[name][0], absent=("edge_features", "mask"))
    device = Host()
    with on_device(device):
        plain.problem(drawn(50, 50, 900)).run(phase)
    assert len(device.launched) <= most
