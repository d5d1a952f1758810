"""Edge-to-edge aggregation of DimeNet++ on a device, by pairs of edges found in the graph rows.

Sums over pairs give the gradients by X, by T_f,l = A_l R_f,l and by B of Q_f,l = X_f * B T_f,l;
gradients through T are matrix products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._arguments import Written
from .._array import DeviceArray, plus, required, store
from .._triplets import Triplets, Weights

if TYPE_CHECKING:
    from .._declared import DimenetAggregate
    from .._runtime import Runtime

NAMES = "vectors", "radial", "embedding", "weights"


def forward(rt: Runtime, a: DimenetAggregate) -> None:
    """Compute y."""
    triplets = Triplets(rt, a)
    y = triplets.empty(a.num_entries, a.channels)
    triplets.incoming_pairs(False, None, y)
    triplets.sum_by_edge(y, a.y, a.accumulate)


def _back_through_a(
    triplets: Triplets, second: bool, by_entry: DeviceArray, gradial: DeviceArray | None,
    gweights: DeviceArray | None,
) -> None:  # fmt: skip
    """Propagate gradients by T, with a flag for edges in pairs, to R and to A."""
    a, xp, zero = triplets.a, triplets.xp, triplets.dtype.type(0)
    table = triplets.empty(a.num_edges, by_entry.shape[2])
    triplets.sum_by_edge(by_entry, table, False)
    met = table[:, -1:] > 0  # the others get 0, also where R or A is NaN

    def block(number: int) -> DeviceArray:
        size = a.num_spherical * a.middle
        return table[:, number * size : (number + 1) * size]

    def by_degree(columns: DeviceArray) -> DeviceArray:
        return columns.reshape(-1, a.num_spherical, a.middle).transpose(1, 0, 2)

    terms: list[tuple[DeviceArray, DeviceArray | None, Weights | None]] = []
    if not second or any(t is not None for t in (triplets.tu, a.hembedding, a.hweights)):
        terms.append((block(0), a.radial, triplets.weights))
    if second and triplets.tt is not None:
        terms.append((block(1), a.hradial, triplets.tweights))
    if gradial is not None:
        products = (
            triplets.multiply(by_degree(g), w.a.transpose(0, 2, 1))
            for g, _, w in terms
            if w is not None
        )
        total = plus(*products)
        out = triplets.by_degree(gradial)
        met_by_degree = met[..., None]
        store(
            out,
            [] if total is None else [xp.where(met_by_degree, total.transpose(1, 0, 2), zero)],
            a.accumulate,
        )
    if gweights is not None:
        # One product over all pairs of degrees, whose long inner dimension cuBLAS splits; for each
        # degree alone it would not.
        total = plus(
            *(
                _same_degree(triplets, triplets.multiply(xp.where(met, r, zero).T, columns))
                for columns, r, _ in terms
                if r is not None
            )
        )
        out = gweights[: a.num_spherical * a.num_radial]
        store(out, [required(total).reshape(out.shape)], a.accumulate)


def _same_degree(triplets: Triplets, product: DeviceArray) -> DeviceArray:
    """Return the blocks [degree, radial, middle] on the diagonal of [degree, ..., degree, ...]."""
    a = triplets.a
    blocks = product.reshape(a.num_spherical, a.num_radial, a.num_spherical, a.middle)
    return blocks.diagonal(0, 0, 2).transpose(2, 0, 1)


def _gradients(triplets: Triplets, prefix: str, y: DeviceArray | None) -> None:
    """Compute the gradients of either order; and y of entries in the same pass if requested."""
    a, second = triplets.a, prefix == "d"
    gvectors, gradial, gembedding, gweights = (a.array(prefix + name) for name in NAMES)
    entries = a.num_entries
    by_direction: list[DeviceArray] = []
    if gvectors is not None:
        by_direction = [triplets.empty(entries, triplets.parts, 3) for _ in range(1 + second)]
    if by_direction or y is not None:
        triplets.incoming_pairs(second, a.gy, y, *by_direction)
    if all(out is None for out in (gvectors, gradial, gembedding, gweights)):
        return
    by_x = by_t = by_b = None
    each = 1 if gweights is None else triplets.each
    if gembedding is not None:
        by_x = triplets.empty(entries, a.channels)
    if gradial is not None or gweights is not None:
        width = (1 if triplets.tt is None else 2) * a.num_spherical * a.middle + 1
        by_t = triplets.empty(entries, triplets.parts, width)
    if gweights is not None:
        by_b = triplets.empty(-(-entries // each), a.middle * a.channels)
    triplets.outgoing_pairs(second, each, by_x, by_t, by_b, *by_direction)
    if gvectors is not None:
        triplets.by_vectors(by_direction, gvectors)
    if gembedding is not None and by_x is not None:
        triplets.sum_by_edge(by_x, gembedding, a.accumulate)
    if by_t is not None:
        _back_through_a(triplets, second, by_t, gradial, gweights)
    if gweights is not None and by_b is not None:
        out = gweights[a.num_spherical * a.num_radial :]
        by_weights = triplets.sum_rows(by_b).reshape(a.middle, a.channels)
        store(out, [by_weights.T], a.accumulate)


def backward(rt: Runtime, a: DimenetAggregate) -> None:
    """Compute gvectors, gradial, gembedding and gweights, as requested."""
    _gradients(Triplets(rt, a), "g", None)


def double_backward(rt: Runtime, a: DimenetAggregate) -> None:
    """Compute dvectors, dradial, dembedding, dweights and dgy, as requested."""
    if all(a.array("h" + name) is None for name in NAMES):
        Written(a).finish(*("d" + name for name in NAMES), "dgy")
        return
    triplets = Triplets(rt, a)
    y = None if a.dgy is None else triplets.empty(a.num_entries, a.channels)
    _gradients(triplets, "d", y)
    if a.dgy is not None and y is not None:
        triplets.sum_by_edge(y, a.dgy, a.accumulate)
