"""Replacement for neuraloperator's `IntegralTransform`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .. import aggregate, edge_update, kernel_conv
from .._host import without_subclass
from .._phase import is_transformed
from ._edges.neighbour_lists import check_alike, check_function, check_points, graphs_of_neighbours
from ._product import gathered, product
from .linear_channel_mlp import Activation, LinearChannelMLP, LinearNetwork, linear_network

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...graph import Graph
    from .._graph import TracedGraph

TYPES = "linear_kernelonly", "linear", "nonlinear_kernelonly", "nonlinear"


class IntegralTransform(nn.Module):
    r"""Integrals over neighbourhoods, with a kernel given by a neural network.

    .. math:: \int_{A(x)} k(x, y)\, dy, \quad \int_{A(x)} k(x, y) f(y)\, dy, \quad
              \int_{A(x)} k(x, y, f(y))\, dy, \quad \int_{A(x)} k(x, y, f(y)) f(y)\, dy

    Like ``neuralop.layers.integral_transform.IntegralTransform``, with two differences: float64
    stays float64 (the original, without torch_scatter, sums in float32), and weights without a
    batch, which the original refuses, are accepted. The first layer of a `LinearChannelMLP` is
    applied to points, not to pairs. Its last layer is applied after the sum if the kernel is not
    multiplied by f. If it is, `pyops.kernel_conv` fuses the last layer if that layer does not
    narrow and there is no batch; else it is applied to pairs, like the layers between. Other
    networks are evaluated on pairs.

    Parameters
    ----------
    channel_mlp : torch.nn.Module, optional
        The kernel, a function of (y | x) or (y | x | f(y)) along the last axis.
    channel_mlp_layers : list of int, optional
        Widths of a new `LinearChannelMLP`, if `channel_mlp` is not given.
    channel_mlp_non_linearity : callable
        Its activation.
    transform_type : {"linear", "linear_kernelonly", "nonlinear", "nonlinear_kernelonly"}
        Whether f is an input of the kernel, and whether it is not a factor. Without f all are the
        integral of k(x, y); with f, as in the original, "linear_kernelonly" is "linear".
    weighting_fn : callable, optional
        Function applied to the weights.
    reduction : {"sum", "mean"}
        Reduction over each neighbourhood; with weights always a sum.
    use_torch_scatter : bool
        Accepted and ignored: `pyops.aggregate` reduces.
    """

    def __init__(
        self,
        channel_mlp: nn.Module | None = None,
        channel_mlp_layers: Sequence[int] | None = None,
        channel_mlp_non_linearity: Activation = functional.gelu,
        transform_type: str = "linear",
        weighting_fn: Callable[[Tensor], Tensor] | None = None,
        reduction: Literal["sum", "mean"] = "sum",
        use_torch_scatter: bool = True,
    ) -> None:
        super().__init__()
        caller = "IntegralTransform"
        if channel_mlp is None and channel_mlp_layers is None:
            raise ValueError(f"{caller}: expected channel_mlp or channel_mlp_layers, got neither")
        if transform_type not in TYPES:
            raise ValueError(
                f"{caller}: transform_type: expected one of {', '.join(TYPES)}, "
                f"got {transform_type!r}"
            )
        if reduction not in ("sum", "mean"):
            raise ValueError(f"{caller}: reduction: expected 'sum' or 'mean', got {reduction!r}")
        self.reduction = reduction
        self.transform_type = transform_type
        self.use_torch_scatter = use_torch_scatter
        if channel_mlp is None:
            assert channel_mlp_layers is not None
            channel_mlp = LinearChannelMLP(channel_mlp_layers, channel_mlp_non_linearity)
        self.channel_mlp = channel_mlp
        self.weighting_fn = weighting_fn

    def forward(
        self,
        y: Tensor,
        neighbors: Mapping[str, Tensor],
        x: Tensor | None = None,
        f_y: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the integrals.

        Parameters
        ----------
        y : tensor, shape (n, d1)
            Points to integrate over.
        neighbors : dict
            "neighbors_index", the neighbours y of each x, and "neighbors_row_splits", as
            `NeighborSearch` returns them; optionally "weights" of the neighbours.
        x : tensor, shape (m, d2), optional
            Points of the results, y if not given.
        f_y : tensor, shape (n, d3) or (batch, n, d3), optional
            The function f.
        weights : tensor, shape (num_neighbors,) or (n,), optional
            Weights of the neighbours, or of the points y.

        Returns
        -------
        tensor, shape (m, d4) or (batch, m, d4)
        """
        caller, x = "IntegralTransform", y if x is None else x
        for name, points in ("y", y), ("x", x):
            check_points(f"{caller}: {name}", points)
        check_alike(f"{caller}: x", x, "y", y)
        if f_y is not None:
            check_function(f"{caller}: f_y", f_y, y.shape[0])
        indices = "neighbors_index", "neighbors_row_splits"
        neighbors = {**neighbors, **{name: without_subclass(neighbors[name]) for name in indices}}
        splits = neighbors["neighbors_row_splits"]
        region = Neighbourhoods(
            *graphs_of_neighbours(caller, neighbors, y.shape[0]),
            splits[1:] - splits[:-1],
            self._weight(neighbors, weights, y),
            self.reduction,
        )
        f = None if f_y is None else f_y[:, None] if f_y.ndim == 2 else f_y.transpose(0, 1)
        kernel_f = f if self.transform_type.startswith("nonlinear") else None
        factor = None if self.transform_type == "nonlinear_kernelonly" else f
        network = linear_network(self.channel_mlp)
        if f_y is not None and kernel_f is not None and network is not None:
            check_alike(f"{caller}: f_y", f_y, "y", y)
        if network is None:
            kernel = self._on_pairs(region, y, x, f_y, kernel_f)
            result = region.integrate(kernel, factor)
        else:
            result = _by_layers(network, region, y, x, kernel_f, factor)
        return result[:, 0] if f_y is None or f_y.ndim == 2 else result.transpose(0, 1)

    def _weight(
        self, neighbors: Mapping[str, Tensor], weights: Tensor | None, y: Tensor
    ) -> Tensor | None:
        """Return the weights of the neighbours."""
        weight = neighbors.get("weights")
        index = neighbors["neighbors_index"]
        if weight is None and weights is not None:
            weight = weights if weights.shape == index.shape else weights[index]
        if weight is None:
            if self.weighting_fn is not None:
                raise KeyError("IntegralTransform: neighbors: expected 'weights' for weighting_fn")
            return None
        if self.weighting_fn is not None:
            weight = self.weighting_fn(weight[None, :, None])
        return weight.reshape(-1).to(y.dtype)

    def _on_pairs(
        self,
        region: Neighbourhoods,
        y: Tensor,
        x: Tensor,
        f_y: Tensor | None,
        kernel_f: Tensor | None,
    ) -> Tensor:
        """Evaluate any network on pairs: the kernel, [num_neighbors, batch or 1, d4]."""
        pairs, kernel = edge_update(region.graph, y, x), self.channel_mlp
        result: Tensor
        if f_y is None or kernel_f is None:
            result = kernel(pairs)[:, None]
            return result
        values = gathered(region.graph, kernel_f)
        if f_y.ndim == 2:
            result = kernel(torch.cat([pairs, values[:, 0]], dim=-1))[:, None]
            return result
        pairs = pairs.expand(f_y.shape[0], -1, -1)
        result = kernel(torch.cat([pairs, values.transpose(0, 1)], dim=-1)).transpose(0, 1)
        return result


