"""Operators as functions on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from .._call.arrays import on_device
from .._call.framework import FrameworkFunction
from .._call.operator import Operator
from ..graph import Graph
from ._call import Call, Maybe, check, exporting, recording
from ._graph import Ends, visible
from ._graph import Graph as TorchGraph
from ._library import Registered
from ._onnx import translated
from ._phases import Attention, Value


def _plain(label: str, graph: Any) -> Any:
    if not isinstance(graph, (Graph, Ends)) and not on_device(graph):
        raise TypeError(f"{label}: graph: expected pyops.Graph, got {type(graph).__name__}")
    return graph


def function(op: Operator) -> Callable[..., Any]:
    """Return the operator as a function on tensors."""
    front_end, registered = FrameworkFunction(op, "torch"), Registered(op)

    def call(*inputs: Any, **options: Any) -> Any:
        graph, tensors = front_end.arguments(inputs, options, _plain, check)
        wants_attention = op.pop_attention(options)
        y = run("forward", graph, tensors, options)
        if not wants_attention:
            return y
        constants = [None if t is None else t.detach() for t in tensors]
        return y, run("attention", graph, constants, options)

    def run(phase: str, graph: Any, tensors: Sequence[Maybe], options: dict[str, Any]) -> Tensor:
        if recording(*tensors):
            if graph is not None and not isinstance(graph, (TorchGraph, Ends)):
                graph = visible(graph if isinstance(graph, Graph) else graph.to_host())
            if exporting():
                return translated(op, graph, tensors, options, phase)
            found: Tensor = registered(graph, tensors, options, phase)
            return found
        kind = Attention if phase == "attention" else Value
        result: Tensor = kind.of(Call(op, graph, options), *tensors)
        return result

    front_end.document(call)
    return call
