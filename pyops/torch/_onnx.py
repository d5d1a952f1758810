"""Translations of operators to ONNX, by functions of torch that the exporters translate.

Both exporters, of traces and of programs, record these functions in place of a kernel call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .._call.operator import Operator
from .._functions import PUBLIC
from . import _values
from ._call import Maybe, tensor_of

VALUES: Mapping[str, Callable[..., Tensor]] = {
    function.name: value
    for function in PUBLIC
    for value in (getattr(torch, function.name, None) or getattr(functional, function.name, None),)
    if value
} | {
    "aggregate": _values.aggregate,
    "degree_normalised": _values.degree_normalised,
    "edge_to_edge": _values.edge_to_edge,
    "edge_update": _values.edge_update,
    "elem_scale": torch.mul,
    "gat": _values.attended(_values.gat_weights),
    "gat_v2": _values.attended(_values.gat_v2_weights),
    "gno_aggregate": _values.gno_aggregate,
    "gno_conv": _values.gno_conv,
    "gno_kernel": _values.gno_kernel,
    "hetero_basis": _values.hetero_basis,
    "kernel_conv": _values.kernel_conv,
    "lno_decode": _values.lno_decode,
    "lno_encode": _values.lno_encode,
    "radial_basis": _values.radial_basis,
    "segment_softmax": _values.segment_softmax,
    "transformer_conv": _values.transformer_conv,
    "power": torch.pow,
    "softplus": _values.softplus,
    "sum": _values.reduction("sum"),
    "mean": _values.reduction("mean"),
    "max": _values.reduction("amax"),
    "min": _values.reduction("amin"),
}
"""Functions of the table have torch's of their names, where there are any."""
ATTENTION: Mapping[str, Callable[..., Tensor]] = {
    "gat": _values.gat_weights,
    "gat_v2": _values.gat_v2_weights,
    "transformer_conv": _values.transformer_conv_weights,
}


def translated(
    op: Operator, graph: Any, tensors: Sequence[Maybe], options: dict[str, Any], phase: str
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
    return value(_values.Entries(src.long(), dst.long(), ids, *sizes), *tensors, **given)


def untranslated(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"pyops.torch.{name}: there is no translation of it to ONNX, or none in a program that "
        "torch.export made before: expected a module without it, or torch.export alone, whose "
        "programs run where pyops is installed"
    )
