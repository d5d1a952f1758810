"""Sums over neighbourhoods of kernel times function at each neighbour."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ...graph import Graph
from .. import aggregate, edge_update
from .._graph import Ends


def gathered(graph: Graph | Ends, f: Tensor) -> Tensor:
    """Gather f [n, batch, d] at the source of each edge."""
    values: Tensor = edge_update(graph, f.flatten(1)).unflatten(1, f.shape[1:])
    return values


def product(graph: Graph | Ends, back: Graph | Ends, kernel: Tensor, f: Tensor) -> Tensor:
    """Sum kernel [edges, batch or 1, d] times f [n, batch, d]; saves these two only.

    `back` is the reverse graph, along which the gradient with respect to f is a sum of the same
    form.
    """
    if torch.is_grad_enabled() and (kernel.requires_grad or f.requires_grad):
        result: Tensor = _Product.apply(graph, back, kernel, f)
        return result
    return _sum(graph, kernel, f)


def _sum(graph: Graph | Ends, kernel: Tensor, f: Tensor) -> Tensor:
    with torch.no_grad():
        messages = gathered(graph, f).mul_(kernel)
        sums: Tensor = aggregate(graph, None, messages.flatten(1)).unflatten(1, f.shape[1:])
    return sums


class _Product(Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, graph: Graph | Ends, back: Graph | Ends, kernel: Tensor, f: Tensor
    ) -> Tensor:
        ctx.graphs = graph, back
        ctx.save_for_backward(kernel, f)
        return _sum(graph, kernel, f)

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> Any:
        (graph, back), (kernel, f) = ctx.graphs, ctx.saved_tensors
        by_kernel = by_f = None
        if ctx.needs_input_grad[2]:
            here, there = gathered(graph, f), gathered(back, gy)
            by_kernel = here * there if torch.is_grad_enabled() else here.mul_(there)
            if kernel.shape[1] < f.shape[1]:
                by_kernel = by_kernel.sum(1, keepdim=True)
            del here, there
        if ctx.needs_input_grad[3]:
            by_f = product(back, graph, kernel, gy)
        return None, None, by_kernel, by_f
