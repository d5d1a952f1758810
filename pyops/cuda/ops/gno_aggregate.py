from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from .._runtime import Runtime

GROUPS = 256


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    _rows(rt, a, "in", [(a.kappa, a.features)], a.y)


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    if a.gfeatures is not None:
        _rows(rt, a, "out", [(a.kappa, a.gy)], a.gfeatures)
    if a.gkappa is not None:
        _products(rt, a, a.features, a.gkappa)


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    if a.dfeatures is not None:
        given = a.hkappa is not None
        _rows(rt, a, "out", [(a.hkappa, a.gy)] if given else [], a.dfeatures)
    if a.dkappa is not None:
        _products(rt, a, a.hfeatures, a.dkappa)
    if a.dgy is not None:
        pairs = (a.kappa, a.hfeatures), (a.hkappa, a.features)
        _rows(rt, a, "in", [p for p in pairs if p[0] is not None and p[1] is not None], a.dgy)


def _rows(
    rt: Runtime, a: SimpleNamespace, side: str, pairs: Sequence[tuple[Any, Any]], y: Any
) -> None:
    """y (+)= the sums over the rows of a side of features times edge matrices."""
    inward, outward = a.in_features, a.out_features
    names = "pieces", "joins", "nodes", "edges"
    pieces, joins, nodes, edges = (a.graph._index(f"{side}_{name}") for name in names)
    kernel, lanes = ("into_rows", outward) if side == "in" else ("out_of_rows", outward)
    across = 8 if lanes <= 8 else 32
    along = across if side == "in" else GROUPS // across
    parts = None
    for kappa, features in pairs:
        found = rt.empty((len(pieces), y.shape[1]), y.dtype)
        held = [pieces, nodes, edges, kappa, features, found, inward, outward]
        grid = len(pieces), -(-y.shape[1] // along)
        rt.launch("matrices", kernel, y.dtype, grid, (across, GROUPS // across), held, LANES=across)
        parts = found if parts is None else parts + found
    if parts is None:
        parts = rt.zeros((len(pieces), y.shape[1]), y.dtype)
    held = [joins, parts, y, len(y), y.shape[1], a.accumulate]
    rt.launch("matrices", "join", y.dtype, -(-y.size // 256), 256, held, LANES=8)


def _products(rt: Runtime, a: SimpleNamespace, features: Any, y: Any) -> None:
    """y (+)= h (x) g of every edge."""
    if features is None:
        if not a.accumulate:
            y[...] = 0
        return
    size = a.in_features * a.out_features
    threads = min(256, -(-size // 32) * 32)
    held = [a.id_offsets, a.id_entries, a.in_nodes, a.graph._index("in_rows"), features, a.gy, y]
    rt.launch(
        "matrices",
        "products",
        y.dtype,
        (a.num_edges, -(-size // threads)),
        threads,
        [*held, a.in_features, a.out_features, a.accumulate],
        LANES=8,
    )
