"""Replacement for PyTorch Geometric's `PNAConv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ... import torch as _ops
from ._degree_scaled import SCALERS, DegreeScaled, by_tower, degree_scaled
from ._linear import AnyLinear, Linear, is_linear, is_plain, reset
from ._messages import Flow, Messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ._edges.edge_index import EdgeIndex
    from ._edges.layer_edges import Edges


class PNAConv(Messages):
    r"""Principal neighbourhood aggregation, a replacement for PyTorch Geometric's ``PNAConv``.

    .. math:: x'_i = W\, \gamma\Bigl(x_i \Bigm|
              \bigl(s(d_i) \operatorname{aggr}_{j \in N(i)} h(x_i \mid x_j \mid e_{ij})
              \bigr)_{s,\, \operatorname{aggr}}\Bigr)

    with networks h and :math:`\gamma` of each tower, and scalers s of the in-degree d.

    Parameters
    ----------
    in_channels, out_channels : int
        Widths of the features and of the result.
    aggregators : list of str
        ``"sum"``, ``"mean"``, ``"min"``, ``"max"``, ``"var"`` and ``"std"``, or what PyTorch
        Geometric has.
    scalers : list of str
        ``"identity"``, ``"amplification"``, ``"attenuation"``, ``"linear"`` and
        ``"inverse_linear"``.
    deg : tensor
        Histogram of the in-degrees in the training set.
    edge_dim : int, optional
        Width of the edge features.
    towers : int
        Number of pairs of networks, whose results are concatenated.
    pre_layers, post_layers : int
        Numbers of linear layers of h and :math:`\gamma`. With one, h is split into products of
        nodes and of edges; its messages are materialized only for edge features, and for the
        gradients of a maximum or minimum.
    divide_input : bool
        Whether each tower takes its part of the features.
    act : str, callable or None
        Activation between the layers of a network.
    act_kwargs : dict, optional
        Its arguments.
    train_norm : bool
        Whether the mean degrees of the scalers are parameters.
    flow : {"source_to_target", "target_to_source"}
        Keyword only.

    Raises
    ------
    ImportError
        Without torch_geometric, whose aggregation holds the mean degrees.

    References
    ----------
    Corso et al., Principal neighbourhood aggregation for graph nets, arXiv:2004.05718.
    """

    _takes_pairs = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        aggregators: Sequence[str],
        scalers: Sequence[str],
        deg: Tensor,
        edge_dim: int | None = None,
        towers: int = 1,
        pre_layers: int = 1,
        post_layers: int = 1,
        divide_input: bool = False,
        act: str | Callable[[Tensor], Tensor] | None = "relu",
        act_kwargs: Mapping[str, object] | None = None,
        train_norm: bool = False,
        *,
        flow: Flow = "source_to_target",
        **kwargs: object,
    ) -> None:
        label = "pyops.torch.nn.PNAConv"
        try:
            from torch_geometric.nn.aggr import DegreeScalerAggregation
            from torch_geometric.nn.resolver import activation_resolver
        except ImportError as error:
            raise ImportError(f"{label}: takes the aggregations of torch_geometric") from error
        for name, value, divides in (
            ("in_channels", in_channels, divide_input),
            ("out_channels", out_channels, True),
        ):
            if divides and value % towers:
                raise ValueError(f"{label}: {name}: expected a multiple of {towers}, got {value}")
        for scaler in scalers:
            if scaler not in SCALERS:
                expected = ", ".join(SCALERS)
                raise ValueError(f"{label}: scalers: expected some of {expected}, got {scaler!r}")
        try:
            scaled = DegreeScalerAggregation([*aggregators], [*scalers], deg, train_norm)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{label}: aggregators: {error}") from error
        super().__init__(scaled, flow, kwargs)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.edge_dim = edge_dim
        self.towers = towers
        self.divide_input = divide_input
        self.F_in = in_channels // towers if divide_input else in_channels
        self.F_out = out_channels // towers

        def network(width: int, out: int, layers: int) -> torch.nn.Sequential:
            parts: list[torch.nn.Module] = [Linear(width, out)]
            for _ in range(layers - 1):
                parts += [activation_resolver(act, **(act_kwargs or {})), Linear(out, out)]
            return torch.nn.Sequential(*parts)

        if edge_dim is not None:
            self.edge_encoder = Linear(edge_dim, self.F_in)
        self.pre_nns, self.post_nns = torch.nn.ModuleList(), torch.nn.ModuleList()
        for _ in range(towers):
            self.pre_nns.append(network((3 if edge_dim else 2) * self.F_in, self.F_in, pre_layers))
            reduced = len(aggregators) * len(scalers) * self.F_in
            self.post_nns.append(network(self.F_in + reduced, self.F_out, post_layers))
        self.lin = Linear(out_channels, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize all parameters anew."""
        super().reset_parameters()
        for name, part in self.named_children():
            if name != "aggr_module":
                reset(part)

    def forward(self, x: Tensor, edge_index: EdgeIndex, edge_attr: Tensor | None = None) -> Tensor:
        """Return the new features of the nodes.

        Parameters
        ----------
        x : tensor
            Features of the nodes.
        edge_index : tensor, pair of tensors or pyops.Graph
            See `pyops.torch.nn`.
        edge_attr : tensor, optional
            Features of the edges, if the layer has an `edge_dim`.
        """
        if not isinstance(x, Tensor):
            raise TypeError(f"{self._label}: x: expected a tensor, got a {type(x).__name__}")
        self._pair(x)
        if x.shape[1] != self.in_channels:
            raise ValueError(
                f"{self._label}: x: expected {self.in_channels} columns, got shape {tuple(x.shape)}"
            )
        nodes = x.shape[0]
        route = "neighbours", self.towers * self.F_in
        edges = self._edges(edge_index, (nodes, nodes), None, None, x, route)
        features = edges.features(self._label, edge_attr, 0.0)
        if (features is None) != (self.edge_dim is None):
            expected = "None" if features is not None else f"{self.edge_dim} columns"
            got = "None" if features is None else f"shape {tuple(features.shape)}"
            raise ValueError(f"{self._label}: edge_attr: expected {expected}, got {got}")
        if features is not None:
            features = self._matrix(features)
        rows = x if self.divide_input or self.towers == 1 else x.repeat(1, self.towers)
        split = None if edges.graph is None else self._split()
        if split is None:
            messages = self._messages(edges, rows, features)
            reduced = self._gathered(by_tower(messages, self.towers), edges.dst, nodes)
        else:
            reduced = self._reduced(edges, rows, features, *split)
        both = torch.cat([by_tower(rows, self.towers), reduced], dim=-1)
        parts = [network(both[:, place]) for place, network in enumerate(self.post_nns)]
        return self._applied("x", self.lin, torch.cat(parts, dim=1))

    def _networks(self) -> list[torch.nn.Sequential]:
        return [part for part in self.pre_nns if isinstance(part, torch.nn.Sequential)]

    def _messages(self, edges: Edges, rows: Tensor, features: Tensor | None) -> Tensor:
        """Return the messages of all towers side by side, by the networks as they are."""
        parts = [rows.index_select(0, edges.dst), edges.of_sources(rows)]
        if features is not None:
            encoded = self._applied("edge_attr", self.edge_encoder, features)
            parts.append(encoded.repeat(1, self.towers))
        given = torch.cat([by_tower(part, self.towers) for part in parts], dim=-1)
        each = [network(given[:, place]) for place, network in enumerate(self.pre_nns)]
        return torch.cat(each, dim=1)

    def _split(self) -> tuple[DegreeScaled, list[AnyLinear]] | None:
        """Return the statistics and the first layers of the towers, None to run all as they are."""
        assert isinstance(self.aggr_module, torch.nn.Module)
        scaled, networks = degree_scaled(self.aggr_module), self._networks()
        layers = [network[0] for network in networks]
        found = [layer for layer in layers if is_linear(layer)]
        encoders = [self.edge_encoder] if self.edge_dim is not None else []
        if not all(map(is_linear, encoders)) or not all(map(is_plain, networks)):
            return None
        return None if scaled is None or len(found) < self.towers else (scaled, found)

    def _reduced(
        self,
        edges: Edges,
        rows: Tensor,
        features: Tensor | None,
        scaled: DegreeScaled,
        layers: list[AnyLinear],
    ) -> Tensor:
        """Reduce messages whose first layer is a sum of products with both ends and the edge."""
        graph, linear = edges.graph, torch.nn.functional.linear
        assert graph is not None
        weights = [layer.weight.split(self.F_in, dim=1) for layer in layers]
        given = [*zip(rows.split(self.F_in, dim=1), weights, layers, strict=True)]
        own = torch.cat([linear(x, w[0], layer.bias) for x, w, layer in given], dim=1)
        of_sources = torch.cat([linear(x, w[1]) for x, w, _ in given], dim=1)
        messages = of_edges = None
        if features is not None:
            matrix, encoder = torch.cat([w[2] for w in weights]), self.edge_encoder
            bias = None if encoder.bias is None else matrix @ encoder.bias
            try:
                of_edges = linear(features, matrix @ encoder.weight, bias)
            except RuntimeError:
                self._explain("edge_attr", encoder, features)
                raise
        networks = self._networks()
        if len(networks[0]) > 1:
            messages = _ops.edge_update(graph, of_sources, own, of_edges, mode="sum")
            each = zip(networks, messages.split(self.F_in, dim=1), strict=True)
            messages = torch.cat([network[1:](part) for network, part in each], dim=1)
            return scaled(edges, of_sources, messages, None, self.towers)
        if of_edges is not None:
            messages = _ops.edge_update(graph, of_sources, None, of_edges, mode="sum")
        return scaled(edges, of_sources, messages, own, self.towers)

    def __repr__(self) -> str:
        """Return the text of the original layer."""
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, "
            f"towers={self.towers}, edge_dim={self.edge_dim})"
        )
