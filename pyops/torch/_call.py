"""Calls of operator phases on the memory of tensors."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .._call.half import TYPES, kernels, result_type, round_bits, types_of
from ._host import as_bits, in_memory, on_host, without_subclass
from ._host import is_tracing as is_tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from torch.autograd.graph import Node

    from .._call.operator import Operator
    from .._call.types import Array, Options
    from ..cuda._graph import DeviceGraph
    from ..graph import Graph

MaybeTensor: TypeAlias = "Tensor | None"
PhaseArgument: TypeAlias = "tuple[str, ...] | Tensor | None"
"""Input, cotangent or tangent of a phase; before these, the names of the requested results."""
AnyGraph: TypeAlias = "Graph | DeviceGraph"
_SET_TRACING_STATE: Callable[[object], None] = vars(torch._C)["_set_tracing_state"]
"""Function that torch has and does not annotate."""
DTYPES = torch.float32, torch.float64
HALVES = torch.bfloat16, torch.float16
ANY_FLOAT = *DTYPES, *HALVES
_FEW = 2**16
"""Elements below which torch rounds, without the cost of a call of a kernel."""


class PhaseCall:
    """A call of an operator, as its phases share it."""

    __slots__ = ("keeps", "names", "op")
    op: Operator
    names: Sequence[str]
    """Names of the inputs."""
    keeps: bool
    """Whether the forward pass saves intermediates for derivatives at the same inputs."""
    dispatched = False
    """Whether torch's dispatcher passes the call from one transformation to the next."""

    def run(
        self, phase: str, tensors: Sequence[MaybeTensor], wanted: Collection[str] | None = None
    ) -> tuple[Tensor, ...]:
        """Run a phase and return the requested results."""
        raise NotImplementedError

    def dispatch(self, phase: str, *arguments: PhaseArgument) -> Any:
        """Call a phase, starting at the outermost transformation; a tensor or a tuple of them."""
        raise NotImplementedError

    def take_saved(self) -> tuple[Tensor, ...]:
        """Return the intermediates of the forward pass for the autograd node to save."""
        return ()


class Call(PhaseCall):
    """A call on the memory of tensors, and the intermediates that it saves."""

    __slots__ = ("_fresh", "_kept", "graph", "options")
    reads_halves = True

    def __init__(
        self, op: Operator, names: Sequence[str], graph: AnyGraph | None, options: Options
    ) -> None:
        self.op, self.names, self.graph, self.options = op, names, graph, options
        self.keeps = False
        self._fresh: tuple[Array, ...] | None = None
        self._kept: tuple[weakref.ref[Array], ...] = ()

    @property
    def host_options(self) -> Options:
        """Return the options, with row indices as arrays in host memory."""
        if not self.op.signature.indexed:
            return self.options
        rows = {n: host_rows(without_subclass(t)) for n, t in self.options.items()}
        return {**self.options, **rows}

    def run(
        self, phase: str, tensors: Sequence[MaybeTensor], wanted: Collection[str] | None = None
    ) -> tuple[Tensor, ...]:
        """Run a phase on the memory of the tensors and return the requested results."""
        if any(t is not None and t.dtype in HALVES for t in tensors):
            return self._rounded(phase, tensors, wanted)
        return self._run(phase, tensors, wanted)

    def _run(
        self,
        phase: str,
        tensors: Sequence[MaybeTensor],
        wanted: Collection[str] | None,
        half: str = "",
    ) -> tuple[Tensor, ...]:
        """Run a phase where the tensors are; `half` names kernels that read rows of integers."""
        if any(t is not None and not t.is_cpu for t in tensors):
            from ._cuda import run

            return run(self, phase, tensors, wanted, half)
        arrays = [None if t is None else memory(t) for t in tensors]
        given: list[object] = [*arrays] if self.graph is None else [self.graph, *arrays]
        options: dict[str, object] = self.host_options
        if phase != "forward":
            results = self.op.run(phase, given, options, wanted, self.saved, half=half)
        else:  # of one of several evaluations, as over a batch, no intermediates hold for all
            keep = self.keeps and self._fresh is None
            results = self.op.run(phase, given, options, keep=keep, half=half)
            count = len(self.op.signature.results)
            self._fresh = tuple([r for r in results[count:] if r is not None])
            if not keep:
                self._kept = ()
            results = results[:count]
        return tuple([torch.from_numpy(r) for r in results if r is not None])

    def _rounded(
        self, phase: str, tensors: Sequence[MaybeTensor], wanted: Collection[str] | None
    ) -> tuple[Tensor, ...]:
        """Run a phase in float32 and round its results to the types of the inputs."""
        result = rounded_type(self.op, tensors)
        kinds = [None if t is None else t.dtype for t in tensors[: len(self.names)]]
        if wanted is None:
            types = [result]
        else:
            named = zip([*self.names, "gy"], [*kinds, result], strict=True)
            types = [kind or result for name, kind in named if name in wanted]
        on_host, *others = {t.is_cpu for t in tensors if t is not None}
        rows = self.op.reads_halves(phase, len(tensors), not on_host)
        native = self.reads_halves and not others
        half = kernels(types_of(tensors), rows, result, not on_host) if native else ""
        pairs = zip(tensors, rows if half else [False] * len(tensors), strict=True)
        given = [None if t is None else as_bits(t) if row else widened(t) for t, row in pairs]
        found = self._run(phase, given, wanted, half)
        return tuple([rounded(f, kind) for f, kind in zip(found, types, strict=True)])

    def take_saved(self) -> tuple[Tensor, ...]:
        """Return the intermediates of the forward pass for the autograd node to save.

        The call keeps weak references only, so torch frees or packs them like other saved tensors.
        """
        arrays, self._fresh = self._fresh or (), ()
        self._kept = tuple(map(weakref.ref, arrays))
        return tuple(map(torch.from_numpy, arrays))

    @property
    def saved(self) -> tuple[Array, ...]:
        """Return the intermediates, empty if torch has freed any of them."""
        if not self._kept:
            return ()
        arrays = tuple([array for kept in self._kept if (array := kept()) is not None])
        return arrays if len(arrays) == len(self._kept) else ()


