"""Linear maps between ranks that torch differentiates, as autograd functions and as an operator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function, unwrap_dead_wrappers
from torch.autograd.forward_ad import _set_fwd_grad_enabled

from ..distributed._communicator import by_name
from ..distributed._half_rows import copied
from ._call import HALVES, MaybeTensor, PhaseCall, memory
from ._host import as_bits, is_tracing
from ._library import LIBRARY
from ._phase import Arguments, BatchInfo, Phase, tracks_derivatives
from ._transfers import Messages, Replicas

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .._call.types import Array
    from ..distributed._communicator import Communicator

TRANSPOSES = {
    "exchange": "accumulate",
    "accumulate": "exchange",
    "replicate": "sum",
    "sum": "sum",
    "take": "give",
    "give": "take",
    "spread": "collect",
    "collect": "spread",
    "deal": "total",
    "total": "share",
    "share": "total",
}
COPIES = "exchange", "replicate", "take", "spread", "deal"
"""Maps that add nothing."""
LOCAL = "replicate", "deal"
"""Maps without messages."""

DERIVED = "backward of ", "tangent of "
"""Beginning of the origin of a map that belongs to a derivative of a call."""


def _array(tensor: Tensor, copies: bool) -> Array:
    """Return the memory of a tensor; one of half precision is copied as bits, added in float32."""
    if tensor.dtype in HALVES:
        return memory(as_bits(tensor)) if copies else memory(tensor.float())
    return memory(tensor)


class MapCall(PhaseCall):
    """A map of tensors, as part of a call."""

    __slots__ = ("kind", "messages", "number", "origin")

    def __init__(
        self, messages: Messages, kind: str, origin: str, number: int | None = None
    ) -> None:
        self.messages, self.kind, self.origin = messages, kind, origin
        self.number = number
        """Number of the call on its communicator, by which ranks compare its derivatives."""

    def run(
        self, phase: str, tensors: Sequence[MaybeTensor], wanted: Collection[str] | None = None
    ) -> tuple[Tensor, ...]:
        """Agree on the map with the other ranks and return its results."""
        given = [t for t in tensors if t is not None]
        copies = self.kind in COPIES
        arrays = [_array(t, copies) for t in given]
        comm = self.messages.comm
        number = self.number
        if number is None and not self.origin.startswith(DERIVED):
            calls = calls_of(comm)
            self.number = calls.made
            calls.made += self.kind not in LOCAL
        if self.kind not in LOCAL:
            same = [a.shape[self.messages.batch_axis :] for a in arrays]
            halves = [str(t.dtype) for t in given if t.dtype in HALVES]
            what = self.kind, arrays[0].dtype.char, same, *halves
            comm._agree(self.origin, what, number=number)
        run = functools.partial(self.messages.run, self.kind)
        found = map(torch.from_numpy, copied(run, arrays) if copies else run(arrays))
        return tuple(
            f if f.dtype == t.dtype else f.view(t.dtype) if copies else f.to(t.dtype)
            for f, t in zip(found, given, strict=True)
        )

    def transposed(self) -> MapCall:
        """Return the call of the backward pass."""
        return self._derived(TRANSPOSES[self.kind], f"{DERIVED[0]}{self.origin}")

    def tangent(self) -> MapCall:
        """Return the call of the derivative in a direction."""
        return self._derived(self.kind, f"{DERIVED[1]}{self.origin}")

    def _derived(self, kind: str, origin: str) -> MapCall:
        return MapCall(self.messages, kind, origin, self.number)


class DispatchedMap(MapCall):
    """A map that torch's dispatcher passes from one transformation to the next."""

    __slots__ = ("_keys",)
    dispatched = True

    def __init__(
        self, messages: Messages, kind: str, origin: str, keys: torch._C.DispatchKeySet
    ) -> None:
        super().__init__(messages, kind, origin)
        self._keys = keys

    def dispatch(self, phase: str, *tensors: Any) -> Any:
        return dispatched(self.messages, self.kind, self.origin, tensors)

    def run(
        self, phase: str, tensors: Sequence[MaybeTensor], wanted: Collection[str] | None = None
    ) -> tuple[Tensor, ...]:
        """Call the map, starting below autograd."""
        keys = self._keys & torch._C._after_autograd_keyset
        with (
            torch.enable_grad(),
            _set_fwd_grad_enabled(True),
            torch._C._AutoDispatchBelowAutograd(),
        ):
            found = torch.ops.pyops.over_ranks.default.redispatch(
                keys, [*tensors], self.messages.name, self.kind, self.origin
            )
        return tuple(found)

    def _derived(self, kind: str, origin: str) -> MapCall:
        return DispatchedMap(self.messages, kind, origin, self._keys)


class MapContext(Protocol):
    """Context of a recorded map, with what is set and read here."""

    call: MapCall
    needs_input_grad: tuple[bool, ...]


