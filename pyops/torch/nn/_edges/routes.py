"""Choice between operations of torch and a kernel on a packed graph for reductions over edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._call import is_tracing

if TYPE_CHECKING:
    from torch import Tensor

PACKED = {
    "segment_softmax": 2**18,
    "aggregate": 2**23,
    "neighbours": 2**19,
    "gat": 2**18,
    "gat_v2": 2**20,
    "transformer_conv": 2**20,
    "kernel_conv": 2**18,
}
"""Number of elements in host memory from which packing a graph pays, even if used only once.

Counts the elements that PyTorch Geometric gathers along edges: the reduced rows, the messages of
all heads, or the matrices of `NNConv`. Below, the same operations of torch are at least as fast.
The names are those of operators; `neighbours` is `aggregate` of rows that it gathers from nodes.
The two implementations differ in the last bits, so only sizes choose between them, never whether a
graph is already packed.
"""
ALWAYS = "", 0
"""Route that always uses the operator."""


def is_packed(operator: str, elements: int, index: Tensor) -> bool:
    """Return whether edges with so many elements are reduced by the operator.

    They always are on a device, and if torch traces, when the number of edges is unknown.
    """
    return is_tracing(index) or not index.is_cpu or elements >= PACKED.get(operator, 0)
