"""The attention calls, by the names of their arguments.

Those of ``mha_gat`` also exist under names with their precisions: of the features, in backward
calls of the gradients by features and by weights, and of sums. Those for bf16 or fp16 features
raise an error.
"""

from __future__ import annotations

from ....ops.gat import gat
from ....ops.gat_v2 import gat_v2
from ....ops.transformer_conv import transformer_conv
from ._mha import BACKWARD, FORWARD, Call

_ENDS = "src_node_embedding dst_node_embedding"
_GRADS = "grad_src_node_embedding grad_dst_node_embedding"
_WORK = "grad_softmax_scores grad_output_embedding"
_LAST = "graph params grad_attention_weights_workspace"

mha_gat_n2n_fwd = Call(
    "mha_gat_n2n_fwd", gat, FORWARD,
    f"output_embedding softmax_scores {_ENDS} attention_weights graph params",
)  # fmt: skip
mha_gat_n2n_efeat_fwd = Call(
    "mha_gat_n2n_efeat_fwd", gat, FORWARD,
    f"output_embedding softmax_scores {_ENDS} edge_embedding attention_weights graph params",
)  # fmt: skip
mha_gat_n2n_bwd = Call(
    "mha_gat_n2n_bwd", gat, BACKWARD,
    f"{_GRADS} grad_attention_weights {_WORK} {_ENDS} attention_weights softmax_scores {_LAST}",
)  # fmt: skip
mha_gat_n2n_efeat_bwd = Call(
    "mha_gat_n2n_efeat_bwd", gat, BACKWARD,
    f"{_GRADS} grad_edge_embedding grad_attention_weights {_WORK} {_ENDS} edge_embedding "
    f"attention_weights softmax_scores {_LAST}",
)  # fmt: skip
mha_gat_v2_n2n_fwd = Call(
    "mha_gat_v2_n2n_fwd", gat_v2, FORWARD,
    f"output_embedding softmax_scores activation_scores {_ENDS} attention_weights graph params",
)  # fmt: skip
mha_gat_v2_n2n_efeat_fwd = Call(
    "mha_gat_v2_n2n_efeat_fwd", gat_v2, FORWARD,
    f"output_embedding softmax_scores activation_scores {_ENDS} edge_embedding attention_weights "
    "graph params",
)  # fmt: skip
mha_gat_v2_n2n_bwd = Call(
    "mha_gat_v2_n2n_bwd", gat_v2, BACKWARD,
    f"{_GRADS} grad_attention_weights {_WORK} {_ENDS} attention_weights softmax_scores "
    f"activation_scores {_LAST}",
)  # fmt: skip
mha_gat_v2_n2n_efeat_bwd = Call(
    "mha_gat_v2_n2n_efeat_bwd", gat_v2, BACKWARD,
    f"{_GRADS} grad_edge_embedding grad_attention_weights {_WORK} {_ENDS} edge_embedding "
    f"attention_weights softmax_scores activation_scores {_LAST}",
)  # fmt: skip
_THREE = "key_embedding query_embedding value_embedding"
_GRAD_THREE = "grad_key_embedding grad_query_embedding grad_value_embedding"
mha_simple_n2n_fwd = Call(
    "mha_simple_n2n_fwd", transformer_conv, FORWARD,
    f"output_embedding softmax_scores {_THREE} graph params",
)  # fmt: skip
mha_simple_n2n_efeat_fwd = Call(
    "mha_simple_n2n_efeat_fwd", transformer_conv, FORWARD,
    f"output_embedding softmax_scores {_THREE} edge_embedding graph params",
)  # fmt: skip
mha_simple_n2n_bwd = Call(
    "mha_simple_n2n_bwd", transformer_conv, BACKWARD,
    f"{_GRAD_THREE} {_WORK} {_THREE} softmax_scores graph params",
)  # fmt: skip
mha_simple_n2n_efeat_bwd = Call(
    "mha_simple_n2n_efeat_bwd", transformer_conv, BACKWARD,
    f"{_GRAD_THREE} grad_edge_embedding {_WORK} {_THREE} edge_embedding softmax_scores graph "
    "params",
)  # fmt: skip

_FORWARD_NAMES = ("{0}_fp32",)
_BACKWARD_NAMES = "{0}_{0}_{0}_fp32", "{0}_{0}_fp32_fp32", "{0}_fp32_fp32_fp32"


def _by_precision(call: Call) -> dict[str, Call]:
    """Return a call under the names that include its precisions."""
    found = {}
    for features in "bf16", "fp16", "fp32":
        for form in _FORWARD_NAMES if call.__name__.endswith("fwd") else _BACKWARD_NAMES:
            name = f"{call.__name__}_{form.format(features)}"
            found[name] = call if features == "fp32" else call.for_features(features, name)
    return found


BY_PRECISION = {
    name: named
    for call in (mha_gat_n2n_fwd, mha_gat_n2n_efeat_fwd, mha_gat_n2n_bwd, mha_gat_n2n_efeat_bwd)
    for name, named in _by_precision(call).items()
}
