"""Which route a reduction over edges takes: operations of torch, or a packed graph and a kernel."""

from __future__ import annotations

from torch import Tensor

from .._call import recording

PACKED = {
    "segment_softmax": 2**18,
    "aggregate": 2**23,
    "gat": 2**18,
    "gat_v2": 2**20,
    "transformer_conv": 2**20,
    "kernel_conv": 2**18,
}
"""Elements in host memory from which packing a graph pays, even if it is used only once.

Elements of what PyTorch Geometric gathers along edges: the rows that are reduced, the messages of
all heads, or the matrices of `NNConv`. Below, the same operations of torch are at least as fast.
Results of the routes differ in their last bits, so sizes alone choose between them, never whether
a graph has been packed before.
"""
ALWAYS = "", 0
"""A route without a choice: that of an operator."""


def is_packed(operator: str, elements: int, index: Tensor) -> bool:
    """Whether edges with so many elements take the route of the operator.

    On a device and where torch traces, which does not know the number of edges, they always do.
    """
    return recording(index) or not index.is_cpu or elements >= PACKED.get(operator, 0)
