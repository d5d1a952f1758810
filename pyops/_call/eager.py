"""Functions of NumPy arrays that torch.compile must not trace."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Given = ParamSpec("Given")
Found = TypeVar("Found")
_DYNAMO = "torch._dynamo"
_REASON = (
    "it has NumPy arrays; expected pyops.torch.Graph where torch compiles, and the functions of "
    "pyops.torch"
)
"""Reason that torch.compile reports if it may not call back into Python."""


def eager(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """Exclude a function from tracing by torch.compile, which calls it eagerly.

    Otherwise Dynamo would trace its NumPy code as tensor code, down to calls of compiled kernels
    that it cannot trace. Does not import torch.
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
