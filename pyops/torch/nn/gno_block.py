"""Replacement for neuraloperator's `GNOBlock`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn
from torch.nn import functional

from ..._call.arrays import check_size
from ._edges.neighbour_lists import check_alike, check_function, check_points, check_radius
from .integral_transform import IntegralTransform
from .linear_channel_mlp import Activation, LinearChannelMLP
from .neighbor_search import NeighborSearch
from .sinusoidal_embedding import TYPES, SinusoidalEmbedding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class GNOBlock(nn.Module):
    """Layer of a graph neural operator: an integral transform over neighbours within a radius.

    Like ``neuralop.layers.gno_block.GNOBlock``; for differences see `IntegralTransform` and
    `NeighborSearch`. A call takes one set of points, no batch.

    Parameters
    ----------
    in_channels : int
        Channels of f, an input of nonlinear kernels only.
    out_channels : int
        Channels of the result.
    coord_dim : int
        Number of coordinates.
    radius : float
        Radius of the neighbourhoods.
    transform_type, weighting_fn, reduction
        See `IntegralTransform`; a weighting function is applied to squared distances.
    pos_embedding_type : {"transformer", "nerf"} or None
        Embedding of the coordinates before the kernel.
    pos_embedding_channels, pos_embedding_max_positions : int
        Number of its frequencies, and its `max_positions`.
    channel_mlp_layers : list of int
        Widths of the kernel network; missing widths of input and output are added.
    channel_mlp_non_linearity : callable
        Its activation.
    channel_mlp : torch.nn.Module, optional
        Another network, with `in_channels` and `out_channels`.
    use_torch_scatter_reduce, use_open3d_neighbor_search : bool
        Accepted; the latter is refused unless `coord_dim` is 3, as in the original.

    Examples
    --------
    >>> import torch
    >>> from pyops.torch.nn import GNOBlock
    >>> layer = GNOBlock(3, 3, coord_dim=2, radius=0.3, use_open3d_neighbor_search=False)
    >>> layer(torch.rand(50, 2), torch.rand(8, 2), torch.rand(50, 3)).shape
    torch.Size([8, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        coord_dim: int,
        radius: float,
        transform_type: str = "linear",
        weighting_fn: Callable[[Tensor], Tensor] | None = None,
        reduction: Literal["sum", "mean"] = "sum",
        pos_embedding_type: str | None = "transformer",
        pos_embedding_channels: int = 32,
        pos_embedding_max_positions: int = 10000,
        channel_mlp_layers: Sequence[int] | None = (128, 256, 128),
        channel_mlp_non_linearity: Activation = functional.gelu,
        channel_mlp: nn.Module | None = None,
        use_torch_scatter_reduce: bool = True,
        use_open3d_neighbor_search: bool = True,
    ) -> None:
        super().__init__()
        caller = "GNOBlock"
        check_size(f"{caller}: in_channels", in_channels, 0)
        check_size(f"{caller}: out_channels", out_channels)
        check_size(f"{caller}: coord_dim", coord_dim)
        check_radius(f"{caller}: radius", radius)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.coord_dim = coord_dim
        self.radius = radius
        self.pos_embedding_type = pos_embedding_type
        self.pos_embedding: SinusoidalEmbedding | None = None
        width = 2 * coord_dim
        if pos_embedding_type in TYPES:
            self.pos_embedding = SinusoidalEmbedding(
                coord_dim, pos_embedding_channels, pos_embedding_type, pos_embedding_max_positions
            )
            width = 2 * self.pos_embedding.out_channels
        if use_open3d_neighbor_search and coord_dim != 3:
            raise ValueError(
                f"{caller}: use_open3d_neighbor_search: expected False for coord_dim={coord_dim}, "
                "got True"
            )
        self.neighbor_search = NeighborSearch(use_open3d_neighbor_search, weighting_fn is not None)
        if transform_type in ("nonlinear", "nonlinear_kernelonly"):
            width += in_channels
        if channel_mlp is not None:
            for name, expected in ("in_channels", width), ("out_channels", out_channels):
                if getattr(channel_mlp, name) != expected:
                    raise ValueError(
                        f"{caller}: channel_mlp: expected {name}={expected}, "
                        f"got {getattr(channel_mlp, name)}"
                    )
        elif channel_mlp_layers is not None:
            layers = [*channel_mlp_layers]
            if layers[0] != width:
                layers.insert(0, width)
            if layers[-1] != out_channels:
                layers.append(out_channels)
            channel_mlp = LinearChannelMLP(layers, channel_mlp_non_linearity)
        self.integral_transform = IntegralTransform(
            channel_mlp=channel_mlp,
            transform_type=transform_type,
            use_torch_scatter=use_torch_scatter_reduce,
            weighting_fn=weighting_fn,
            reduction=reduction,
        )

    def forward(self, y: Tensor, x: Tensor, f_y: Tensor | None = None) -> Tensor:
        """Return the integrals over the neighbours y [n, coord_dim] of each x [m, coord_dim].

        f_y is [n, channels] or [batch, n, channels]; the result is [m, out_channels] or
        [batch, m, out_channels].
        """
        for name, points in ("y", y), ("x", x):
            check_points(f"GNOBlock: {name}", points, self.coord_dim)
        check_alike("GNOBlock: x", x, "y", y)
        if f_y is not None:
            check_function("GNOBlock: f_y", f_y, len(y))
        neighbors = self.neighbor_search(data=y, queries=x, radius=self.radius)
        if self.pos_embedding is not None:
            y, x = self.pos_embedding(y), self.pos_embedding(x)
        result: Tensor = self.integral_transform(y=y, x=x, neighbors=neighbors, f_y=f_y)
        return result
