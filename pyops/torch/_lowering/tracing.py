"""Calls of a model's `forward` with values in place of tensors, each written as steps at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, cast

import torch
from torch import fx

import pyops.torch as pt
from pyops import blocks
from pyops.torch import nn

from ...models._calls import GRAPH
from .._call import DTYPES
from ..nn._linear import has_hooks, is_linear
from . import functions
from .builder import MODULES, Builder, Ref, UnsupportedError
from .parameter_uses import ParameterUses
from .unknown_sizes import Rows, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType, TracebackType

_MODULES = torch.nn.Linear
_CONTAINERS = torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict


class _Place:
    """In place of a node of `torch.fx`, which are not needed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.meta: dict[str, object] = {}


class Traced(fx.Proxy):
    """Value of a program in place of a tensor or a graph."""

    def __init__(self, tracer: Tracer, ref: Ref) -> None:
        super().__init__(cast("fx.Node", _Place(ref.name)), tracer)
        self.ref = ref
        self.values = tracer

    def _number(self) -> NoReturn:
        raise UnsupportedError("expected no number from the values of a tensor, as it would be a "
                               "constant of the program")  # fmt: skip

    __float__ = __int__ = __index__ = __complex__ = _number

    def __getattr__(self, name: str) -> fx.proxy.Attribute:
        if name.startswith("__array"):
            self._number()
        ref = self.ref
        columns = (ref.full or ref.shape)[1:]
        if not self.values.builder.has_fixed_columns(ref):
            columns = (cast("int", Unknown(ref)),)
        shape = (Rows(ref), *columns) if ref.shape else ()
        known: dict[str, Callable[[], object]] = {
            "shape": lambda: shape,
            "ndim": lambda: len(ref.full or ref.shape),
            "dtype": lambda: self.values.dtype_of(ref),
            "device": lambda: torch.device("cpu"),
            "requires_grad": self._gradients,
            "is_cpu": lambda: True,
            "_is_param": lambda: False,
            "_is_buffer": lambda: False,
            "T": lambda: self._method("t"),
        }
        if name in known and ref.kind != GRAPH:
            return cast("fx.proxy.Attribute", known[name]())
        return super().__getattr__(name)

    def _gradients(self) -> NoReturn:
        raise UnsupportedError("requires_grad: expected no use of it, as programs have gradients "
                               "by all inputs and parameters")  # fmt: skip

    def _method(self, name: str, *arguments: object) -> fx.Proxy:
        return self.values.create_proxy("call_method", name, (self, *arguments), {})

    def __iter__(self) -> Iterator[fx.Proxy]:
        if self.ref.kind == GRAPH:
            return iter([self._method("getitem", place) for place in (0, 1)])
        raise UnsupportedError("expected no loop over the rows of a tensor")

    def __len__(self) -> int:
        raise UnsupportedError("expected no loop over the rows of a tensor")


