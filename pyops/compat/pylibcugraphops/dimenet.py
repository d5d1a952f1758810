"""The low-level calls of pylibcugraphops.dimenet, with their argument order.

Outputs are arrays of the caller, written in place. Distances are scaled by the cutoff,
[num_edges, 1]. ``coo_idx`` is [2, num_edges], sources over destinations; offsets and permutations
of the edges are checked against it, on the host. `mma_operation` applies to arrays on a device, see
`MMAOp`; without it products have high precision. Any width is supported: the number of degrees
follows from the arrays and `num_spherical`, by default 7 as in the original.

`cuda_stream` applies to arrays on a device, see `_queue`. Index arrays there are read and checked
on the first call with them, and their graph is kept for later calls, which copy nothing. **They
must not be written to after that**: use other arrays for other indices, or host memory, whose
contents are compared at each call. The graphs of the last calls keep their memory.

Unlike the original, `pyops.dimenet_aggregate` and `pyops.dimenet_basis` have gradients by angles
and second derivatives by distances; these calls omit them as the original does.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from ..._call.arrays import Array
from ...dimenet import dimenet_basis
from ...ops.dimenet_aggregate import dimenet_aggregate
from ._edge_lists import graph_of
from ._mma import MMAOp, precision_of
from ._names import in_names_of_call
from ._queue import check_array, queued
from ._results import write

Integers = npt.ArrayLike
_BASIS = {
    "distances": "input_vector",
    "frequencies": "input_w",
    "grbf": "input_grad_rbf",
    "gsbf": "input_grad_sbf_rad",
    "hdistances": "input_grad_grad_vector",
    "hfrequencies": "input_grad_grad_w",
}
_AGGREGATE = {
    "src": "coo_idx",
    "dst": "coo_idx",
    "vectors": "input_vector",
    "radial": "input_rbf",
    "embedding": "input_embedding",
    "weights": "input_weights",
    "gy": "input_grad_embedding",
    **{tag + "radial": "input_grad_grad_rbf" for tag in "ht"},
    **{tag + "embedding": "input_grad_grad_embedding" for tag in "ht"},
}


@queued
@in_names_of_call(_BASIS)
def radial_basis_fwd(
    output_rbf: Array,
    output_sbf_rad: Array,
    input_vector: Array,
    input_w: Array,
    cuda_stream: int = 0,
) -> None:
    """Compute both bases of scaled distances: see `pyops.dimenet_basis`."""
    caller = "radial_basis_fwd"
    options = _options(caller, input_w, output_sbf_rad=output_sbf_rad)
    (distances,) = _columns(caller, input_vector=input_vector)
    results = dimenet_basis(distances, input_w, **options)
    write(
        caller,
        output_rbf=(output_rbf, results[0]),
        output_sbf_rad=(output_sbf_rad, results[1]),
    )


@queued
@in_names_of_call(_BASIS)
def radial_basis_bwd(
    output_grad_vector: Array,
    output_grad_w: Array,
    input_grad_rbf: Array,
    input_grad_sbf_rad: Array,
    input_vector: Array,
    input_w: Array,
    cuda_stream: int = 0,
) -> None:
    """Compute the gradients by distances and frequencies."""
    caller = "radial_basis_bwd"
    options = _options(caller, input_w, input_grad_sbf_rad=input_grad_sbf_rad)
    (distances,) = _columns(caller, input_vector=input_vector)
    by_distances, by_w = dimenet_basis.backward(
        distances, input_w, input_grad_rbf, input_grad_sbf_rad, **options
    )
    assert by_distances is not None
    write(
        caller,
        output_grad_vector=(output_grad_vector, by_distances[:, None]),
        output_grad_w=(output_grad_w, by_w),
    )


@queued
@in_names_of_call(_BASIS)
def radial_basis_bwd_bwd(
    output_grad_grad_rbf: Array,
    output_grad_grad_sbf_rad: Array,
    output_grad_w: Array,
    input_grad_grad_vector: Array,
    input_grad_grad_w: Array,
    input_grad_rbf: Array,
    input_grad_sbf_rad: Array,
    input_vector: Array,
    input_w: Array,
    cuda_stream: int = 0,
) -> None:
    """Compute the gradients of the first ones by the cotangents of the bases and by frequencies."""
    caller = "radial_basis_bwd_bwd"
    options = _options(caller, input_w, input_grad_sbf_rad=input_grad_sbf_rad)
    distances, tangent = _columns(
        caller, input_vector=input_vector, input_grad_grad_vector=input_grad_grad_vector
    )
    _, by_w, by_rbf, by_sbf = dimenet_basis.double_backward(
        distances,
        input_w,
        input_grad_rbf,
        input_grad_sbf_rad,
        tangent,
        input_grad_grad_w,
        wanted=("frequencies", "grbf", "gsbf"),
        **options,
    )
    write(
        caller,
        output_grad_grad_rbf=(output_grad_grad_rbf, by_rbf),
        output_grad_grad_sbf_rad=(output_grad_grad_sbf_rad, by_sbf),
        output_grad_w=(output_grad_w, by_w),
    )


@queued
@in_names_of_call(_AGGREGATE)
def agg_edge_to_edge_fwd(
    output_embedding: Array,
    input_vector: Array,
    input_rbf: Array,
    input_embedding: Array,
    input_weights: Array,
    coo_idx: Integers,
    dst_offsets: Integers,
    dst_edge_index: Integers,
    mma_operation: MMAOp | None = None,
    cuda_stream: int = 0,
    *,
    num_spherical: int = 7,
) -> None:
    """See `pyops.dimenet_aggregate`."""
    caller = "agg_edge_to_edge_fwd"
    graph = graph_of(caller, coo_idx, dst_offsets=dst_offsets, dst_edge_index=dst_edge_index)
    inputs = input_vector, input_rbf, input_embedding, input_weights
    precision = precision_of(caller, mma_operation)
    y = dimenet_aggregate(graph, *inputs, num_spherical=num_spherical, **precision)
    write(caller, output_embedding=(output_embedding, y))


@queued
@in_names_of_call(_AGGREGATE)
def agg_edge_to_edge_bwd(
    output_grad_rbf: Array,
    output_grad_embedding: Array,
    output_grad_weights: Array,
    input_vector: Array,
    input_rbf: Array,
    input_embedding: Array,
    input_grad_embedding: Array,
    input_weights: Array,
    coo_idx: Integers,
    src_offsets: Integers,
    mma_operation: MMAOp | None = None,
    cuda_stream: int = 0,
    *,
    num_spherical: int = 7,
) -> None:
    """Compute the gradients by all inputs except the vectors."""
    caller = "agg_edge_to_edge_bwd"
    _, rbf, embedding, weights = dimenet_aggregate.backward(
        graph_of(caller, coo_idx, src_offsets=src_offsets),
        input_vector,
        input_rbf,
        input_embedding,
        input_weights,
        input_grad_embedding,
        wanted=("radial", "embedding", "weights"),
        num_spherical=num_spherical,
        **precision_of(caller, mma_operation),
    )
    write(
        caller,
        output_grad_rbf=(output_grad_rbf, rbf),
        output_grad_embedding=(output_grad_embedding, embedding),
        output_grad_weights=(output_grad_weights, weights),
    )


@queued
@in_names_of_call(_AGGREGATE)
def agg_edge_to_edge_bwd2_main(
    output_grad_rbf_grad_embedding: Array,
    output_grad_embedding_grad_rbf: Array,
    output_grad_weights: Array,
    input_vector: Array,
    input_rbf: Array,
    input_grad_grad_rbf: Array,
    input_embedding: Array,
    input_grad_grad_embedding: Array,
    input_grad_embedding: Array,
    input_weights: Array,
    coo_idx: Integers,
    src_offsets: Integers,
    mma_operation: MMAOp | None = None,
    cuda_stream: int = 0,
    *,
    num_spherical: int = 7,
) -> None:
    """Compute second derivatives by radial part, embedding, weights, without weight cotangent."""
    caller = "agg_edge_to_edge_bwd2_main"
    _, rbf, embedding, weights, _ = dimenet_aggregate.double_backward(
        graph_of(caller, coo_idx, src_offsets=src_offsets),
        input_vector,
        input_rbf,
        input_embedding,
        input_weights,
        input_grad_embedding,
        None,
        input_grad_grad_rbf,
        input_grad_grad_embedding,
        None,
        wanted=("radial", "embedding", "weights"),
        num_spherical=num_spherical,
        **precision_of(caller, mma_operation),
    )
    write(
        caller,
        output_grad_rbf_grad_embedding=(output_grad_rbf_grad_embedding, rbf),
        output_grad_embedding_grad_rbf=(output_grad_embedding_grad_rbf, embedding),
        output_grad_weights=(output_grad_weights, weights),
    )


@queued
@in_names_of_call(_AGGREGATE)
def agg_edge_to_edge_bwd2_grad(
    output_grad_grad_embedding: Array,
    input_vector: Array,
    input_rbf: Array,
    input_grad_grad_rbf: Array,
    input_embedding: Array,
    input_grad_grad_embedding: Array,
    input_weights: Array,
    coo_idx: Integers,
    dst_offsets: Integers,
    dst_edge_index: Integers,
    mma_operation: MMAOp | None = None,
    cuda_stream: int = 0,
    *,
    num_spherical: int = 7,
) -> None:
    """Compute the second derivative by the cotangent of the output."""
    caller = "agg_edge_to_edge_bwd2_grad"
    dy = dimenet_aggregate.jvp(
        graph_of(caller, coo_idx, dst_offsets=dst_offsets, dst_edge_index=dst_edge_index),
        input_vector,
        input_rbf,
        input_embedding,
        input_weights,
        None,
        input_grad_grad_rbf,
        input_grad_grad_embedding,
        None,
        num_spherical=num_spherical,
        **precision_of(caller, mma_operation),
    )
    write(caller, output_grad_grad_embedding=(output_grad_grad_embedding, dy))


def _options(caller: str, w: Array, **spherical: Array) -> dict[str, Any]:
    """Return the options of the basis, from the widths of its arrays."""
    ((name, array),) = spherical.items()
    for label, given in {"input_w": w, name: array}.items():
        check_array(f"{caller}: {label}", given)
    most = dimenet_basis.signature.options["num_spherical"].bounds.most
    radial = max(1, w.size)
    degrees, odd = divmod(array.shape[-1] if array.ndim else 0, radial)
    if odd or not 1 <= degrees <= most:
        raise ValueError(
            f"{caller}: {name}: expected 1 to {most} times n_radial={radial} columns, "
            f"got shape {array.shape}"
        )
    return {"num_spherical": degrees, "num_radial": radial}


def _columns(caller: str, **columns: Array) -> list[Array]:
    """Return arrays with a row for each edge, without their second axis."""
    edges: int | str = "num_edges"
    for name, array in columns.items():
        check_array(f"{caller}: {name}", array)
        if array.ndim != 2 or array.shape[1] != 1 or edges not in ("num_edges", len(array)):
            raise ValueError(f"{caller}: {name}: expected shape ({edges}, 1), got {array.shape}")
        edges = len(array)
    return [array[:, 0] for array in columns.values()]
