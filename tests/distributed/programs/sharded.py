"""Operators of `pyops.jax` over the devices of one process, against those of NumPy on one.

The functions share `Sharded` and its comparisons, so they are one program.
"""

import os
import re
import sys

DEVICES, NAMES = int(sys.argv[1]), sys.argv[2:]
FLAGS = {
    "xla_force_host_platform_device_count": DEVICES,
    "xla_cpu_collective_call_warn_stuck_timeout_seconds": 300,
    "xla_cpu_collective_call_terminate_timeout_seconds": 600,
}
os.environ["XLA_FLAGS"] = " ".join(f"--{flag}={value}" for flag, value in FLAGS.items())

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import pyops  # noqa: E402
import pyops.jax as pj  # noqa: E402

from ...support import cases  # noqa: E402
from ...support.graphs import drawn, reverses  # noqa: E402

jax.config.update("jax_enable_x64", True)
MESH = Mesh(np.array(jax.devices()), ("ranks",))
OWN, SAME = P("ranks"), P()
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
TOLERANCES = {np.float64: 5e-15, np.float32: 3e-6}
PLAIN = [name for name, op in cases.OPERATORS.items() if op.signature.has_graph]


def quick(function):
    return jax.jit(function, compiler_options=QUICK)


class Sharded:
    """A problem, and the same over devices, of which one in three problems leaves one empty."""

    def __init__(self, problem, seed=0, mesh=MESH):
        self.problem, self.mesh = problem, mesh
        size, rng = mesh.shape["ranks"], np.random.default_rng(seed)
        self.op, graph, options = problem.op, problem.graph, dict(problem.options)
        used = rng.permutation(size)[: max(1, size - (seed % 3 == 0))]
        given = {"part": used[rng.integers(0, len(used), graph.num_dst)]}
        self.reversed = options.get("reverse") is not None
        if self.op.signature.indexed:
            given |= {"pairs": True, "reverse": options.pop("reverse", None)}
        else:
            given |= {"num_src": graph.num_src}
            given |= {"part_src": rng.integers(0, size, graph.num_src)}
        self.graph = pj.distribute(graph.src, graph.dst, graph.num_dst, mesh=mesh, **given)
        if graph._ids is not None:
            self.graph = self.graph.with_edge_ids(graph.edge_ids, graph.num_edges)
        self.options = options
        self.names = [n for n in self.op.signature.inputs if problem.arrays[n] is not None]
        self.specs = OWN, *map(self.spec, self.names)

    def spec(self, name):
        return OWN if self.problem.rows(name) in self.graph._numbers() else SAME

    def array(self, name, dtype=np.float64, padding=0):
        """Return an array of all devices, with this value where rows are padding."""
        array, rows = self.problem.arrays[name].astype(dtype), self.problem.rows(name)
        if self.spec(name) == SAME:
            return jnp.asarray(array)
        mask = self.graph.rows(rows).reshape(-1, *[1] * (array.ndim - 1)) < 0
        return jnp.where(mask, padding, self.graph.shard(array, rows)).astype(dtype)

    def whole(self, name, array):
        """Return the rows of all devices, in their order, and check that padding is zero."""
        rows = self.problem.rows(name)
        if self.spec(name) == SAME:
            return np.asarray(array)
        assert not np.asarray(array)[np.asarray(self.graph.rows(rows)) < 0].any()
        return self.graph.gather(array, rows)

    def local(self, graph, *own, **more):
        """Call the operator on a device, inside shard_map."""
        given = dict(zip(self.names, own, strict=True))
        if self.reversed:
            more["reverse"] = graph.reverse
        inputs = [given.get(name) for name in self.op.signature.inputs]
        return getattr(pj, self.op.name)(graph, *inputs, **self.options, **more)

    def function(self, *given):
        return self.shared(self.local)(self.graph, *given)

    def shared(self, function, **keywords):
        keywords = {"in_specs": self.specs, "out_specs": OWN, **keywords}
        return jax.shard_map(function, mesh=self.mesh, **keywords)


def derivatives(function, given, gy, hs):
    """Return y, gradients, dy, and the second derivatives in both modes."""

    def slopes(gy, *some):
        return jax.vjp(function, *some)[1](gy)

    def along(gy, *some):
        return sum(jnp.vdot(h, g) for h, g in zip(hs, slopes(gy, *some), strict=True))

    y, dy = jax.jvp(function, given, hs)
    first, forward = jax.jvp(lambda *some: slopes(gy, *some), given, hs)
    dgy, *reverse = jax.grad(along, range(1 + len(given)))(gy, *given)
    return y, first, dy, forward, reverse, dgy


