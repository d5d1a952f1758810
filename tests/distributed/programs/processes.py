"""Operators of `pyops.jax` over devices of several processes, each of which has its own edges."""

import os
import sys

RANK, SIZE, PORT, DEVICES = map(int, sys.argv[1:5])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import pyops  # noqa: E402
import pyops.jax as pj  # noqa: E402

from ...support import cases  # noqa: E402
from ...support.graphs import drawn  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{PORT}", SIZE, RANK)
MESH = Mesh(np.array(jax.devices()), ("ranks",))
OWN, SAME = P("ranks"), P()
RANKS = SIZE * DEVICES
TOLERANCE = 5e-15


def operators():
    """Values, gradients and products with Hessians; the last process has no edges into nodes."""
    for seed, name in enumerate(["gno_conv", "degree_normalised", "edge_to_edge", "hetero_basis"]):
        graph = drawn(23, 23 - seed % 2, 70, seed)
        graph = pyops.Graph(graph.src, graph.dst, 23)
        if name == "hetero_basis":
            graph = graph.with_edge_ids(np.arange(70) % 3, 3)
        compare(name, graph, np.random.default_rng(seed))


def compare(name, whole, rng):
    problem = cases.representative(name).problem(whole)
    op, options = problem.op, dict(problem.options)
    ranges = np.sort([0, 23, *rng.integers(0, 24, RANKS - 1)])
    owner = np.searchsorted(ranges[1:-1], whole.dst, side="right") // DEVICES
    edges = [rng.permutation(np.flatnonzero(owner == p)) for p in range(SIZE)]
    own = edges[RANK]
    given = {"ranges": ranges}
    if op.signature.indexed:
        numbers = np.empty(70, int)
        numbers[np.concatenate(edges)] = np.arange(70)
        reverse = options.pop("reverse")
        given |= {"pairs": True, "reverse": np.where(reverse < 0, -1, numbers[reverse])[own]}
    graph = pj.distribute(whole.src[own], whole.dst[own], 23, mesh=MESH, **given)
    if whole._ids is not None:
        graph = graph.with_edge_ids(whole.edge_ids[own], 3)
    nodes = slice(*ranges[RANK * DEVICES :: DEVICES][:2])
    rows = {"num_src": nodes, "num_dst": nodes, "num_entries": own, "num_edges": own}
    rows = {axis: some for axis, some in rows.items() if axis in graph._numbers()}
    names = [n for n in op.signature.inputs if problem.arrays[n] is not None]

    def spread(name):
        axis, array = problem.rows(name), problem.arrays[name]
        if axis in rows:
            return graph.shard(array[rows[axis]], axis)
        return jax.device_put(array, NamedSharding(MESH, SAME))

    def local(graph, *own):
        more = {"reverse": graph.reverse} if op.signature.indexed else {}
        held = dict(zip(names, own, strict=True))
        inputs = [held.get(n) for n in op.signature.inputs]
        return getattr(pj, name)(graph, *inputs, **options, **more)

    specs = [OWN if problem.rows(n) in rows else SAME for n in names]
    across = jax.shard_map(local, mesh=MESH, in_specs=(OWN, *specs), out_specs=OWN)

    @jax.jit
    def program(graph, given, gy, hs):
        def slopes(*some):
            return jax.vjp(lambda *s: across(graph, *s), *some)[1](gy)

        return across(graph, *given), *jax.jvp(slopes, given, hs)

    inputs, hs = (tuple(spread(p + n) for n in names) for p in ("", "h"))
    y, slopes, second = program(graph, inputs, spread("gy"), hs)
    *right, _ = problem.run("double_backward")
    compare_rows(graph, rows, problem, ["gy"], [y], problem.run("forward"))
    compare_rows(graph, rows, problem, names, slopes, problem.run("backward"))
    compare_rows(graph, rows, problem, names, second, right)


def compare_rows(graph, rows, problem, names, found, right):
    right = [a for a in right if a is not None]
    scale = max(np.abs(a).max(initial=0) for a in right)
    for name, a, b in zip(names, found, right, strict=True):
        axis = problem.rows(name)
        if axis in rows:
            a, b = graph.gather(a, axis), b[rows[axis]]
        else:
            a = np.asarray(a.addressable_data(0))
        assert a.shape == b.shape
        assert np.abs(a - b).max(initial=0) <= TOLERANCE * scale, (problem.op.name, name)


def refusals():
    """An error of one process is raised on all, and they can go on after it."""
    last = RANK == SIZE - 1
    first, end = (10 * r // SIZE for r in (RANK, RANK + 1))
    dst = np.arange(first, end)

    def refused(kind, text, function, *args, **keywords):
        with pytest.raises(kind) as caught:
            function(*args, **keywords)
        assert text in str(caught.value), str(caught.value)

    at = f"process {SIZE - 1}: distribute: "
    text = "dst: expected nodes of the devices of this process, got 0 at 0, of device 0"
    given = dst - first * last
    refused(IndexError, at + text, pj.distribute, dst, given, 10, mesh=MESH)
    text = "src: expected int32 or int64, got float64"
    given = dst * 1.0 if last else dst
    refused(TypeError, at + text, pj.distribute, given, dst, 10, mesh=MESH)
    text = "expected the same in all processes, got others in process"
    ranges = [0, *[10 - last] * (RANKS - 1), 10]
    none = np.zeros(0, int)
    refused(ValueError, text, pj.distribute, none, none, 10, mesh=MESH, ranges=ranges)
    text = "distribute: part: expected None if there are several processes, got parts"
    part = np.zeros(10, int)
    refused(ValueError, text, pj.distribute, dst, dst, 10, mesh=MESH, part=part)
    graph = pj.distribute(dst, dst, 10, mesh=MESH)
    at = f"process {SIZE - 1}: DistributedGraph."
    x = np.ones(end - first)
    text = f"shard: values: expected {len(x)} rows for num_src, got {len(x) - 1} rows"
    refused(ValueError, at + text, graph.shard, x[1:] if last else x, "num_src")
    text = "with_edge_ids: num_edges: expected the same in all processes, got [3, 4]"
    refused(ValueError, text, graph.with_edge_ids, np.zeros(len(x), int), 3 + last)
    text = "gather: array: expected rows sharded over the mesh axis 'ranks' alone"
    same = jax.device_put(np.ones(RANKS * graph.num_src), NamedSharding(MESH, SAME))
    refused(ValueError, text, graph.gather, same, "num_src")
    double = jax.jit(lambda x: 2 * x)
    assert (graph.gather(double(graph.shard(x, "num_src")), "num_dst") == 2 * x).all()


if __name__ == "__main__":
    operators()
    refusals()
    jax.distributed.shutdown()