class Tracer(fx.Tracer):
    """Writes the calls of a model as steps when they are made."""

    def __init__(self, builder: Builder) -> None:
        builder.functions = functions.by_identity()
        wrapped = [*functions.OPERATORS, *builder.functions, nn.segment]
        super().__init__(
            autowrap_modules=cast("tuple[ModuleType]", ()), autowrap_functions=tuple(wrapped)
        )
        self._autowrap_search += [pt, nn, blocks, *functions.geometric()]
        self.builder = builder
        self.outside = True
        """Whether the code of a model runs, not that of a lowering."""
        self.results: object = None
        self.overwritten: set[str] = set()
        """Values that a call has changed in place, so that nothing else may use them."""
        builder.call = self.apply

    def run(self, arguments: Sequence[object]) -> object:
        """Return the results of the model for values by position."""
        self.arguments = arguments
        with torch.enable_grad(), ParameterUses(self, Traced):
            self.trace(self.builder.model)
        return self.results

    def create_args_for_root(
        self, root_fn: object, is_module: bool, concrete_args: object = None
    ) -> tuple[Callable[[], None], list[object]]:
        """Return what `trace` calls: the model with the values."""

        def call() -> None:
            given = _mapped(self.arguments, self._wrapped)
            assert isinstance(given, tuple | list)
            self.results = _mapped(self.builder.model(*given), self._ref)

        return call, []

    def create_arg(self, a: object) -> None:
        """Leave out arguments of nodes, as there are none."""

    def create_proxy(
        self,
        kind: str,
        target: Callable[..., object] | str,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        name: str | None = None,
        type_expr: object = None,
        proxy_factory_fn: object = None,
    ) -> fx.Proxy:
        """Write a call of a function or a method, and return its results."""
        return cast("fx.Proxy", self._lowered(functions.lowered, target, args, kwargs))

    def call_module(
        self,
        m: torch.nn.Module,
        forward: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Write the call of a module that has a lowering; run the code of others."""
        own = MODULES.get(type(m))
        if own is None and is_linear(m):
            own = MODULES[_MODULES]
        if own is None:
            if m.__module__.startswith("torch_geometric."):
                raise self.builder.refuse(m, "expected layers that pyops.torch.nn.convert replaces")
            if m.__module__.startswith("torch.nn.") and not isinstance(m, _CONTAINERS):
                raise self.builder.refuse(m, "there is no such module in programs")
            return self._forward(m, forward, args, kwargs)
        if not _is_unchanged(m):
            raise self.builder.refuse(m, "expected no hooks and the forward of its class")
        return self._lowered(own, m, args, kwargs)

    def _forward(
        self,
        module: torch.nn.Module,
        forward: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Run the code of a module, whose path the message of an error begins with."""
        try:
            return forward(*args, **kwargs)
        except UnsupportedError as error:
            text = str(error)
            if any(text.startswith(f"{path} (") for path in self.builder.paths.values() if path):
                raise
            raise self.builder.refuse(module, text).with_traceback(error.__traceback__) from error

    def _lowered(
        self,
        function: Callable[..., object],
        target: object,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        if not torch.is_grad_enabled():
            raise UnsupportedError("expected no torch.no_grad, which programs do not have")
        given = cast("tuple[object, ...]", _mapped(args, self._ref))
        named = cast("dict[str, object]", _mapped(kwargs, self._ref))
        functions.check_axes(target, [*given, *named.values()])
        if _is_in_place(target, named) and isinstance(given[0], Ref):
            self.overwritten.add(self.builder.memory(given[0]))
        outside, self.outside = self.outside, False
        try:
            found = function(self.builder, target, *given, **named)
        except UnsupportedError as error:
            path = self.builder.paths.get(id(target))
            if path is None or str(error).startswith(path or "the model"):
                raise
            assert isinstance(target, torch.nn.Module)
            raise self.builder.refuse(target, str(error)) from None
        finally:
            self.outside = outside
        return _mapped(found, self._wrapped)

    def apply(self, function: Callable[..., object], *values: object) -> object:
        """Return the results of a module or a function, for lowerings."""
        outside, self.outside = self.outside, True
        try:
            given = cast("tuple[object, ...]", _mapped(values, self._wrapped))
            return _mapped(function(*given), self._ref)
        finally:
            self.outside = outside

    def getattr(self, attr: str, attr_val: object, parameter_proxy_cache: object) -> object:
        """Return a value for a parameter or a buffer."""
        if isinstance(attr_val, torch.Tensor) and not isinstance(attr_val, Traced) and self.outside:
            return self._wrapped(self.builder.number(attr_val))
        return attr_val

    def dtype_of(self, ref: Ref) -> torch.dtype:
        """Return the type of a value as a tensor."""
        if ref.kind != "real":
            return torch.int64
        return next(kind for kind in DTYPES if str(kind) == f"torch.{self.builder.dtype}")

    def to_bool(self, obj: object) -> NoReturn:
        """Refuse branches on values."""
        raise UnsupportedError("expected no branch that depends on values of tensors")

    def iter(self, obj: object) -> NoReturn:
        """Refuse loops over values."""
        raise UnsupportedError("expected no loop over the rows of a tensor")

    def _wrapped(self, value: object) -> object:
        return Traced(self, value) if isinstance(value, Ref) else value

    def _ref(self, value: object) -> object:
        if isinstance(value, Traced):
            if self.builder.memory(value.ref) in self.overwritten:
                raise UnsupportedError("expected no further use of a value that a call with "
                                       "inplace=True has changed")  # fmt: skip
            return value.ref
        if isinstance(value, torch.Tensor):
            return self.builder.number(value)
        if isinstance(value, fx.Proxy):
            raise UnsupportedError(f"expected no use of {value!r:.60}")
        return value


def _is_in_place(target: object, named: Mapping[str, object]) -> bool:
    """Return whether a call overwrites its first argument; dropout in evaluation does not."""
    if isinstance(target, torch.nn.Module):
        return bool(getattr(target, "inplace", False)) and not hasattr(target, "p")
    name = getattr(target, "__name__", "")
    return bool(named.get("inplace", False)) and "dropout" not in name


def _is_unchanged(module: torch.nn.Module) -> bool:
    """Return whether a call of a module is the forward of its class and no more."""
    owner = next(kind for kind in type(module).__mro__ if "forward" in vars(kind))
    forward = vars(owner)["forward"]
    names = forward.__module__, forward.__qualname__
    own = names == (owner.__module__, f"{owner.__qualname__}.forward")
    return own and "forward" not in vars(module) and not has_hooks(module)


def _mapped(value: object, function: Callable[[object], object]) -> object:
    """Return tuples, lists and dicts with the function of each element."""
    if isinstance(value, list):
        return [_mapped(one, function) for one in value]
    if isinstance(value, tuple):
        return tuple(_mapped(one, function) for one in value)
    if isinstance(value, dict):
        return {name: _mapped(one, function) for name, one in value.items()}
    return function(value)


def line_of(traceback: TracebackType | None) -> str:
    """Return file and line of the model's code that an error comes from."""
    places = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if not module.startswith(("torch.", "pyops.")):
            places.append(f"{code.co_filename}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return places[-1] if places else ""