class Neighbourhoods(NamedTuple):
    """Neighbourhoods of an integral: graph, reverse graph, sizes, weights and reduction."""

    graph: Graph | TracedGraph
    back: Graph | None
    counts: Tensor
    weight: Tensor | None
    reduction: Literal["sum", "mean"]

    @property
    def _reduce(self) -> Literal["sum", "mean"]:
        return self.reduction if self.weight is None else "sum"

    def integrate(self, kernel: Tensor, factor: Tensor | None) -> Tensor:
        """Reduce the kernel [num_neighbors, batch or 1, d], times f, over neighbourhoods."""
        if factor is not None:
            if factor.shape[2] != 1 and factor.shape[2] != kernel.shape[2]:
                raise ValueError(
                    f"IntegralTransform: f_y: expected {kernel.shape[2]} channels, as the kernel "
                    f"has, or 1, got {factor.shape[2]}"
                )
            if self.back is not None and not is_transformed():
                return self._products(self.back, kernel, factor)
            kernel = kernel * gathered(self.graph, factor)
        sums = aggregate(self.graph, None, kernel.flatten(1), self.weight, reduce=self._reduce)
        result: Tensor = sums.unflatten(1, kernel.shape[1:])
        return result

    def _products(self, back: Graph, kernel: Tensor, factor: Tensor) -> Tensor:
        if self.weight is not None:
            kernel = kernel * self.weight[:, None, None]
        sums = product(self.graph, back, kernel, factor.expand(-1, -1, kernel.shape[2]))
        if self._reduce == "mean":
            sums = sums / self.counts.clamp(min=1).to(sums.dtype)[:, None, None]
        return sums

    def totals(self, dtype: torch.dtype) -> Tensor:
        """Return the reduction of the constant 1 over neighbourhoods, [m, 1, 1]."""
        if self.weight is not None:
            return aggregate(self.graph, None, self.weight[:, None])[:, None]
        counts = self.counts if self.reduction == "sum" else self.counts.clamp(max=1)
        return counts.to(dtype)[:, None, None]

    def conv(self, f: Tensor, hidden: Tensor, last: nn.Linear) -> Tensor:
        """Reduce f times the last layer, fused."""
        return kernel_conv(
            self.graph,
            f,
            hidden,
            last.weight,
            last.bias,
            self.weight,
            kernel="diagonal",
            reduce=self._reduce,
        )


