"""Declaration of `hetero_basis`: basis-weighted sums over relations."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(Operator, half=("x",))
def hetero_basis(
    graph: Graph,
    x: Annotated[Array, "num_src, width"],
    weight: Annotated[Array, "num_edges, num_bases"],
) -> Annotated[Array, "num_dst, num_bases*width"]:
    r"""Sum of the neighbours' features for each basis, weighted by the relation of the entry.

    .. math:: y_{ibc} = \sum_{e = (j \to i)} w_{r(e)\, b}\, x_{jc}

    The relation r(e) of an entry is its edge id: ``graph.with_edge_ids(types, num_types)`` is a
    graph whose entries have types, and the weights then have a row for each type. The weights of
    the bases commute with the sum, so a relational layer is this operator and one matrix product.

    Parameters
    ----------
    graph : Graph
        With relations as edge ids.
    x : array, shape (num_src, width)
        Features of the source nodes.
    weight : array, shape (num_edges, num_bases)
        Coefficients w of each relation in each basis.

    Returns
    -------
    array, shape (num_dst, num_bases * width)
        Sums of each destination, basis by basis.

    Notes
    -----
    Time O(E num_bases width) for E entries. Memory beside inputs and results: one row of sums for
    each thread; for gradients of the weights (E, num_bases).

    References
    ----------
    Schlichtkrull et al., Modeling relational data with graph convolutional networks,
    arXiv:1703.06103.
    """
