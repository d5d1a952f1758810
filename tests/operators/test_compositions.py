"""Operators against compositions of others, and graphs against the graphs they are built from."""

from dataclasses import replace

import numpy as np
import pytest

import pyops
from pyops._call.operator import OPERATORS

from ..reference.activations import ACTIVATIONS
from ..reference.gno_kernel import preactivations
from ..support.cases import PHASES, VARIANTS
from ..support.compare import assert_close, assert_same
from ..support.graphs import shared

FUSED = [case for case in VARIANTS if case.op == "gno_conv"]
GIVEN = [case for case in VARIANTS if case.op == "kernel_conv"]
every_phase = pytest.mark.parametrize("phase", PHASES)
every_fused = pytest.mark.parametrize("case", FUSED, ids=str)


def network(problem):
    """Return the options of the kernel network alone."""
    widths = {"in_features": 3, "out_features": 4}
    assert problem.arrays["features"].shape[1] == 3
    assert problem.arrays["gy"].shape[1] == 4
    return {**problem.options, **widths}


@pytest.mark.parametrize("graph", ["random", "shared edges", "isolated nodes"])
@every_fused
def test_gno_conv_is_gno_aggregate_of_gno_kernel(case, graph):
    problem = replace(case, graph=graph).problem()
    features, coords, params = problem.inputs
    gy, options = problem.arrays["gy"], network(problem)
    kappa = pyops.gno_kernel(coords, params, **options)
    y = pyops.gno_aggregate(problem.graph, features, kappa)
    gfeatures, gkappa = pyops.gno_aggregate.backward(problem.graph, features, kappa, gy)
    gcoords, gparams = pyops.gno_kernel.backward(coords, params, gkappa, **options)
    assert_close(problem.run("forward"), [y], 1e-13)
    assert_close(problem.run("backward"), [gfeatures, gcoords, gparams], 1e-13)


@every_fused
def test_second_derivatives_compose(case):
    problem = case.problem()
    (features, coords, params), (hfeatures, hcoords, hparams) = problem.inputs, problem.cotangents
    gy, options = problem.arrays["gy"], network(problem)
    kernel, aggregate, graph = pyops.gno_kernel, pyops.gno_aggregate, problem.graph
    kappa = kernel(coords, params, **options)
    _, gkappa = aggregate.backward(graph, features, kappa, gy)
    *through, hkappa = kernel.double_backward(coords, params, gkappa, hcoords, hparams, **options)
    arrays = features, kappa, gy, hfeatures, hkappa
    dfeatures, dkappa, dgy = aggregate.double_backward(graph, *arrays)
    again = kernel.backward(coords, params, dkappa, **options)
    expected = [dfeatures, *(a + b for a, b in zip(through, again, strict=True)), dgy]
    assert_close(problem.run("double_backward"), expected, 1e-13)


@every_fused
def test_gno_conv_is_kernel_conv_of_its_hidden_layer(case):
    problem = case.problem()
    features, coords, params = problem.inputs
    hidden = problem.options["hidden"]
    value, _ = ACTIVATIONS[problem.options["activation"]]
    layer = value(preactivations(coords, params, hidden))
    block = pyops.blocks.unpack_gno(params, dim=2, hidden=hidden)
    y = pyops.kernel_conv(problem.graph, features, layer, block.V, block.b_v)
    assert_close(problem.run("forward"), [y], 1e-13)


@every_phase
@pytest.mark.parametrize(
    "case", [c for c in GIVEN if "edge_weight" not in c.absent and "mean" not in str(c)], ids=str
)
def test_an_edge_that_counts_twice_is_one_of_weight_two(case, phase):
    problem = case.problem()
    graph, ids = problem.graph, np.arange(problem.graph.num_edges)
    twice = [np.append(a, a[:1]) for a in (graph.src, graph.dst, ids)]
    sizes = graph.num_src, graph.num_dst, graph.num_edges
    double = np.where(ids == 0, 2, 1)
    names = ["edge_weight", "hedge_weight"]
    weighted = problem.having(**{name: double * problem.arrays[name] for name in names})
    expected = [*weighted.run(phase)]
    if len(expected) > 1:
        expected[4] = double * expected[4]
    assert_close(replace(problem, graph=shared(*twice, *sizes)).run(phase), expected, 1e-13)


@every_phase
@pytest.mark.parametrize(
    "case", [c for c in VARIANTS if OPERATORS[c.op].signature.has_graph], ids=str
)
def test_shared_edges_are_edges_with_equal_rows(case, phase):
    problem = replace(case, graph="shared edges").problem()
    if "reverse" in problem.options:
        pytest.skip("an edge that serves several entries has no one reverse")
    graph, ids = problem.graph, problem.graph.edge_ids
    alone = pyops.Graph(graph.src, graph.dst, graph.num_src, graph.num_dst)
    on_edges = {
        name: array[ids]
        for name, array in problem.arrays.items()
        if array is not None and problem.rows(name) == "num_edges"
    }
    expected = [*replace(problem, graph=alone).having(**on_edges).run(phase)]
    for number, axis in enumerate(problem.result_rows(phase)):
        if axis == "num_edges" and expected[number] is not None:
            sums = np.zeros((graph.num_edges, *expected[number].shape[1:]))
            np.add.at(sums, ids, expected[number])
            expected[number] = sums
    assert_close(problem.run(phase), expected, 1e-13)


@pytest.mark.parametrize("case", [c for c in VARIANTS if c.op == "gno_aggregate"], ids=str)
def test_gradient_is_the_operator_on_the_reversed_graph(case):
    problem = case.problem()
    features, kappa = problem.inputs
    gy, graph = problem.arrays["gy"], problem.graph
    inward, outward = features.shape[1], gy.shape[1]
    turned = kappa.reshape(-1, inward, outward).transpose(0, 2, 1).reshape(kappa.shape)
    gfeatures, _ = pyops.gno_aggregate.backward(graph, features, kappa, gy)
    assert_close([gfeatures], [pyops.gno_aggregate(graph.reverse(), gy, turned)], 1e-13)


@every_phase
@pytest.mark.parametrize("case", GIVEN + FUSED, ids=str)
def test_reversed_twice(case, phase):
    problem = case.problem()
    back_again = replace(problem, graph=problem.graph.reverse().reverse())
    assert_same(back_again.run(phase), problem.run(phase))
