"""Operators, maps, layers and samplers of `pyops.torch` on the ranks of a process group."""

import contextlib
import copy
import datetime
import functools
import os
import pickle
import signal
import sys
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import pyops
import pyops.torch as pt
from pyops.distributed import Communicator, partition
from pyops.torch import nn

from ...support import cases
from ...support.graphs import drawn
from .operators import TOLERANCES, compare, first_axes
from .shares import Shares, cuts, shared_problem
from .tensor_points import inside, over_points, over_rows

__all__ = ["inside", "over_points", "over_rows"]
NAMES = [name for name, op in cases.OPERATORS.items() if op.signature.has_graph]


class Example:
    """A problem, the rank's shares of it, and its operator on tensors."""

    def __init__(self, comm, case, seed=0, dtype=np.float64):
        problem, self.shares = shared_problem(comm, case, seed)
        self.comm, self.case = comm, case
        self.whole = problem.map(lambda a: a.astype(dtype))
        self.own = self.shares.of_problem(self.whole)
        self.names = [n for n in problem.op.signature.inputs if problem.arrays[n] is not None]
        self.gy = torch.tensor(self.own.arrays["gy"])
        self.tangents = [torch.tensor(self.own.arrays["h" + n]) for n in self.names]

    def tensors(self, **keywords):
        return [torch.tensor(self.own.arrays[n], **keywords) for n in self.names]

    def __call__(self, *tensors):
        given = dict(zip(self.names, tensors, strict=True))
        inputs = [given.get(n) for n in self.own.op.signature.inputs]
        options = self.own.options
        return getattr(pt, self.own.op.name)(self.own.graph, *inputs, **options)

    def share(self, name):
        """Return what each rank adds of a value that all ranks hold, to count it once."""
        return 1 if self.own.rows(name) in self.shares.rows else 1 / self.comm.size

    def agrees(self, phase, found):
        """Compare the results of a phase with those of one rank on the whole graph."""
        several = phase.endswith("backward")
        every = [*self.own.op.signature.inputs, "gy"] if several else ["y"]
        given = [*self.names, "gy"] if several else ["y"]
        held = dict(zip(given, found, strict=False))
        expected = self.whole.run(phase)
        largest = max(np.abs(e).max(initial=0) for e in expected if e is not None)
        axes = first_axes(self.own.op, phase)
        for name, axis, value in zip(every, axes, expected, strict=False):
            if value is None:
                assert name not in held
                continue
            value = self.shares.of(axis, value)
            got = np.zeros_like(value) if held[name] is None else held[name].detach().numpy()
            assert (got.dtype, got.shape) == (value.dtype, value.shape), (self.case, phase, name)
            error = np.abs(got - value).max(initial=0)
            tolerance = TOLERANCES[value.dtype.type]
            assert error <= tolerance * largest, (str(self.case), phase, name, error, largest)


def compare_tensors(comm, case, seed, dtype=np.float64):
    """Forward, backward, double backward and jvp against one rank."""
    example = Example(comm, case, seed, dtype)
    inputs = example.tensors(requires_grad=True)
    gy = example.gy.clone().requires_grad_()
    y = example(*inputs)
    example.agrees("forward", [y])
    gradients = torch.autograd.grad(y, inputs, gy, create_graph=True)
    example.agrees("backward", gradients)
    shares = [example.share(n) for n in example.names]
    parts = zip(gradients, example.tangents, shares, strict=True)
    total = sum((g * h).sum() * share for g, h, share in parts)
    second = torch.autograd.grad(total, [*inputs, gy], allow_unused=True)
    example.agrees("double_backward", second)
    constants = example.tensors()
    y, dy = torch.func.jvp(example, tuple(constants), tuple(example.tangents))
    example.agrees("forward", [y])
    example.agrees("jvp", [dy])


def plain(some):
    """Return the cases that a distributed graph takes."""
    shared = "shared edges", "edges without entries"
    some = [c for c in some if cases.OPERATORS[c.op].signature.has_graph]
    return [c for c in some if c.op not in cases.PAIRED or c.graph not in shared]


