"""Replacements for the blocks of MeshGraphNet in NVIDIA PhysicsNeMo.

The blocks share their networks and checks, so they are one module.
"""

from __future__ import annotations

import functools
import itertools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.checkpoint import checkpoint

from ... import torch as _ops
from ..._call.arrays import check_size
from ...graph import Graph
from .._call import is_exporting
from .._ranks import is_distributed
from ._edges.edge_index import EdgeIndex, check_device
from ._edges.layer_edges import Edges, edges_of
from ._linear import is_plain
from ._networks import Layers, layers_after, network_of, plain_modules
from ._reductions import SUMS
from .replicated import called

if TYPE_CHECKING:
    from collections.abc import Sequence

_NORMS = "LayerNorm", "TELayerNorm", None


class MeshGraphMLP(torch.nn.Module):
    """Linear layers with an activation between them, then a layer norm."""

    def __init__(
        self,
        caller: str,
        input_dim: int,
        output_dim: int,
        hidden_dim: int,
        hidden_layers: int,
        activation_fn: torch.nn.Module | None,
        norm_type: str | None,
        recompute_activation: bool,
    ) -> None:
        super().__init__()
        self._caller = caller
        check_size(f"{caller}: hidden_layers", hidden_layers)
        if norm_type not in _NORMS:
            raise ValueError(f"{caller}: norm_type: expected one of {_NORMS}, got {norm_type!r}")
        activation = torch.nn.SiLU() if activation_fn is None else activation_fn
        if recompute_activation and not isinstance(activation, torch.nn.SiLU):
            raise ValueError(f"{caller}: recompute_activation: expected SiLU, got {activation!r}")
        widths = [input_dim, *[hidden_dim] * hidden_layers, output_dim]
        linears = [torch.nn.Linear(*pair) for pair in itertools.pairwise(widths)]
        modules: list[torch.nn.Module] = [linears[0]]
        for linear in linears[1:]:
            modules += [activation, linear]
        if norm_type is not None:
            modules.append(torch.nn.LayerNorm(output_dim))
        self.model = torch.nn.Sequential(*modules)

    def forward(self, x: Tensor) -> Tensor:
        """Map features [..., input_dim] to [..., output_dim]."""
        result: Tensor = self.model(x)
        return result


