"""Base classes of message-passing layers: their options and the reduction of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.nn.parameter import is_lazy

from .._call import DTYPES, is_integer, recording
from .._host import without_subclass
from ._edge_index import (
    EdgeIndex,
    has_sizes,
    is_sparse,
    order_of,
    placed,
    sizes_of,
    with_values,
)
from ._functions import scatter, softmax
from ._graph import Edges, edges_of
from ._linear import is_linear
from ._routes import ALWAYS

Pair: TypeAlias = "tuple[Tensor, Tensor | None]"
Size: TypeAlias = "tuple[int | None, int | None] | None"
Aggr: TypeAlias = "str | Sequence[str] | torch.nn.Module"
Flow: TypeAlias = Literal["source_to_target", "target_to_source"]
FLOWS = "source_to_target", "target_to_source"
EXTREMES = "max", "min"
PARTS = "propagate", "message", "aggregate", "message_and_aggregate", "edge_update", "update"
REDUCTIONS = "sum", "add", "mean", *EXTREMES


class Messages(torch.nn.Module):  # type: ignore[misc]
    """Layer that passes messages along edges and reduces them at the destinations."""

    def __init__(self, aggr: Aggr = "sum", flow: Flow = "source_to_target", **others: Any) -> None:
        super().__init__()
        self._label = f"pyops.torch.nn.{type(self).__name__}"
        own = isinstance(aggr, str) and aggr in REDUCTIONS
        plain: dict[str, tuple[Any, ...]] = {"decomposed_layers": (1,)}
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

    def _resolved(self, aggr: Any, options: dict[str, Any] | None) -> torch.nn.Module:
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
            return aggregation_resolver(aggr, **(options or {}))
        except (ValueError, TypeError) as error:
            raise type(error)(f"{expected} or of torch_geometric.nn.aggr: {error}") from error

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
            reduce = self.aggr if self.aggr in EXTREMES else "sum"
            return scatter(messages, index, 0, rows, reduce)
        # gradients of torch's scatter operations are wrong for indices of int32
        return self.aggr_module(messages, index.long(), dim_size=rows, dim=0)

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for name in PARTS:
            if any(name in vars(kind) for kind in cls.__mro__):
                raise TypeError(
                    f"{cls.__name__}: {name}: cannot be overridden in a layer of pyops.torch.nn, "
                    "which makes no messages; take the layer of torch_geometric.nn"
                )

    def __call__(self, *arguments: Any, **given: Any) -> Any:
        for value in (*arguments, *given.values()):
            tracer = getattr(value, "tracer", None) if isinstance(value, Proxy) else None
            if type(tracer).__module__.startswith("torch_geometric."):
                raise TypeError(
                    f"{self._label}: torch_geometric.nn.to_hetero takes layers of "
                    "torch_geometric.nn alone; use torch_geometric.nn.HeteroConv"
                )
        return super().__call__(*arguments, **given)

    def _pair(self, x: object) -> Pair:
        """Return the features of sources and destinations."""
        label = f"{self._label}: x"
        both = (x, x) if isinstance(x, Tensor) else x
        if not isinstance(both, tuple | list) or len(both) != 2:
            got = f"{len(both)} of them" if isinstance(both, tuple | list) else type(x).__name__
            raise TypeError(f"{label}: expected a tensor or a pair of tensors, got {got}")
        for part in (both[0], *(part for part in both[1:] if part is not None)):
            if placed(label, part, both[0].device if part is not both[0] else None).dim() != 2:
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
            for place, (count, asked) in enumerate(zip(ends, size, strict=True)):
                if count is not None and asked is not None and count != asked:
                    raise ValueError(
                        f"{self._label}: {what}: expected {count} nodes in place {place}, "
                        f"as x has rows, got {asked}"
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


def _unknown(name: str) -> Callable[..., Any]:
    def register(self: Messages, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"{self._label}: {name}: there is no {name.split('_forward')[0][9:]} to see: the layer "
            "makes no messages; take the layer of torch_geometric.nn"
        )

    return register


for _part in PARTS[:-1]:
    for _when in "pre_hook", "hook":
        _name = f"register_{_part}_forward_{_when}"
        setattr(Messages, _name, _unknown(_name))


class Attention(Messages):
    """Multi-head attention: a layer whose messages are weighted by a softmax."""

    bias: Tensor | None
    _operator: str
    """Operator that sums the messages along a packed graph."""

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int,
        concat: bool,
        dropout: float,
        edge_dim: int | None,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.dropout = dropout
        self.edge_dim = edge_dim

    @property
    def _widths(self) -> tuple[int, int]:
        """Widths of the features of all heads, and of the result."""
        inner = self.heads * self.out_channels
        return inner, inner if self.concat else self.out_channels

    @property
    def _route(self) -> tuple[str, int]:
        """Operator and elements of a message, for `is_packed`."""
        return self._operator, self._widths[0]

    def _both(self, x: Tensor | Pair) -> tuple[Tensor, Tensor]:
        """Return the features of sources and destinations, both required."""
        src, dst = self._pair(x)
        if dst is None:
            raise ValueError(f"{self._label}: x: expected features of the destinations, got None")
        return src, dst

    def _mask(self, edges: Edges, like: Tensor, edge_index: EdgeIndex) -> Tensor | None:
        """Return the dropout factors of the attention weights, in the random order of the original.

        In a sparse matrix, PyTorch Geometric sorts self loops into the rows.
        """
        if not (self.training and self.dropout > 0):
            return None
        ones = like.new_ones(edges.count, self.heads)
        mask: Tensor = torch.nn.functional.dropout(ones, self.dropout)
        if edges.loops is None or not is_sparse(edge_index) or recording(edges.index):
            return mask
        return mask[order_of(edge_index, edges.index).argsort()]

    def _reduced(
        self,
        edges: Edges,
        fused: Callable[[], Tensor],
        scores: Callable[[], Tensor],
        values: Callable[[], Tensor],
        mask: Tensor | None,
        weighted: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Reduce the messages, by one operator if they are summed, and return also the weights.

        `fused` sums the messages; `scores` [edges, heads] are the input of the softmax; `values`
        [edges, heads, width] are the weighted features. The weights, before the mask, are computed
        if they are requested or needed.
        """
        alpha, rows = None, edges.num_dst + edges.spare
        by_message = self._by_message or edges.graph is None
        if weighted or by_message:
            alpha = softmax(scores(), edges.dst, num_nodes=rows)
        if by_message:
            assert alpha is not None
            factors = alpha if mask is None else alpha * mask
            messages = factors.unsqueeze(-1) * values()
            out = edges.cut(self._gathered(messages, edges.dst, rows))
            out = out.flatten(1) if self.concat else out.mean(1)
        else:
            out = edges.cut(fused())
        if self.aggr == "mean":
            out = out / edges.cut(edges.degrees(out))[:, None]
        return out, alpha if weighted else None

    def _by_heads(self, rows: Tensor) -> Tensor:
        return rows.view(-1, self.heads, self.out_channels)

    def _finished(
        self,
        out: Tensor,
        res: Tensor | None,
        edge_index: EdgeIndex,
        edges: Edges,
        alpha: Tensor | None,
        mask: Tensor | None,
    ) -> Any:
        """Add residual and bias; return also the edges and their weights if requested."""
        for part in (res, self.bias):
            out = out if part is None else out + part
        if alpha is None:
            return out
        alpha = alpha if mask is None else alpha * mask
        if edges.spare:
            raise ValueError(
                f"{self._label}: return_attention_weights: not with add_self_loops=True where "
                "torch compiles, which has to know the number of edges"
            )
        if is_sparse(edge_index):
            return out, with_values(edge_index, edges.index, alpha, edges.loops is not None)
        return out, (edges.returned(edge_index), alpha)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"
