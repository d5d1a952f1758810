"""A call of a phase on the memory of tensors."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .._operator import Operator
from ._host import in_memory, on_host, without_subclass
from ._host import recording as recording

Maybe: TypeAlias = "Tensor | None"
DTYPES = torch.float32, torch.float64


class Call:
    """What a call is told beside its tensors."""

    __slots__ = ("_fresh", "_kept", "graph", "keeps", "op", "options")
    dispatched = False

    def __init__(self, op: Operator, graph: Any, options: dict[str, Any]) -> None:
        self.op, self.graph, self.options = op, graph, options
        self.keeps = False
        """Whether forward is to leave what derivatives of the same inputs can use again."""
        self._fresh: tuple[Any, ...] | None = None
        self._kept: tuple[weakref.ref[Any], ...] = ()

    @property
    def names(self) -> list[str]:
        return [*self.op.signature.inputs]

    @property
    def told(self) -> dict[str, Any]:
        """The options, with row numbers as arrays of the host."""
        if not self.op.signature.indexed:
            return self.options
        rows = {n: _rows(without_subclass(t)) for n, t in self.options.items()}
        return {**self.options, **rows}

    def run(
        self, phase: str, tensors: Sequence[Maybe], wanted: Collection[str] | None = None
    ) -> tuple[Tensor, ...]:
        """A phase on the memory of the tensors; the results that are wanted."""
        for tensor in tensors:
            if tensor is not None and not tensor.is_cpu:
                from ._cuda import run

                return run(self, phase, tensors, wanted)
        given = [None if t is None else memory(t) for t in tensors]
        if self.graph is not None:
            given.insert(0, self.graph)
        options = self.told
        results: Sequence[Any]
        if phase != "forward":
            results = self.op.run(phase, given, options, wanted, self.saved)
        elif self.keeps and self._fresh is None:
            y, self._fresh = self.op.forward(*given, **options)
            results = (y,)
        else:  # one of several values, for each of a batch: nothing is of them all
            results, self._fresh, self._kept = self.op.run(phase, given, options), (), ()
        return tuple([torch.from_numpy(r) for r in results if r is not None])

    def lend(self) -> tuple[Tensor, ...]:
        """What forward left, for a node to save: it is used again for as long as torch keeps it.

        So it goes with what else is saved, after a backward pass or into what packs saved tensors.
        """
        arrays, self._fresh = self._fresh or (), ()
        self._kept = tuple(map(weakref.ref, arrays))
        return tuple(map(torch.from_numpy, arrays))

    @property
    def saved(self) -> tuple[Any, ...]:
        """What is left of it."""
        if not self._kept:
            return ()
        arrays = tuple(kept() for kept in self._kept)
        return () if any(array is None for array in arrays) else arrays


def _rows(given: Any) -> Any:
    """Row numbers of a tensor as an array of the host; what cannot be one stays, to be refused."""
    if not isinstance(given, Tensor) or given.is_meta or given.layout is not torch.strided:
        return given
    return memory(on_host(given))


def jit_tracing() -> bool:
    """Whether `torch.jit.trace` is recording: it has tensors for sizes, integers are constants."""
    return not torch.compiler.is_compiling() and bool(torch._C._is_tracing())


def exporting() -> bool:
    """Whether an exporter to ONNX is recording, which has translations for functions of torch."""
    return recording() and bool(torch.onnx.is_in_onnx_export())


def is_integer(value: object) -> bool:
    """Whether a size is an integer, a symbol or a tensor where torch records."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int | torch.SymInt) or hasattr(value, "__index__")


def tensor_of(value: Any) -> Maybe:
    """A number or array as a tensor."""
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, int):
        return torch.full((), value)  # a constant to torch.jit.trace, without a warning
    return torch.as_tensor(value)


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Plain tensors, whatever mode, transformation or trace is under way."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        with torch.inference_mode(False), torch._C._DisableFuncTorch(), _disable_current_modes():
            yield
    finally:
        torch._C._set_tracing_state(state)


def memory(tensor: Tensor) -> Any:
    """The memory of a tensor, as an array."""
    return in_memory(tensor).numpy()


def by_name(names: Sequence[str], wanted: Collection[str], found: Sequence[Maybe]) -> list[Maybe]:
    """What was found of what is wanted, with None for the other names."""
    held = dict(zip([n for n in names if n in wanted], found, strict=True))
    return [held.get(name) for name in names]


def awaited(ctx: Any, tensors: Sequence[Maybe]) -> list[bool]:
    """Which of the tensors of a node get a gradient that anybody waits for in this pass.

    More may need one: forces ask for no gradient by the weights.
    """
    nodes = [node for node, _ in getattr(ctx, "next_functions", ())]
    if len(nodes) != sum(t is not None for t in tensors):
        return [True] * len(tensors)
    left = iter(nodes)
    return [t is not None and _runs(next(left)) for t in tensors]


def _runs(node: Any) -> bool:
    try:
        return node is not None and bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf that was asked for
        return True


def check(label: str, tensor: object) -> Tensor:
    """The argument, if it is a tensor whose memory kernels can read."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{label}: expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.is_cpu and tensor.layout is torch.strided and tensor.dtype in DTYPES:
        return tensor
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{label}: expected a tensor on a CUDA device or on the CPU, got one on {tensor.device}"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(f"{label}: expected a dense tensor, got layout {tensor.layout}")
    if tensor.dtype in DTYPES:
        return tensor
    hint = ""
    if torch.is_autocast_enabled("cpu"):
        hint = "; autocast is on: leave it around this call or pass tensor.float()"
    raise TypeError(f"{label}: expected float32 or float64, got {tensor.dtype}{hint}")
