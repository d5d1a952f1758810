"""Layer and its original: the element type of CASES in files of this folder."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Call = Callable[[], list[Any]]


@dataclass(frozen=True)
class Case:
    """Case, which gives one row of the table for each number of threads.

    `make` builds the original and the drop-in layer with the same weights and data. Either function
    runs forward and backward and returns the tensors to compare: results and gradients.
    """

    layer: str
    what: str
    make: Callable[[], tuple[Call, Call]]
    tolerance: float = 1e-4
    """Largest difference of results that is no error."""


def edges_of(nodes: int, degree: int) -> Any:
    """Return random edges, `degree` into each node, in random order."""
    import torch

    src = torch.randint(nodes, (nodes * degree,))
    index = torch.stack([src, torch.arange(nodes).repeat_interleave(degree)])
    return index[:, torch.randperm(nodes * degree)]


SIDES = "original", "drop-in"
