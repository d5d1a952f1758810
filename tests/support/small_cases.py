"""Small cases for the front ends of frameworks: a graph, arrays and options."""

import numpy as np

from pyops._call.compound import COMPOUNDS
from pyops._call.operator import OPERATORS

from .cases import EVERY as MODULES
from .cases import representative

EVERY = OPERATORS | COMPOUNDS

FEW = ["gno_conv", "kernel_conv", "gat", "aggregate", "ono_encode", "elem_scale"]
FEW += ["tanh", "power", "sum", "max"]
"""Operators with and without a graph, options, absent inputs and broadcasting."""


OPTIONS = {"clip": ("min", "max")}
"""Options without defaults."""


def arguments(name, seed=0):
    """Return a graph or None, the arrays and the options of a case."""
    op = EVERY[name]
    if name in MODULES:
        problem = representative(name).problem(seed=seed)
        return problem.graph, [*problem.inputs], dict(problem.options)
    rng = np.random.default_rng(seed)
    shapes = [(3, 4), (4,), (3, 1)][: len(op.signature.inputs)]
    arrays = [rng.uniform(0.2, 0.8, shape) for shape in shapes]
    return None, arrays, dict(zip(OPTIONS.get(name, ()), (0.3, 0.6), strict=False))