class _EdgeNetwork(torch.nn.Module):
    """Network of the features of each edge, its source and its destination."""

    _caller: str
    _widths: tuple[int, int, int]
    """Of the features of the edge, its source and its destination."""

    def forward(
        self,
        efeat: Tensor,
        nfeat: Tensor | tuple[Tensor, Tensor],
        graph: Any,
        residual: bool = False,
    ) -> Tensor:
        """Return the results of the edges, plus `efeat` with `residual`."""
        edges, src, dst = _joined(self._caller, self._widths, efeat, nfeat, graph)
        parts = None if is_exporting() else self._parts()
        if parts is None:
            result = self._in_torch(edges, efeat, src, dst)
            return result + efeat if residual else result
        weights, bias, layers = parts
        of_edge, of_source, of_destination = weights
        assert edges.graph is not None
        params = layers.params([of_source, of_destination, of_edge], bias)
        return _ops.edge_mlp(
            edges.graph, src, params, dst, efeat, residual=residual, **layers.options
        )

    def _parts(self) -> tuple[Sequence[Tensor], Tensor | None, Layers] | None:
        """Return the first weights, the first bias and what follows, if `edge_mlp` has it."""
        raise NotImplementedError

    def _in_torch(self, edges: Edges, efeat: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        """Return the results of any layers."""
        raise NotImplementedError


class MeshGraphEdgeMLPConcat(_EdgeNetwork):
    """A network of the three joined."""

    def __init__(self, caller: str, efeat_dim: int, src_dim: int, dst_dim: int, *others: Any):
        super().__init__()
        self._caller, self._widths = caller, (efeat_dim, src_dim, dst_dim)
        self.model = MeshGraphMLP(caller, efeat_dim + src_dim + dst_dim, *others).model

    def _parts(self) -> tuple[Sequence[Tensor], Tensor | None, Layers] | None:
        network = network_of(self.model)
        if network is None:
            return None
        first, layers = network
        return first.weight.split(self._widths, dim=1), first.bias, layers

    def _in_torch(self, edges: Edges, efeat: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        ends = edges.of_sources(src), dst.index_select(0, edges.dst)
        result: Tensor = self.model(torch.cat([efeat, *ends], dim=1))
        return result


class MeshGraphEdgeMLPSum(_EdgeNetwork):
    """The same network, with the first weight in three parameters."""

    def __init__(self, caller: str, efeat_dim: int, src_dim: int, dst_dim: int, *others: Any):
        super().__init__()
        self._caller, self._widths = caller, (efeat_dim, src_dim, dst_dim)
        whole = MeshGraphMLP(caller, efeat_dim + src_dim + dst_dim, *others)
        first, *modules = whole.model
        assert isinstance(first, torch.nn.Linear)
        weights = first.weight.detach().split(self._widths, dim=1)
        self.lin_efeat, self.lin_src, self.lin_dst = (Parameter(w.clone()) for w in weights)
        self.bias = first.bias
        self.model = torch.nn.Sequential(*modules)

    def _parts(self) -> tuple[Sequence[Tensor], Tensor | None, Layers] | None:
        layers = layers_after(self.lin_efeat.shape[0], plain_modules(self.model))
        if layers is None:
            return None
        return (self.lin_efeat, self.lin_src, self.lin_dst), self.bias, layers

    def _in_torch(self, edges: Edges, efeat: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        linear = torch.nn.functional.linear
        ends = edges.of_sources(linear(src, self.lin_src)), linear(dst, self.lin_dst, self.bias)
        hidden = linear(efeat, self.lin_efeat) + ends[0] + ends[1].index_select(0, edges.dst)
        result: Tensor = self.model(hidden)
        return result


def adds_features(network: torch.nn.Module) -> bool:
    """Return whether a network takes `residual`, and no hook sees its results without it."""
    return type(network) in (MeshGraphEdgeMLPConcat, MeshGraphEdgeMLPSum) and is_plain(network)


def _edges(caller: str, graph: Any, num_src: int, num_dst: int, device: torch.device) -> Edges:
    """Return the edges of a graph, or of the `edge_index` of one of PyTorch Geometric."""
    if not isinstance(graph, Tensor | tuple | Graph):
        if kinds := getattr(graph, "edge_types", None):  # of HeteroData, as PhysicsNeMo does
            graph = graph[kinds[0]]
        graph = getattr(graph, "edge_index", graph)
    return edges_of(caller, graph, num_src, num_dst, device=device)


def _check(label: str, features: object, width: int | None, rows: int | None = None) -> Tensor:
    """Return features if they are a matrix of the expected shape."""
    found = check_device(label, features)
    if found.dim() != 2 or (width is not None and found.shape[1] != width):
        columns = "columns" if width is None else width
        got = tuple(found.shape)
        raise ValueError(f"{label}: expected shape ({rows or 'rows'}, {columns}), got {got}")
    if rows is not None and found.shape[0] != rows:
        raise ValueError(f"{label}: expected {rows} rows, one for each edge, got {found.shape[0]}")
    return found


def _joined(
    caller: str, widths: tuple[int, int, int], efeat: object, nfeat: object, graph: object
) -> tuple[Edges, Tensor, Tensor]:
    """Return the edges and the features of sources and destinations."""
    both = nfeat if isinstance(nfeat, tuple) and len(nfeat) == 2 else (nfeat, nfeat)
    src = _check(f"{caller}: nfeat", both[0], widths[1])
    dst = _check(f"{caller}: nfeat", both[1], widths[2])
    edges = _edges(caller, graph, src.shape[0], dst.shape[0], src.device)
    _check(f"{caller}: efeat", efeat, widths[0], edges.count)
    return edges, src, dst


class _Block(torch.nn.Module):
    """Module on a graph, which may be distributed: gradients of parameters are sums over ranks."""

    def __call__(self, *arguments: object, **given: object) -> Any:
        for value in (*arguments, *given.values()):
            if is_distributed(value) and not value.comm._inside:
                return called(self, value.comm, arguments, given)
        return super().__call__(*arguments, **given)


class MeshEdgeBlock(_Block):
    r"""Edge update of mesh networks, a replacement for PhysicsNeMo's ``MeshEdgeBlock``.

    .. math:: f'_e = f_e + h(f_e \mid x_j \mid x_i), \qquad e = (j \to i)

    The joined features and the hidden layers of the network h are not materialized, if the
    activation is one of ``ReLU``, ``SiLU``, exact ``GELU`` and ``Tanh`` (`pyops.edge_mlp`).

    Parameters
    ----------
    input_dim_nodes, input_dim_edges : int
        Widths of the features of nodes and edges.
    output_dim : int
        Width of the result, equal to `input_dim_edges`.
    hidden_dim, hidden_layers : int
        Width and number of the hidden layers.
    activation_fn : torch.nn.Module, optional
        ``SiLU()`` if not given.
    norm_type : {"LayerNorm", "TELayerNorm", None}
        Whether a layer norm follows the last layer; the first two are the same one.
    do_concat_trick : bool
        Whether the weights of the three kinds of features are parameters of their own.
    recompute_activation : bool
        Accepted for ``SiLU``: hidden layers are recomputed in any case.

    References
    ----------
    Pfaff et al., Learning mesh-based simulation with graph networks, arXiv:2010.03409.
    """

    def __init__(
        self,
        input_dim_nodes: int = 512,
        input_dim_edges: int = 512,
        output_dim: int = 512,
        hidden_dim: int = 512,
        hidden_layers: int = 1,
        activation_fn: torch.nn.Module | None = None,
        norm_type: str | None = "LayerNorm",
        do_concat_trick: bool = False,
        recompute_activation: bool = False,
    ) -> None:
        super().__init__()
        kind = MeshGraphEdgeMLPSum if do_concat_trick else MeshGraphEdgeMLPConcat
        self.edge_mlp = kind(
            f"pyops.torch.nn.{type(self).__name__}",
            input_dim_edges,
            input_dim_nodes,
            input_dim_nodes,
            output_dim,
            hidden_dim,
            hidden_layers,
            activation_fn,
            norm_type,
            recompute_activation,
        )

    def forward(
        self, efeat: Tensor, nfeat: Tensor | tuple[Tensor, Tensor], graph: EdgeIndex
    ) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
        """Return the new features of the edges, and those of the nodes as they are.

        Parameters
        ----------
        efeat : tensor, shape (num_edges, input_dim_edges)
            Features of the edges.
        nfeat : tensor or (tensor, tensor)
            Features of the nodes, or of sources and destinations.
        graph : tensor, pair of tensors or pyops.Graph
            The edges, see `pyops.torch.nn`; or what has them as its ``edge_index``.
        """
        if adds_features(self.edge_mlp):
            return self.edge_mlp(efeat, nfeat, graph, residual=True), nfeat
        return self.edge_mlp(efeat, nfeat, graph) + efeat, nfeat


class MeshNodeBlock(_Block):
    r"""Node update of mesh networks, a replacement for PhysicsNeMo's ``MeshNodeBlock``.

    .. math:: x'_i = x_i + h\Bigl(\operatorname{aggr}_{e = (j \to i)} f_e \Bigm| x_i\Bigr)

    Parameters
    ----------
    aggregation : {"sum", "mean"}
    input_dim_nodes, input_dim_edges : int
        Widths of the features of nodes and edges.
    output_dim : int
        Width of the result, equal to `input_dim_nodes`.
    hidden_dim, hidden_layers : int
        Width and number of the hidden layers of the network h.
    activation_fn : torch.nn.Module, optional
        ``SiLU()`` if not given.
    norm_type : {"LayerNorm", "TELayerNorm", None}
        Whether a layer norm follows the last layer; the first two are the same one.
    recompute_activation : bool
        Accepted for ``SiLU``, without effect.

    References
    ----------
    Pfaff et al., Learning mesh-based simulation with graph networks, arXiv:2010.03409.
    """

    def __init__(
        self,
        aggregation: str = "sum",
        input_dim_nodes: int = 512,
        input_dim_edges: int = 512,
        output_dim: int = 512,
        hidden_dim: int = 512,
        hidden_layers: int = 1,
        activation_fn: torch.nn.Module | None = None,
        norm_type: str | None = "LayerNorm",
        recompute_activation: bool = False,
    ) -> None:
        super().__init__()
        self._caller = f"pyops.torch.nn.{type(self).__name__}"
        if aggregation not in ("sum", "mean"):
            raise ValueError(
                f"{self._caller}: aggregation: expected 'sum' or 'mean', got {aggregation!r}"
            )
        self.aggregation = aggregation
        self.node_mlp = MeshGraphMLP(
            self._caller,
            input_dim_nodes + input_dim_edges,
            output_dim,
            hidden_dim,
            hidden_layers,
            activation_fn,
            norm_type,
            recompute_activation,
        )

    def forward(self, efeat: Tensor, nfeat: Tensor, graph: EdgeIndex) -> tuple[Tensor, Tensor]:
        """Return the features of the edges as they are, and the new ones of the nodes.

        Parameters
        ----------
        efeat : tensor, shape (num_edges, input_dim_edges)
            Features of the edges.
        nfeat : tensor, shape (num_nodes, input_dim_nodes)
            Features of the nodes.
        graph : tensor, pair of tensors or pyops.Graph
            The edges, see `pyops.torch.nn`; or what has them as its ``edge_index``.
        """
        nodes = _check(f"{self._caller}: nfeat", nfeat, None)
        edges = _edges(self._caller, graph, nodes.shape[0], nodes.shape[0], nodes.device)
        _check(f"{self._caller}: efeat", efeat, None, edges.count)
        assert edges.graph is not None
        sums = _ops.aggregate(edges.graph, None, efeat, reduce=SUMS[self.aggregation])
        return efeat, self.node_mlp(torch.cat([sums, nfeat], dim=1)) + nfeat


class MeshGraphNetProcessor(_Block):
    """Edge and node updates in turn, a replacement for PhysicsNeMo's ``MeshGraphNetProcessor``.

    Parameters
    ----------
    processor_size : int
        Number of pairs of `MeshEdgeBlock` and `MeshNodeBlock`.
    input_dim_node, input_dim_edge : int
        Widths of the features of nodes and edges; the latter is also that of hidden layers and
        results.
    num_layers_node, num_layers_edge : int
        Numbers of hidden layers.
    aggregation : {"sum", "mean"}
    norm_type : {"LayerNorm", "TELayerNorm", None}
    activation_fn : torch.nn.Module, optional
        ``ReLU()`` if not given.
    do_concat_trick : bool
        See `MeshEdgeBlock`.
    num_processor_checkpoint_segments : int
        Number of segments whose blocks are recomputed in the backward pass, 0 for none.
    checkpoint_offloading : bool
        Whether what segments save is kept in host memory.

    References
    ----------
    Pfaff et al., Learning mesh-based simulation with graph networks, arXiv:2010.03409.
    """

    def __init__(
        self,
        processor_size: int = 15,
        input_dim_node: int = 128,
        input_dim_edge: int = 128,
        num_layers_node: int = 2,
        num_layers_edge: int = 2,
        aggregation: str = "sum",
        norm_type: str | None = "LayerNorm",
        activation_fn: torch.nn.Module | None = None,
        do_concat_trick: bool = False,
        num_processor_checkpoint_segments: int = 0,
        checkpoint_offloading: bool = False,
    ) -> None:
        super().__init__()
        caller = f"pyops.torch.nn.{type(self).__name__}"
        check_size(f"{caller}: processor_size", processor_size)
        check_size(
            f"{caller}: num_processor_checkpoint_segments", num_processor_checkpoint_segments, 0
        )
        activation = torch.nn.ReLU() if activation_fn is None else activation_fn
        width, others = input_dim_edge, (activation, norm_type)
        of_edges = [
            MeshEdgeBlock(
                input_dim_node, width, width, width, num_layers_edge, *others, do_concat_trick
            )
            for _ in range(processor_size)
        ]
        of_nodes = [
            MeshNodeBlock(
                aggregation, input_dim_node, width, width, width, num_layers_node, *others
            )
            for _ in range(processor_size)
        ]
        blocks = [*itertools.chain(*zip(of_edges, of_nodes, strict=True))]
        self.processor_size = processor_size
        self.processor_layers = torch.nn.ModuleList(blocks)
        self.num_processor_checkpoint_segments = num_processor_checkpoint_segments
        self.checkpoint_offloading = checkpoint_offloading and num_processor_checkpoint_segments > 0
        if num_processor_checkpoint_segments and len(blocks) % num_processor_checkpoint_segments:
            raise ValueError(
                f"{caller}: num_processor_checkpoint_segments: expected a divisor of "
                f"{len(blocks)}, got {num_processor_checkpoint_segments}"
            )

    def forward(self, node_features: Tensor, edge_features: Tensor, graph: EdgeIndex) -> Tensor:
        """Return the new features of the nodes.

        Parameters
        ----------
        node_features : tensor, shape (num_nodes, input_dim_node)
        edge_features : tensor, shape (num_edges, input_dim_edge)
        graph : tensor, pair of tensors or pyops.Graph
            The edges, see `pyops.torch.nn`; or what has them as its ``edge_index``.
        """
        blocks, segments = [*self.processor_layers], self.num_processor_checkpoint_segments
        efeat, nfeat = edge_features, node_features
        if not segments:
            return _through(blocks, efeat, nfeat, graph)[1]
        saved = torch.autograd.graph.save_on_cpu(pin_memory=not nfeat.is_cpu)
        size = len(blocks) // segments
        with saved if self.checkpoint_offloading else nullcontext():
            for start in range(0, len(blocks), size):
                run = functools.partial(_through, blocks[start : start + size])
                efeat, nfeat = checkpoint(
                    run, efeat, nfeat, graph, use_reentrant=False, preserve_rng_state=False
                )
        return nfeat


def _through(
    blocks: Sequence[torch.nn.Module], efeat: Tensor, nfeat: Tensor, graph: EdgeIndex
) -> tuple[Tensor, Tensor]:
    for block in blocks:
        efeat, nfeat = block(efeat, nfeat, graph)
    return efeat, nfeat