def widened(tensor: Tensor) -> Tensor:
    """Return the tensor, in float32 if it has half precision."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def rounded(tensor: Tensor, kind: torch.dtype) -> Tensor:
    """Return a result, float32 or bits, as a tensor of a type that may be one of half precision."""
    if tensor.dtype == torch.int16:
        return tensor.view(kind)
    if kind not in HALVES or not tensor.is_cpu or tensor.numel() < _FEW:
        return tensor.to(kind)
    half = TYPES[str(kind).removeprefix("torch.")]
    return torch.from_numpy(round_bits(tensor.numpy(), half)).view(kind)


def rounded_type(op: Operator, tensors: Sequence[MaybeTensor]) -> torch.dtype:
    """Return the type of the result of a call with tensors of half precision."""
    kinds = [None if t is None else t.dtype for t in tensors[: len(op.signature.inputs)]]
    return result_type(op.signature, f"pyops.torch.{op.name}", kinds, HALVES, torch.float32)


def host_rows(given: object) -> object:
    """Return row indices as a host array; unsuitable values pass, to be refused later."""
    if not isinstance(given, Tensor) or given.is_meta or given.layout is not torch.strided:
        return given
    return memory(on_host(given))


def is_jit_tracing() -> bool:
    """Return whether `torch.jit.trace` is tracing: sizes are tensors, integers constants."""
    return not torch.compiler.is_compiling() and bool(torch._C._is_tracing())


def is_exporting() -> bool:
    """Return whether an ONNX exporter is tracing; it translates torch's own functions only."""
    return is_tracing() and bool(torch.onnx.is_in_onnx_export())


def is_integer(value: object) -> bool:
    """Return whether a size is an integer, or a symbol or tensor while torch records."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int | torch.SymInt) or hasattr(value, "__index__")


def tensor_of(value: object) -> MaybeTensor:
    """Convert a number or array to a tensor."""
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, int):
        return torch.full((), value)  # a constant to torch.jit.trace, without a warning
    return torch.as_tensor(value)


@contextlib.contextmanager
def without_tracing() -> Iterator[None]:
    """Suspend modes, torch.func transformations and traces, so that tensors are plain."""
    state = torch._C._get_tracing_state()
    _SET_TRACING_STATE(None)
    try:
        with torch.inference_mode(False), torch._C._DisableFuncTorch(), _disable_current_modes():
            yield
    finally:
        _SET_TRACING_STATE(state)


def memory(tensor: Tensor) -> Array:
    """Return the memory of a tensor as an array."""
    array: Array = in_memory(tensor).numpy()
    return array


def by_name(
    names: Sequence[str], wanted: Collection[str], found: Sequence[MaybeTensor]
) -> list[MaybeTensor]:
    """Return the results in the order of all names, None for those not requested."""
    held = dict(zip([n for n in names if n in wanted], found, strict=True))
    return [held.get(name) for name in names]


def needs_grad(ctx: object, tensors: Sequence[MaybeTensor]) -> list[bool]:
    """Return for each tensor of a node whether this backward pass uses its gradient.

    `needs_input_grad` may hold for more: forces use no gradient with respect to the weights.
    """
    nodes: list[Node | None] = [node for node, _ in getattr(ctx, "next_functions", ())]
    if len(nodes) != sum(t is not None for t in tensors):
        return [True] * len(tensors)
    left = iter(nodes)
    return [t is not None and _is_executed(next(left)) for t in tensors]


def _is_executed(node: Node | None) -> bool:
    try:
        return node is not None and bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf whose gradient is requested
        return True


def check(label: str, tensor: object) -> Tensor:
    """Return the argument if it is a tensor whose memory kernels can read."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{label}: expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.is_cpu and tensor.layout is torch.strided and tensor.dtype in ANY_FLOAT:
        return tensor
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{label}: expected a tensor on a CUDA device or on the CPU, got one on {tensor.device}"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(f"{label}: expected a dense tensor, got layout {tensor.layout}")
    if tensor.dtype in ANY_FLOAT:
        return tensor
    raise TypeError(f"{label}: expected float32 or float64, got {tensor.dtype}")


def as_numbers(label: str, condition: object, like: object) -> object:
    """Return a condition of booleans or integers as numbers like another tensor."""
    if not isinstance(condition, Tensor):
        raise TypeError(f"{label}: expected a torch.Tensor, got {type(condition).__name__}")
    if condition.is_floating_point():
        return condition.detach()
    if condition.is_complex():
        raise TypeError(f"{label}: expected booleans, integers or numbers, got {condition.dtype}")
    kind = like.dtype if isinstance(like, Tensor) and like.is_floating_point() else torch.float32
    return (condition if condition.dtype == torch.bool else condition != 0).to(kind)
