"""Input forms of edges, converted to an index [2, edges] of sources and destinations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor

from ....graph import Graph
from ..._call import is_exporting, is_jit_tracing, is_tracing
from ..._graph import Graph as TorchGraph
from ..._graph import traceable
from ..._host import array_of, is_mapped, on_host, without_subclass

if TYPE_CHECKING:
    from ....cuda import DeviceGraph

EdgeIndex: TypeAlias = "Tensor | tuple[Tensor, Tensor] | Graph"


class SizedIndex(Protocol):
    """`EdgeIndex` of PyTorch Geometric, which may have sizes."""

    is_undirected: bool

    def __init__(
        self,
        data: Tensor,
        /,
        *,
        sparse_size: tuple[int | None, int | None],
        is_undirected: bool,
    ) -> None: ...

    def sparse_size(self) -> tuple[int | None, int | None]: ...


_INTEGERS = torch.int64, torch.int32
_SPARSE = torch.sparse_coo, torch.sparse_csr, torch.sparse_csc


def on_cpu(label: str, given: object) -> Tensor:
    """Return the argument if it is a tensor on the CPU."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{label}: expected a torch.Tensor, got {type(given).__name__}")
    if given.device.type != "cpu":
        raise ValueError(f"{label}: expected a tensor on the CPU, got one on {given.device}")
    return given


