"""Operators on PyTorch tensors, and properties that hold on any device."""

import numpy as np
import torch

import pyops.torch as pt

from ...support.small_cases import OPERATORS, arguments


class Example:
    """Operator on tensors: a small case of the table, or positive broadcasting arrays."""

    def __init__(self, name, seed=0, dtype=torch.float64, device="cpu"):
        self.name, self.op, self.function = name, OPERATORS[name], getattr(pt, name)
        graph, arrays, self.options = arguments(name, seed)
        self.graph = None
        if graph is not None:
            self.graph = pt.Graph(graph.src, graph.dst, graph.num_src, graph.num_dst)
        given = [a for a in arrays if a is not None]
        self.tensors = [torch.tensor(np.array(a), dtype=dtype, device=device) for a in given]

    def __call__(self, *tensors, **more):
        graph = [] if self.graph is None else [self.graph]
        return self.function(*graph, *tensors, **self.options, **more)

    def energy(self, *tensors):
        y = self(*tensors)
        places = torch.arange(y.numel(), dtype=y.dtype, device=y.device).reshape(y.shape)
        return (y * torch.cos(places) + y * y).sum()

    def leaves(self):
        return [t.clone().requires_grad_() for t in self.tensors]


def assert_derivatives(example):
    """Assert first and second derivatives, in both modes."""
    leaves = example.leaves()
    close = {"atol": 1e-5, "rtol": 1e-4}
    assert torch.autograd.gradcheck(example, leaves, check_forward_ad=True, fast_mode=True, **close)
    assert torch.autograd.gradgradcheck(example, leaves, fast_mode=True, **close)


def assert_maps(example):
    """Assert results under vmap, with all tensors batched."""
    batch = [torch.stack([t, 0.5 * t, 0.9 * t]) for t in example.tensors]
    mapped = torch.func.vmap(example)(*batch)
    for number in range(3):
        torch.testing.assert_close(mapped[number], example(*(b[number] for b in batch)))
