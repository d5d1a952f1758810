"""Sums over neighbourhoods of kernel times function at each neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.autograd import Function

from .. import aggregate, edge_update

if TYPE_CHECKING:
    from ...graph import Graph
    from .._graph import TracedGraph


def gathered(graph: Graph | TracedGraph, f: Tensor) -> Tensor:
    """Gather f [n, batch, d] at the source of each edge."""
    values: Tensor = edge_update(graph, f.flatten(1)).unflatten(1, f.shape[1:])
    return values


def product(
    graph: Graph | TracedGraph, back: Graph | TracedGraph, kernel: Tensor, f: Tensor
) -> Tensor:
    """Sum kernel [edges, batch or 1, d] times f [n, batch, d]; saves these two only.

    `back` is the reverse graph, along which the gradient with respect to f is a sum of the same
    form.
    """
    if torch.is_grad_enabled() and (kernel.requires_grad or f.requires_grad):
        result: Tensor = _Product.apply(graph, back, kernel, f)
        return result
    return _sum(graph, kernel, f)


def _sum(graph: Graph | TracedGraph, kernel: Tensor, f: Tensor) -> Tensor:
    with torch.no_grad():
        messages = gathered(graph, f).mul_(kernel)
        sums: Tensor = aggregate(graph, None, messages.flatten(1)).unflatten(1, f.shape[1:])
    return sums


class _Context(Protocol):
    """Node of a product in torch's graph."""

    graphs: tuple[Graph | TracedGraph, Graph | TracedGraph]
    needs_input_grad: tuple[bool, bool, bool, bool]

    @property
    def saved_tensors(self) -> tuple[Tensor, Tensor]: ...

    def save_for_backward(self, *tensors: Tensor) -> None: ...


class _Product(Function):
    @staticmethod
    def forward(
        ctx: _Context,
        graph: Graph | TracedGraph,
        back: Graph | TracedGraph,
        kernel: Tensor,
        f: Tensor,
    ) -> Tensor:
        ctx.graphs = graph, back
        ctx.save_for_backward(kernel, f)
        return _sum(graph, kernel, f)

    @staticmethod
    def backward(ctx: _Context, gy: Tensor) -> tuple[None, None, Tensor | None, Tensor | None]:
        (graph, back), (kernel, f) = ctx.graphs, ctx.saved_tensors
        by_kernel: Tensor | None = None
        by_f: Tensor | None = None
        if ctx.needs_input_grad[2]:
            f_rows, gy_rows = gathered(graph, f), gathered(back, gy)
            by_kernel = f_rows * gy_rows if torch.is_grad_enabled() else f_rows.mul_(gy_rows)
            if kernel.shape[1] < f.shape[1]:
                by_kernel = by_kernel.sum(1, keepdim=True)
            del f_rows, gy_rows
        if ctx.needs_input_grad[3]:
            by_f = product(back, graph, kernel, gy)
        return None, None, by_kernel, by_f
