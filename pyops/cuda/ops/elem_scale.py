from types import SimpleNamespace
from typing import Any

from ..._call.broadcast import make_layout, packed, spread
from ..._call.elementwise import ARRAYS
from ..._functions import CODES
from .._runtime import Runtime
from .._terms import put
from . import elementwise

RESULTS = {"forward": 1, "backward": 2, "double_backward": 3}


def forward(rt: Runtime, a: SimpleNamespace) -> None:
    _run(rt, a, "forward")


def backward(rt: Runtime, a: SimpleNamespace) -> None:
    _run(rt, a, "backward")


def double_backward(rt: Runtime, a: SimpleNamespace) -> None:
    _run(rt, a, "double_backward")


def _run(rt: Runtime, a: SimpleNamespace, phase: str) -> None:
    product = _product(a, phase, RESULTS[phase])
    if a.num_samples:
        getattr(elementwise, phase)(rt, product)
        return
    for name in ARRAYS[phase][-RESULTS[phase] :]:
        if getattr(product, name) is not None:
            put(getattr(product, name), [], a.accumulate)


def _product(a: SimpleNamespace, phase: str, results: int) -> SimpleNamespace:
    """Return the call as one of `multiply`."""
    names = {name: name.replace("x1", "x").replace("x2", "scale") for name in ARRAYS[phase]}
    held: dict[str, Any] = {name: getattr(a, own) for name, own in names.items()}
    space = a.num_samples, a.width
    strides = tuple(
        None if array is None else spread(space, array.shape, packed(array.shape))
        for array in held.values()
    )
    there = [array is not None for array in held.values()]
    return SimpleNamespace(
        **held,
        layout=make_layout(space, strides, results).table.T,
        code=CODES["multiply"],
        operation=1,
        constant=0.0,
        divisor=1.0,
        present=sum(bit << i for i, bit in enumerate(there[:-results])),
        wanted=sum(bit << i for i, bit in enumerate(there[-results:])),
        given=sum(bit << i for i, bit in enumerate(there[3:5])),
        accumulate=a.accumulate,
        table=a.table,
    )
