"""Tensors of half precision on the ranks of a process group, and layers under autocast."""

import numpy as np
import pytest
import torch

import pyops.torch as pt
from pyops.torch import nn

from .tensor_problems import random_graph

TYPES = torch.bfloat16, torch.float16


def close(found, expected, kind):
    assert found.dtype == kind
    largest = float(expected.abs().max()) if expected.numel() else 1.0
    error = float((found.float() - expected).abs().max()) if found.numel() else 0.0
    assert error <= 4 * torch.finfo(kind).eps * largest, (error, largest)


def halves(comm):
    """Maps keep the bits or add in float32; operators and layers agree with float32."""
    _, shares = random_graph(comm)
    graph, rng = shares.graph, np.random.default_rng(comm.rank)

    def draw(*shape):
        return torch.tensor(rng.standard_normal(shape), dtype=torch.float32)

    for kind in TYPES:
        x = draw(graph.num_src, 3).to(kind).requires_grad_()
        assert torch.equal(graph.exchange(x), graph.exchange(x.float()).to(kind))
        (back,) = torch.autograd.grad(graph.exchange(x).float().sum(), x)
        (expected,) = torch.autograd.grad(graph.exchange(wide := x.float()).sum(), wide)
        assert torch.equal(back, expected.to(kind))
        full = draw(graph.local.num_src, 3).to(kind)
        assert torch.equal(graph.accumulate(full), graph.accumulate(full.float()).to(kind))
        numbers = np.arange(3)
        assert torch.equal(comm.take(x, numbers), comm.take(x.float(), numbers).to(kind))
        one = torch.full((2,), 0.1, dtype=kind)
        assert torch.equal(comm.sum(one), comm.sum(one.float()).to(kind))
        basis, u = draw(graph.num_dst, 2).to(kind), draw(4, graph.num_dst).to(kind)
        close(pt.ono_encode(comm, u, basis), pt.ono_encode(comm, u.float(), basis.float()), kind)
        close(pt.mean(comm, basis, axis=0), pt.mean(comm, basis.float(), axis=0), kind)
    gat = nn.GATConv(4, 3, 2, add_self_loops=False)
    for parameter in gat.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(0))
    x = draw(graph.num_src, 4).requires_grad_()
    leaves = [x, *gat.parameters()]
    exact = torch.autograd.grad(gat(x, graph).square().sum(), leaves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = gat(x, graph)
    found = torch.autograd.grad(y.float().square().sum(), leaves)
    top = comm.sum(max(float(b.norm()) for b in exact))
    for a, b in zip(found, exact, strict=True):
        assert a.dtype == torch.float32
        assert float((a - b).norm()) <= 0.03 * top
    if comm.size > 1:
        kinds = TYPES if comm.rank == 0 else TYPES[::-1]
        with pytest.raises(ValueError, match=r"rank 1: .*expected the call of rank 0"):
            graph.exchange(torch.zeros(graph.num_src, 3, dtype=kinds[0]))
        with pytest.raises(ValueError, match=r"rank 1: .*expected the call of rank 0"):
            pt.aggregate(graph, torch.zeros(graph.num_src, 3, dtype=kinds[0]))
