"""Refusal of parameters that reach the code of a model as tensors, not as values of a program."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, NoReturn

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from ...models._calls import GRAPH
from .builder import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from .tracing import Traced, Tracer

_PROPERTIES = "shape", "dtype", "device", "ndim", "layout", "is_sparse", "is_cuda"
_CONSTANT = {getattr(torch.Tensor, name).__get__ for name in _PROPERTIES}
_CONSTANT |= {getattr(torch.Tensor, name) for name in ("size", "dim", "numel", "__hash__")}
"""Functions of parameters whose results do not depend on their values."""


class ParameterUses(TorchFunctionMode):
    """Passes calls with values of a program to the tracer, and refuses those with parameters.

    Parameters that attributes of modules return are values of the program. From lists, `parameters`
    and the like come the tensors themselves, and so do aliases of their memory; a number of these
    would be a constant of the program.
    """

    def __init__(self, tracer: Tracer, traced: type[Traced]) -> None:
        super().__init__()
        self._tracer, self._traced = tracer, traced
        state = tracer.builder.model.state_dict(keep_vars=True).values()
        self._before: list[tuple[object, str, object]] = []
        self._memory = {_memory(tensor) for tensor in state} - {0}

    def __enter__(self) -> Self:
        self._isinstance = isinstance
        script = torch.jit.ScriptFunction
        self._before = [(script, "__call__", script.__call__), (builtins, "isinstance", isinstance)]
        for (owner, name, _), own in zip(
            self._before, (_refuse_script, self._is_instance), strict=True
        ):
            setattr(owner, name, own)
        found: Self = super().__enter__()
        return found

    def __exit__(self, *error: object) -> None:
        for owner, name, value in self._before:
            setattr(owner, name, value)
        super().__exit__(*error)

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        named = dict(kwargs or {})
        if self._tracer.outside:
            held = list(_leaves([*args, *named.values()]))
            if any(type(one) is self._traced for one in held):
                return self._traced.__torch_function__(func, (), args, named)
            if func not in _CONSTANT and any(map(self._is_parameter, held)):
                name = resolve_name(func) or getattr(func, "__name__", "a function")
                raise UnsupportedError(
                    f"{name}: expected no values of parameters but those that attributes of "
                    "modules return, as these would be constants of the program"
                )
        return func(*args, **named)

    def _is_instance(self, value: object, kinds: type) -> bool:
        """Return `isinstance`, by which values are tensors to Python, but not to compiled code."""
        if self._isinstance(value, kinds):
            return True
        is_value = type(value) is self._traced and value.ref.kind != GRAPH
        return is_value and issubclass(torch.Tensor, kinds)

    def _is_parameter(self, value: object) -> bool:
        """Return whether a tensor is or depends on a parameter or a buffer."""
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return False
        return value.requires_grad or _memory(value) in self._memory


def _refuse_script(function: object, *_: object, **__: object) -> NoReturn:
    """Refuse what compiled code would read as memory of tensors."""
    raise UnsupportedError("expected functions of Python, got one of torch.jit.script")


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, tuple | list):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, dict):
        yield from _leaves([*value.values()])
    else:
        yield value
