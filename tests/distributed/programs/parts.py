"""Graphs in a fixed number of parts: results against one rank, and digests of them.

The tests compare the digests of any number of ranks and threads, with any MPI.
"""

import hashlib
import math
import sys

import numpy as np

import pyops
from pyops.distributed import Communicator, partition

from ...support import cases
from ...support.graphs import drawn
from .graphs import mesh, refused
from .operators import TOLERANCES, first_axes
from .shares import cuts

LARGE = "gno_conv", "gat", "gat_v2", "aggregate"
"""Operators that are also compared on a graph with work for several threads."""
NAMES = [name for name, op in cases.OPERATORS.items() if op.signature.has_graph]
PARTS = 12


def shared(comm, whole, rng, parts=PARTS, **options):
    """Return the distributed graph of a whole one whose edges lie on any ranks."""
    nodes = cuts(rng, whole.num_dst, comm.size)[comm.rank : comm.rank + 2].tolist()
    entries = slice(*cuts(rng, whole.num_entries, comm.size)[comm.rank : comm.rank + 2])
    if "part" in options:
        options["part"] = options["part"][slice(*nodes)]
    if whole.num_src != whole.num_dst:
        options["owned_src"] = cuts(rng, whole.num_src, comm.size)[comm.rank : comm.rank + 2]
        options["owned_src"] = tuple(options["owned_src"].tolist())
    ends = whole.src[entries], whole.dst[entries]
    return comm.graph(*ends, owned=tuple(nodes), reproducible=parts, **options)


def gathered(comm, array):
    """Return the rows of all ranks, one rank after another."""
    rows, _ = comm._engine.rows(array.reshape(len(array), math.prod(array.shape[1:])))
    return rows.reshape(-1, *array.shape[1:])


def joined(comm, rows, array):
    """Return the rows of all ranks in their former order."""
    rows = gathered(comm, rows)
    assert (np.sort(rows) == np.arange(len(rows))).all()
    return gathered(comm, array)[np.argsort(rows)]


def owned(graph, problem):
    """Return the problem of the own rows."""
    rows = rows_of(graph)
    own = {
        name: array if array is None else array[rows.get(problem.rows(name), slice(None))]
        for name, array in problem.arrays.items()
    }
    options = dict(problem.options)
    for name in problem.op.signature.indexed.keys() & options.keys():
        chosen = options[name][graph.edges]
        edges = gathered(graph.comm, graph.edges)
        options[name] = np.where(chosen < 0, -1, np.argsort(edges)[chosen])
    return cases.replace(problem.having(**own), graph=graph, options=options)


def rows_of(graph):
    rows = {"num_src": graph.sources, "num_dst": graph.nodes}
    return rows | {"num_edges": graph.edges, "num_entries": graph.edges}


def results(graph, problem, dtype, run):
    """Yield label and result of all phases, of all rows in their former order."""
    rows = rows_of(graph)
    part = owned(graph, problem).map(lambda a: a.astype(dtype))
    whole = problem.map(lambda a: a.astype(dtype))
    for phase in cases.PHASES:
        found, expected = run(part, phase), whole.run(phase)
        most = max(np.abs(a).max(initial=0) for a in expected if a is not None)
        for axis, a, b in zip(first_axes(problem.op, phase), found, expected, strict=True):
            assert (a is None) == (b is None)
            if a is None:
                continue
            a = joined(graph.comm, rows[axis], a) if axis in rows else a
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            error = np.abs(a - b).max(initial=0)
            assert error <= TOLERANCES[dtype] * most, (problem.op.name, phase, axis, error)
            yield f"{problem.op.name} {phase} {axis} {np.dtype(dtype)}", a


def graphs(comm):
    """Yield graphs of all nodes, and the distributed ones, by parts in any order too."""
    rng = np.random.default_rng([7, comm.size])  # ranks begin elsewhere for each number of ranks
    for seed, sizes in enumerate([(40, 40, 200), (30, 20, 120), (5, 5, 9), (3, 4, 0)]):
        whole = drawn(*sizes, seed)
        yield whole, shared(comm, whole, rng)
    part = np.random.default_rng(3).integers(0, PARTS - 2, 40)  # two parts are empty
    whole = drawn(40, 40, 300, 9)
    yield whole, shared(comm, whole, rng, part=part)
    whole = drawn(2000, 2000, 20000, 10)  # enough for several threads
    yield whole, shared(comm, whole, rng)


