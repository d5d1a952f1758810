"""Calls of operator phases on tensors on a CUDA device, on torch's current stream."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import graph as _graph
from ..cuda._device import platform
from ._host import in_memory

if TYPE_CHECKING:
    from ..cuda._graph import DeviceGraph
    from ._call import Call, Maybe


def stream_of(device: torch.device) -> int:
    """Return the address of torch's current stream."""
    return int(torch.cuda.current_stream(device).cuda_stream)


def run(
    call: Call, phase: str, tensors: Sequence[Maybe], wanted: Collection[str] | None
) -> tuple[Tensor, ...]:
    """Run a phase on the memory of the tensors and return the requested results."""
    device = next(t.device for t in tensors if t is not None and not t.is_cpu)
    on = platform(f"pyops.torch.{call.op.name}")
    graph = () if call.graph is None else (there(call.graph, device.index or 0),)
    which = {} if wanted is None else {"wanted": wanted}

    def make(size: int) -> torch.UntypedStorage:
        """Allocate memory with torch's allocator, on its current stream."""
        return torch.UntypedStorage(size, device=device)

    with on.on(device.index or 0), on.stream(stream_of(device)), on.memory(make):
        arrays = [None if t is None else _array(in_memory(t)) for t in tensors]
        results = getattr(call.op, phase)(*graph, *arrays, **which, **call.told)
        if wanted is None:
            results = (results[0] if phase == "forward" else results,)
        return tuple(_tensor(r, on.owner(r), device) for r in results if r is not None)


def there(graph: Any, number: int) -> Any:
    """Return the graph on a device; the copy of a host graph is cached in that graph."""
    if not isinstance(graph, _graph.Graph):
        return graph
    key = "device", str(number)
    if key not in graph._ready:
        graph._ready[key] = _twin(graph).to_device(number)  # type: ignore[assignment]
    found: DeviceGraph = graph._ready[key]  # type: ignore[assignment]
    return found


def _twin(graph: _graph.Graph) -> _graph.Graph:
    """Clone a graph for its device copy to refer to.

    A reference to the graph itself would be a cycle, freed by the garbage collector only.
    """
    twin = _graph.Graph.__new__(_graph.Graph)
    for name in _graph.Graph.__slots__:
        object.__setattr__(twin, name, {} if name == "_ready" else getattr(graph, name))
    return twin


def _tensor(array: Any, owner: torch.UntypedStorage, device: torch.device) -> Tensor:
    """Return an array as a tensor; the array starts at the beginning of its memory."""
    kind = torch.float32 if array.dtype.char == "f" else torch.float64
    return torch.empty(0, dtype=kind, device=device).set_(owner, 0, array.shape)


def _array(tensor: Tensor) -> Any:
    """Return the argument for the device front end, which refuses host arrays by name."""
    return tensor.numpy() if tensor.is_cpu else tensor
