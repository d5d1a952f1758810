"""Outputs as sums of terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def put(out: Any, terms: Sequence[Any], add: bool) -> None:
    """out (+)= the sum of the terms, 0 if there are none."""
    if not add:
        out[...] = terms[0] if terms else 0
        terms = terms[1:]
    for term in terms:
        out += term