def digests(comm=None, run=cases.Problem.run):
    """Print the digests of results, whose zeros have no sign."""
    comm = comm or Communicator()
    for number, (whole, graph) in enumerate(graphs(comm)):
        for name in NAMES if whole.num_dst < 100 else LARGE:
            if name in cases.PAIRED and whole.num_src != whole.num_dst:
                continue
            problem = cases.representative(name).problem(whole, seed=number)
            for dtype in TOLERANCES:
                for label, array in results(graph, problem, dtype, run):
                    digest = hashlib.sha256((array + 0.0).tobytes()).hexdigest()[:12]
                    if comm.rank == 0:
                        print(number, label, digest)


def orders():
    """Gradients of sources do not depend on which rank gives which edges of a part."""
    comm, rng = Communicator(), np.random.default_rng(0)
    n, src, dst = 8, *rng.integers(0, 8, (2, 200))
    gy, found = rng.standard_normal((n, 1)), []
    for cut in 0, 3, n:
        first, last = [(0, cut), (cut, n), (n, n)][comm.rank] if comm.size > 1 else (0, n)
        own = (dst >= first) & (dst < last)
        graph = comm.graph(src[own], dst[own], owned=(first, last), reproducible=2)
        x = np.zeros((graph.num_src, 1))
        gx = pyops.aggregate.backward(graph, x, None, None, None, gy[graph.nodes], wanted=["x"])[0]
        found.append(comm.take(comm.take(gx, graph.places), np.arange(n)))
    assert all(np.array_equal(found[0], other) for other in found)
    whole = pyops.aggregate.backward(pyops.Graph(src, dst, n), np.zeros((n, 1)), gy=gy)[0]
    assert abs(found[0] - whole).max() < 1e-13


def distribution():
    """Parts by coordinates, relations, attention, `out`, derivatives and refusals."""
    comm = Communicator()
    rng = np.random.default_rng(comm.size)
    points, (src, dst) = mesh(6)
    whole = pyops.Graph(src, dst)
    first, last = comm.rank * len(points) // comm.size, (comm.rank + 1) * len(points) // comm.size
    own = (dst >= first) & (dst < last)
    graph = comm.graph(src[own], dst[own], owned=(first, last))
    part = partition(graph, PARTS, method="coordinates", coordinates=points[first:last])
    graph = comm.graph(src[own], dst[own], owned=(first, last), part=part, reproducible=PARTS)
    x = rng.standard_normal((len(points), 3))
    y = pyops.aggregate(graph, x[graph.nodes])
    assert np.allclose(y, pyops.aggregate(whole, x)[graph.nodes], 1e-13, 1e-13)
    numbers = gathered(comm, part)
    assert (np.diff(numbers[gathered(comm, graph.nodes)]) >= 0).all()

    whole = drawn(20, 20, 90, 2)
    graph = shared(comm, whole, rng)
    types, weight = np.arange(90) % 4, np.random.default_rng(1).standard_normal((4, 2))
    x, gy = (np.random.default_rng(k).standard_normal((20, w)) for k, w in ((2, 3), (3, 6)))
    relations = whole.with_edge_ids(types, 4)
    typed = graph.with_edge_ids(types[graph.edges], 4, replicated=True)
    expected = pyops.hetero_basis.backward(relations, x, weight, gy)
    found = pyops.hetero_basis.backward(typed, x[graph.nodes], weight, gy[graph.nodes])
    assert np.allclose(found[0], expected[0][graph.nodes], 1e-12, 1e-12)
    assert np.allclose(found[1], expected[1], 1e-12, 1e-12)

    for name in "gat", "gno_conv", "degree_normalised":
        own = owned(graph, cases.representative(name).problem(whole, seed=4))
        pyops.testing.check_gradients(own.op, *own.arguments("forward"), **own.options)
        expected = own.run("backward")
        out = [None if a is None else np.ones_like(a) for a in expected]
        found = own.run("backward", out=out, accumulate=True)
        for a, b, c in zip(found, out, expected, strict=True):
            assert a is b
            assert c is None or np.allclose(a, c + 1, 1e-13, 1e-13)
    problem = cases.representative("gat").problem(whole, seed=4)
    _, alpha = owned(graph, problem).run("forward", return_attention=True)
    _, expected = problem.run("forward", return_attention=True)
    assert np.allclose(alpha, expected[graph.edges], 1e-12, 1e-12)

    with refused(ValueError, "replicated: expected True for a reproducible graph, got False"):
        graph.with_edge_ids(types[graph.edges], 90, replicated=False)
    with refused(IndexError, "part: expected indices from 0 to number of parts-1=11"):
        shared(comm, whole, rng, part=np.full(20, 12))
    with refused(ValueError, "Communicator.graph: reproducible: expected an integer from 1"):
        comm.graph([], [], owned=(0, 0), reproducible=0)
    if comm.size > 1:
        with refused(ValueError, "Communicator.graph: expected the call of rank 0"):
            comm.graph([], [], owned=(0, 0), reproducible=2 + (comm.rank == comm.size - 1))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
