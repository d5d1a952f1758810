import numpy as np
from numpy.polynomial import Legendre, Polynomial

from .spherical_harmonics import directions

# With exclude="bound", returns bounds of magnitudes for nonnegative arrays: over all pairs, with
# Legendre polynomials at a cosine of 1 and all terms of one sign.


def forward(graph, vectors, radial, embedding, weights, **options):
    e, f = pairs(graph, vectors, **options)
    _, basis, _ = _basis(graph, vectors, radial, e, f, **options)
    into = graph.edge_ids[f]
    a, b = _split(weights, radial)
    y = np.zeros(embedding.shape, np.result_type(vectors, radial, embedding, weights))
    np.add.at(y, graph.edge_ids[e], embedding[into] * (basis @ a @ b.T))
    return y


def backward(graph, vectors, radial, embedding, weights, gy, **options):
    e, f = pairs(graph, vectors, **options)
    (u, length, c), basis, (value, slope) = _basis(graph, vectors, radial, e, f, **options)
    out, into = graph.edge_ids[e], graph.edge_ids[f]
    a, b = _split(weights, radial)
    middle = basis @ a
    scaled = gy[out] * embedding[into]
    by_middle = scaled @ b
    by_basis = by_middle @ a.T
    by_angle = (slope * radial[into] * by_basis).sum(1)[:, None]
    kind = np.result_type(vectors, radial, embedding, weights, gy)
    gvectors, gradial, gembedding = (np.zeros(x.shape, kind) for x in (vectors, radial, embedding))
    along = -c if options["exclude"] == "bound" else c
    np.add.at(gvectors, out, by_angle * (u[into] - along * u[out]) / length[out])
    np.add.at(gvectors, into, by_angle * (u[out] - along * u[into]) / length[into])
    np.add.at(gradial, into, value * by_basis)
    np.add.at(gembedding, into, gy[out] * (middle @ b.T))
    return gvectors, gradial, gembedding, np.concatenate([basis.T @ by_middle, scaled.T @ middle])


def pairs(graph, vectors, *, num_spherical, exclude, reverse=None):
    """Return the entries e and f of every pair, f into the source of e."""
    e, f = np.nonzero(graph.src[:, None] == graph.dst)
    kept = np.ones(len(e), bool)
    if exclude == "node":
        kept = graph.dst[e] != graph.src[f]
    if exclude == "image":
        kept = reverse[graph.edge_ids[e]] != graph.edge_ids[f]
    for ends in e, f:
        kept &= (vectors[graph.edge_ids[ends]].real != 0).any(1)
    return e[kept], f[kept]


def _basis(graph, vectors, radial, e, f, *, num_spherical, exclude, reverse=None):
    """Return directions, lengths and cosines; S of every pair; the angular factor and its slope."""
    u, length = directions(vectors, bound=exclude == "bound")
    out, into = graph.edge_ids[e], graph.edge_ids[f]
    c = (u[out] * u[into]).sum(1, keepdims=True)
    cosine = 1 + c - c.real if exclude == "bound" else c
    parts = []
    for order in range(2):
        columns = [p.deriv(order)(cosine) if order else p(cosine) for p in _angular(num_spherical)]
        width = radial.shape[1] // num_spherical
        parts.append(np.repeat(np.concatenate(columns, 1), width, axis=1))
    return (u, length, c), parts[0] * radial[into], parts


def _angular(num_spherical):
    """Return Y_l0 as polynomials of the cosine."""
    for degree in range(num_spherical):
        polynomial = Legendre.basis(degree).convert(kind=Polynomial)
        yield np.sqrt((2 * degree + 1) / (4 * np.pi)) * polynomial


def _split(weights, radial):
    return np.split(weights, [radial.shape[1]])
