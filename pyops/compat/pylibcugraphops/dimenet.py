"""The low-level calls of pylibcugraphops.dimenet, with their argument order.

Outputs are arrays of the caller, written in place. Distances are scaled by the cutoff,
[num_edges, 1]. ``coo_idx`` is [2, num_edges], sources over destinations; offsets and permutations
of the edges are checked against it, on the host. `mma_operation` applies to arrays on a device, see
`MMAOp`; without it products have high precision. Every width is supported: the number of degrees
follows from the arrays and `num_spherical`, by default 7 as in the original.

`cuda_stream` applies to arrays on a device, see `_queue`. Index arrays there are read and checked
on the first call with them, and their graph is kept for later calls, which copy nothing. **They
must not be written to after that**: use other arrays for other indices, or host memory, whose
contents are compared at each call. The graphs of the last calls keep their memory.

Unlike the original, `pyops.dimenet_aggregate` and `pyops.dimenet_basis` have gradients by angles
and second derivatives by distances; these calls omit them as the original does.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from ..._call.types import Values
from ...dimenet import dimenet_basis
from ...ops.dimenet_aggregate import dimenet_aggregate
from ._edge_lists import graph_of
from ._mma import MMAOp as MMAOp
from ._mma import precision_of
from ._queue import check_array, queue, signature_of
from ._results import write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..._call.operator import Operator
    from ..._call.types import Array

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
_LAST = {"mma_operation": None, "cuda_stream": 0}
Inputs = tuple[list[object], Values, Values]
"""Graph, if there is one, arrays by their names in the call, and options."""


def _call(
    name: str,
    summary: str,
    op: Operator,
    phase: str,
    outputs: Mapping[str, str],
    signature: inspect.Signature,
) -> Callable[..., None]:
    """Make the call of a phase of an operator; `outputs` receive its results of these names."""
    names, prepare = (_BASIS, _basis) if op is dimenet_basis else (_AGGREGATE, _aggregation)
    first, results = phase in ("forward", "jvp"), [*op.signature.results]
    method = op if phase == "forward" else getattr(op, phase)
    declared = inspect.signature(getattr(op, phase)).parameters.values()
    inputs = [names.get(p.name, "") for p in declared if p.kind is not p.KEYWORD_ONLY]
    inputs = inputs[op.signature.has_graph :]
    wanted: Values = {} if first else {"wanted": tuple(outputs.values())}
    results = results if first else [*op.signature.inputs, *(f"g{y}" for y in results)]
    single = first and len(results) == 1

    def run(values: Values) -> None:
        graph, arrays, options = prepare(name, values)
        found = method(*graph, *map(arrays.get, inputs), **wanted, **options)
        by_name = dict(zip(results, [found] if single else found, strict=False))
        stored = {}
        for output, result in outputs.items():
            array = by_name[result]
            stored[output] = values[output], array[:, None] if result == "distances" else array
        write(name, **stored)

    return queue(name, summary, __name__, signature, run, names)


def _basis(caller: str, values: Values) -> Inputs:
    """Return the inputs of the basis, whose options follow from the widths of its arrays."""
    names = "output_sbf_rad", "input_grad_sbf_rad"
    name = next(name for name in reversed(names) if name in values)
    w = check_array(f"{caller}: input_w", values["input_w"])
    spherical = check_array(f"{caller}: {name}", values[name])
    most = dimenet_basis.signature.options["num_spherical"].bounds.most
    radial = max(1, w.size)
    degrees, odd = divmod(spherical.shape[-1] if spherical.ndim else 0, radial)
    if odd or not 1 <= degrees <= most:
        raise ValueError(
            f"{caller}: {name}: expected 1 to {most} times n_radial={radial} columns, "
            f"got shape {spherical.shape}"
        )
    options = {"num_spherical": degrees, "num_radial": radial}
    return [], {**values, **_columns(caller, values)}, options


def _columns(caller: str, values: Values) -> dict[str, Array]:
    """Return arrays with a row for each edge, without their second axis."""
    edges: int | str = "num_edges"
    columns: dict[str, Array] = {}
    for name in "input_vector", "input_grad_grad_vector":
        if name in values:
            array = check_array(f"{caller}: {name}", values[name])
            if array.ndim != 2 or array.shape[1] != 1 or edges not in ("num_edges", len(array)):
                raise ValueError(
                    f"{caller}: {name}: expected shape ({edges}, 1), got {array.shape}"
                )
            edges, columns[name] = len(array), array[:, 0]
    return columns


def _aggregation(caller: str, values: Values) -> Inputs:
    """Return the inputs of the aggregation, with the graph that its index arrays describe."""
    packed = {n: values[n] for n in ("src_offsets", "dst_offsets", "dst_edge_index") if n in values}
    graph = graph_of(caller, values["coo_idx"], **packed)
    options: Values = {"num_spherical": values["num_spherical"]}
    return [graph], values, options | precision_of(caller, values["mma_operation"])


def _basis_call(
    name: str, summary: str, phase: str, outputs: Mapping[str, str], inputs: str
) -> Callable[..., None]:
    signature = signature_of([*outputs, *inputs.split()], {"cuda_stream": 0})
    return _call(name, summary, dimenet_basis, phase, outputs, signature)


def _aggregation_call(
    name: str, summary: str, phase: str, outputs: Mapping[str, str], inputs: str
) -> Callable[..., None]:
    signature = signature_of([*outputs, *inputs.split()], _LAST, keywords={"num_spherical": 7})
    return _call(name, summary, dimenet_aggregate, phase, outputs, signature)


radial_basis_fwd = _basis_call(
    "radial_basis_fwd",
    "Compute both bases of scaled distances: see `pyops.dimenet_basis`.",
    "forward",
    {"output_rbf": "rbf", "output_sbf_rad": "sbf"},
    "input_vector input_w",
)
radial_basis_bwd = _basis_call(
    "radial_basis_bwd",
    "Compute the gradients by distances and frequencies.",
    "backward",
    {"output_grad_vector": "distances", "output_grad_w": "frequencies"},
    "input_grad_rbf input_grad_sbf_rad input_vector input_w",
)
radial_basis_bwd_bwd = _basis_call(
    "radial_basis_bwd_bwd",
    "Compute the gradients of the first ones by the cotangents of the bases and by frequencies.",
    "double_backward",
    {
        "output_grad_grad_rbf": "grbf",
        "output_grad_grad_sbf_rad": "gsbf",
        "output_grad_w": "frequencies",
    },
    "input_grad_grad_vector input_grad_grad_w input_grad_rbf input_grad_sbf_rad input_vector "
    "input_w",
)
agg_edge_to_edge_fwd = _aggregation_call(
    "agg_edge_to_edge_fwd",
    "See `pyops.dimenet_aggregate`.",
    "forward",
    {"output_embedding": "y"},
    "input_vector input_rbf input_embedding input_weights coo_idx dst_offsets dst_edge_index",
)
agg_edge_to_edge_bwd = _aggregation_call(
    "agg_edge_to_edge_bwd",
    "Compute the gradients by all inputs except the vectors.",
    "backward",
    {
        "output_grad_rbf": "radial",
        "output_grad_embedding": "embedding",
        "output_grad_weights": "weights",
    },
    "input_vector input_rbf input_embedding input_grad_embedding input_weights coo_idx src_offsets",
)
agg_edge_to_edge_bwd2_main = _aggregation_call(
    "agg_edge_to_edge_bwd2_main",
    "Compute second derivatives by radial part, embedding, weights, without weight cotangent.",
    "double_backward",
    {
        "output_grad_rbf_grad_embedding": "radial",
        "output_grad_embedding_grad_rbf": "embedding",
        "output_grad_weights": "weights",
    },
    "input_vector input_rbf input_grad_grad_rbf input_embedding input_grad_grad_embedding "
    "input_grad_embedding input_weights coo_idx src_offsets",
)
agg_edge_to_edge_bwd2_grad = _aggregation_call(
    "agg_edge_to_edge_bwd2_grad",
    "Compute the second derivative by the cotangent of the output.",
    "jvp",
    {"output_grad_grad_embedding": "y"},
    "input_vector input_rbf input_grad_grad_rbf input_embedding input_grad_grad_embedding "
    "input_weights coo_idx dst_offsets dst_edge_index",
)
