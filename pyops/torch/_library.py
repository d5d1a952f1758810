"""The operators as torch.library knows them, for torch.compile and torch.export.

Four for each operator of the table: pyops::<op>, <op>_backward, <op>_double_backward, <op>_jvp,
and <op>_attention for those that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._operator import Operator
from ._call import Call, awaited, by_name
from ._graph import graph_of

LIBRARY = torch.library.Library("pyops", "DEF")
KINDS = {int: "int", str: "str", float: "float", bool: "bool"}
INDICES = "Tensor src", "Tensor dst", "Tensor? edge_ids"
SIZES = "num_src", "num_dst", "num_edges"


class Registered:
    """One operator: its four functions, and how their arguments are laid out."""

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
        self._define("forward", [*inputs, *options], "Tensor")
        self._define("backward", [*inputs, *gy, *options, *wanted], "Tensor[]")
        self._define("double_backward", [*inputs, *gy, *others, *options, *wanted], "Tensor[]")
        self._define("jvp", [*inputs, *others, *options], "Tensor")
        if signature.attention:
            self._define("attention", [*inputs, *options], "Tensor")
        differentiable = {"forward": self._value_back, "backward": self._gradient_back}
        for phase, back in differentiable.items():
            torch.library.register_autograd(
                f"pyops::{self._called(phase)}",
                back,
                setup_context=self._keep(phase),
                lib=LIBRARY,
            )

    def __call__(
        self, graph: Any, tensors: Sequence[Any], options: dict[str, Any], phase: str = "forward"
    ) -> Any:
        """Through torch.library, where torch is tracing."""
        indexed = self.op.signature.indexed
        plain = {name: value for name, value in options.items() if name not in indexed}
        given = self.op._phases["forward"]._complete(plain)
        for option in self.op.signature.options.values():
            if option.kind not in KINDS and isinstance(given[option.name], int):
                given[option.name] = [given[option.name]]
        rows = [None if options.get(n) is None else torch.as_tensor(options[n]) for n in indexed]
        indices: tuple[Any, ...] = ()
        if graph is not None:
            indices = (*graph._tensors, graph._num_src, graph._num_dst, graph._num_edges)
        run = getattr(torch.ops.pyops, self._called(phase))
        return run(*indices, *tensors, *given.values(), *rows)

    def _called(self, phase: str) -> str:
        return self.op.name if phase == "forward" else f"{self.op.name}_{phase}"

    def _define(self, phase: str, arguments: Sequence[str], returns: str) -> None:
        name = self._called(phase)
        LIBRARY.define(f"{name}({', '.join([*self.graph, *arguments])}) -> {returns}")
        LIBRARY.impl(name, self._kernel(phase), "CPU")
        torch.library.register_fake(f"pyops::{name}", self._fake(phase), lib=LIBRARY)

    def _split(self, phase: str, arguments: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """Indices and sizes, tensors, options, names that are wanted."""
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
            place, tensors, options, wanted = self._split(phase, arguments)
            if wanted is not None:
                held = dict(zip([*self.names, "gy"], tensors, strict=False))
                return [torch.empty(held[n].shape, dtype=held[n].dtype) for n in wanted]
            sizes = dict(zip(SIZES, place[3:], strict=False))
            if place:
                sizes["num_entries"] = place[0].shape[0]
            count = len(self.names)
            plain = {name: options[name] for name in self.op.signature.options}
            shape = self.op.output_shape(sizes, tensors[:count], plain, phase == "attention")
            first = next(t for t in tensors if t is not None)
            return first.new_empty(shape)

        return fake

    def _keep(self, phase: str) -> Callable[..., None]:
        def keep(ctx: Any, inputs: Any, output: Any) -> None:
            place, tensors, options, ctx.wanted = self._split(phase, inputs)
            rows = [options.pop(name) for name in self.op.signature.indexed]
            ctx.sizes, ctx.options = place[3:], [*options.values()]
            ctx.save_for_backward(*place[:3], *tensors, *rows)

        return keep

    def _kept(self, ctx: Any) -> tuple[list[Any], Sequence[Any], list[Any]]:
        """Indices and sizes, tensors, options, row numbers among them."""
        saved, first = ctx.saved_tensors, min(3, len(self.graph))
        last = len(saved) - len(self.op.signature.indexed)
        return [*saved[:first], *ctx.sizes], saved[first:last], [*ctx.options, *saved[last:]]

    def _needed(self, ctx: Any, count: int) -> list[bool]:
        """Which of the first of the tensors get a gradient."""
        start = len(self.graph)
        waiting = awaited(ctx, ctx.saved_tensors)[min(3, start) :]
        needed = ctx.needs_input_grad[start : start + count]
        return [need and wait for need, wait in zip(needed, waiting, strict=False)]

    def _value_back(self, ctx: Any, gy: Tensor) -> Any:
        start = len(self.graph)
        place, inputs, options = self._kept(ctx)
        needed = self._needed(ctx, len(self.names))
        run = getattr(torch.ops.pyops, self._called("backward"))
        found = run(*place, *inputs, gy, *options, needed)
        wanted = [n for n, need in zip(self.names, needed, strict=True) if need]
        none = [None] * start, [None] * len(options)
        return *none[0], *by_name(self.names, wanted, found), *none[1]

    def _gradient_back(self, ctx: Any, cotangents: Sequence[Tensor]) -> Any:
        start = len(self.graph)
        names = [*self.names, "gy"]
        place, tensors, options = self._kept(ctx)
        needed = self._needed(ctx, len(names))
        run = getattr(torch.ops.pyops, self._called("double_backward"))
        hs = by_name(self.names, ctx.wanted, cotangents)
        found = run(*place, *tensors, *hs, *options, needed)
        wanted = [n for n, need in zip(names, needed, strict=True) if need]
        none = [None] * start, [None] * (len(options) + 1)
        return *none[0], *by_name(names, wanted, found), *none[1]