def expected(problem):
    """Return the same by NumPy, each a list."""
    *second, dgy = problem.run("double_backward")
    second = [a for a in second if a is not None]
    slopes = [a for a in problem.run("backward") if a is not None]
    return problem.run("forward"), slopes, problem.run("jvp"), second, second, [dgy]


def all_phases(sharded, wrap=quick):
    """Return the program of all phases, for `compare`."""
    return wrap(lambda *some: derivatives(sharded.function, *some))


def compare(sharded, wrap=quick, dtypes=TOLERANCES, condition=1, program=None):
    """Compare all phases; where rows are padding, inputs and cotangents are not numbers."""
    names, label = sharded.names, (sharded.op.name, sharded.options, sharded.problem.graph)
    program = program or all_phases(sharded, wrap)
    for dtype in dtypes:
        given = tuple(sharded.array(n, dtype, np.nan) for n in names)
        hs = tuple(sharded.array("h" + n, dtype) for n in names)
        found = program(given, sharded.array("gy", dtype, np.nan), hs)
        right = expected(sharded.problem.map(lambda a, dtype=dtype: a.astype(dtype)))
        for kind, (some, others) in enumerate(zip(found, right, strict=True)):
            some, which = (some, names) if kind in (1, 3, 4) else ([some], ["gy"])
            scale = max(np.abs(a).max(initial=0) for a in others)
            for name, a, b in zip(which, some, others, strict=True):
                a = sharded.whole(name, a)
                assert (a.dtype, a.shape) == (b.dtype, b.shape), (label, kind, name)
                error = np.abs(a - b).max(initial=0)
                bound = TOLERANCES[dtype] * condition * scale
                assert error <= bound, (label, kind, name, dtype, error, scale)


def of_case(case, seed=0, mesh=MESH):
    """Return the problem of a case; operators on pairs of edges have nodes of one kind."""
    problem = case.problem(seed=seed)
    if problem.op.signature.indexed and problem.graph.num_src != problem.graph.num_dst:
        graph = problem.graph
        nodes = max(graph.num_src, graph.num_dst)
        problem = case.problem(pyops.Graph(graph.src, graph.dst, nodes), seed=seed)
    return Sharded(problem, seed, mesh)


def operators():
    """Every operator, with all optional inputs."""
    for seed, name in enumerate(PLAIN):
        dtypes = TOLERANCES if seed % 3 == 0 else [np.float64]
        compare(of_case(cases.representative(name), seed), dtypes=dtypes)


LARGE = "random", "hubs", "long rows", "many rows", "thousands of rows"
SHARED = "shared edges", "edges without entries"


