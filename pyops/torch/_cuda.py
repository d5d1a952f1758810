"""Calls of operator phases on tensors on a CUDA device, on torch's current stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from ..cuda._device import platform
from ..graph import Graph
from ._host import in_memory

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..cuda._array import DeviceArray
    from ..cuda._graph import DeviceGraph
    from ._call import AnyGraph, Call, MaybeTensor


def stream_of(device: torch.device) -> int:
    """Return the address of torch's current stream."""
    return int(torch.cuda.current_stream(device).cuda_stream)


def run(
    call: Call,
    phase: str,
    tensors: Sequence[MaybeTensor],
    wanted: Collection[str] | None,
    half: str = "",
) -> tuple[Tensor, ...]:
    """Run a phase on the memory of the tensors and return the requested results.

    `half` names kernels that read rows as 16-bit integers.
    """
    device = next(t.device for t in tensors if t is not None and not t.is_cpu)
    on = platform(f"pyops.torch.{call.op.name}")
    graph = () if call.graph is None else (device_graph(call.graph, device.index or 0),)

    def make(size: int) -> torch.UntypedStorage:
        """Allocate memory with torch's allocator, on its current stream."""
        return torch.UntypedStorage(size, device=device)

    with on.on(device.index or 0), on.stream(stream_of(device)), on.memory(make):
        arrays = [None if t is None else _array(in_memory(t)) for t in tensors]
        found = call.op.run(phase, [*graph, *arrays], call.host_options, wanted, half=half)
        results = cast("tuple[DeviceArray | None, ...]", found)
        return tuple(_tensor(r, on.owner(r), device) for r in results if r is not None)


def device_graph(graph: AnyGraph, number: int) -> DeviceGraph:
    """Return the graph on a device; the copy of a host graph is cached in that graph."""
    if not isinstance(graph, Graph):
        return graph
    key = "device", str(number)
    found: DeviceGraph | None = graph._copies.get(key)
    if found is None:
        found = graph._copies[key] = _clone(graph).to_device(number)
    return found


def _clone(graph: Graph) -> Graph:
    """Clone a graph for its device copy to refer to.

    A reference to the graph itself would be a cycle, freed by the garbage collector only.
    """
    clone = Graph.__new__(Graph)
    for name in Graph.__slots__:
        own = {} if name in ("_copies", "_ready") else getattr(graph, name)
        object.__setattr__(clone, name, own)
    return clone


def _tensor(array: DeviceArray, owner: object, device: torch.device) -> Tensor:
    """Return an array as a tensor; the array starts at the beginning of its memory."""
    assert isinstance(owner, torch.UntypedStorage)
    kind = torch.float32 if array.dtype.char == "f" else torch.float64
    strides = [stride // array.itemsize for stride in array.strides]
    return torch.empty(0, dtype=kind, device=device).set_(owner, 0, array.shape, strides)


def _array(tensor: Tensor) -> object:
    """Return the argument for the device front end, which refuses host arrays by name."""
    return tensor.numpy() if tensor.is_cpu else tensor