def operators(comm):
    """Every plain operator with all options, in forward, backward, double backward and jvp."""
    for number, case in enumerate(plain(cases.VARIANTS)):
        compare_tensors(comm, case, number)
    for name in NAMES:
        compare_tensors(comm, cases.representative(name), 1, np.float32)


def graphs(comm):
    """The same on graphs without nodes or edges, with long rows, loops and shared edges."""
    large = "random", "hubs", "many rows", "thousands of rows"
    some = [c for c in cases.CASES if c.widths == "small" and c.graph not in large]
    for number, case in enumerate(plain(some)[::3]):
        compare_tensors(comm, case, number)


def arrays(comm):
    """NumPy operators, checks of gradients, partitions and rows that are taken."""
    for number, name in enumerate(NAMES):
        case = cases.representative(name)
        compare(comm, case, number)
        if name in ("gat", "kernel_conv", "dimenet_aggregate"):
            problem, shares = shared_problem(comm, case, 2)
            part = shares.of_problem(problem)
            pyops.testing.check_gradients(problem.op, *part.arguments("forward"), **part.options)
    rng = np.random.default_rng(0)
    whole, points = drawn(40, 40, 150), rng.standard_normal((40, 2))
    first, last = cuts(rng, 40, comm.size)[comm.rank : comm.rank + 2].tolist()
    start, stop = cuts(rng, 150, comm.size)[comm.rank : comm.rank + 2]
    ends = whole.src[start:stop], whole.dst[start:stop]
    own = (whole.dst >= first) & (whole.dst < last)
    graph = comm.graph(whole.src[own], whole.dst[own], owned=(first, last))
    part = partition(graph, method="coordinates", coordinates=points[first:last])
    one = Communicator(dist.new_group([comm.rank], use_local_synchronization=True))
    alone = one.graph(whole.src, whole.dst, owned=(0, 40))
    same = partition(alone, comm.size, method="coordinates", coordinates=points)
    assert (part == same[first:last]).all()
    one.close()
    graph = comm.graph(*ends, owned=(first, last), part=part)
    y = pyops.aggregate(graph, comm.take(points[first:last], graph.nodes))
    assert (comm.take(y, graph.places) == pyops.aggregate(whole, points)[first:last]).all()
    total = comm.size * (comm.size + 1) // 2
    for dtype in "u4", "i8", "f4":
        assert (comm.sum(np.full((2, 0, 1), 1, dtype))).shape == (2, 0, 1)
        found = comm.sum(np.full(3, comm.rank + 1, dtype))
        assert (found.dtype, found.tolist()) == (np.dtype(dtype), [total] * 3)
    assert comm.sum(comm.rank + 1) == total
    assert comm.sum(0.5) == comm.size / 2


def random_graph(comm, nodes=20, entries=70, seed=0):
    """Return a whole graph, the ranges of own nodes, and the distributed graph."""
    whole, rng = drawn(nodes, nodes, entries, seed), np.random.default_rng(seed)
    return whole, Shares(comm, whole, rng, square=True)


