"""Replacement for neuraloperator's `SinusoidalEmbedding`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

TYPES = "nerf", "transformer"


class SinusoidalEmbedding(nn.Module):
    """Sines and cosines of coordinates at several frequencies, interleaved.

    Like ``neuralop.layers.embeddings.SinusoidalEmbedding``, in the precision of the coordinates.

    Parameters
    ----------
    in_channels : int
        Number of coordinates.
    num_frequencies : int
        Number L of frequencies; their index k starts at 0.
    embedding_type : {"transformer", "nerf"}
        Whether the frequencies are ``max_positions ** (-2 k / L)`` or ``2 ** k * pi``.
    max_positions : int
    """

    def __init__(
        self,
        in_channels: int,
        num_frequencies: int | None = None,
        embedding_type: str = "transformer",
        max_positions: int | None = 10000,
    ) -> None:
        super().__init__()
        caller = "SinusoidalEmbedding"
        if embedding_type not in TYPES:
            raise ValueError(
                f"{caller}: embedding_type: expected one of {', '.join(TYPES)}, "
                f"got {embedding_type!r}"
            )
        if embedding_type == "transformer" and max_positions is None:
            raise ValueError(f"{caller}: max_positions: expected a number, got None")
        self.in_channels = in_channels
        self.num_frequencies = num_frequencies
        self.embedding_type = embedding_type
        self.max_positions = max_positions

    @property
    def out_channels(self) -> int:
        """Number of channels of the result."""
        assert self.num_frequencies is not None
        return 2 * self.num_frequencies * self.in_channels

    def forward(self, x: Tensor) -> Tensor:
        """Embed coordinates [n, in_channels] or [b, n, in_channels] as [..., out_channels]."""
        if x.ndim not in (2, 3):
            raise ValueError(
                "SinusoidalEmbedding: x: expected shape (n, in_channels) or "
                f"(batch, n, in_channels), got {tuple(x.shape)}"
            )
        count = torch.arange(self.num_frequencies or 0, device=x.device)
        if self.embedding_type == "nerf":
            frequencies = 2 ** count.to(x.dtype) * torch.pi
        else:
            assert self.max_positions is not None
            frequencies = (1 / self.max_positions) ** (count.to(x.dtype) / count.shape[0] * 2)
        angles = x[..., None] * frequencies
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-3)