def graphs():
    """Graphs without nodes, sources or edges, with loops and repeated and shared edges."""
    some = [c for c in cases.CASES if c.op in PLAIN and c.widths == "small"]
    some = [c for c in some if c.graph not in LARGE]
    some = [c for c in some if c.op not in cases.PAIRED or c.graph not in SHARED]
    for seed, case in enumerate(some[:: len(some) // 8]):
        compare(of_case(case, seed), dtypes=[np.float64])


def everything(share, shares):
    """A share of all variants of all operators, and of all cases on these graphs."""
    some = [c for c in cases.VARIANTS + cases.CASES if c.op in PLAIN and c.widths == "small"]
    some = [c for c in some if c.graph not in LARGE[1:]]
    some = [c for c in some if c.op not in cases.PAIRED or c.graph not in SHARED]
    for seed, case in enumerate(some[share::shares]):
        compare(of_case(case, seed))


def needed_by_all():
    """One node has edges to all nodes, and the last device has no edges."""
    nodes = np.arange(20)
    ends = np.concatenate([[np.zeros(20, int), nodes], [nodes, nodes]], 1)
    ends = ends[:, ends[1] < 20 - 20 // DEVICES]
    graph = pyops.Graph(*ends, 20, 20)
    for name in "gno_conv", "transformer_conv", "edge_to_edge":
        case = cases.representative(name)
        compare(Sharded(case.problem(graph), 1), dtypes=[np.float64])


def transformations():
    """Eager evaluation, vmap, loops and rematerialization around and inside shard_map."""
    sharded = of_case(cases.representative("gno_aggregate"), 1)
    function = jax.jit(sharded.function)
    given = tuple(sharded.array(n) for n in sharded.names)
    right, pull_right = jax.vjp(function, *given)
    with jax.disable_jit():
        y, pull = jax.vjp(sharded.function, *given)
        for got, once in zip((y, *pull(right)), (right, *pull_right(right)), strict=True):
            np.testing.assert_allclose(got, once, 1e-14, 1e-14)

    def mapped(graph, *own):
        return jax.vmap(lambda *some: sharded.local(graph, *some))(*own)

    batch = tuple(jnp.stack([a, 2 * a, a + 1]) for a in given)
    several = [jax.vjp(function, *(a[i] for a in batch)) for i in range(3)]
    each = jnp.stack([y for y, _ in several])
    slopes = zip(*(pull(y) for y, pull in several), strict=True)
    slopes = [jnp.stack(some) for some in slopes]
    specs = OWN, *(P(None, *spec) for spec in sharded.specs[1:])
    inside = sharded.shared(mapped, in_specs=specs, out_specs=P(None, "ranks"))
    for way in lambda *some: inside(sharded.graph, *some), jax.vmap(sharded.function):
        y, pull = jax.vjp(jax.jit(way), *batch)
        for got, one in zip((y, *pull(each)), (each, *slopes), strict=True):
            np.testing.assert_allclose(got, one, 1e-12, 1e-12)

    def looped(graph, *own):
        def step(total, scale):
            return total + jax.checkpoint(sharded.local)(graph, *own) * scale, None

        start = jnp.zeros_like(sharded.local(graph, *own))
        return jax.lax.scan(step, start, jnp.array([1.0, 2.0]))[0]

    y, pull = jax.vjp(jax.jit(lambda *s: sharded.shared(looped)(sharded.graph, *s)), *given)
    for got, once in zip((y, *pull(right)), (right, *pull_right(right)), strict=True):
        np.testing.assert_allclose(got, 3 * once, 1e-12, 1e-12)


def inside():
    """Derivatives inside shard_map are those of the sum over devices; see `jax.lax.psum`."""
    for name in "gno_conv", "gat":
        compare_inside(of_case(cases.representative(name), 1))


def compare_inside(sharded):
    given = tuple(sharded.array(n) for n in sharded.names)
    places = range(len(given))

    def local(graph, *own):
        return (sharded.local(graph, *own) ** 2).sum()

    def total(*args):
        return jax.lax.psum(local(*args), "ranks")

    right = quick(jax.grad(lambda *some: (sharded.function(*some) ** 2).sum(), places))(*given)
    for function in local, total:

        def slopes(graph, *own, function=function):
            return jax.grad(lambda *some: function(graph, *some), places)(*own)

        found = quick(sharded.shared(slopes, out_specs=sharded.specs[1:]))(sharded.graph, *given)
        for a, b in zip(found, right, strict=True):
            np.testing.assert_allclose(a, b, 1e-13, 1e-13)


def attention():
    """Attention weights are those of the own entries."""
    for name in "gat", "gat_v2", "transformer_conv":
        sharded = of_case(cases.representative(name), 1)
        weighted = sharded.shared(
            lambda *args, s=sharded: s.local(*args, return_attention=True), out_specs=(OWN, OWN)
        )
        given = [sharded.array(n, padding=np.nan) for n in sharded.names]
        y, alpha = quick(weighted)(sharded.graph, *given)
        right = sharded.problem.run("forward", return_attention=True)
        np.testing.assert_allclose(sharded.whole("gy", y), right[0], 1e-13, 1e-14)
        np.testing.assert_allclose(sharded.graph.gather(alpha, "num_entries"), right[1], 1e-13)


def axes():
    """A mesh of two axes: graphs along one, samples along the other, parameters on all devices."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, DEVICES // 2), ("samples", "ranks"))
    sharded = of_case(cases.representative("gno_conv"), 1, mesh)
    x, e, p = (sharded.array(n) for n in sharded.names)
    xs = jnp.stack([x, 2 * x])

    def local(graph, x, e, p):
        return sharded.local(graph, x[0], e, p)[None]

    specs = OWN, P("samples", "ranks"), OWN, SAME
    both = sharded.shared(local, in_specs=specs, out_specs=P("samples", "ranks"))
    y, pull = jax.vjp(jax.jit(lambda *some: both(sharded.graph, *some)), xs, e, p)
    found = [jax.vjp(jax.jit(sharded.function), x, e, p) for x in xs]
    slopes = [pull(a) for (_, pull), a in zip(found, y, strict=True)]
    right = jnp.stack([g[0] for g in slopes]), *(sum(g[i] for g in slopes) for i in (1, 2))
    np.testing.assert_allclose(y, jnp.stack([a for a, _ in found]), 1e-14, 1e-14)
    for a, b in zip(pull(y), right, strict=True):
        np.testing.assert_allclose(a, b, 1e-12, 1e-12)


def rows():
    """Rows in and out, their numbers, and the two transposed transfers."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        whole = drawn(23, 23, 80, seed)
        part = rng.integers(0, DEVICES - seed % 2, 23)
        graph = pj.distribute(whole.src, whole.dst, 23, mesh=MESH, part=part)
        x, e = rng.standard_normal((23, 2, 3)), rng.integers(0, 9, 80)
        assert (graph.gather(graph.shard(x, "num_src"), "num_dst") == x).all()
        assert (graph.gather(graph.shard(e, "num_edges"), "num_entries") == e).all()
        numbers = np.asarray(graph.rows("num_src")).reshape(DEVICES, -1)
        for rank, own in enumerate(numbers):
            assert (own[own >= 0] == np.flatnonzero(part == rank)).all()
        compare_transfers(whole, graph, x)
        ghosts = {(part[i], j) for i, j in zip(whole.dst, whole.src, strict=True)}
        ghosts = [j for rank, j in ghosts if part[j] != rank]
        across = jax.shard_map(lambda g, x: g.exchange(x), mesh=MESH, in_specs=OWN, out_specs=OWN)
        full = np.asarray(quick(across)(graph, graph.shard(np.arange(1, 24), "num_src")))
        assert sorted(full[full > 0]) == sorted([*range(1, 24), *(j + 1 for j in ghosts)])


def compare_transfers(whole, graph, x):
    def differences(graph, x):
        src, dst = graph.local.indices
        ends = jnp.concatenate([x, jnp.zeros_like(x[:1])])
        return graph.exchange(x)[src] - ends[dst]

    own = graph.shard(x, "num_src")
    across = jax.jit(jax.shard_map(differences, mesh=MESH, in_specs=OWN, out_specs=OWN))
    y, pull = jax.vjp(lambda x: across(graph, x), own)
    right = x[whole.src] - x[whole.dst]
    assert (graph.gather(y, "num_edges") == right).all()
    slopes = np.zeros_like(x)
    np.add.at(slopes, whole.src, right)
    np.add.at(slopes, whole.dst, -right)
    np.testing.assert_allclose(graph.gather(pull(y)[0], "num_src"), slopes, 1e-13, 1e-13)

    def products(graph, x, rank):
        full = graph.exchange(x)
        other = jnp.sin(jnp.arange(full.size).reshape(full.shape) + 7 * rank[0])
        sums = (full * other).sum(), (x * graph.accumulate(other)).sum()
        return jnp.stack([jax.lax.psum(s, "ranks") for s in sums])

    across = jax.shard_map(products, mesh=MESH, in_specs=OWN, out_specs=SAME)
    a, b = quick(across)(graph, own, jnp.arange(DEVICES))
    np.testing.assert_allclose(a, b, 1e-13)


def ranges():
    """Ranges of nodes of any lengths, equal ones by default; other nodes as sources."""
    whole = drawn(11, 30, 60)
    cuts = np.sort(np.random.default_rng(0).integers(0, 12, DEVICES - 1))
    x = np.random.default_rng(1).standard_normal((11, 3))
    for some in {"ranges_src": [0, *cuts, 11]}, {"part_src": np.zeros(11, int)}, {}:
        graph = pj.distribute(whole.src, whole.dst, 30, num_src=11, mesh=MESH, **some)
        function = jax.shard_map(pj.aggregate, mesh=MESH, in_specs=OWN, out_specs=OWN)
        y = graph.gather(function(graph, graph.shard(x, "num_src")), "num_dst")
        np.testing.assert_allclose(y, pyops.aggregate(whole, x), 1e-14, 1e-14)
        assert len(jax.tree.leaves(graph)) == 7
    equal = np.asarray(graph.rows("num_dst")).reshape(DEVICES, -1).max(1) + 1
    assert equal.tolist() == [30 * (r + 1) // DEVICES for r in range(DEVICES)]


def programs():
    """Graphs of equal sizes share a compiled program, of which they are arguments."""
    traces = []

    def squares(graph, x):
        traces.append(graph)
        return pj.aggregate(graph, x) ** 2

    across = quick(jax.shard_map(squares, mesh=MESH, in_specs=OWN, out_specs=OWN))
    nodes = np.arange(4 * DEVICES)
    x = np.random.default_rng(0).standard_normal((len(nodes), 3))
    for shift in 1, -1:
        graph = pj.distribute(np.roll(nodes, shift), nodes, len(nodes), mesh=MESH)
        y = graph.gather(across(graph, graph.shard(x, "num_src")), "num_dst")
        assert (y == np.roll(x, shift, 0) ** 2).all()
    assert len(traces) == 1


def refusals():
    """Errors name the argument, what was expected, and what was given."""
    src, dst = np.arange(20).reshape(2, 10) // 2
    own = {"mesh": MESH}

    def refused(kind, text, function, *args, **keywords):
        with pytest.raises(kind, match=re.escape(text)):
            function(*args, **keywords)

    distribute, at = pj.distribute, "distribute: "
    refused(TypeError, at + "mesh: expected jax.sharding.Mesh", distribute, src, dst, 10, mesh=2)
    text = "axis: expected an axis of the mesh ('ranks'), got 'rows'"
    refused(ValueError, at + text, distribute, src, dst, 10, **own, axis="rows")
    text = "src and dst: expected equal lengths, got 9 and 10"
    refused(ValueError, at + text, distribute, src[1:], dst, 10, **own)
    refused(IndexError, at + "dst: expected indices", distribute, src, dst, 7, **own)
    refused(IndexError, at + "src: expected indices", distribute, src, dst, 10, **own, num_src=3)
    refused(TypeError, at + "src: expected int32 or int64", distribute, src / 2, dst, 10, **own)
    text = "part: expected shape (10,), got (9,)"
    refused(ValueError, at + text, distribute, src, dst, 10, **own, part=src[1:])
    text = f"part: expected indices from 0 to number of devices-1={DEVICES - 1}"
    refused(IndexError, at + text, distribute, src, dst, 10, **own, part=np.full(10, DEVICES))
    text = f"ranges: expected {DEVICES + 1} numbers from 0 to 10 that do not decrease, got [0, 10]"
    refused(ValueError, at + text, distribute, src, dst, 10, **own, ranges=[0, 10])
    text = "part and ranges: expected one, got both"
    both = {"part": src, "ranges": [0, 10]}
    refused(ValueError, at + text, distribute, src, dst, 10, **own, **both)
    text = "part_src: expected None without num_src"
    refused(ValueError, at + text, distribute, src, dst, 10, **own, part_src=src)
    text = "num_src: expected None with pairs"
    refused(ValueError, at + text, distribute, src, dst, 10, **own, num_src=10, pairs=True)
    text = "reverse: expected None without pairs"
    refused(ValueError, at + text, distribute, src, dst, 10, **own, reverse=src)
    text = "reverse: expected the reverse of an edge to run from its destination to its source"
    wrong = np.full(10, 99)
    refused(ValueError, at + text, distribute, src, dst, 10, **own, pairs=True, reverse=wrong)
    text = "reverse: expected the reverse of an edge"
    wrong = np.arange(10)
    refused(ValueError, at + text, distribute, src, dst, 10, **own, pairs=True, reverse=wrong)

    graph = distribute(src, dst, 10, **own)
    x, label = graph.shard(np.ones((10, 4)), "num_src"), "pyops.jax.aggregate: "
    expected = "graph: expected a call inside jax.shard_map over the mesh axis 'ranks'"
    refused(ValueError, label + expected, pj.aggregate, graph, x)
    refused(ValueError, label + expected, jax.jit(pj.aggregate), graph, x)

    def over(function, *args, mesh=MESH, specs=OWN, **keywords):
        keywords |= {"in_specs": specs, "out_specs": P(mesh.axis_names[0])}
        return jax.shard_map(function, mesh=mesh, **keywords)(*args)

    other = Mesh(np.array(jax.devices()), ("rows",))
    refused(ValueError, label + expected, over, pj.aggregate, graph, x, mesh=other, specs=P("rows"))
    few = Mesh(np.array(jax.devices()[:1]), ("ranks",))
    text = f"graph: expected the mesh axis 'ranks' with the {DEVICES} devices of the graph, got 1"
    given = jax.device_put((graph, x), jax.devices()[0])
    refused(ValueError, label + text, over, pj.aggregate, *given, mesh=few)
    text = "graph: expected the block of a device, got those of all"
    refused(ValueError, label + text, over, pj.aggregate, graph, x, specs=(SAME, OWN))
    refused(ValueError, label + text, over, lambda x: pj.aggregate(graph, x), x)
    text = "graph: expected jax.shard_map with check_vma=True, got False"
    refused(ValueError, label + text, over, pj.aggregate, graph, x, check_vma=False)
    text = f"x: expected num_src={graph.num_src} rows of a device, got {graph.num_src - 1}"
    refused(ValueError, label + text, over, lambda g, x: pj.aggregate(g, x[1:]), graph, x)
    text = "gno_conv: coords: expected shape"
    with pytest.raises(ValueError, match=text):
        over(lambda g, x: pj.gno_conv(g, x, jnp.ones(g.num_edges), x[0], hidden=3), graph, x)
    text = "pyops.jax.edge_to_edge: graph: expected one made by pyops.jax.distribute with pairs"
    refused(ValueError, text, over, lambda g: pj.edge_to_edge(g, jnp.ones((g.num_edges, 2))), graph)
    text = "DistributedGraph.reverse: expected a graph made with `reverse`, got one without"
    refused(ValueError, text, lambda: graph.reverse)
    paired = distribute(src, dst, 10, **own, pairs=True, reverse=reverses(pyops.Graph(src, dst)))
    text = "pyops.jax.edge_to_edge: reverse: expected graph.reverse, got another array"
    options = {"exclude": "image", "reverse": np.full(paired.num_edges, -1)}
    one = lambda g: pj.edge_to_edge(g, jnp.ones((g.num_edges, 2)), **options)  # noqa: E731
    refused(ValueError, text, over, one, paired)
    typed = paired.with_edge_ids(np.zeros(10, int), 2)
    text = "pyops.jax.edge_to_edge: graph: expected a row for each edge, got one with edge ids"
    refused(ValueError, text, over, lambda g: pj.edge_to_edge(g, jnp.ones((2, 2))), typed)
    text = "edge: expected num_edges=2 rows of a device, got 3"
    refused(ValueError, text, over, lambda g: pj.aggregate(g, None, jnp.ones((3, 2))), typed)

    at = "DistributedGraph."
    text = "shard: values: expected 10 rows for num_dst, got 9 rows"
    refused(ValueError, at + text, graph.shard, np.ones(9), "num_dst")
    text = "rows: axis: expected one of num_src, num_dst, num_entries, num_edges, got 'nodes'"
    refused(ValueError, at + text, graph.shard, np.ones(10), "nodes")
    text = "rows: axis: expected one of num_src, num_dst, num_entries, got 'num_edges'"
    refused(ValueError, at + text, typed.shard, np.ones(10), "num_edges")
    refused(TypeError, at + "shard: values", jax.jit(lambda x: graph.shard(x, "num_src")), src)
    text = "shard: graph: expected a call outside of functions that JAX transforms"
    refused(ValueError, at + text, jax.jit(lambda g: g.shard(src, "num_src")), graph)
    text = f"gather: array: expected {DEVICES * graph.num_src} rows for num_src, got shape (9,)"
    refused(ValueError, at + text, graph.gather, jnp.ones(9), "num_src")
    refused(TypeError, at + "gather: array: expected a jax.Array", graph.gather, src, "num_src")
    text = "with_edge_ids: edge_ids: expected length 10, got 9"
    refused(ValueError, at + text, graph.with_edge_ids, np.zeros(9, int), 3)
    text = "with_edge_ids: edge_ids: expected indices from 0 to num_edges-1=2, got 3 at 0"
    refused(IndexError, at + text, graph.with_edge_ids, np.full(10, 3), 3)
    text = "exchange: graph: expected a call inside jax.shard_map"
    refused(ValueError, at + text, graph.exchange, x)
    refused(TypeError, "DistributedGraph: made by pyops.jax.distribute alone", pj.DistributedGraph)


if __name__ == "__main__":
    for name in NAMES:
        function, *arguments = name.split(":")
        globals()[function](*map(int, arguments))
