"""Calls of operator phases on the memory of tensors."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .._call.operator import Operator
from ._host import in_memory, on_host, without_subclass
from ._host import recording as recording

Maybe: TypeAlias = "Tensor | None"
DTYPES = torch.float32, torch.float64


class Call:
    """Operator, graph and options of a call, and the intermediates that it saves."""

    __slots__ = ("_fresh", "_kept", "graph", "keeps", "op", "options")
    dispatched = False

    def __init__(self, op: Operator, graph: Any, options: dict[str, Any]) -> None:
        self.op, self.graph, self.options = op, graph, options
        self.keeps = False
        """Whether the forward pass saves intermediates for derivatives at the same inputs."""
        self._fresh: tuple[Any, ...] | None = None
        self._kept: tuple[weakref.ref[Any], ...] = ()

    @property
    def names(self) -> list[str]:
        return [*self.op.signature.inputs]

    @property
    def told(self) -> dict[str, Any]:
        """Return the options, with row indices as arrays in host memory."""
        if not self.op.signature.indexed:
            return self.options
        rows = {n: _rows(without_subclass(t)) for n, t in self.options.items()}
        return {**self.options, **rows}

    def run(
        self, phase: str, tensors: Sequence[Maybe], wanted: Collection[str] | None = None
    ) -> tuple[Tensor, ...]:
        """Run a phase on the memory of the tensors and return the requested results."""
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
        else:  # one of several evaluations, as over a batch: no intermediates hold for all
            results, self._fresh, self._kept = self.op.run(phase, given, options), (), ()
        return tuple([torch.from_numpy(r) for r in results if r is not None])

    def lend(self) -> tuple[Tensor, ...]:
        """Return the intermediates of the forward pass for the autograd node to save.

        The call keeps weak references only, so torch frees or packs them like other saved tensors.
        """
        arrays, self._fresh = self._fresh or (), ()
        self._kept = tuple(map(weakref.ref, arrays))
        return tuple(map(torch.from_numpy, arrays))

    @property
    def saved(self) -> tuple[Any, ...]:
        """Return the intermediates, empty if torch has freed any of them."""
        if not self._kept:
            return ()
        arrays = tuple(kept() for kept in self._kept)
        return () if any(array is None for array in arrays) else arrays


def _rows(given: Any) -> Any:
    """Return row indices as a host array; unsuitable values pass, to be refused later."""
    if not isinstance(given, Tensor) or given.is_meta or given.layout is not torch.strided:
        return given
    return memory(on_host(given))


def jit_tracing() -> bool:
    """Return whether `torch.jit.trace` is recording: sizes are tensors, integers constants."""
    return not torch.compiler.is_compiling() and bool(torch._C._is_tracing())


def exporting() -> bool:
    """Return whether an ONNX exporter is recording; it translates torch's own functions only."""
    return recording() and bool(torch.onnx.is_in_onnx_export())


def is_integer(value: object) -> bool:
    """Return whether a size is an integer, or a symbol or tensor while torch records."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int | torch.SymInt) or hasattr(value, "__index__")


def tensor_of(value: Any) -> Maybe:
    """Convert a number or array to a tensor."""
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, int):
        return torch.full((), value)  # a constant to torch.jit.trace, without a warning
    return torch.as_tensor(value)


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Suspend modes, torch.func transformations and traces, so that tensors are plain."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        with torch.inference_mode(False), torch._C._DisableFuncTorch(), _disable_current_modes():
            yield
    finally:
        torch._C._set_tracing_state(state)


def memory(tensor: Tensor) -> Any:
    """Return the memory of a tensor as an array."""
    return in_memory(tensor).numpy()


def by_name(names: Sequence[str], wanted: Collection[str], found: Sequence[Maybe]) -> list[Maybe]:
    """Return the results in the order of all names, None for those not requested."""
    held = dict(zip([n for n in names if n in wanted], found, strict=True))
    return [held.get(name) for name in names]


def awaited(ctx: Any, tensors: Sequence[Maybe]) -> list[bool]:
    """Return for each tensor of a node whether this backward pass uses its gradient.

    `needs_input_grad` may hold for more: forces use no gradient with respect to the weights.
    """
    nodes = [node for node, _ in getattr(ctx, "next_functions", ())]
    if len(nodes) != sum(t is not None for t in tensors):
        return [True] * len(tensors)
    left = iter(nodes)
    return [t is not None and _runs(next(left)) for t in tensors]


def _runs(node: Any) -> bool:
    try:
        return node is not None and bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf whose gradient is requested
        return True


def check(label: str, tensor: object) -> Tensor:
    """Return the argument if it is a tensor whose memory kernels can read."""
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