def maps(comm):
    """The maps between ranks: transposes, derivatives and batches."""
    whole, shares = random_graph(comm)
    graph = shares.graph
    rng = np.random.default_rng(comm.rank)
    numbers = rng.integers(0, 20, 9)

    def draw(*shape):
        return torch.tensor(rng.standard_normal(shape), requires_grad=True)

    linear = {
        "exchange": (graph.exchange, draw(graph.num_src, 3)),
        "accumulate": (graph.accumulate, draw(graph.local.num_src, 2, 2)),
        "one column": (graph.exchange, draw(graph.num_src)),
        "no columns": (graph.accumulate, draw(graph.local.num_src, 0)),
        "sum": (comm.sum, draw(2, 3)),
        "sum of numbers": (comm.sum, draw()),
        "take": (functools.partial(comm.take, numbers=numbers), draw(graph.num_dst, 2)),
    }
    for name, (function, x) in linear.items():
        y = function(x)
        z, h = torch.tensor(rng.standard_normal(y.shape), requires_grad=True), draw(*x.shape)
        (back,) = torch.autograd.grad(y, x, z, create_graph=True)
        left = comm.sum(float((y * z).sum().detach()))
        right = comm.sum(float((x * back).sum().detach()))
        assert abs(left - right) < 1e-12, name
        (again,) = torch.autograd.grad((back * h).sum(), z)
        assert torch.equal(again, function(h.detach())), name
        assert torch.equal(torch.func.jvp(function, (x,), (h,))[1], again)
        batch = torch.stack([x, h, x - h]).detach()
        for dim in range(batch.dim()):
            found = torch.func.vmap(function, dim)(batch.movedim(0, dim))
            assert torch.allclose(found, torch.stack([function(one) for one in batch]), 1e-14), name
        cotangents = torch.stack([z, 2 * z]).detach()
        (batched,) = torch.autograd.grad(function(x), x, cotangents, is_grads_batched=True)
        assert torch.allclose(batched, torch.stack([back, 2 * back]), 1e-14), name
        _, pull = torch.func.vjp(function, x.detach())
        assert torch.allclose(torch.func.vmap(pull)(cotangents)[0], batched, 1e-14), name
    sums = [comm.sum(value.detach()) for value in (linear["sum"][1], linear["sum of numbers"][1])]
    gathered = [None] * comm.size
    dist.all_gather_object(gathered, [linear[n][1].detach() for n in ("sum", "sum of numbers")])
    for total, parts in zip(sums, zip(*gathered, strict=True), strict=True):
        assert torch.allclose(total, sum(parts), 1e-14)
    integers = torch.arange(graph.num_src)
    assert graph.exchange(integers).dtype is torch.int64
    rows = comm.take(torch.tensor(whole.dst[shares.rows["num_edges"]]), torch.tensor(numbers))
    assert (rows.dtype, len(rows)) == (torch.int32, len(numbers))
    shared = torch.tensor(2.0, requires_grad=True)
    (total,) = torch.autograd.grad((comm.rank + 1) * comm.replicated(shared), shared)
    assert total == comm.size * (comm.size + 1) / 2
    assert comm.replicated(3) == 3


def transformations(comm):
    """Transformations of torch.func against each other; reverse mode is compared elsewhere."""
    for name in NAMES:
        example = Example(comm, cases.representative(name))
        inputs, gy, h = example.tensors(), example.gy, tuple(example.tangents)
        places = tuple(range(len(inputs)))
        leaves = [t.clone().requires_grad_() for t in inputs]
        expected = torch.autograd.grad(example(*leaves), leaves, gy, create_graph=True)

        def value(*some, example=example, gy=gy):
            return (example(*some) * gy).sum()

        gradient = torch.func.grad(value, places)
        found = gradient(*inputs)
        assert all(map(torch.equal, found, expected)), name
        found = torch.func.vjp(example, *inputs)[1](gy)
        assert all(map(torch.equal, found, expected)), name
        # forward over reverse: second derivatives are symmetric
        _, found = torch.func.jvp(gradient, tuple(inputs), h)
        example.agrees("double_backward", [*found, torch.func.jvp(example, tuple(inputs), h)[1]])
        # reverse over forward
        _, dy = torch.func.jvp(example, tuple(leaves), h)
        second = torch.autograd.grad(dy, leaves, gy, allow_unused=True)
        for a, b in zip(second, found, strict=True):
            assert a is None or torch.allclose(a, b, 1e-10, 1e-10), name
        for i, t in enumerate(inputs):  # by one input alone
            some = [torch.zeros_like(t) for t in inputs]
            some[i] = h[i]
            _, expected_dy = torch.func.jvp(example, tuple(inputs), tuple(some))
            _, dy = torch.func.jvp(
                lambda t, i=i, e=example, x=inputs: e(*x[:i], t, *x[i + 1 :]), (t,), (h[i],)
            )
            assert torch.allclose(dy, expected_dy, 1e-12, 1e-12), name
        batches = [torch.stack([t, t]) for t in inputs]
        mapped = torch.func.vmap(example)(*batches)
        y = example(*inputs)
        assert torch.equal(mapped, torch.stack([y, y])), name
        ones = torch.stack([gy, 3 * gy])
        batched = torch.autograd.grad(example(*leaves), leaves, ones, is_grads_batched=True)
        for b, e in zip(batched, expected, strict=True):
            assert torch.allclose(b, torch.stack([e, 3 * e]).detach(), 1e-12, 1e-12), name
    # The rows of a Jacobian are gradients of single elements, of all ranks at once.
    whole, shares = random_graph(comm, 3 * comm.size, 30)
    x = torch.ones(shares.graph.num_src, 1, dtype=torch.float64)
    rows = range(shares.graph.num_dst)
    count = int(-comm._engine.min(np.array([-len(rows)]))[0])

    def padded(x):
        y = pt.aggregate(shares.graph, x)[:, 0]
        return torch.nn.functional.pad(y, (0, count - len(y)))

    found = torch.func.jacrev(padded)(x)[..., 0]
    degrees = np.zeros((count, whole.num_src))
    bounds = shares.comm._engine.gather(np.array([shares.rows["num_dst"][0] if rows else 0]))[:, 0]
    owner_first = np.array([int(b) for b in bounds])
    sizes = shares.comm._engine.gather(np.array([len(rows)]))[:, 0]
    for first, size in zip(owner_first, sizes, strict=True):
        for s, d in zip(whole.src, whole.dst, strict=True):
            if size and first <= d < first + size:
                degrees[d - first, s] += 1
    assert torch.equal(found, torch.tensor(degrees[:, shares.rows["num_src"]]))