def _by_layers(
    network: LinearNetwork,
    region: Neighbourhoods,
    y: Tensor,
    x: Tensor,
    kernel_f: Tensor | None,
    factor: Tensor | None,
) -> Tensor:
    """Return the integrals with a kernel of linear layers."""
    layers, act = network
    last = layers[-1]
    hidden = _first(layers[0], region.graph, y, x, kernel_f)
    if len(layers) == 1:
        return region.integrate(hidden, factor)
    for layer in layers[1:-1]:
        hidden = layer(act(hidden))
    hidden = act(hidden)
    if factor is None:
        result = functional.linear(region.integrate(hidden, None), last.weight)
        return result if last.bias is None else result + region.totals(y.dtype) * last.bias
    alone = hidden.shape[1] == factor.shape[1] == 1
    if alone and last.in_features <= last.out_features:
        values = factor[:, 0].expand(-1, last.out_features)
        return region.conv(values, hidden[:, 0], last)[:, None]
    return region.integrate(last(hidden), factor)


def _first(
    layer: nn.Linear, graph: Graph | TracedGraph, y: Tensor, x: Tensor, kernel_f: Tensor | None
) -> Tensor:
    """Apply the first layer to points and combine the results of pairs.

    Returns [num_neighbors, batch or 1, hidden].
    """
    widths = [y.shape[1], x.shape[1], 0 if kernel_f is None else kernel_f.shape[2]]
    if sum(widths) != layer.in_features:
        raise ValueError(
            f"IntegralTransform: channel_mlp: expected an input of {' + '.join(map(str, widths))} "
            f"channels, got {layer.in_features}"
        )
    by_y, by_x, by_f = layer.weight.split(widths, dim=1)
    src, dst = functional.linear(y, by_y)[:, None], functional.linear(x, by_x, layer.bias)[:, None]
    if kernel_f is not None:
        src = src + functional.linear(kernel_f, by_f)
        dst = dst.expand(-1, kernel_f.shape[1], -1)
    hidden = edge_update(graph, src.flatten(1), dst.flatten(1), mode="sum")
    result: Tensor = hidden.unflatten(1, src.shape[1:])
    return result
