"""Translations of operators to ONNX, by functions of torch that the exporters translate.

Both exporters, of traces and of programs, record these functions in place of a kernel call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from ..._functions import PUBLIC
from .._call import MaybeTensor, tensor_of
from . import attention, operators
from .entries import Entries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..._call.operator import Operator
    from ..._call.types import Options
    from .._graph import Graph, TracedGraph

VALUES: Mapping[str, Callable[..., Tensor]] = {
    function.name: value
    for function in PUBLIC
    for value in (getattr(torch, function.name, None) or getattr(functional, function.name, None),)
    if value
} | {
    "aggregate": operators.aggregate,
    "degree_normalised": operators.degree_normalised,
    "edge_to_edge": operators.edge_to_edge,
    "edge_update": operators.edge_update,
    "elem_scale": torch.mul,
    "gat": attention.sum_by(attention.gat_weights),
    "gat_v2": attention.sum_by(attention.gat_v2_weights),
    "gno_aggregate": operators.gno_aggregate,
    "gno_conv": operators.gno_conv,
    "gno_kernel": operators.gno_kernel,
    "hetero_basis": operators.hetero_basis,
    "kernel_conv": operators.kernel_conv,
    "lno_decode": operators.lno_decode,
    "lno_encode": operators.lno_encode,
    "radial_basis": operators.radial_basis,
    "segment_softmax": operators.segment_softmax,
    "transformer_conv": attention.transformer_conv,
    "power": torch.pow,
    "softplus": operators.softplus,
    "clip": torch.clamp,
    "softmax": operators.along(torch.softmax),
    "log_softmax": operators.along(torch.log_softmax),
    "where": operators.where,
    "sum": operators.reduction("sum"),
    "mean": operators.reduction("mean"),
    "max": operators.reduction("amax"),
    "min": operators.reduction("amin"),
}
"""Functions of the table have torch's of their names, where there are any."""
ATTENTION: Mapping[str, Callable[..., Tensor]] = {
    "gat": attention.gat_weights,
    "gat_v2": attention.gat_v2_weights,
    "transformer_conv": attention.transformer_conv_weights,
}


def translated(
    op: Operator,
    graph: Graph | TracedGraph | None,
    tensors: Sequence[MaybeTensor],
    options: Options,
    phase: str,
) -> Tensor:
    """Evaluate an operator, or its attention weights, by functions of torch."""
    value = (VALUES if phase == "forward" else ATTENTION).get(op.name)
    if value is None:
        raise untranslated(op.name)
    indexed = {name: tensor_of(options.get(name)) for name in op.signature.indexed}
    plain = {name: option for name, option in options.items() if name not in indexed}
    given = op._phases["forward"]._complete(plain) | indexed
    if graph is None:
        return value(*tensors, **given)
    src, dst, ids = graph._tensors
    ids = None if ids is None else ids.long()
    sizes = graph._num_src, graph._num_dst, graph._num_edges
    return value(Entries(src.long(), dst.long(), ids, *sizes), *tensors, **given)


def untranslated(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"pyops.torch.{name}: there is no translation of it to ONNX, or none in a program that "
        "torch.export made before: expected a module without it, or torch.export alone, whose "
        "programs run where pyops is installed"
    )
