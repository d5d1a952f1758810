"""Registration of the operators with torch.library, for torch.compile and torch.export.

Registers for each operator pyops::<op>, <op>_backward, <op>_double_backward and <op>_jvp, and
<op>_attention if it has attention weights. torch.jit.trace records <op>_traced, which takes
integers as tensors, because that tracer represents sizes by tensors and integers by constants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd.forward_ad import _set_fwd_grad_enabled

from .._call.operator import Operator
from ._call import Call, Maybe, jit_tracing, tensor_of
from ._graph import graph_of
from ._host import without_subclass
from ._onnx import untranslated
from ._phases import Attention, Gradient, Phase, Second, Tangent, Value, each

LIBRARY = torch.library.Library("pyops", "DEF")
KINDS: dict[type | str, str] = {int: "int", str: "str", float: "float", bool: "bool"}
INDICES = "Tensor src", "Tensor dst", "Tensor? edge_ids"
KIND_OF = {kind.name: kind for kind in (Value, Gradient, Second, Tangent, Attention)}
SIZES = "num_src", "num_dst", "num_edges"
INTEGERS = "SymInt ", "int "
"""Types, in a schema, of arguments that are sizes of a graph or integer options."""
ON_HOST = [tag for name, tag in vars(torch.Tag).items() if name == "cudagraph_unsafe"]
"""Tag that excludes calls from CUDA graphs: their indices are read in host memory."""


class Registered:
    """Registered functions of one operator, and the layout of their arguments."""

    def __init__(self, op: Operator) -> None:
        self.op = op
        signature = op.signature
        self.names = [*signature.inputs]
        self.options = [*signature.options, *signature.indexed]
        self.graph = [*INDICES, *(f"SymInt {n}" for n in SIZES)] if signature.has_graph else []
        inputs = [f"Tensor{'?' * i.optional} {i.name}" for i in signature.inputs.values()]
        others = [f"Tensor? {tag}{n}" for tag in "h" for n in self.names]
        options = [f"{KINDS.get(o.kind, 'int[]?')} {o.name}" for o in signature.options.values()]
        options += [f"Tensor? {name}" for name in signature.indexed]
        gy, wanted = ["Tensor gy"], ["bool[] wanted"]
        self._integers: dict[str, set[int]] = {}
        self._define("forward", [*inputs, *options], "Tensor")
        self._define("backward", [*inputs, *gy, *options, *wanted], "Tensor[]")
        self._define("double_backward", [*inputs, *gy, *others, *options, *wanted], "Tensor[]")
        self._define("jvp", [*inputs, *others, *options], "Tensor")
        if signature.attention:
            self._define("attention", [*inputs, *options], "Tensor")

    def __call__(
        self, graph: Any, tensors: Sequence[Any], options: dict[str, Any], phase: str = "forward"
    ) -> Any:
        """Call a phase through torch.library, while torch records."""
        indexed = self.op.signature.indexed
        plain = {name: value for name, value in options.items() if name not in indexed}
        given = self.op._phases["forward"]._complete(plain)
        for option in self.op.signature.options.values():
            if option.kind not in KINDS and isinstance(given[option.name], int):
                given[option.name] = [given[option.name]]
        rows = [tensor_of(without_subclass(options.get(name))) for name in indexed]
        indices: tuple[Any, ...] = ()
        if graph is not None:
            indices = (*graph._tensors, graph._num_src, graph._num_dst, graph._num_edges)
        called = self._called(phase)
        arguments = *indices, *tensors, *given.values(), *rows
        if jit_tracing():
            self._refuse_derivatives()
            places = self._integers[phase]
            called = f"{called}_traced"
            arguments = tuple(tensor_of(a) if i in places else a for i, a in enumerate(arguments))
        return getattr(torch.ops.pyops, called)(*arguments)

    def _refuse_derivatives(self) -> None:
        """Refuse transformations that torch.jit.trace does not record."""
        stack = torch._C._functorch
        active = torch._C._are_functorch_transforms_active()
        if active and stack.peek_interpreter_stack().key() != stack.TransformType.Vmap:
            raise _no_derivatives(self.op)

    def _called(self, phase: str) -> str:
        return self.op.name if phase == "forward" else f"{self.op.name}_{phase}"

    def _define(self, phase: str, arguments: Sequence[str], returns: str) -> None:
        name, arguments = self._called(phase), [*self.graph, *arguments]
        schema = f"{name}({', '.join(arguments)}) -> {returns}"
        LIBRARY.define(schema, tags=ON_HOST if self.graph else ())
        if phase in ("forward", "attention"):
            self._define_traced(phase, arguments)
        for device in "CPU", "CUDA":
            LIBRARY.impl(name, self._kernel(phase), device)
        torch.library.register_fake(f"pyops::{name}", self._fake(phase), lib=LIBRARY)
        LIBRARY.impl(name, self._recorder(KIND_OF[phase]), "Autograd", with_keyset=True)
        torch.library.register_vmap(f"pyops::{name}", self._mapped(name), lib=LIBRARY)

    def _define_traced(self, phase: str, arguments: Sequence[str]) -> None:
        """Define the variant that takes integers as tensors."""
        name = self._called(phase)
        places = {i for i, a in enumerate(arguments) if a.startswith(INTEGERS)}
        self._integers[phase] = places
        names = [f"Tensor {a.split()[1]}" if i in places else a for i, a in enumerate(arguments)]
        LIBRARY.define(f"{name}_traced({', '.join(names)}) -> Tensor")

        def traced(*given: Any) -> Any:
            run = getattr(torch.ops.pyops, name).default
            return run(*(int(a) if i in places else a for i, a in enumerate(given)))

        LIBRARY.impl(f"{name}_traced", traced, "CompositeImplicitAutograd")

    def _split(self, phase: str, arguments: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """Split arguments into indices and sizes, tensors, options and requested names."""
        count = len(self.names)
        many = {
            "forward": count,
            "attention": count,
            "backward": count + 1,
            "double_backward": 2 * count + 1,
        }
        start = len(self.graph)
        stop = start + many.get(phase, 2 * count)
        options = dict(zip(self.options, arguments[stop:], strict=False))
        for name, option in self.op.signature.options.items():
            if option.kind not in KINDS and options[name] is not None:
                options[name] = tuple(options[name])
        wanted = None
        if phase.endswith("backward"):
            known = [*self.names, "gy"]
            wanted = tuple(n for n, w in zip(known, arguments[-1], strict=False) if w)
        return arguments[:start], arguments[start:stop], options, wanted

    def _kernel(self, phase: str) -> Callable[..., Any]:
        def kernel(*arguments: Any) -> Any:
            place, tensors, options, wanted = self._split(phase, arguments)
            graph = graph_of(tuple(place[:3]), tuple(place[3:])) if place else None
            found = Call(self.op, graph, options).run(phase, tensors, wanted)
            return found[0] if wanted is None else [*found]

        return kernel

    def _fake(self, phase: str) -> Callable[..., Any]:
        def fake(*arguments: Any) -> Any:
            if torch.onnx.is_in_onnx_export():
                raise untranslated(self._called(phase))
            place, tensors, options, wanted = self._split(phase, arguments)
            if wanted is not None:
                held = dict(zip([*self.names, "gy"], tensors, strict=False))
                return [held[n].new_empty(held[n].shape) for n in wanted]
            sizes = dict(zip(SIZES, place[3:], strict=False))
            if place:
                sizes["num_entries"] = place[0].shape[0]
            count = len(self.names)
            plain = {name: options[name] for name in self.op.signature.options}
            shape = self.op.output_shape(sizes, tensors[:count], plain, phase == "attention")
            first = next(t for t in tensors if t is not None)
            return first.new_empty(shape)

        return fake

    def _recorder(self, kind: type[Phase]) -> Callable[..., Any]:
        def record(keys: Any, *arguments: Any) -> Any:
            place, tensors, options, wanted = self._split(kind.name, arguments)
            call = Dispatched(self, keys, place, options)
            with enable_single_level_autograd_function():
                if wanted is None:
                    return kind.record(call, *tensors)
                return [*kind.record(call, wanted, *tensors)]

        return record

    def _mapped(self, name: str) -> Callable[..., Any]:
        def mapped(info: Any, dims: Any, *arguments: Any) -> Any:
            if any(d is not None for d in dims[: len(self.graph)]):
                raise NotImplementedError(f"pyops.torch.{self.op.name}: graph: vmap over graphs")
            found = each(getattr(torch.ops.pyops, name), info.batch_size, dims, arguments)
            if isinstance(found, Tensor):
                return found, 0
            return [*found], [0] * len(found)

        return mapped


class Dispatched:
    """Call that torch's dispatcher passes from one transformation to the next."""

    dispatched = True
    keeps = False

    def __init__(self, registered: Registered, keys: Any, place: Any, options: Any) -> None:
        self.op, self.names, self._called = registered.op, registered.names, registered._called
        self._keys, self._place, self._options = keys, place, [*options.values()]

    def dispatch(self, phase: str, *arguments: Any) -> Any:
        """Call a phase, starting at the outermost transformation."""
        if jit_tracing():
            raise _no_derivatives(self.op)
        wanted, tensors = self._parts(phase, arguments)
        found = self._overload(phase)(*self._place, *tensors, *self._options, *wanted)
        return tuple(found) if wanted else found

    def run(
        self, phase: str, tensors: Sequence[Maybe], wanted: Collection[str] | None = None
    ) -> tuple[Tensor, ...]:
        """Call a phase, starting below autograd."""
        told, tensors = self._parts(phase, tensors if wanted is None else (wanted, *tensors))
        keys = self._keys & torch._C._after_autograd_keyset
        # an outer transformation differentiates this call
        with (
            torch.enable_grad(),
            _set_fwd_grad_enabled(True),
            torch._C._AutoDispatchBelowAutograd(),
        ):
            found = self._overload(phase).redispatch(
                keys, *self._place, *tensors, *self._options, *told
            )
        return tuple(found) if told else (found,)

    def _overload(self, phase: str) -> Any:
        return getattr(torch.ops.pyops, self._called(phase)).default

    def _parts(self, phase: str, arguments: Sequence[Any]) -> tuple[list[Any], Sequence[Maybe]]:
        """Return the flags of requested results, if the phase takes them, and the tensors."""
        if not phase.endswith("backward"):
            return [], arguments
        known = self.names if phase == "backward" else [*self.names, "gy"]
        return [[name in arguments[0] for name in known]], arguments[1:]


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
