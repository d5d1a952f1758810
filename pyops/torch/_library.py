"""Registration of the operators with torch.library, for torch.compile and torch.export.

Registers for each operator pyops::<op>, <op>_backward, <op>_double_backward and <op>_jvp, and
<op>_attention if it has attention weights. torch.jit.trace records <op>_traced, which takes
integers as tensors, because that tracer represents sizes by tensors and integers by constants.

All forms of an operator are registered together, so this is one module.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd.forward_ad import _set_fwd_grad_enabled

from .._schema.dispatch import (
    KINDS,
    SIZES,
    FunctionSchema,
    function_name,
    function_schemas,
    graph_arguments,
)
from ..graph import Graph as HostGraph
from . import _native
from ._call import (
    DTYPES,
    HALVES,
    AnyGraph,
    Call,
    MaybeTensor,
    PhaseArgument,
    PhaseCall,
    is_jit_tracing,
    rounded_type,
    tensor_of,
)
from ._graph import Graph, TracedGraph, graph_of, traceable
from ._host import is_tracing, without_subclass
from ._onnx import untranslated
from ._phase import BatchInfo, Phase, is_transformed, map_batch, map_batches, tracks_derivatives
from ._phases import Attention, Gradient, Second, Tangent, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from .._call.operator import Operator
    from .._call.types import Options, Values

if torch._C._jit_get_schemas_for_operator("pyops::beyond"):
    raise ImportError(
        "pyops.torch: expected a process without libpyops_torch, which registers the operators for "
        "programs without Python"
    )
LIBRARY = torch.library.Library("pyops", "DEF")
_native.load()
FEW_ENTRIES, FEW_ELEMENTS = 2**12, 2**17
"""Size of a graph and of all tensors up to which a call of Python takes longer than what it saves:
intermediates, and the comparison of the indices with those packed."""
SINGLE: dict[str, type[Phase[Tensor]]] = {k.name: k for k in (Value, Tangent, Attention)}
"""Phases with a single result."""
SEVERAL: dict[str, type[Phase[tuple[Tensor, ...]]]] = {k.name: k for k in (Gradient, Second)}
ON_HOST = [tag for name, tag in vars(torch.Tag).items() if name == "cudagraph_unsafe"]
"""Tag that excludes calls from CUDA graphs: their indices are read in host memory."""


class GraphArguments(NamedTuple):
    """Graph as the registered functions take it."""

    src: Tensor
    dst: Tensor
    edge_ids: MaybeTensor
    num_src: int
    num_dst: int
    num_edges: int


class Arguments(NamedTuple):
    """Arguments of a registered function."""

    graph: GraphArguments | tuple[()]
    tensors: tuple[MaybeTensor, ...]
    options: Options
    wanted: tuple[str, ...] | None
    """Names of the requested results, None for phases with a single one."""


class Registered:
    """Registered functions of one operator, and the layout of their arguments."""

    def __init__(self, op: Operator) -> None:
        self.op = op
        signature = op.signature
        self.names = [*signature.inputs]
        self.options = [*signature.options, *signature.indexed]
        self.graph = graph_arguments(signature)
        self._integers: dict[str, frozenset[int]] = {}
        for phase, schema in function_schemas(signature).items():
            self._define(phase, schema)
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        self._in_cpp = has_kernel(f"pyops::{op.name}", "CPU")

    def __call__(
        self,
        graph: Graph | TracedGraph | None,
        tensors: Sequence[MaybeTensor],
        options: Options,
        phase: str = "forward",
    ) -> Tensor:
        """Call a phase through torch.library, while torch traces."""
        values = self._values(options, self.op._phases["forward"]._complete)
        arguments = [*_place(graph), *tensors, *values]
        name = self._name(phase)
        if is_jit_tracing():
            self._refuse_derivatives()
            integers = self._integers[phase]
            name = f"{name}_traced"
            arguments = [tensor_of(a) if i in integers else a for i, a in enumerate(arguments)]
        result: Tensor = getattr(torch.ops.pyops, name)(*arguments)
        return result

    def is_small(
        self, graph: AnyGraph | None, tensors: Sequence[MaybeTensor], options: Options
    ) -> bool:
        """Return whether kernels in C++ compute a call that is not traced, sooner than Python."""
        if not self._in_cpp or is_transformed():
            return False
        rows = [options[name] for name in self.op.signature.indexed if name in options]
        if any(r is not None and not _is_plain(r) for r in rows):
            return False
        if graph is not None and not (
            isinstance(graph, HostGraph)
            and len(graph._src) <= FEW_ENTRIES
            and graph._num_src + graph._num_dst <= FEW_ELEMENTS
        ):
            return False
        given = [t for t in tensors if t is not None]
        return sum([t.numel() for t in given]) <= FEW_ELEMENTS and not any(
            not t.is_cpu or t.dtype not in DTYPES or is_legacy_batchedtensor(t) for t in given
        )

    def call_small(
        self,
        graph: AnyGraph | None,
        tensors: Sequence[MaybeTensor],
        options: Options,
        phase: str,
    ) -> Tensor:
        """Make a call that kernels in C++ compute."""
        held = traceable(graph) if isinstance(graph, HostGraph) else None
        values = self._values(options, self.op.checked) if options else self._defaults
        run: Callable[..., Tensor] = getattr(torch.ops.pyops, self._name(phase)).default
        return run(*_place(held), *tensors, *values)

    @functools.cached_property
    def _defaults(self) -> list[object]:
        return self._values({}, self.op.checked)

    def _values(self, options: Options, complete: Callable[[Values], Options]) -> list[object]:
        """Return the options in the order of a registered function."""
        indexed = self.op.signature.indexed
        plain = {name: value for name, value in options.items() if name not in indexed}
        given = {**complete(plain)}
        for option in self.op.signature.options.values():
            if option.kind not in KINDS and isinstance(given[option.name], int):
                given[option.name] = [given[option.name]]
        return [*given.values(), *(tensor_of(without_subclass(options.get(n))) for n in indexed)]

    def _refuse_derivatives(self) -> None:
        """Refuse transformations that torch.jit.trace does not record."""
        stack = torch._C._functorch
        active = torch._C._are_functorch_transforms_active()
        if active and stack.peek_interpreter_stack().key() != stack.TransformType.Vmap:
            raise _no_derivatives(self.op)

    def _name(self, phase: str) -> str:
        return function_name(self.op.name, phase)

    def _define(self, phase: str, schema: FunctionSchema) -> None:
        name = self._name(phase)
        LIBRARY.define(schema.text(name), tags=ON_HOST if self.graph else ())
        if phase in ("forward", "attention"):
            self._define_traced(phase, schema)
        for key in "CompositeExplicitAutograd", "CUDA":  # the CPU has one in C++ if it was built
            LIBRARY.impl(name, self._kernel(phase), key)
        torch.library.register_fake(f"pyops::{name}", self._fake(phase), lib=LIBRARY)
        LIBRARY.impl(name, self._autograd(phase), "Autograd", with_keyset=True)
        torch.library.register_vmap(f"pyops::{name}", self._vmap(name), lib=LIBRARY)
        LIBRARY.impl(name, self._map_batches(name), "Batched")

    def _define_traced(self, phase: str, schema: FunctionSchema) -> None:
        """Define the variant that takes integers as tensors."""
        name = self._name(phase)
        integers = self._integers[phase] = schema.integers
        LIBRARY.define(schema.traced.text(f"{name}_traced"))

        def traced(*given: Any) -> Tensor:
            run: Callable[..., Tensor] = getattr(torch.ops.pyops, name).default
            return run(*(int(a) if i in integers else a for i, a in enumerate(given)))

        LIBRARY.impl(f"{name}_traced", traced, "CompositeImplicitAutograd")

    def _split(self, phase: str, arguments: Sequence[Any]) -> Arguments:
        count = len(self.names)
        many = {
            "forward": count,
            "attention": count,
            "backward": count + 1,
            "double_backward": 2 * count + 1,
        }
        start = len(self.graph)
        stop = start + many.get(phase, 2 * count)
        options: Values = dict(zip(self.options, arguments[stop:], strict=False))
        for name, option in self.op.signature.options.items():
            if option.kind not in KINDS and options[name] is not None:
                options[name] = tuple(options[name])
        wanted = None
        if phase.endswith("backward"):
            known = [*self.names, "gy"]
            wanted = tuple(n for n, w in zip(known, arguments[-1], strict=False) if w)
        graph = GraphArguments(*arguments[:start]) if start else ()
        return Arguments(graph, tuple(arguments[start:stop]), options, wanted)

    def _kernel(self, phase: str) -> Callable[..., Tensor | list[Tensor]]:
        return lambda *arguments: self._compute(phase, self._split(phase, arguments))

    def _compute(self, phase: str, arguments: Arguments) -> Tensor | list[Tensor]:
        place, tensors, options, wanted = arguments
        graph = graph_of(place[:3], place[3:]) if place else None
        found = Call(self.op, self.names, graph, options).run(phase, tensors, wanted)
        return found[0] if wanted is None else [*found]

    def _fake(self, phase: str) -> Callable[..., Tensor | list[Tensor]]:
        def fake(*arguments: object) -> Tensor | list[Tensor]:
            if torch.onnx.is_in_onnx_export():
                raise untranslated(self._name(phase))
            place, tensors, options, wanted = self._split(phase, arguments)
            if wanted is not None:
                named = zip([*self.names, "gy"], tensors, strict=False)
                return [t.new_empty(t.shape) for n, t in named if n in wanted and t is not None]
            sizes: dict[str, int] = {}
            if place:
                sizes = dict(zip(SIZES, place[3:], strict=True))
                sizes["num_entries"] = place.src.shape[0]
            count = len(self.names)
            plain = {name: options[name] for name in self.op.signature.options}
            shape = self.op.output_shape(sizes, tensors[:count], plain, phase == "attention")
            first = next(t for t in tensors if t is not None)
            kind = first.dtype
            if any(t is not None and t.dtype in HALVES for t in tensors[:count]):
                kind = rounded_type(self.op, tensors)
            return first.new_empty(shape, dtype=kind)

        return fake

    def _autograd(self, phase: str) -> Callable[..., Tensor | list[Tensor]]:
        def record(keys: torch._C.DispatchKeySet, *arguments: object) -> Tensor | list[Tensor]:
            place, tensors, options, wanted = split = self._split(phase, arguments)
            if _needs_no_dispatch(tensors):
                return self._compute(phase, split)
            call = Dispatched(self, keys, place, options)
            with enable_single_level_autograd_function():
                if wanted is None:
                    return SINGLE[phase].of_level(call, *tensors)
                return [*SEVERAL[phase].of_level(call, wanted, *tensors)]

        return record

    def _map_batches(self, name: str) -> Callable[..., Tensor | list[Tensor]]:
        def mapped(*arguments: object) -> Tensor | list[Tensor]:
            found: Tensor | tuple[Tensor, ...]
            found = map_batches(getattr(torch.ops.pyops, name).default, *arguments)
            return found if isinstance(found, Tensor) else [*found]

        return mapped

    def _vmap(self, name: str) -> Callable[..., tuple[object, object]]:
        def mapped(
            info: BatchInfo, dims: Sequence[int | None], *arguments: object
        ) -> tuple[object, object]:
            if any(d is not None for d in dims[: len(self.graph)]):
                raise NotImplementedError(f"pyops.torch.{self.op.name}: graph: vmap over graphs")
            found = map_batch(getattr(torch.ops.pyops, name), info.batch_size, dims, arguments)
            if isinstance(found, Tensor):
                return found, 0
            return [*found], [0] * len(found)

        return mapped


class Dispatched(PhaseCall):
    """A call that torch's dispatcher passes from one transformation to the next."""

    __slots__ = ("_graph", "_keys", "_options", "_registered")
    dispatched = True

    def __init__(
        self,
        registered: Registered,
        keys: torch._C.DispatchKeySet,
        graph: GraphArguments | tuple[()],
        options: Options,
    ) -> None:
        self.op, self.names, self.keeps = registered.op, registered.names, False
        self._registered, self._keys = registered, keys
        self._graph, self._options = graph, [*options.values()]

    def dispatch(self, phase: str, *arguments: PhaseArgument) -> Any:
        if is_jit_tracing():
            raise _no_derivatives(self.op)
        wanted, tensors = arguments[0], arguments[1:]
        if not isinstance(wanted, tuple):
            wanted, tensors = None, arguments
        flags = self._flags(phase, wanted)
        found = self._overload(phase)(*self._graph, *tensors, *self._options, *flags)
        return tuple(found) if flags else found

    def run(
        self, phase: str, tensors: Sequence[MaybeTensor], wanted: Collection[str] | None = None
    ) -> tuple[Tensor, ...]:
        """Call a phase, starting below autograd."""
        flags = self._flags(phase, wanted)
        keys = self._keys & torch._C._after_autograd_keyset
        # an outer transformation differentiates this call
        with (
            torch.enable_grad(),
            _set_fwd_grad_enabled(True),
            torch._C._AutoDispatchBelowAutograd(),
        ):
            found = self._overload(phase).redispatch(
                keys, *self._graph, *tensors, *self._options, *flags
            )
        return tuple(found) if flags else (found,)

    def _overload(self, phase: str) -> torch._ops.OpOverload[..., Any]:
        found: torch._ops.OpOverload[..., Any]
        found = getattr(torch.ops.pyops, self._registered._name(phase)).default
        return found

    def _flags(self, phase: str, wanted: Collection[str] | None) -> list[list[bool]]:
        """Return a list of the flags of requested results, an empty one if there are none."""
        if wanted is None:
            return []
        known = self.names if phase == "backward" else [*self.names, "gy"]
        return [[name in wanted for name in known]]


