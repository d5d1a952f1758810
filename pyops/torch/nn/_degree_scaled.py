"""Statistics of messages scaled by the degrees of nodes, the aggregation of `PNAConv`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from torch import Tensor

from ... import torch as _ops
from ._linear import is_plain

if TYPE_CHECKING:
    from ._edges.layer_edges import Edges

Statistic: TypeAlias = Literal["sum", "mean", "amax", "amin", "var"]
_STATISTICS: dict[str, Statistic] = {
    "SumAggregation": "sum",
    "MeanAggregation": "mean",
    "MaxAggregation": "amax",
    "MinAggregation": "amin",
    "VarAggregation": "var",
    "StdAggregation": "var",
}
SCALERS = "identity", "amplification", "attenuation", "linear", "inverse_linear"
_LEAST = 1e-5
"""Variance below which PyTorch Geometric takes the deviation as 0."""


@dataclass(frozen=True)
class DegreeScaled:
    """Statistics by the names of their classes, scalers, and mean degrees in training."""

    kinds: tuple[str, ...]
    scalers: tuple[str, ...]
    mean: Tensor
    mean_log: Tensor

    def factors(self, degrees: Tensor) -> dict[str, Tensor | float]:
        """Return the factor of each scaler for the in-degrees of nodes."""
        positive = degrees.clamp(min=1)
        return {
            "identity": 1.0,
            "amplification": torch.log(degrees + 1) / self.mean_log,
            "attenuation": self.mean_log / torch.log(positive + 1),
            "linear": degrees / self.mean,
            "inverse_linear": self.mean / positive,
        }

    def __call__(
        self,
        edges: Edges,
        of_sources: Tensor,
        messages: Tensor | None,
        own: Tensor | None,
        towers: int,
    ) -> Tensor:
        """Return the scaled statistics [nodes, towers, scalers * statistics * width].

        The messages are those of the sources where others are not given, plus `own` rows of the
        destination. A constant of the destination is added to a mean, and a variance lacks it.
        """
        like = of_sources if messages is None else messages
        degrees = edges.counts(like).unsqueeze(1)
        if own is not None:
            own = own.masked_fill(degrees == 0, 0.0)
        names = tuple(dict.fromkeys(_STATISTICS[kind] for kind in self.kinds))
        graph, given = edges.graph, of_sources if messages is None else None
        assert graph is not None
        several = _ops.aggregate(graph, given, messages, reduce=names)
        found: dict[str, Tensor] = dict(zip(names, several, strict=True))
        if own is not None:
            added = {name: own * degrees if name == "sum" else own for name in names}
            found |= {n: found[n] + a for n, a in added.items() if n != "var"}
        parts = []
        for kind in self.kinds:
            value = found[_STATISTICS[kind]]
            if kind == "StdAggregation":
                value = value.clamp(min=_LEAST).sqrt()
                value = value.masked_fill(value <= math.sqrt(_LEAST), 0.0)
            parts.append(by_tower(value, towers))
        values, factors = torch.cat(parts, dim=-1), self.factors(degrees.unsqueeze(2))
        return torch.cat([values * factors[name] for name in self.scalers], dim=-1)


def degree_scaled(aggregation: torch.nn.Module) -> DegreeScaled | None:
    """Return what an aggregation of PyTorch Geometric computes, None if it has to run itself."""
    inner = getattr(aggregation, "aggr", None)
    several = [*getattr(inner, "aggrs", ())]
    kinds = tuple(type(part).__name__ for part in several)
    if getattr(inner, "mode", None) != "cat" or not all(kind in _STATISTICS for kind in kinds):
        return None
    if any(getattr(part, "semi_grad", False) for part in aggregation.modules()):
        return None
    if not all(is_plain(part) for part in (aggregation, inner, *several)):
        return None
    scalers: list[str] = getattr(aggregation, "scaler", [])
    mean = getattr(aggregation, "avg_deg_lin", None)
    mean_log = getattr(aggregation, "avg_deg_log", None)
    assert isinstance(mean, Tensor)
    assert isinstance(mean_log, Tensor)
    return DegreeScaled(kinds, tuple(scalers), mean, mean_log)


def by_tower(rows: Tensor, towers: int) -> Tensor:
    """Return rows with an axis for the towers, whose columns are side by side."""
    found: Tensor = rows.unflatten(1, (towers, rows.shape[1] // towers))
    return found
