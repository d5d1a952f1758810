"""Invariance under permutations of edges and nodes, and additivity over disjoint graphs."""

from dataclasses import replace

import numpy as np
import pytest

import pyops

from ..support.cases import OPERATORS, PAIRED, PHASES, VARIANTS
from ..support.compare import assert_close
from ..support.graphs import drawn

ON_GRAPHS = [case for case in VARIANTS if OPERATORS[case.op].signature.has_graph]
every_variant = pytest.mark.parametrize("case", ON_GRAPHS, ids=str)
ROWS = "num_src", "num_dst", "num_edges", "num_entries"
every_phase = pytest.mark.parametrize("phase", PHASES)


def rearranged(problem, graph, **orders):
    """Return the problem on another graph, with permuted rows along each axis."""
    arrays = {
        name: a if a is None or (axis := problem.rows(name)) not in orders else a[orders[axis]]
        for name, a in problem.arrays.items()
    }
    return replace(problem, graph=graph, arrays=arrays)


def with_rows(problem, change):
    """Return the problem with mapped row indices, if it has such an option; -1 stays."""
    options = dict(problem.options)
    for name in problem.op.signature.indexed.keys() & options.keys():
        rows = options[name]
        options[name] = np.where(rows < 0, rows, change(rows))
    return replace(problem, options=options)


def in_order(results, axes, **orders):
    return [
        a if a is None or axis not in orders else a[orders[axis]]
        for a, axis in zip(results, axes, strict=True)
    ]


@every_phase
@every_variant
def test_edges_in_another_order(case, phase, rng):
    problem = case.problem()
    graph, order = problem.graph, rng.permutation(problem.graph.num_edges)
    moved = pyops.Graph(graph.src[order], graph.dst[order], graph.num_src, graph.num_dst)
    orders = {"num_edges": order, "num_entries": order}
    expected = in_order(problem.run(phase), problem.result_rows(phase), **orders)
    problem = with_rows(problem, lambda rows: np.argsort(order)[rows])
    options = {
        name: problem.options[name][order] if name in problem.op.signature.indexed else value
        for name, value in problem.options.items()
    }
    problem = rearranged(replace(problem, options=options), moved, **orders)
    assert_close(problem.run(phase), expected, 1e-13)


@every_phase
@every_variant
def test_nodes_in_another_order(case, phase, rng):
    problem = case.problem()
    if case.op in PAIRED:
        problem = case.problem(drawn(8, 8, 40))
    graph = problem.graph
    orders = {name: rng.permutation(getattr(graph, name)) for name in ("num_src", "num_dst")}
    if case.op in PAIRED:
        orders["num_dst"] = orders["num_src"]
    src, dst = (np.argsort(order) for order in orders.values())
    moved = pyops.Graph(src[graph.src], dst[graph.dst], graph.num_src, graph.num_dst)
    expected = in_order(problem.run(phase), problem.result_rows(phase), **orders)
    assert_close(rearranged(problem, moved, **orders).run(phase), expected, 1e-13)


@every_phase
@every_variant
def test_two_graphs_side_by_side(case, phase):
    """A disjoint union of graphs gives the results of its parts; gradients of parameters add up."""
    squares = case.op in PAIRED
    one = case.problem(drawn(9, 9 if squares else 7, 40, seed=1))
    other = case.problem(drawn(5, 5 if squares else 6, 20, seed=2))
    alone = {n: a for n, a in one.arrays.items() if a is not None and one.rows(n) not in ROWS}
    other = other.having(**alone)
    a, b = one.graph, other.graph
    graph = pyops.Graph(
        np.concatenate([a.src, b.src + a.num_src]),
        np.concatenate([a.dst, b.dst + a.num_dst]),
        a.num_src + b.num_src,
        a.num_dst + b.num_dst,
    )
    both = {
        name: np.concatenate([array, other.arrays[name]])
        for name, array in one.arrays.items()
        if name not in alone and array is not None
    }
    expected = [
        None if x is None else np.concatenate([x, y]) if axis in ROWS else x + y
        for x, y, axis in zip(one.run(phase), other.run(phase), one.result_rows(phase), strict=True)
    ]
    options = dict(one.options)
    for name in one.op.signature.indexed.keys() & options.keys():
        further = with_rows(other, lambda rows: rows + a.num_edges).options[name]
        options[name] = np.concatenate([options[name], further])
    whole = replace(one, graph=graph, options=options).having(**both)
    assert_close(whole.run(phase), expected, 1e-13)
