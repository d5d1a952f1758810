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


SIDES = "original", "drop-in"
