"""Declaration of `kernel_conv`: convolution with a given hidden layer."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Literal

from .._call.operator import Operator

if TYPE_CHECKING:
    from .._call.types import Array
    from ..graph import Graph


@functools.partial(
    Operator,
    where={
        "matrix": {"out_features": "columns"},
        "diagonal": {"columns": "1", "out_features": "in_features"},
    },
    sizes="hidden in_features out_features",
    half=("features", "hidden_layer"),
    half_on_devices=False,
    reads={"backward": "shared in id"},
)
def kernel_conv(
    graph: Graph,
    features: Annotated[Array, "num_src, in_features"],
    hidden_layer: Annotated[Array, "num_edges, hidden"],
    weight: Annotated[Array, "in_features*columns, hidden"],
    bias: Annotated[Array, "in_features*columns"] | None = None,
    edge_weight: Annotated[Array, "num_edges"] | None = None,
    *,
    kernel: Literal["matrix", "diagonal"] = "matrix",
    reduce: Literal["sum", "mean"] = "sum",
) -> Annotated[Array, "num_dst, out_features"]:
    r"""Convolution with a kernel network given by its last hidden layer.

    .. math:: m_i = \sum_{e = (j \to i)} w_e\, h_j \kappa_e, \qquad \kappa_e = V z_e + b

    Like `gno_conv`, without storing a matrix per edge, for any kernel network whose last layer is
    linear: z is the input of that layer. A diagonal kernel multiplies elementwise.

    Parameters
    ----------
    graph : Graph
    features : array, shape (num_src, in_features)
        Features h of the source nodes.
    hidden_layer : array, shape (num_edges, hidden)
        Last hidden layer z of the kernel network.
    weight : array, shape (in_features * columns, hidden)
        Weight V of its last, linear layer, as of a torch ``Linear``. For a matrix kernel, columns
        is out_features and row f_in * out_features + f_out gives the element (f_in, f_out) of
        kappa; for a diagonal one, columns is 1.
    bias : array, shape (in_features * columns,), optional
        Bias b of that layer.
    edge_weight : array, shape (num_edges,), optional
        Weights w, for example of a quadrature.
    kernel : {"matrix", "diagonal"}
        Whether kappa is a matrix or acts elementwise, with out_features = in_features.
    reduce : {"sum", "mean"}
        Whether the sum is divided by the number of entries into the destination.

    Returns
    -------
    array, shape (num_dst, out_features)
        Sum or mean m of each destination.

    Notes
    -----
    Time O(E hidden in_features + N hidden in_features out_features) for E entries and N
    destinations; with a diagonal kernel O(E hidden in_features). Memory beside inputs and results:
    buffers of fixed size for each thread and one packed copy of the weight; for gradients of the
    features a float64 array of their size.

    References
    ----------
    Gilmer et al., Neural message passing for quantum chemistry, arXiv:1704.01212 (matrix);
    Li et al., Geometry-informed neural operator, arXiv:2309.00583 (diagonal).
    """