COMPILED = "gno_conv", "transformer_conv", "degree_normalised", "edge_to_edge"


def compiled(comm):
    """`torch.compile` of whole functions: values, gradients, and second derivatives."""
    for name in COMPILED:
        every = [c for c in cases.variants(cases.OPERATORS[name]) if not c.absent]
        example = Example(comm, [c for c in every if "image" not in dict(c.choices).values()][-1])
        leaves, h = example.tensors(requires_grad=True), example.tangents

        def call(*tensors, example=example):
            return comm.sum(example(*tensors).sin().sum())

        torch._dynamo.reset()
        program = torch.compile(call, fullgraph=True, backend="aot_eager")
        found = program(*leaves), *torch.autograd.grad(program(*leaves), leaves)
        expected = torch.autograd.grad(call(*leaves), leaves, create_graph=True)
        assert all(map(torch.equal, found, (call(*leaves), *expected))), name
        program = torch.compile(call, fullgraph=True, backend="eager")
        found = torch.autograd.grad(program(*leaves), leaves, create_graph=True)
        first, second = (
            torch.autograd.grad(sum((g * t).sum() for g, t in zip(some, h, strict=True)), leaves)
            for some in (found, expected)
        )
        assert all(map(torch.equal, first, second)), name
        program = torch.compile(torch.func.grad(call), fullgraph=True, backend="aot_eager")
        constants = example.tensors()
        assert torch.equal(program(*constants), expected[0]), name
        program = torch.compile(
            lambda *t, call=call, h=h: torch.func.jvp(call, t, tuple(h))[1],
            fullgraph=True,
            backend="aot_eager",
        )
        _, tangent = torch.func.jvp(call, tuple(constants), tuple(h))
        assert torch.equal(program(*constants), tangent), name
    _, shares = random_graph(comm)
    graph = shares.graph
    leaves = [torch.rand(n, 2, requires_grad=True) for n in (graph.num_src, graph.local.num_src)]
    torch.manual_seed(0)
    leaves.append(torch.rand(2, requires_grad=True))

    def composed(x, full, weight):
        full = full.tanh() + graph.exchange(x * comm.replicated(weight)).square()
        return comm.sum(graph.accumulate(full).sin().sum())

    torch._dynamo.reset()
    program = torch.compile(composed, fullgraph=True, backend="aot_eager")
    found, expected = (torch.autograd.grad(f(*leaves), leaves) for f in (program, composed))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, 1e-6)
    model = nn.Replicated(stacked(), comm)
    sizes = (shares.graph.num_src, 4), (shares.graph.num_edges, 2)
    x, edge = (torch.ones(size, dtype=torch.float64) for size in sizes)
    program = torch.compile(model, fullgraph=True, backend="aot_eager")
    found, expected = (
        torch.autograd.grad(f(x, shares.graph, edge).square().sum(), [*model.parameters()])
        for f in (program, model)
    )
    largest = max(e.abs().max() for e in expected)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= 1e-13 * largest
    example = Example(comm, cases.representative("edge_to_edge"))
    torch._dynamo.reset()
    program = torch.compile(lambda *t: example(*t), backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="reverse: expected None where torch traces"):
        program(*example.tensors())


