"""Transformations and compiled functions of `pyops.torch` on the ranks of a process group."""

import numpy as np
import pytest
import torch

import pyops.torch as pt
from pyops.torch import nn

from ...support import cases
from .tensor_layers import model_in_parts, stacked
from .tensor_problems import NAMES, Example, random_graph


def transformations(comm, names=NAMES, **options):
    """Transformations of torch.func against each other; reverse mode is compared elsewhere."""
    for name in names:
        example = Example(comm, cases.representative(name), **options)
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


def jacobians(comm):
    """The rows of a Jacobian are gradients of single elements, of all ranks at once."""
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


def compiled(comm, **options):
    """`torch.compile` of whole functions: values, gradients, and second derivatives."""
    for name in COMPILED:
        every = [c for c in cases.variants(cases.OPERATORS[name]) if not c.absent]
        case = [c for c in every if "image" not in dict(c.choices).values()][-1]
        example = Example(comm, case, **options)
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
    example = Example(comm, cases.representative("edge_to_edge"), **options)
    torch._dynamo.reset()
    program = torch.compile(lambda *t: example(*t), backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="reverse: expected None where torch traces"):
        program(*example.tensors())


def in_parts(comm):
    """Transformations of torch.func and compiled functions on a graph in parts."""
    names = "gno_conv", "gat", "degree_normalised", "edge_to_edge", "edge_mlp"
    transformations(comm, names, reproducible=4)
    compiled(comm, reproducible=3)
    _, shares = random_graph(comm, reproducible=4)
    torch.manual_seed(0)
    compiled_model(model_in_parts(comm, shares.graph), shares.graph)


def inductor(comm):
    compositions(comm, "inductor")


def compositions(comm, backend="aot_eager"):
    """Programs of maps between ranks, and of modules whose parameters are replicated."""
    _, shares = random_graph(comm)
    graph = shares.graph
    leaves = [torch.rand(n, 2, requires_grad=True) for n in (graph.num_src, graph.local.num_src)]
    torch.manual_seed(0)
    leaves.append(torch.rand(2, requires_grad=True))

    def composed(x, full, weight):
        full = full.tanh() + graph.exchange(x * comm.replicated(weight)).square()
        return comm.sum(graph.accumulate(full).sin().sum())

    torch._dynamo.reset()
    program = torch.compile(composed, fullgraph=True, backend=backend)
    found, expected = (torch.autograd.grad(f(*leaves), leaves) for f in (program, composed))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, 1e-6)
    compiled_model(nn.Replicated(stacked(), comm), graph, backend)


def compiled_model(model, graph, backend="aot_eager"):
    """Gradients of a compiled model by its parameters against those of the model."""
    sizes = (graph.num_src, 4), (graph.num_edges, 2)
    x, edge = (torch.ones(size, dtype=torch.float64) for size in sizes)
    program = torch.compile(model, fullgraph=True, backend=backend)
    found, expected = (
        torch.autograd.grad(f(x, graph, edge).square().sum(), [*model.parameters()])
        for f in (program, model)
    )
    largest = max(e.abs().max() for e in expected)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= 1e-13 * largest
