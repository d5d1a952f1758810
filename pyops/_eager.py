"""Functions of NumPy arrays in programs that torch.compile compiles."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")
_DYNAMO = "torch._dynamo"
_REASON = (
    "it has NumPy arrays; expected pyops.torch.Graph where torch compiles, and the functions of "
    "pyops.torch"
)
"""What torch.compile says where it must not call anything by Python."""


def eager(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """The function, which torch.compile calls as it is.

    Otherwise Dynamo would read the NumPy code behind it as tensor code, down to calls of compiled
    kernels that it cannot read. Torch is not imported for it.
    """

    @functools.wraps(function)
    def call(*arguments: Given.args, **options: Given.kwargs) -> Found:
        if _DYNAMO not in sys.modules:
            return function(*arguments, **options)
        return _unread(function)(*arguments, **options)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    call._torchdynamo_disable_msg = _REASON  # type: ignore[attr-defined]
    return call


@functools.cache
def _without_dynamo(function: Callable[Given, Found]) -> Callable[Given, Found]:
    found: Callable[Given, Found] = sys.modules[_DYNAMO].disable(function)
    return found


def _unread(function: Callable[Given, Found]) -> Callable[Given, Found]:
    return _without_dynamo(function)


_unread._torchdynamo_disable = True  # type: ignore[attr-defined]
