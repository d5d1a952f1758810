"""Construction of distributed graphs, transfers of rows, partitions, refusals.

Ranks are started once for all of these functions, so they are one program.
"""

import contextlib
import os
import pickle
import sys

import numpy as np
import pytest
from mpi4py import MPI

import pyops
from pyops.distributed import Communicator, _communicator, partition

from ...support.graphs import drawn
from .shares import cuts


def square(comm, nodes, entries, seed):
    """Return the edges of a random graph, all and those given by this rank, and its nodes."""
    rng = np.random.default_rng(seed)
    whole = drawn(nodes, nodes, entries, seed)
    first, last = cuts(rng, nodes, comm.size)[comm.rank : comm.rank + 2].tolist()
    start, stop = cuts(rng, entries, comm.size)[comm.rank : comm.rank + 2]
    return whole, slice(start, stop), (first, last), rng


def moved():
    """Any owner per node: rows fetched by `take` give the results of the whole graph."""
    comm = Communicator()
    for seed in range(12):
        whole, given, (first, last), rng = square(comm, 40, 150, seed)
        x, e = rng.standard_normal((40, 3)), rng.standard_normal((150, 2))
        part = rng.integers(0, max(1, comm.size - seed % 2), 40)
        graph = comm.graph(
            whole.src[given], whole.dst[given], owned=(first, last), part=part[first:last]
        )
        assert (part[graph.nodes] == comm.rank).all()
        assert (graph.edges == np.flatnonzero(part[whole.dst] == comm.rank)).all()
        own_x, own_e = comm.take(x[first:last], graph.nodes), comm.take(e[given], graph.edges)
        assert (own_x == x[graph.nodes]).all()
        assert (own_e == e[graph.edges]).all()
        assert (comm.take(own_e, graph.edge_places) == e[given]).all()
        assert (pyops.edge_to_edge(graph, own_e) == pyops.edge_to_edge(whole, e)[graph.edges]).all()
        for reduce in "sum", "max":
            y = pyops.aggregate(graph, own_x, own_e, own=own_x, reduce=reduce)
            expected = pyops.aggregate(whole, x, e, own=x, reduce=reduce)
            assert (y == expected[graph.nodes]).all()
            assert (comm.take(y, graph.places) == expected[first:last]).all()
        same = comm.graph(
            whole.src[given],
            whole.dst[given],
            owned=(first, last),
            part=np.full(last - first, comm.rank),
        )
        assert (same.nodes == np.arange(first, last)).all()
        y = pyops.aggregate(same, x[first:last])
        assert (y == pyops.aggregate(whole, x)[first:last]).all()


def bipartite_moved():
    """Sources and destinations that are different nodes are moved each by its own partition."""
    comm = Communicator()
    rng = np.random.default_rng(5)
    whole = drawn(30, 20, 100)
    own = [tuple(cuts(rng, n, comm.size)[comm.rank : comm.rank + 2].tolist()) for n in (20, 30)]
    given = slice(*cuts(rng, 100, comm.size)[comm.rank : comm.rank + 2])
    parts = [rng.integers(0, comm.size, n)[slice(*r)] for n, r in zip((20, 30), own, strict=True)]
    graph = comm.graph(
        whole.src[given],
        whole.dst[given],
        owned=own[0],
        owned_src=own[1],
        part=parts[0],
        part_src=parts[1],
    )
    x = rng.standard_normal((30, 3))
    y = pyops.aggregate(graph, x[graph.sources])
    assert (y == pyops.aggregate(whole, x)[graph.nodes]).all()
    full = comm.take(x[slice(*own[1])], graph.sources)
    assert (full == x[graph.sources]).all()
    assert (comm.take(full, graph.source_places) == x[slice(*own[1])]).all()


