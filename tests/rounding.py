"""How far rounding may take a result: 8 eps sqrt(terms), in units of the sum of magnitudes."""

from dataclasses import replace

import numpy as np

from .reference import reference


def bounds(problem, phase, dtype):
    """The bound for each element of each result, when the phase is run in a precision."""
    problem = problem.map(np.float64)
    magnitudes = reference(_bounding(problem).map(np.abs), phase)
    counts = reference(_bounding(problem, reduce="sum").map(np.ones_like), phase)
    unit = 8 * np.finfo(dtype).eps
    return [
        None if size is None else unit * np.sqrt(np.maximum(count, 1)) * size
        for size, count in zip(magnitudes, counts, strict=True)
    ]


def _bounding(problem, **options):
    """With activations that bound their magnitudes, and other options if the operator has them."""
    if problem.options.get("activation", "relu") != "relu":
        options["activation"] = "bound"
    known = {name: value for name, value in options.items() if name in problem.options}
    return replace(problem, options={**problem.options, **known})
