"""Functions of `pyops.blocks` that pack parameters, as steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ... import blocks
from ..._network_order import in_order
from .builder import Builder, Ref, UnsupportedError

Function: TypeAlias = Callable[..., object]


def _gno(builder: Builder, U: Ref, b_u: Ref, V: Ref, b_v: Ref) -> Ref:  # noqa: N803
    return builder.block([builder.transpose(U), b_u, builder.transpose(V), b_v])


def _gat(builder: Builder, a_src: Ref, a_dst: Ref, a_edge: Ref | None = None) -> Ref:
    return builder.block([part for part in (a_src, a_dst, a_edge) if part is not None])


def _dimenet(builder: Builder, A: Ref, B: Ref) -> Ref:  # noqa: N803
    return builder.concat([A, B], 0)


def _basis(builder: Builder, basis: Ref) -> Ref:
    return builder.flat(builder.transpose(basis))


def _edge_network(
    builder: Builder,
    weights: Sequence[Ref],
    biases: Sequence[Ref],
    scale: Ref | None = None,
    shift: Ref | None = None,
    *,
    src_width: int,
    dst_width: int = 0,
) -> Ref:
    first, *others = weights
    ends = [0, src_width, src_width + dst_width, first.columns]
    if not 0 < src_width <= ends[2] <= ends[3] or len(weights) != len(biases):
        raise UnsupportedError("pack_edge_network: expected widths and biases of the weights")
    pairs = [pair for pair in itertools.pairwise(ends) if pair[0] < pair[1]]
    norm = [part for part in (scale, shift) if part is not None]
    parts = [builder.columns(first, *pair) for pair in pairs]
    return builder.block(in_order(parts, others, biases, norm))


PACKED: dict[Function, Function] = {
    blocks.pack_gno: _gno,
    blocks.pack_gat: _gat,
    blocks.pack_dimenet: _dimenet,
    blocks.pack_basis: _basis,
    blocks.pack_edge_network: _edge_network,
}
