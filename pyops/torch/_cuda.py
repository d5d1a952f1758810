"""A call of a phase on the memory of tensors on a CUDA device, on torch's current stream."""

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
    """The address of torch's current stream."""
    return int(torch.cuda.current_stream(device).cuda_stream)


def run(
    call: Call, phase: str, tensors: Sequence[Maybe], wanted: Collection[str] | None
) -> tuple[Tensor, ...]:
    """A phase on the memory of the tensors; the results that are wanted."""
    device = next(t.device for t in tensors if t is not None and not t.is_cpu)
    on = platform(f"pyops.torch.{call.op.name}")
    graph = () if call.graph is None else (there(call.graph, device.index or 0),)
    which = {} if wanted is None else {"wanted": wanted}

    def make(size: int) -> torch.UntypedStorage:
        """Memory as tensors have it, of torch's allocator and its current stream."""
        return torch.UntypedStorage(size, device=device)

    with on.on(device.index or 0), on.stream(stream_of(device)), on.memory(make):
        arrays = [None if t is None else _array(in_memory(t)) for t in tensors]
        results = getattr(call.op, phase)(*graph, *arrays, **which, **call.told)
        if wanted is None:
            results = (results[0] if phase == "forward" else results,)
        return tuple(_tensor(r, on.owner(r), device) for r in results if r is not None)


def there(graph: Any, number: int) -> Any:
    """The graph on a device; of one in host memory a copy that is made once and goes with it."""
    if not isinstance(graph, _graph.Graph):
        return graph
    key = "device", str(number)
    if key not in graph._ready:
        graph._ready[key] = _twin(graph).to_device(number)  # type: ignore[assignment]
    found: DeviceGraph = graph._ready[key]  # type: ignore[assignment]
    return found


def _twin(graph: _graph.Graph) -> _graph.Graph:
    """The same graph for its copy to hold, which could else not go before all garbage does."""
    twin = _graph.Graph.__new__(_graph.Graph)
    for name in _graph.Graph.__slots__:
        object.__setattr__(twin, name, {} if name == "_ready" else getattr(graph, name))
    return twin


def _tensor(array: Any, owner: torch.UntypedStorage, device: torch.device) -> Tensor:
    """The tensor of an array that begins with its memory."""
    kind = torch.float32 if array.dtype.char == "f" else torch.float64
    return torch.empty(0, dtype=kind, device=device).set_(owner, 0, array.shape)


def _array(tensor: Tensor) -> Any:
    """What the door takes; a tensor on the host is refused there by its name."""
    return tensor.numpy() if tensor.is_cpu else tensor