def transposed():
    """<exchange x, z> = <x, accumulate z>, exactly for integers, for all dtypes and shapes."""
    comm = Communicator()
    rng = np.random.default_rng(comm.rank)
    for seed in range(6):
        whole, _, (first, last), _ = square(comm, 30, 90, seed)
        own = (whole.dst >= first) & (whole.dst < last)
        graph = comm.graph(whole.src[own], whole.dst[own], owned=(first, last))
        for dtype, shape in (
            (np.float32, (3,)),
            (np.float64, ()),
            (np.int64, (2, 2)),
            ("i4", (0,)),
        ):
            x = rng.integers(-9, 9, (graph.num_src, *shape)).astype(dtype)
            z = rng.integers(-9, 9, (graph.local.num_src, *shape)).astype(dtype)
            full, back = graph.exchange(x), graph.accumulate(z)
            assert (full.dtype, back.dtype, back.shape) == (x.dtype, x.dtype, x.shape)
            left, right = comm.sum(float((full * z).sum())), comm.sum(float((x * back).sum()))
            assert left == right
        numbers = graph.exchange(np.arange(first, last))
        assert (numbers[graph.local.src] == whole.src[own]).all()
        assert (np.diff(numbers) > 0).all()
        assert graph.num_ghosts == len(numbers) - (last - first)


def messages():
    """A call sends one message to each neighbour, of the rows of ghosts alone."""
    comm = Communicator()
    whole, _, (first, last), rng = square(comm, 40, 200, 3)
    own = (whole.dst >= first) & (whole.dst < last)
    graph = comm.graph(whole.src[own], whole.dst[own], owned=(first, last))
    key, value = (rng.standard_normal((40, 1, w))[first:last] for w in (3, 3))
    sent = []
    engine = type(comm._engine)
    right = engine.exchange

    def counted(self, outgoing, to, incoming, source):
        sent.append((len(to), outgoing.nbytes, len(source), incoming.nbytes))
        return right(self, outgoing, to, incoming, source)

    engine.exchange = counted
    pyops.transformer_conv(graph, key, key, value, heads=1)
    engine.exchange = right
    neighbours = np.unique(np.searchsorted(graph._sources.ranges, graph._halo.ghosts, "right"))
    ((_, outgoing, received, incoming),) = sent
    assert received == len(neighbours)
    assert incoming == graph.num_ghosts * 6 * 8
    assert comm.sum(outgoing) == comm.sum(incoming)


def edge_ids():
    """Edge ids of the rank's own rows, and of rows that all ranks have."""
    comm = Communicator()
    rng = np.random.default_rng(7)
    whole = drawn(20, 20, 80)
    ranges = cuts(rng, 20, comm.size)
    first, last = ranges[comm.rank : comm.rank + 2].tolist()
    own = np.flatnonzero((whole.dst >= first) & (whole.dst < last))
    graph = comm.graph(whole.src[own], whole.dst[own], owned=(first, last))
    x, gy = rng.standard_normal((20, 3)), rng.standard_normal((20, 12))
    types, weight = rng.integers(0, 5, 80), rng.standard_normal((6, 4))
    relations = whole.with_edge_ids(types, 6)
    part = graph.with_edge_ids(types[own], 6, replicated=True)
    expected = pyops.hetero_basis.backward(relations, x, weight, gy)
    got = pyops.hetero_basis.backward(part, x[first:last], weight, gy[first:last])
    assert np.allclose(got[0], expected[0][first:last], 1e-12, 1e-12)
    assert np.allclose(got[1], expected[1], 1e-12, 1e-12)
    assert graph.with_edge_ids(types[own], replicated=True).num_edges == 1 + types.max()
    # Rows of edges that two entries share: entry k of a destination has its row k % 2.
    owner = np.searchsorted(ranges[1:-1], whole.dst, side="right")
    pairs = 2 * whole.dst + np.arange(80) % 2
    ids = pairs - 2 * ranges[owner]
    e = rng.standard_normal((40, 3))
    shared = graph.with_edge_ids(ids[own], 2 * (last - first), replicated=False)
    undirected, gy = whole.with_edge_ids(pairs, 40), np.ascontiguousarray(gy[:, :3])
    expected = pyops.aggregate.backward(undirected, None, e, None, None, gy)
    rows = slice(2 * first, 2 * last)
    got = pyops.aggregate.backward(shared, None, e[rows], None, None, gy[first:last])
    assert (got[1] == expected[1][rows]).all()