class Entered(torch.autograd.Function):
    """A value that all ranks hold and that counts once, for functions of the ranks."""

    @staticmethod
    def forward(x, group):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.group = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return Left.apply(g, ctx.group), None

    @staticmethod
    def jvp(ctx, t, _):
        return t.clone()


class Left(torch.autograd.Function):
    """The sum of values of the ranks, which counts once: the transpose of `Entered`."""

    @staticmethod
    def forward(x, group):
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.group = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return Entered.apply(g, ctx.group), None

    @staticmethod
    def jvp(ctx, t, _):
        return Left.apply(t, ctx.group)


class Counted(torch.autograd.Function):
    """A parameter whose gradient, which all ranks hold, counts once in second derivatives."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return CountedGradient.apply(g)

    @staticmethod
    def jvp(ctx, t):
        return t.clone()


class CountedGradient(torch.autograd.Function):
    @staticmethod
    def forward(g):
        return g.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, w):
        return w / dist.get_world_size()


CHECKED = "gat", "transformer_conv", "gno_conv", "degree_normalised", "dimenet_aggregate"


def checks(comm):
    """Finite differences of functions of the rows of all ranks, which all ranks evaluate."""
    group = dist.group.WORLD
    for name in CHECKED:
        case = cases.replace(cases.representative(name), graph="duplicate edges", widths="one")
        example = Example(comm, case)
        rows = [example.shares.rows.get(example.own.rows(n)) for n in example.names]
        own = example.shares.rows[example.own.rows("y")]
        shape = example.whole.arrays["gy"].shape

        def whole(*tensors, example=example, rows=rows, own=own, shape=shape):
            given = [
                Counted.apply(t) if some is None else Entered.apply(t, group)[torch.tensor(some)]
                for t, some in zip(tensors, rows, strict=True)
            ]
            y = torch.zeros(shape, dtype=torch.float64)
            return Left.apply(y.index_put((torch.tensor(own),), example(*given)), group)

        leaves = [torch.tensor(example.whole.arrays[n], requires_grad=True) for n in example.names]
        torch.manual_seed(0)  # the same directions on all ranks
        assert torch.autograd.gradcheck(whole, leaves, check_forward_ad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(whole, leaves, fast_mode=True)


WITHOUT_LOOPS = {"add_self_loops": False}
LAYERS = {
    "GATConv": lambda **k: nn.GATConv(
        4, 3, 2, add_self_loops=False, edge_dim=2, residual=True, **k
    ),
    "GATv2Conv": lambda **k: nn.GATv2Conv(4, 3, 2, add_self_loops=False, edge_dim=2, **k),
    "TransformerConv": lambda **k: nn.TransformerConv(4, 3, 2, edge_dim=2, beta=True, **k),
    "NNConv": lambda **k: nn.NNConv(4, 3, network(2, 5, 12), **k),
    "NNConv of any network": lambda **k: nn.NNConv(
        4, 3, torch.nn.Sequential(network(2, 5, 12), torch.nn.Tanh()), **k
    ),
}


OF_WEIGHTS = {
    "GCNConv": lambda **k: nn.GCNConv(4, 3, add_self_loops=False, **k),
    "SAGEConv": lambda **k: nn.SAGEConv(4, 3, project=True, **k),
    "GraphConv": lambda **k: nn.GraphConv(4, 3, **k),
    "CFConv": lambda **_: nn.CFConv(4, 3, 5, network(2, 4, 5), 2.0),
    "RGCNConv": lambda **k: nn.RGCNConv(4, 3, 2, **k),
    "GINConv": lambda **k: nn.GINConv(network(4, 5, 3), train_eps=True, **k),
    "EdgeConv": lambda **k: nn.EdgeConv(network(8, 5, 3), **k),
}
"""Layers without features of edges; some have weights or relations."""


def network(*widths):
    first, hidden, last = widths
    layers = torch.nn.Linear(first, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, last)
    return torch.nn.Sequential(*layers)


def layers(comm):
    """Layers on a distributed graph against the same layers on the whole graph."""
    whole, shares = random_graph(comm)
    rng = np.random.default_rng(1)
    x, edge = rng.standard_normal((20, 4)), rng.standard_normal((70, 2))
    rows = {"x": shares.rows["num_dst"], "edge": shares.rows["num_edges"]}

    def derivatives(layer, graph, some, every, mine):
        """Return y, gradients by the features, sums over ranks, and second derivatives."""
        leaves = [torch.tensor(a, requires_grad=True) for a in some]
        parameters = [*layer.parameters()]
        if isinstance(layer, nn.CFConv):
            y = layer(leaves[0], graph, leaves[1][:, 0], leaves[1])
        elif type(layer).__name__ in OF_WEIGHTS:
            more = [leaves[1][:, 0].exp()] if getattr(layer, "_weighted", False) else []
            more = [(leaves[1][:, 0] > 0).long()] if isinstance(layer, nn.RGCNConv) else more
            y = layer(leaves[0], graph, *more) + 0 * leaves[1].sum()
        else:
            y = layer(leaves[0], graph, leaves[1])
        gradients = torch.autograd.grad(y.square().sum(), [*leaves, *parameters], create_graph=True)
        ranks = 1 if mine is None else comm.size
        total = sum((g * g).sum() for g in gradients[:2])
        total = total + sum((g * g).sum() for g in gradients[2:]) / ranks
        second = torch.autograd.grad(total, [*leaves, *parameters])
        found = [y, *gradients, *second]
        if mine is None:
            places = [rows["x"]] + 2 * ([rows["x"], rows["edge"]] + [None] * len(parameters))
            found = [f if p is None else f[p] for f, p in zip(found, places, strict=True)]
        return found

    def same(one, other, name):
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            assert torch.allclose(a, b, 1e-9, 1e-9), (name, place)

    own = x[rows["x"]], edge[rows["edge"]]
    for name, make in (LAYERS | OF_WEIGHTS | {"Replicated": stacked}).items():
        for aggr in ("sum", "mean", "max") if name != "Replicated" else (None,):
            torch.manual_seed(0)
            layer = (make() if aggr is None else make(aggr=aggr)).double()
            expected = derivatives(layer, whole, (x, edge), rows, None)
            if aggr is None:
                layer = nn.Replicated(layer, comm)
            same(derivatives(layer, shares.graph, own, rows, rows), expected, (name, aggr))
        if "NNConv" not in name and name in LAYERS:
            given = torch.tensor(x), whole, torch.tensor(edge)
            _, (_, alpha) = layer(*given, return_attention_weights=True)
            given = torch.tensor(own[0]), shares.graph, torch.tensor(own[1])
            _, (_, part) = layer(*given, return_attention_weights=True)
            assert torch.allclose(part, alpha[rows["edge"]], 1e-12)
    torch.manual_seed(0)
    module = stacked()
    layer = nn.Replicated(module, comm)
    given = torch.tensor(own[0]), shares.graph, torch.tensor(own[1])
    layer(*given).square().sum().backward()
    sums = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    # The mean of equal sums over ranks is that sum.
    parallel = DistributedDataParallel(layer)
    parallel(*given).square().sum().backward()
    assert all(
        torch.allclose(p.grad, g, 1e-14) for p, g in zip(module.parameters(), sums, strict=True)
    )
    copy.deepcopy(layer)(*given)
    with pytest.raises(TypeError, match="Communicator: cannot be pickled"):
        pickle.dumps(layer)
    inner = module.between.forward
    module.between.forward = functools.partial(checkpoint, inner, use_reentrant=False)
    found = torch.autograd.grad(layer(*given).square().sum(), [*module.parameters()])
    assert all(map(torch.equal, found, sums))
    module.between.forward = inner


class Stack(torch.nn.Module):
    """Layers on the rows of nodes before and after one on a graph."""

    def __init__(self, before, between, after):
        super().__init__()
        self.before, self.between, self.after = before, between, after

    def forward(self, x, graph, edge):
        return self.after(self.between(self.before(x), graph, edge))


def stacked():
    return Stack(network(4, 5, 4), LAYERS["GATConv"](), network(6, 5, 2)).double()


@contextlib.contextmanager
def refused(kind, text):
    """Check that all ranks raise the same error; they can go on after it."""
    with pytest.raises(kind) as caught:
        yield
    message = str(caught.value)
    assert text in message, message
    messages = [None] * dist.get_world_size()
    dist.all_gather_object(messages, message)
    assert len(set(messages)) == 1, messages


def refusals(comm):
    """An error of one rank is raised on all, naming rank, argument, expectation and value."""
    last = comm.size - 1
    mine = comm.rank == last
    at = f"rank {last}: "
    src, dst = comm.rank * 10 + np.arange(20).reshape(2, 10) // 2
    own = comm.rank * 10, comm.rank * 10 + 10
    graph = comm.graph(src, dst, owned=own)
    op, x, e = pt.aggregate, torch.ones(10, 4), torch.ones(10, 2)
    with refused(ValueError, f"{at}aggregate: x: expected shape (num_src=10, x_width), got (9, 4)"):
        op(graph, x[1:] if mine else x)
    with refused(ValueError, f"{at}aggregate: reduce: expected one of"):
        op(graph, x, reduce="maximum" if mine else "sum")
    with refused(TypeError, f"{at}pyops.torch.aggregate: x: expected a torch.Tensor, got ndarray"):
        op(graph, x.numpy() if mine else x)
    with refused(TypeError, f"{at}aggregate: unexpected option 'heads'"):
        op(graph, x, **({"heads": 2} if mine else {}))
    with refused(ValueError, f"{at}pyops.torch.aggregate: x: expected a tensor on a CUDA device"):
        op(graph, x.to("meta") if mine else x)
    different = f"{at}pyops.torch.aggregate: expected the call of rank 0, pyops.torch.aggregate ("
    with refused(ValueError, different):
        op(graph, x.double() if mine else x)
    with refused(ValueError, different):
        op(graph, x, e if mine else None)
    with refused(ValueError, different):
        op(graph, x[:, :3] if mine else x)
    with refused(ValueError, different):
        op(graph, x.clone().requires_grad_() if mine else x)
    with refused(ValueError, f"{at}pyops.torch.degree_normalised: expected the call of rank 0"):
        (pt.degree_normalised if mine else op)(graph, x)
    with refused(ValueError, f"{at}aggregate: expected the call of rank 0, pyops.torch.aggregate"):
        pyops.aggregate(graph, x.numpy()) if mine else op(graph, x)
    with refused(ValueError, f"{at}Communicator.sum: expected the call of rank 0"):
        comm.sum(x if mine else 1.0)
    with refused(TypeError, f"{at}Communicator.sum: value: expected"):
        comm.sum(x.half() if mine else x)
    with refused(ValueError, f"{at}DistributedGraph.exchange: x: expected num_src=10 rows, got 9"):
        graph.exchange(x[1:] if mine else x)
    with refused(IndexError, f"{at}Communicator.take: numbers: expected"):
        comm.take(x, [10 * comm.size if mine else 0])
    # Ranks that differentiate different calls, and in different ways.
    leaf = x.clone().requires_grad_()
    ys = [op(graph, leaf).sum() for _ in range(2)]
    with refused(ValueError, "backward of pyops.torch.aggregate: expected the call of rank 0"):
        torch.autograd.grad(ys[mine], leaf, retain_graph=True)
    tangents = torch.autograd.forward_ad
    with tangents.dual_level():
        dual = tangents.make_dual(x, x)
        with refused(ValueError, "expected the call of rank 0"):
            op(graph, dual if mine else x) if mine else [op(graph, x), comm.sum(1.0)]
    module = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(module.weight, float(mine))
    torch.nn.init.zeros_(module.bias)
    with refused(ValueError, f"{at}Replicated: expected the call of rank 0"):
        nn.Replicated(module, comm)
    loops = nn.GATConv(4, 2)
    torch.nn.init.zeros_(loops.lin.weight)
    with pytest.raises(ValueError, match="expected add_self_loops=False"):
        loops(x, graph)
    inside = nn.Replicated(torch.nn.Identity(), comm)
    inside.module.forward = comm.replicated
    with refused(RuntimeError, "Communicator.replicated: value: expected a call outside of"):
        inside(x)
    assert not comm._inside
    with pytest.raises(TypeError, match=r"Communicator: comm: expected mpi4py.MPI.Intracomm or a"):
        Communicator("world")
    with pytest.raises(TypeError, match="Communicator: comm: expected a process group, got"):
        Communicator(torch.device("cpu"))
    assert (op(graph, x)[5:] == 2).all()


def balanced(comm):
    """A step of DistributedDataParallel on dealt graphs is one on the graphs of all ranks."""
    rng = np.random.default_rng(0)
    molecules = [drawn(n, n, 3 * n, n) for n in rng.integers(2, 30, 23).tolist()]
    values = [torch.tensor(rng.standard_normal((g.num_src, 4))) for g in molecules]
    costs = [g.num_edges for g in molecules]
    samplers = [
        pt.BalancedBatchSampler(costs, 3, num_replicas=comm.size, rank=rank, seed=5)
        for rank in range(comm.size)
    ]
    own = pt.BalancedBatchSampler(costs, 3, seed=5)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1).double()
    parallel = DistributedDataParallel(torch.nn.Linear(4, 1).double())
    parallel.module.load_state_dict(model.state_dict())

    def loss(model, batch):
        graphs, some = [molecules[i] for i in batch], [values[i] for i in batch]
        energies = [
            model(pt.aggregate(g, v)).tanh().sum() for g, v in zip(graphs, some, strict=True)
        ]
        return torch.stack(energies).mean()

    for epoch in range(2):
        for sampler in (own, *samplers):
            sampler.set_epoch(epoch)
        loader = torch.utils.data.DataLoader(range(23), batch_sampler=own, collate_fn=list)
        for batch, *every in zip(loader, *samplers, strict=True):
            assert batch == every[comm.rank]
            parallel.zero_grad()
            loss(parallel, batch).backward()
            expected = torch.autograd.grad(
                loss(model, [i for b in every for i in b]), [*model.parameters()]
            )
            for one, other in zip(parallel.parameters(), expected, strict=True):
                assert torch.allclose(one.grad, other, 1e-12)


def ends(comm):
    """Rank 1 ends in the way that the environment names, while others wait for it."""
    how = os.environ["HOW"]
    graph = comm.graph([comm.rank], [comm.rank], owned=(comm.rank, comm.rank + 1))
    x = torch.ones(1, 2, requires_grad=True)
    y = pt.aggregate(graph, x)
    if comm.rank == 1:
        if how == "exit":
            sys.exit(3)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "sleep":
            time.sleep(60)
    y.sum().backward()
    print("not reached")


def main(rank, size, store, names):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=float(os.environ.get("SECONDS", "60"))),
    )
    comm = Communicator(dist.group.WORLD)
    for name in names:
        globals()[name](comm)
    comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), *sys.argv[1:2], sys.argv[2:])
