"""Gathers, sums and softmax along the entries of a graph, by functions of torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Entries(NamedTuple):
    """Graph as int64 index tensors and sizes."""

    src: Tensor
    dst: Tensor
    ids: Tensor | None
    num_src: int
    num_dst: int
    num_edges: int

    def gather_edges(self, edge: Tensor) -> Tensor:
        """Gather rows of an edge array, one per entry."""
        return edge if self.ids is None else edge.index_select(0, self.ids)

    def sum_incoming(self, terms: Tensor) -> Tensor:
        """Sum over the incoming entries of each destination."""
        return sum_by_id(self.dst, self.num_dst, terms)

    def degrees(self, like: Tensor) -> Tensor:
        return self.sum_incoming(torch.ones_like(self.dst, dtype=like.dtype))

    def extreme(self, terms: Tensor, kind: str) -> Tensor:
        """Return the maximum or minimum over the incoming entries; infinite if there are none."""
        start = float("-inf" if kind == "amax" else "inf")
        return _reduce(self.dst, self.num_dst, terms, start, kind)

    def product(self, terms: Tensor) -> Tensor:
        """Multiply over the incoming entries of each destination; 1 if there are none."""
        return _reduce(self.dst, self.num_dst, terms, 1.0, "prod")

    def median(self, terms: Tensor) -> Tensor:
        """Return the lower median over the incoming entries; 0 if there are none."""
        # An entry beyond the destinations: there may be none else.
        terms = torch.cat([terms, terms.new_zeros(1, terms.shape[1])])
        dst = torch.cat([self.dst, self.dst.new_full((1,), self.num_dst)]).unsqueeze(1)
        ranks = terms.argsort(0).argsort(0)
        order = (dst * terms.shape[0] + ranks).argsort(0)
        degrees = self.degrees(terms).long()
        middle = degrees.cumsum(0) - degrees + (degrees - 1).clamp(min=0) // 2
        found = terms.gather(0, order.index_select(0, middle))
        return torch.where(degrees.unsqueeze(1) > 0, found, torch.zeros_like(found))

    def softmax(self, scores: Tensor) -> Tensor:
        """Apply softmax over the incoming entries of each destination."""
        top = self.extreme(scores, "amax")
        powers = (scores - top.index_select(0, self.dst)).exp()
        return powers / self.sum_incoming(powers).index_select(0, self.dst)


def sum_by_id(ids: Tensor, size: int, terms: Tensor) -> Tensor:
    """Sum the terms of each id."""
    return _reduce(ids, size, terms, 0.0, "sum")


def _reduce(ids: Tensor, size: int, terms: Tensor, start: float, kind: str) -> Tensor:
    """Reduce the terms of each id, flattened to a vector: exporters support no more than that."""
    if terms.dim() == 1:
        return terms.new_full((size,), start).scatter_reduce(0, ids, terms, kind)
    rows = terms.flatten(1)
    columns = torch.arange(rows.shape[1], device=terms.device)
    positions = (ids.unsqueeze(1) * rows.shape[1] + columns).flatten()
    found = terms.new_full((size * rows.shape[1],), start)
    found = found.scatter_reduce(0, positions, rows.flatten(), kind)
    return found.view(size, *terms.shape[1:])
