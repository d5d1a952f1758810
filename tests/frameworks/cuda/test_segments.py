"""Rows whose length is around the segment length."""

import numpy as np
import pytest

from ...support.cases import PHASES, representative
from ...support.graphs import shared
from .host import COMPILER, Host
from .on_device import on_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
DEGREES = [512, 0, 3], [256, 512, 257], [1024, 1025], [768, 256, 256, 257]
SIDES = {
    "in": ("aggregate", "gat", "gno_aggregate", "gno_conv"),
    "out": ("aggregate", "gat", "gno_aggregate", "gno_conv"),
    "edges": ("aggregate", "dimenet_aggregate", "gat", "gno_aggregate", "gno_conv"),
}


def having(side, degrees, nodes=40):
    """Return a graph whose incoming rows, outgoing rows or edges have these numbers of entries."""
    rng, count = np.random.default_rng(0), sum(degrees)
    src, dst = rng.integers(0, nodes, (2, count))
    ids = rng.permutation(count)
    rows = np.repeat(np.arange(len(degrees)), degrees)
    if side == "edges":
        return shared(src, dst, rng.permutation(rows), nodes, nodes, len(degrees))
    src, dst = (src, rows) if side == "in" else (rng.permutation(rows), dst)
    return shared(src, dst, ids, nodes, nodes, count)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("degrees", DEGREES, ids=str)
@pytest.mark.parametrize(("side", "op"), [(side, op) for side, ops in SIDES.items() for op in ops])
def test_ends_of_pieces(side, op, degrees, phase):
    problem = representative(op).problem(having(side, degrees))
    expected = problem.run(phase)
    with on_device(Host()):
        got = problem.run(phase)
    for a, b in zip(got, expected, strict=True):
        if b is not None:
            assert abs(a - b).max() <= 1e-12 * abs(b).max()