def mesh(size):
    """Return points of a grid and its edges in both directions."""
    grid = np.stack(np.meshgrid(*[np.arange(size)] * 3, indexing="ij"), -1).reshape(-1, 3)
    number = np.arange(size**3).reshape([size] * 3)
    one = [np.stack([number[:-1].ravel(), number[1:].ravel()])]
    one += [np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()])]
    one += [np.stack([number[:, :, :-1].ravel(), number[:, :, 1:].ravel()])]
    ends = np.concatenate(one, 1)
    return grid, np.concatenate([ends, ends[::-1]], 1)


def partitions():
    """Parts are equal, cut few edges, and by coordinates depend on no number of ranks."""
    comm = Communicator()
    points, (src, dst) = mesh(12)
    nodes = len(points)
    first, last = comm.rank * nodes // comm.size, (comm.rank + 1) * nodes // comm.size
    own = (dst >= first) & (dst < last)
    graph = comm.graph(src[own], dst[own], owned=(first, last))
    for parts, most in ((2, 700), (5, 1500), (8, 2000)):
        part = partition(graph, parts)
        found = np.concatenate(MPI.COMM_WORLD.allgather(part))
        counts = np.bincount(found, minlength=parts)
        assert counts.max() <= 1.2 * nodes / parts
        assert counts.min() >= 0.6 * nodes / parts, counts
        cut = (found[src] != found[dst]).sum()
        assert cut <= most, (parts, cut)
        part = partition(graph, parts, method="coordinates", coordinates=points[first:last] - 5.5)
        found = np.concatenate(MPI.COMM_WORLD.allgather(part))
        counts = np.bincount(found, minlength=parts)
        assert counts.max() - counts.min() <= 3
        assert (found[src] != found[dst]).sum() <= most
        one = Communicator(MPI.COMM_SELF)
        alone = one.graph(src, dst, owned=(0, nodes))
        same = partition(alone, parts, method="coordinates", coordinates=points - 5.5)
        assert (same == found).all()
        one.close()
    part = partition(graph)
    graph = comm.graph(src[own], dst[own], owned=(first, last), part=part)
    x = np.random.default_rng(0).standard_normal((nodes, 2))
    y = pyops.aggregate(graph, x[graph.nodes])
    assert (y == pyops.aggregate(pyops.Graph(src, dst), x)[graph.nodes]).all()
    assert comm.size == 1 or graph.num_ghosts < 400
    empty = comm.graph([], [], owned=(0, 0))
    assert len(partition(empty)) == 0
    points = np.zeros((0, 2))
    assert len(partition(empty, 3, method="coordinates", coordinates=points)) == 0