def _place(graph: Graph | TracedGraph | None) -> tuple[object, ...]:
    """Return the arguments for a graph."""
    if graph is None:
        return ()
    return *graph._tensors, graph._num_src, graph._num_dst, graph._num_edges


def _is_plain(rows: object) -> bool:
    return isinstance(rows, Tensor) and type(rows) is Tensor and rows.is_cpu


def _needs_no_dispatch(tensors: Sequence[MaybeTensor]) -> bool:
    """Return whether a call needs nothing of torch's dispatcher but the memory of the tensors."""
    given = [t for t in tensors if t is not None]
    return not (
        is_tracing(*given)
        or tracks_derivatives(given)
        or any(
            not (t.is_cpu or t.is_cuda)
            or is_legacy_batchedtensor(t)
            or torch._is_functional_tensor(t)
            for t in given
        )
    )


def _no_derivatives(op: Operator) -> NotImplementedError:
    return NotImplementedError(
        f"pyops.torch.{op.name}: derivatives inside what torch.jit.trace records: trace the value "
        "and differentiate the traced function"
    )


def _beyond(like: Tensor, cotangent: Tensor, what: str) -> Tensor:
    raise NotImplementedError(what)


LIBRARY.define("beyond(Tensor like, Tensor cotangent, str what) -> Tensor")
LIBRARY.impl("beyond", _beyond, "CompositeExplicitAutograd")
torch.library.register_fake("pyops::beyond", lambda like, *_: torch.empty_like(like), lib=LIBRARY)
