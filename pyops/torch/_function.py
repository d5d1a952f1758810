"""Operators as functions on tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from .._call.arrays import on_device
from .._call.framework import FrameworkFunction
from ..graph import Graph
from ._call import AnyGraph, Call, MaybeTensor, check, is_exporting, is_tracing
from ._graph import Graph as TorchGraph
from ._graph import TracedGraph, traceable
from ._host import PLAIN
from ._library import Registered
from ._onnx import translated
from ._phases import Attention, Value
from ._points import is_communicator, over_points
from ._ranks import Distributed, is_distributed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from .._call.operator import Operator
    from .._call.types import Options
    from ..cuda._graph import DeviceGraph


def _check_graph(label: str, graph: object) -> AnyGraph:
    if isinstance(graph, (Graph, TracedGraph)) or _is_on_device(graph):
        return graph
    raise TypeError(f"{label}: graph: expected pyops.Graph, got {type(graph).__name__}")


def _is_on_device(graph: object) -> TypeGuard[DeviceGraph]:
    return on_device(graph)


def function(op: Operator) -> Callable[..., Tensor | tuple[Tensor, Tensor]]:
    """Return the operator as a function on tensors."""
    front_end, registered = FrameworkFunction(op, "torch"), Registered(op)

    def call(*inputs: object, **options: object) -> Tensor | tuple[Tensor, Tensor]:
        if on_ranks is not None:
            given = inputs[0] if inputs else options.get("graph")
            if is_distributed(given):
                return on_ranks(given, inputs, options, check)
        elif inputs and type(inputs[0]) not in PLAIN and is_communicator(inputs[0]):
            return over_points(op, front_end, inputs, options, check)
        graph, tensors = front_end.arguments(inputs, options, _check_graph, check)
        wants_attention = op.pop_attention(options)
        y = run("forward", graph, tensors, options)
        if not wants_attention:
            return y
        constants = [None if t is None else t.detach() for t in tensors]
        return y, run("attention", graph, constants, options)

    def run(
        phase: str, graph: AnyGraph | None, tensors: Sequence[MaybeTensor], options: Options
    ) -> Tensor:
        if is_tracing(*tensors):
            if graph is not None and not isinstance(graph, (TorchGraph, TracedGraph)):
                graph = traceable(graph if isinstance(graph, Graph) else graph.to_host())
            if is_exporting():
                return translated(op, graph, tensors, options, phase)
            return registered(graph, tensors, options, phase)
        if registered.is_small(graph, tensors, options):
            return registered.call_small(graph, tensors, options, phase)
        kind = Attention if phase == "attention" else Value
        return kind.of(Call(op, registered.names, graph, options), *tensors)

    on_ranks = Distributed(op, front_end, run) if op.signature.has_graph else None
    front_end.document(call)
    return call
