"""Base classes of message-passing layers: their options and the reduction of messages."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.nn.parameter import is_lazy

from .._call import DTYPES, is_integer
from .._host import without_subclass
from .._ranks import is_distributed
from ._edges.edge_index import (
    EdgeIndex,
    check_device,
    has_sizes,
    is_sparse,
    sizes_of,
)
from ._edges.layer_edges import Edges, edges_of
from ._edges.routes import ALWAYS
from ._functions import scatter
from ._linear import is_linear
from ._reductions import EXTREMES
from .in_parts import ends_in_parts, layer_in_parts
from .replicated import called

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...distributed import DistributedGraph

Pair: TypeAlias = "tuple[Tensor, Tensor | None]"
Size: TypeAlias = "tuple[int | None, int | None] | None"
Aggr: TypeAlias = "str | Sequence[str] | torch.nn.Module"
Flow: TypeAlias = Literal["source_to_target", "target_to_source"]
FLOWS = "source_to_target", "target_to_source"
PARTS = "propagate", "message", "aggregate", "message_and_aggregate", "edge_update", "update"
REDUCTIONS = "sum", "add", "mean", "max", "min"


class Aggregator(Protocol):
    """Aggregation of PyTorch Geometric."""

    def __call__(self, x: Tensor, index: Tensor, /, *, dim_size: int, dim: int) -> Tensor: ...
    def reset_parameters(self) -> None: ...


class Messages(torch.nn.Module):
    """Layer that passes messages along edges and reduces them at the destinations."""

    _arguments: ClassVar[tuple[str, ...]]
    """Names of the arguments of `forward`."""
    _takes_pairs: ClassVar[bool] = True
    """Whether sources and destinations may be other nodes."""

    def __init__(self, aggr: Aggr, flow: Flow, others: Mapping[str, object]) -> None:
        super().__init__()
        self._label = f"pyops.torch.nn.{type(self).__name__}"
        own = isinstance(aggr, str) and aggr in REDUCTIONS
        plain: dict[str, tuple[object, ...]] = {"decomposed_layers": (1,)}
        if own:
            plain["aggr_kwargs"] = (None, {})
        for name, value in others.items():
            if name not in (*plain, "aggr_kwargs"):
                raise TypeError(f"{self._label}: {name}: there is no such argument")
            if value not in plain.get(name, (value,)):
                raise ValueError(f"{self._label}: {name}: expected {plain[name][0]}, got {value!r}")
        if not isinstance(flow, str) or flow not in FLOWS:
            expected = ", ".join(FLOWS)
            raise ValueError(f"{self._label}: flow: expected one of {expected}, got {flow!r}")
        self.aggr = [str(one) for one in aggr] if isinstance(aggr, list | tuple) else str(aggr)
        self.aggr_module = None if own else self._resolved(aggr, others.get("aggr_kwargs"))
        self.flow = flow

    def _resolved(self, aggr: Aggr, options: Any) -> Aggregator:
        """Return the aggregation of PyTorch Geometric for reductions that are not native here."""
        expected = f"{self._label}: aggr: expected one of {', '.join(REDUCTIONS)}"
        try:
            from torch_geometric.nn.aggr import Aggregation
            from torch_geometric.nn.resolver import aggregation_resolver
        except ImportError as error:
            raise ImportError(f"{expected}, got {aggr!r}, which takes torch_geometric") from error
        several = isinstance(aggr, list | tuple) and len(aggr) > 0
        if not (several or isinstance(aggr, str | Aggregation)):
            raise ValueError(
                f"{expected}, what torch_geometric.nn.aggr has or a list of these, got {aggr!r}"
            )
        try:
            found: Aggregator = aggregation_resolver(aggr, **(options or {}))
        except (ValueError, TypeError) as error:
            raise type(error)(f"{expected} or of torch_geometric.nn.aggr: {error}") from error
        return found

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        if self.aggr_module is not None:
            self.aggr_module.reset_parameters()

    @property
    def _by_message(self) -> bool:
        """Whether messages are materialized before the reduction."""
        return self.aggr_module is not None or self.aggr in EXTREMES

    def _gathered(self, messages: Tensor, index: Tensor, rows: int) -> Tensor:
        """Reduce materialized messages; for a mean, return their sum."""
        if self.aggr_module is None:
            reduce = self.aggr if isinstance(self.aggr, str) and self.aggr in EXTREMES else "sum"
            return scatter(messages, index, 0, rows, reduce)
        # gradients of torch's scatter operations are wrong for indices of int32
        return self.aggr_module(messages, index.long(), dim_size=rows, dim=0)

    def __init_subclass__(cls, **given: object) -> None:
        super().__init_subclass__(**given)
        cls._arguments = (*inspect.signature(cls.forward).parameters,)[1:]
        for name in PARTS:
            if any(name in vars(kind) for kind in cls.__mro__):
                raise TypeError(
                    f"{cls.__name__}: {name}: cannot be overridden in a layer of pyops.torch.nn, "
                    "which makes no messages; take the layer of torch_geometric.nn"
                )

    def __call__(self, *arguments: object, **given: object) -> Any:
        for value in (*arguments, *given.values()):
            tracer = getattr(value, "tracer", None) if isinstance(value, Proxy) else None
            if type(tracer).__module__.startswith("torch_geometric."):
                raise TypeError(
                    f"{self._label}: torch_geometric.nn.to_hetero takes layers of "
                    "torch_geometric.nn alone; use torch_geometric.nn.HeteroConv"
                )
            if is_distributed(value):
                named = {**dict(zip(self._arguments, arguments, strict=False)), **given}
                ends = self._ends_in_parts(value, named)
                if ends is not None:
                    return layer_in_parts(self, self._label, value, ends, named)
                if not value.comm._inside:
                    return called(self, value.comm, arguments, given)
        return super().__call__(*arguments, **given)

    def _ends_in_parts(
        self, graph: DistributedGraph, given: Mapping[str, object]
    ) -> tuple[Tensor, Tensor] | None:
        """Return the features of sources and destinations if a call runs on parts of the graph."""
        plain = self.flow == FLOWS[0] and not given.get("return_attention_weights")
        return ends_in_parts(graph, given.get("x")) if self._takes_pairs and plain else None

    def _pair(self, x: object) -> Pair:
        """Return the features of sources and destinations."""
        label = f"{self._label}: x"
        both = (x, x) if isinstance(x, Tensor) else x
        if not isinstance(both, tuple | list) or len(both) != 2:
            got = f"{len(both)} of them" if isinstance(both, tuple | list) else type(x).__name__
            raise TypeError(f"{label}: expected a tensor or a pair of tensors, got {got}")
        for part in (both[0], *(part for part in both[1:] if part is not None)):
            if (
                check_device(label, part, both[0].device if part is not both[0] else None).dim()
                != 2
            ):
                raise ValueError(f"{label}: expected two dimensions, got {part.dim()}")
        return both[0], both[1]

    def _applied(self, name: str, layer: torch.nn.Module, rows: Tensor) -> Tensor:
        """Apply an inner layer, whose errors name the argument."""
        try:
            result: Tensor = layer(rows)
        except RuntimeError:
            self._explain(name, layer, rows)
            raise
        return result

    def _explain(self, name: str, layer: torch.nn.Module, rows: Tensor) -> None:
        """Refuse rows that do not match a linear layer, by the name of the argument."""
        if not is_linear(layer) or is_lazy(layer.weight):
            return
        label, width = f"{self._label}: {name}", layer.weight.shape[1]
        if rows.shape[-1] != width:
            raise ValueError(f"{label}: expected {width} columns, got shape {tuple(rows.shape)}")
        if rows.dtype != layer.weight.dtype and not torch.is_autocast_enabled("cpu"):
            raise TypeError(f"{label}: expected {layer.weight.dtype}, got {rows.dtype}")

    def _matrix(self, features: Tensor) -> Tensor:
        """Return edge features with a row per edge; a single element is the row of one edge."""
        if features.dim() == 1 and features.shape[0] == 1:
            return features.view(1, 1)
        if features.dim() < 2:
            raise ValueError(f"{self._label}: edge_attr: expected two dimensions, got 1")
        return features

    def _sizes(self, size: object, loops: bool = False) -> Size:
        """Check the argument `size`; with self loops, both sizes are required."""
        if size is None:
            return None
        if isinstance(size, tuple | list) and len(size) == 2:
            first, second = size
            if all(is_integer(n) or (n is None and not loops) for n in (first, second)):
                return first, second
        expected = "with self loops two integers," if loops else "a pair of integers,"
        raise ValueError(f"{self._label}: size: expected None or {expected} got {size!r}")

    def _edges(
        self,
        edge_index: EdgeIndex,
        ends: tuple[int, int | None],
        size: Size,
        loops: int | None,
        like: Tensor,
        route: tuple[str, int],
    ) -> Edges:
        """Return the edges between `ends`, the numbers of nodes in rows 0 and 1 of the index.

        The sizes of a sparse matrix or an `EdgeIndex` replace `size`. If the operators refuse the
        type of `like`, the route is theirs, so that the type is refused at any size.
        """
        what = "size"
        if has_sizes(edge_index):
            size, what = sizes_of(edge_index, loops), "edge_index"
        edge_index = without_subclass(edge_index)
        if is_sparse(edge_index):
            size, what = (edge_index.shape[1], edge_index.shape[0]), "edge_index"
            loops = None if loops is None else min(edge_index.shape[:2])
        if size is not None:
            for place, (count, requested) in enumerate(zip(ends, size, strict=True)):
                if count is not None and requested is not None and count != requested:
                    raise ValueError(
                        f"{self._label}: {what}: expected {count} nodes in place {place}, "
                        f"as x has rows, got {requested}"
                    )
        into = int(self.flow == FLOWS[0])
        first, second = ends
        if second is None:
            second = first if size is None or size[1] is None or not into else size[1]
        if like.dtype not in DTYPES or torch.is_autocast_enabled("cpu"):
            route = ALWAYS
        return edges_of(
            self._label,
            edge_index,
            first,
            second,
            device=like.device,
            loops=loops,
            into=into,
            route=route,
        )

    def _same_nodes(self, ends: tuple[int, int | None]) -> None:
        """Refuse different numbers of nodes if messages flow from target to source."""
        if self.flow != FLOWS[0] and ends[1] is not None and ends[0] != ends[1]:
            raise ValueError(
                f"{self._label}: flow: 'target_to_source' needs as many sources as destinations, "
                f"got {ends[0]} and {ends[1]}"
            )


def _refuse(name: str) -> Callable[..., NoReturn]:
    def register(self: Messages, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(
            f"{self._label}: {name}: there is no {name.split('_forward')[0][9:]} to see: the layer "
            "makes no messages; take the layer of torch_geometric.nn"
        )

    return register


for _part in PARTS[:-1]:
    for _when in "pre_hook", "hook":
        _name = f"register_{_part}_forward_{_when}"
        setattr(Messages, _name, _refuse(_name))