class Map(Phase["tuple[Tensor, ...]"]):
    """Linear map between ranks as an autograd function; its backward pass is its transpose."""

    name = "over_ranks"

    @classmethod
    def of_level(cls, call: Any, *tensors: Any) -> Any:
        """Run at one level of transformations; torch has processed the other levels."""
        if not tracks_derivatives(tensors):
            return cls.forward(call, *tensors)
        return cls._apply_level(*unwrap_dead_wrappers((call, *tensors)))

    @staticmethod
    def forward(call: MapCall, *tensors: Tensor) -> tuple[Tensor, ...]:
        return call.run(Map.name, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Arguments, output: object) -> None:
        ctx.call = inputs[0]

    @staticmethod
    def backward(ctx: MapContext, *cotangents: Tensor) -> tuple[MaybeTensor, ...]:
        needed = ctx.needs_input_grad[1:]
        used = [c for c, need in zip(cotangents, needed, strict=True) if need]
        found = iter(Map.of(ctx.call.transposed(), *used))
        return None, *(next(found) if need else None for need in needed)

    @staticmethod
    def jvp(ctx: MapContext, _: None, *tangents: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = Map.of(ctx.call.tangent(), *tangents)
        return found

    @classmethod
    def vmap(
        cls, info: BatchInfo, in_dims: Sequence[int | None], *arguments: Any
    ) -> tuple[Any, Any]:
        """Map a whole batch in one message."""
        call, *tensors = arguments
        given, dims = _with_batch(call.messages, tensors, in_dims[1:])
        return cls.apply(call, *given), dims

    @classmethod
    def _unbatched(cls, level: int, *arguments: Any) -> Any:
        """Map whole batches of torch.autograd, as for `is_grads_batched`."""
        call, *tensors = arguments
        if level == 0:
            return cls.of(call, *tensors)
        axis = call.messages.batch_axis
        batches = [torch._remove_batch_dim(t, level, 1, axis) for t in tensors]
        count = max(b.shape[axis] for b in batches)
        batches = [
            b if b.shape[axis] == count else b.expand(*_replaced(b.shape, axis, count))
            for b in batches
        ]
        found = cls._unbatched(level - 1, call, *batches)
        return tuple(torch._add_batch_dim(f, axis, level) for f in found)


def _replaced(shape: Sequence[int], axis: int, size: int) -> list[int]:
    return [*shape[:axis], size, *shape[axis + 1 :]]


def _with_batch(
    messages: Messages, tensors: Sequence[Tensor], dims: Sequence[int | None]
) -> tuple[list[Tensor], tuple[int | None, ...]]:
    """Return tensors with their batches at the axis that a map allows, and these axes."""
    axis = messages.batch_axis
    given = [t if d is None else t.movedim(d, axis) for t, d in zip(tensors, dims, strict=True)]
    return given, tuple(None if d is None else axis for d in dims)


def dispatched(
    messages: Messages, kind: str, origin: str, tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Call a map through torch.library."""
    return tuple(torch.ops.pyops.over_ranks([*tensors], messages.name, kind, origin))


def _messages(name: str) -> Messages:
    found = by_name.get(name)
    if not isinstance(found, Messages):
        raise RuntimeError(
            "pyops.torch: graph: expected the distributed graph of the compiled function to live"
        )
    return found


def _kernel(tensors: list[Tensor], name: str, kind: str, origin: str) -> list[Tensor]:
    return [*MapCall(_messages(name), kind, origin).run(Map.name, tensors)]


def _fake(tensors: list[Tensor], name: str, kind: str, origin: str) -> list[Tensor]:
    messages = _messages(name)
    return [t.new_empty(messages.shape(kind, t.shape)) for t in tensors]


def _record(
    keys: torch._C.DispatchKeySet, tensors: list[Tensor], name: str, kind: str, origin: str
) -> list[Tensor]:
    call = DispatchedMap(_messages(name), kind, origin, keys)
    with enable_single_level_autograd_function():
        return [*Map.of_level(call, *tensors)]


def _mapped(
    info: BatchInfo,
    in_dims: Sequence[Sequence[int | None]],
    tensors: list[Tensor],
    name: str,
    kind: str,
    origin: str,
) -> tuple[object, object]:
    messages = _messages(name)
    given, dims = _with_batch(messages, tensors, in_dims[0])
    return [*dispatched(messages, kind, origin, given)], [*dims]


LIBRARY.define("over_ranks(Tensor[] tensors, str messages, str kind, str origin) -> Tensor[]")
LIBRARY.impl("over_ranks", _kernel, "CPU")
LIBRARY.impl("over_ranks", _record, "Autograd", with_keyset=True)
torch.library.register_fake("pyops::over_ranks", _fake, lib=LIBRARY)
torch.library.register_vmap("pyops::over_ranks", _mapped, lib=LIBRARY)


def mapped(
    messages: Messages, kind: str, origin: str, tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the results of a differentiable map."""
    if is_tracing(*tensors):
        return dispatched(messages, kind, origin, tensors)
    found: tuple[Tensor, ...] = Map.of(MapCall(messages, kind, origin), *tensors)
    return found


class Calls:
    """State of a communicator for calls with tensors."""

    def __init__(self, comm: Communicator) -> None:
        self.replicas = Replicas(comm)
        self.made = 0
        """Number of calls that have sent messages."""


def calls_of(comm: Communicator) -> Calls:
    """Return what a communicator keeps for calls with tensors."""
    if comm._torch is None:
        comm._torch = Calls(comm)
    found: Calls = comm._torch
    return found
