"""Featurewise scaling on a device, run as the elementwise product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._call.broadcast import make_layout, packed, spread
from ..._call.elementwise import ARRAYS
from ..._functions import CODES
from .._array import DeviceArray, store
from . import elementwise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._declared import ElemScale
    from .._runtime import Runtime


def forward(rt: Runtime, a: ElemScale) -> None:
    """Compute y."""
    if not _is_empty(a, [a.y]):
        elementwise.forward(rt, _product(a, "forward", 1))


def backward(rt: Runtime, a: ElemScale) -> None:
    """Compute gx and gscale, as requested."""
    if not _is_empty(a, [a.gx, a.gscale]):
        elementwise.backward(rt, _product(a, "backward", 2))


def double_backward(rt: Runtime, a: ElemScale) -> None:
    """Compute dx, dscale and dgy, as requested."""
    if not _is_empty(a, [a.dx, a.dscale, a.dgy]):
        elementwise.double_backward(rt, _product(a, "double_backward", 3))


def _is_empty(a: ElemScale, results: Sequence[DeviceArray | None]) -> bool:
    """Return whether there are no samples; the results are then 0."""
    if a.num_samples == 0:
        for result in results:
            if result is not None:
                store(result, [], a.accumulate)
    return a.num_samples == 0


def _product(a: ElemScale, phase: str, results: int) -> elementwise.Elementwise:
    """Return the call as one of `multiply`."""
    names = {name: name.replace("x1", "x").replace("x2", "scale") for name in ARRAYS[phase]}
    arrays = {name: a.array(own) for name, own in names.items()}
    space = a.num_samples, a.width
    strides = tuple(
        None if array is None else spread(space, array.shape, packed(array.shape))
        for array in arrays.values()
    )
    bits = [array is not None for array in arrays.values()]
    return elementwise.Elementwise(
        {
            **arrays,
            "layout": make_layout(space, strides, results).table.T,
            "code": CODES["multiply"],
            "operation": 1,
            "constant": 0.0,
            "divisor": 1.0,
            "present": sum(bit << i for i, bit in enumerate(bits[:-results])),
            "wanted": sum(bit << i for i, bit in enumerate(bits[-results:])),
            "given": sum(bit << i for i, bit in enumerate(bits[3:5])),
            "accumulate": a.accumulate,
            "table": a.table,
        }
    )