def sums():
    """Sums of numbers and arrays keep their type."""
    comm = Communicator()
    n = comm.size
    assert comm.sum(2) == 2 * n
    assert type(comm.sum(2)) is int
    assert type(comm.sum(0.5)) is float
    assert type(comm.sum(np.float32(1))) is np.float32
    x = np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::2]
    total = comm.sum(x)
    assert (total == n * x).all()
    assert total.dtype == np.float32
    assert comm.sum(np.uint64(2**63 // n)) == 2**63 // n * n
    for largest in (np.int32(2**31 - 1), np.uint32(2**32 - 1), 2**63 - 1, np.uint64(2**64 - 1)):
        assert comm.sum(largest if comm.rank == 0 else 0 * largest) == largest
        if n > 1:
            with refused(OverflowError, "Communicator.sum: value: expected a sum that"):
                comm.sum(np.atleast_1d(largest))


@contextlib.contextmanager
def refused(kind, text):
    """Assert that all ranks raise the same error; they can go on after it."""
    with pytest.raises(kind) as caught:
        yield
    message = str(caught.value)
    assert text in message, message
    assert len(set(MPI.COMM_WORLD.allgather(message))) == 1, message


def refusals():
    """An error of one rank is raised on all, naming rank, argument, expectation and value."""
    comm = Communicator()
    last = comm.size - 1
    mine = comm.rank == last
    at = f"rank {last}: " if last else ""
    src, dst = comm.rank * 10 + np.arange(20).reshape(2, 10) // 2
    own = comm.rank * 10, comm.rank * 10 + 10
    graph = comm.graph(src, dst, owned=own)
    op, x, e = pyops.aggregate, np.ones((10, 4)), np.ones((10, 2))

    with refused(ValueError, f"{at}aggregate: x: expected shape (num_src=10, x_width), got (9, 4)"):
        op(graph, x[1:] if mine else x)
    with refused(ValueError, f"{at}aggregate: reduce: expected one of"):
        op(graph, x, reduce="maximum" if mine else "sum")
    with refused(ValueError, f"{at}aggregate: reduce: expected names among"):
        op(graph, x, reduce=("max", "maximum" if mine else "std"))
    with refused(TypeError, f"{at}aggregate: x: expected a NumPy array, got str"):
        op(graph, "x" if mine else x)
    with refused(TypeError, f"{at}aggregate: unexpected option 'heads'"):
        op(graph, x, **({"heads": 2} if mine else {}))
    with refused(ValueError, f"{at}aggregate.backward: wanted: expected names"):
        op.backward(graph, x, None, None, None, x, wanted=["y"] if mine else ["x"])
    with refused(ValueError, f"{at}aggregate: out: expected shape (10, 4), got (9, 4)"):
        op(graph, x, out=np.ones((10 - mine, 4)))
    # how an option is written makes no difference
    op(graph, x, **({"reduce": np.str_("sum")} if mine else {}))
    pyops.gat(graph, x, x, np.ones(8), heads=np.int64(2) if mine else 2, negative_slope=0.5)
    if last:
        different = f"rank {last}: aggregate: expected the call of rank 0, aggregate ("
        other = comm.graph(src, dst, owned=own)
        with refused(ValueError, different):
            op(other if mine else graph, x)
        with refused(ValueError, f"rank {last}: DistributedGraph.exchange: x: expected the call"):
            (other if mine else graph).exchange(x)
        with refused(ValueError, different):
            op(graph, x[:, :3] if mine else x)
        with refused(ValueError, different):
            op(graph, x.astype("f") if mine else x)
        with refused(ValueError, different):
            op(graph, x, e if mine else None)
        with refused(ValueError, different):
            op(graph, x, reduce="max" if mine else "sum")
        with refused(ValueError, f"rank {last}: aggregate: expected the call of rank 0"):
            op(graph, x, reduce=("max", "std") if mine else "max")
        with refused(ValueError, "Communicator.sum: expected the call of rank 0"):
            comm.sum(x if mine else 1.0)
        with refused(
            ValueError, f"rank {last}: aggregate: expected the call of rank 0, degree_normalised ("
        ):
            (op if mine else pyops.degree_normalised)(graph, x)

    with refused(IndexError, f"{at}Communicator.graph: dst: expected " + "own nodes" * (last > 0)):
        comm.graph(src, dst + (-10 if last else 10) * mine, owned=own)
    with refused(ValueError, "Communicator.graph: owned: expected ranges that follow"):
        comm.graph(src, dst, owned=(own[0] + 1, own[1] + 1))
    with refused(IndexError, f"{at}Communicator.graph: part: expected indices from 0"):
        comm.graph(src, dst, owned=own, part=np.full(10, comm.size if mine else 0))
    with refused(TypeError, f"{at}Communicator.graph: src: expected int32 or int64"):
        comm.graph(src * 1.0 if mine else src, dst, owned=own)
    with refused(ValueError, f"{at}DistributedGraph.exchange: x: expected num_src=10 rows, got 9"):
        graph.exchange(x[1:] if mine else x)
    with refused(IndexError, f"{at}Communicator.take: numbers: expected"):
        comm.take(x, [10 * comm.size if mine else 0])
    with refused(TypeError, f"{at}DistributedGraph.with_edge_ids: replicated: expected"):
        graph.with_edge_ids(np.zeros(10, int), replicated=None if mine else True)
    typed = graph.with_edge_ids(np.zeros(10, int), 10, replicated=False)
    with refused(ValueError, "edge_to_edge: graph: expected a row for each edge"):
        pyops.edge_to_edge(typed, e)
    bipartite = comm.graph(src, dst, owned=own, owned_src=own)
    with refused(ValueError, "edge_to_edge: graph: expected the same nodes as sources"):
        pyops.edge_to_edge(bipartite, e)
    with refused(IndexError, f"{at}edge_to_edge: reverse: expected indices from -1"):
        reverse = np.full(10, 10 * comm.size if mine else -1)
        pyops.edge_to_edge(graph, e, exclude="image", reverse=reverse)
    with refused(ValueError, "edge_to_edge: reverse: expected"):
        pyops.edge_to_edge(graph, e, exclude="image", reverse=np.full(10, 0))
    with refused(ValueError, "partition: method: expected 'metis' or 'coordinates', got 'random'"):
        partition(graph, 2, method="random")
    with refused(ValueError, "partition: coordinates: expected the coordinates"):
        partition(graph, method="coordinates")
    with pytest.raises(TypeError, match="exp: argument 0: expected an array"):
        pyops.exp(graph)
    with pytest.raises(TypeError, match=r"Communicator: comm: expected mpi4py.MPI.Intracomm"):
        Communicator("world")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(graph)
    assert (op(graph, x)[5:] == 2).all()


def memory():
    """An exception in a kernel of one rank is raised on all ranks."""
    comm = Communicator()
    whole, _, (first, end), rng = square(comm, 30, 90, 1)
    own = (whole.dst >= first) & (whole.dst < end)
    graph = comm.graph(whole.src[own], whole.dst[own], owned=(first, end))
    x = rng.standard_normal((30, 4))[first:end]
    phase = pyops.aggregate._phases["backward"]
    right = phase.run

    def failing(given, *rest):
        if given[0] is graph.local and comm.rank == comm.size - 1:
            raise MemoryError("aggregate.backward: not enough memory for the working arrays")
        return right(given, *rest)

    phase.run = failing
    args = graph, x, None, None, None, x
    with refused(MemoryError, "aggregate.backward: not enough memory"):
        pyops.aggregate.backward(*args)
    phase.run = right
    assert pyops.aggregate.backward(*args)[0].shape == x.shape


def many_forks():
    forks(1000)


def forks(count=20):
    """Forked children call operators; as those of multiprocessing they end by `os._exit`."""
    comm = Communicator()
    ends = comm.rank * 10 + np.arange(20).reshape(2, 10) // 2
    graph = comm.graph(*ends, owned=(comm.rank * 10, comm.rank * 10 + 10))
    x = np.ones((10, 3))
    y = pyops.aggregate(graph, x)
    for _ in range(count):
        if os.fork() == 0:
            os._exit(int((pyops.aggregate(graph.local, x) != y).any()))
        assert os.wait()[1] == 0
        assert (pyops.aggregate(graph, x) == y).all()


def threads():
    """Ranks that may run on the same processors share these, unless the program has set threads."""
    before, has_set = pyops.get_num_threads(), "OMP_NUM_THREADS" in os.environ
    comm = Communicator()
    assert pyops.get_num_threads() == (before if has_set else max(1, before // comm.size))
    pyops.set_num_threads(before)
    Communicator()
    assert pyops.get_num_threads() == before
    pyops.set_num_threads(None)
    chosen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_communicator, "get_num_threads", lambda: 4)
        patch.setattr(_communicator, "set_num_threads", chosen.append)
        for own in range(4), range(4 * comm.rank, 4 * comm.rank + 4), [comm.rank, 9]:
            patch.setattr(os, "sched_getaffinity", lambda _, own=own: set(own))
            Communicator()
    shared = max(1, 4 // comm.size)
    assert chosen == ([] if has_set or comm.size == 1 else [shared, shared])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
