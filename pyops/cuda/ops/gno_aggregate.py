"""Sums of neighbour features times edge matrices, on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._array import DeviceArray, required

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._declared import GnoAggregate
    from .._runtime import Runtime

GROUPS = 256


def forward(rt: Runtime, a: GnoAggregate) -> None:
    """Compute y."""
    _rows(rt, a, "in", [(a.kappa, a.features)], a.y)


def backward(rt: Runtime, a: GnoAggregate) -> None:
    """Compute gfeatures and gkappa, as requested."""
    if a.gfeatures is not None:
        _rows(rt, a, "out", [(a.kappa, a.gy)], a.gfeatures)
    if a.gkappa is not None:
        _products(rt, a, a.features, a.gkappa)


def double_backward(rt: Runtime, a: GnoAggregate) -> None:
    """Compute dfeatures, dkappa and dgy, as requested."""
    if a.dfeatures is not None:
        _rows(rt, a, "out", [(a.hkappa, a.gy)], a.dfeatures)
    if a.dkappa is not None:
        _products(rt, a, a.hfeatures, a.dkappa)
    if a.dgy is not None:
        _rows(rt, a, "in", [(a.kappa, a.hfeatures), (a.hkappa, a.features)], a.dgy)


def _rows(
    rt: Runtime,
    a: GnoAggregate,
    side: str,
    pairs: Sequence[tuple[DeviceArray | None, DeviceArray | None]],
    y: DeviceArray,
) -> None:
    """`y` (+)= the sums over the rows of a side of features times edge matrices.

    Pairs of which one is None are skipped.
    """
    names = "segments", "joins", "nodes", "edges"
    segments, joins, nodes, edges = (a.graph._index(f"{side}_{name}") for name in names)
    kernel = "into_rows" if side == "in" else "out_of_rows"
    across = 8 if a.out_features <= 8 else 32
    along = across if side == "in" else GROUPS // across
    sums = None
    for kappa, features in pairs:
        if kappa is None or features is None:
            continue
        found = rt.empty((len(segments), y.shape[1]), y.dtype)
        args = segments, nodes, edges, kappa, features, found, a.in_features, a.out_features
        grid, block = (len(segments), -(-y.shape[1] // along)), (across, GROUPS // across)
        rt.launch("matrices", kernel, y.dtype, grid, block, args, LANES=across)
        sums = found if sums is None else sums + found
    if sums is None:
        sums = rt.zeros((len(segments), y.shape[1]), y.dtype)
    joined = joins, sums, y, len(y), y.shape[1], a.accumulate
    rt.launch("matrices", "join", y.dtype, -(-y.size // 256), 256, joined, LANES=8)


def _products(rt: Runtime, a: GnoAggregate, features: DeviceArray | None, y: DeviceArray) -> None:
    """`y` (+)= h (x) g of every edge."""
    if features is None:
        if not a.accumulate:
            y[...] = 0
        return
    size = a.in_features * a.out_features
    threads = min(256, -(-size // 32) * 32)
    args = (
        a.id_offsets, a.id_entries, a.in_nodes, a.graph._index("in_rows"), features,
        required(a.gy), y, a.in_features, a.out_features, a.accumulate,
    )  # fmt: skip
    grid = a.num_edges, -(-size // threads)
    rt.launch("matrices", "products", y.dtype, grid, threads, args, LANES=8)
