"""The attention calls, by the names of their arguments.

Those of ``mha_gat`` also exist under names with their precisions: of the features, in backward
calls of the gradients by features and by weights, and of sums. Those for bf16 or fp16 features
take embeddings of that type; any other array may have it, or float32, and sums are float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ops.gat import gat
from ....ops.gat_v2 import gat_v2
from ....ops.transformer_conv import transformer_conv
from ._mha import BACKWARD, FORWARD, Call

if TYPE_CHECKING:
    from ...._call.operator import Operator

_ENDS = "src_node_embedding dst_node_embedding"
_THREE = "key_embedding query_embedding value_embedding"
_GRADS = "grad_src_node_embedding grad_dst_node_embedding"
_GRAD_THREE = "grad_key_embedding grad_query_embedding grad_value_embedding"
_WORK = "grad_softmax_scores grad_output_embedding"


def _pair(name: str, op: Operator, edge: str = "") -> tuple[Call, Call]:
    """Return the forward and the backward call of an operator, with edge features or without."""
    by_edge, last = f"grad_{edge}" if edge else "", "graph params"
    if op is transformer_conv:
        forward = f"output_embedding softmax_scores {_THREE} {edge} {last}"
        backward = f"{_GRAD_THREE} {by_edge} {_WORK} {_THREE} {edge} softmax_scores {last}"
    else:
        scores = "softmax_scores" + " activation_scores" * (op is gat_v2)
        forward = f"output_embedding {scores} {_ENDS} {edge} attention_weights {last}"
        backward = (
            f"{_GRADS} {by_edge} grad_attention_weights {_WORK} {_ENDS} {edge} attention_weights "
            f"{scores} {last} grad_attention_weights_workspace"
        )
    return (
        Call(f"{name}_fwd", op, FORWARD, forward),
        Call(f"{name}_bwd", op, BACKWARD, backward),
    )


_EDGE = "edge_embedding"
mha_gat_n2n_fwd, mha_gat_n2n_bwd = _pair("mha_gat_n2n", gat)
mha_gat_n2n_efeat_fwd, mha_gat_n2n_efeat_bwd = _pair("mha_gat_n2n_efeat", gat, _EDGE)
mha_gat_v2_n2n_fwd, mha_gat_v2_n2n_bwd = _pair("mha_gat_v2_n2n", gat_v2)
mha_gat_v2_n2n_efeat_fwd, mha_gat_v2_n2n_efeat_bwd = _pair("mha_gat_v2_n2n_efeat", gat_v2, _EDGE)
mha_simple_n2n_fwd, mha_simple_n2n_bwd = _pair("mha_simple_n2n", transformer_conv)
mha_simple_n2n_efeat_fwd, mha_simple_n2n_efeat_bwd = _pair(
    "mha_simple_n2n_efeat", transformer_conv, _EDGE
)

_TYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": ""}
_FORWARD_NAMES = ("{0}_fp32",)
_BACKWARD_NAMES = "{0}_{0}_{0}_fp32", "{0}_{0}_fp32_fp32", "{0}_fp32_fp32_fp32"


def _by_precision(call: Call) -> dict[str, Call]:
    """Return a call under the names that include its precisions."""
    found = {}
    for features, half in _TYPES.items():
        for form in _FORWARD_NAMES if call.__name__.endswith("fwd") else _BACKWARD_NAMES:
            name = f"{call.__name__}_{form.format(features)}"
            found[name] = call.for_features(half, name) if half else call
    return found


BY_PRECISION = {
    name: named
    for call in (mha_gat_n2n_fwd, mha_gat_n2n_efeat_fwd, mha_gat_n2n_bwd, mha_gat_n2n_efeat_bwd)
    for name, named in _by_precision(call).items()
}
