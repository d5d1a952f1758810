"""Calls that must be refused, made from the signature of an operator."""

import itertools

from ..cases import variants
from . import arguments, arrays, keywords

# With these sizes no array remains valid if one of its axes changes by 1.
WIDTHS = {"in_features": 3, "out_features": 5, "columns": 5}


def refusals(op):
    """Return all invalid calls of an operator."""
    problem = next(variants(op)).problem(**WIDTHS)
    causes = arrays, arguments, keywords
    return itertools.chain.from_iterable(cause.refusals(problem) for cause in causes)