def check_device(label: str, given: object, device: torch.device | None = None) -> Tensor:
    """Return the argument if it is a tensor on a CUDA device or the CPU, on `device` if given."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{label}: expected a torch.Tensor, got {type(given).__name__}")
    if given.is_cpu and device is None:
        return given
    if given.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{label}: expected a tensor on a CUDA device or on the CPU, got one on {given.device}"
        )
    if device is not None and given.device != device:
        raise ValueError(
            f"{label}: expected a tensor on {device} like the others, got one on {given.device}"
        )
    return given


def integers(label: str, given: object) -> Tensor:
    """Return the argument as a plain tensor if it is a one-dimensional tensor of integers."""
    found = check_device(label, given if type(given) is Tensor else without_subclass(given))
    if found.dtype not in _INTEGERS:
        raise TypeError(f"{label}: expected int32 or int64, got {found.dtype}")
    if found.dim() != 1:
        raise ValueError(f"{label}: expected one dimension, got {found.dim()}")
    return found


def check_edges(caller: str, given: EdgeIndex | DeviceGraph, device: torch.device) -> EdgeIndex:
    """Return the edges if they have one of the input forms, with tensors on the device."""
    label = f"{caller}: edge_index"
    if not isinstance(given, Tensor | tuple | Graph) and hasattr(given, "to_host"):
        given = given.to_host()
    given = without_subclass(given)
    if isinstance(given, Graph):
        if given._ids is not None:
            raise ValueError(f"{label}: expected a graph whose edges share no rows")
    elif isinstance(given, tuple) and len(given) == 2:
        offsets, sources = (
            check_device(f"{label}: {name}", integers(f"{label}: {name}", part), device)
            for name, part in zip(("offsets", "sources"), given, strict=True)
        )
        given = check_offsets(f"{label}: offsets", offsets, sources.shape[0]), sources
    elif not isinstance(given, Tensor):
        raise TypeError(
            f"{label}: expected a tensor [2, edges], a sparse matrix of torch, a pair (offsets, "
            f"sources) or a pyops.Graph, got {type(given).__name__}"
        )
    elif given.layout not in _SPARSE and (
        given.dtype not in _INTEGERS or given.dim() != 2 or given.shape[0] != 2
    ):
        raise ValueError(
            f"{label}: expected int32 or int64 of shape [2, edges], got {given.dtype} of shape "
            f"{list(given.shape)}"
        )
    for part in parts_of(given):
        check_device(label, part, device)
        if is_mapped(part):
            raise NotImplementedError(f"{label}: vmap over graphs")
    return given


def parts_of(given: EdgeIndex) -> tuple[Tensor, ...]:
    """Return the index tensors of the edges, as the caller holds them."""
    if isinstance(given, Graph):
        return ()
    if isinstance(given, tuple):
        return given
    if given.layout is torch.sparse_coo:
        return (given._indices(),)
    if given.layout is torch.sparse_csr:
        return given.crow_indices(), given.col_indices()
    if given.layout is torch.sparse_csc:
        return given.ccol_indices(), given.row_indices()
    return (given,)


def hosts_of(given: EdgeIndex) -> tuple[Tensor, ...]:
    """Return the index tensors of the edges in host memory."""
    whole = given if is_sparse(given) else None
    return tuple(on_host(part, whole) for part in parts_of(given))


def index_of_graph(graph: Graph, device: torch.device) -> Tensor:
    """Return the index of a packed graph on a device; the device copy is cached."""

    def stack() -> Tensor:
        src, dst, _ = (graph if isinstance(graph, TorchGraph) else traceable(graph))._tensors
        return torch.stack([src, dst]).to(device)

    if device.type == "cpu" or is_tracing():
        return stack()
    key = "index", str(device)
    found: Tensor | None = graph._copies.get(key)
    if found is None:
        with torch.inference_mode(False), torch._C._DisableFuncTorch():
            found = graph._copies[key] = stack()
    return found


def index_of(given: Tensor | tuple[Tensor, Tensor], parts: tuple[Tensor, ...]) -> Tensor:
    """Build the index [2, edges] from the tensors; a sparse matrix has a row per destination."""
    if not isinstance(given, tuple) and given.layout is torch.sparse_coo:
        return parts[0].flip(0)
    if isinstance(given, tuple) or given.layout in _SPARSE:
        nodes = rows_of(parts[0], parts[1].shape[0])
        transposed = not isinstance(given, tuple) and given.layout is torch.sparse_csc
        return torch.stack([nodes, parts[1]] if transposed else [parts[1], nodes])
    return parts[0]


def values_of(given: EdgeIndex) -> Tensor | None:
    """Return the values of a sparse matrix: edge weights, or features if they have columns."""
    if not isinstance(given, Tensor) or given.layout not in _SPARSE:
        return None
    plain = given.layout is torch.sparse_coo and not given.is_coalesced()
    values: Tensor = given._values() if plain else given.values()
    return values


def is_sparse(given: EdgeIndex) -> TypeGuard[Tensor]:
    return isinstance(given, Tensor) and given.layout in _SPARSE


def has_sizes(given: EdgeIndex) -> TypeGuard[SizedIndex]:
    return isinstance(given, Tensor) and hasattr(given, "sparse_size")


def sizes_of(given: SizedIndex, loops: int | None) -> tuple[int | None, int | None]:
    """Return the sizes of an `EdgeIndex` with `loops` self loops, None for unknown sizes."""
    first, second = (
        size if size is None or loops is None else max(size, loops) for size in given.sparse_size()
    )
    return first, second


def like(given: SizedIndex, index: Tensor, loops: int) -> SizedIndex:
    """Return an `EdgeIndex` of other edges, with `loops` self loops."""
    sizes = sizes_of(given, loops)
    return type(given)(index.clone(), sparse_size=sizes, is_undirected=given.is_undirected)


def order_of(given: Tensor, index: Tensor) -> Tensor:
    """Return the permutation of edges to the order of a sparse matrix of this layout."""
    major, minor = (0, 1) if given.layout is torch.sparse_csc else (1, 0)
    keys = index[major].long() * max(given.shape[:2]) + index[minor]
    return keys.argsort(stable=True)


def with_values(given: Tensor, index: Tensor, values: Tensor, sort: bool) -> tuple[Tensor, Tensor]:
    """Return edges as a sparse matrix of the layout of `given`, and its values."""
    row, col = index[1], index[0]
    if sort:
        order = order_of(given, index)
        row, col, values = row[order], col[order], values[order]
    shape = (*given.shape[:2], *values.shape[1:])
    if given.layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(torch.stack([row, col]), values, shape).coalesce(), values
    major, minor, count = row, col, shape[0]
    if given.layout is torch.sparse_csc:
        major, minor, count = col, row, shape[1]
    offsets = torch.nn.functional.pad(torch.bincount(major, minlength=count).cumsum(0), (1, 0))
    make = torch.sparse_compressed_tensor
    return make(offsets, minor, values, shape, layout=given.layout), values


def rows_of(offsets: Tensor, count: int) -> Tensor:
    """Expand offsets to the row of each element."""
    if not is_tracing(offsets) and offsets.is_cpu:
        held = array_of(offsets)
        return torch.from_numpy(np.arange(len(held) - 1, dtype=held.dtype).repeat(np.diff(held)))
    if is_exporting():  # exporters do not translate repeat_interleave with an output size
        inner = offsets[1:-1].long()
        steps = inner.new_zeros(count + 1).scatter_add(0, inner, torch.ones_like(inner))
        return steps.cumsum(0)[:count].to(offsets.dtype)
    rows = torch.arange(offsets.shape[0] - 1, dtype=offsets.dtype, device=offsets.device)
    counts = offsets[1:] - offsets[:-1]
    if is_jit_tracing():
        return rows.repeat_interleave(counts)
    return rows.repeat_interleave(counts, output_size=count)


def check_offsets(label: str, given: object, count: int) -> Tensor:
    """Return offsets as a plain tensor if they ascend from 0 to the number of elements."""
    offsets = integers(label, given)
    if is_mapped(offsets):
        raise NotImplementedError(f"{label}: vmap over graphs")
    if is_tracing(offsets):
        return offsets
    held = array_of(offsets)
    if len(held) and held[0] == 0 and held[-1] == count and (held[1:] >= held[:-1]).all():
        return offsets
    raise ValueError(f"{label}: expected numbers from 0 to {count} that never fall")
