"""Broadcasting shapes, domains of the elementwise functions, and problems made of them."""

import numpy as np

from pyops._call import operator
from pyops._functions import PUBLIC

from ..reference import elementwise as reference
from .complex_step import derivative

OPERATORS = {n: op for n, op in operator.OPERATORS.items() if op.declaration == "elementwise"}
REDUCTIONS = {n: OPERATORS[n] for n in ("sum", "mean", "max", "min")}
FUNCTIONS = {f.name: OPERATORS[f.name] for f in PUBLIC}
BINARY = [n for n, op in FUNCTIONS.items() if len(op.signature.inputs) == 2]
UNARY = [n for n in FUNCTIONS if n not in BINARY]
POSITIVE = [f.name for f in PUBLIC if f.positive]

PAIRS = {
    "same": ((5, 7), (5, 7)),
    "row": ((6, 5), (5,)),
    "column": ((6, 5), (6, 1)),
    "scalar": ((4, 3, 2), ()),
    "both scalars": ((), ()),
    "one element": ((1, 1), (1,)),
    "outer": ((5, 1), (1, 6)),
    "bias": ((3, 4, 5, 2), (4, 1, 1)),
    "batch": ((3, 4, 5), (4, 5)),
    "pairs": ((4, 1, 3), (1, 5, 3)),
    "four groups": ((2, 3, 2, 3), (3, 1, 3)),
    "five groups": ((2, 1, 3, 1, 2), (1, 4, 1, 2, 1)),
    "no rows": ((0, 3), (3,)),
    "no elements but a gradient": ((0, 3), (1, 3)),
    "long row": ((3, 1100), (1100,)),
    "longer row": ((2, 3001), (2, 1)),
    "many narrow rows": ((700, 3), (3,)),
    "many narrow columns": ((700, 3), (700, 1)),
    "in parts": ((3, 70_001), (3, 1)),
    "in parts by rows": ((90, 1500), (1500,)),
    "in parts by columns": ((2, 80_000), (80_000,)),
    "in parts inside": ((2, 300, 400), (2, 1, 400)),
}


def draw(name, shape, seed=0):
    low, high = reference.DOMAINS.get(name, (0.01, 3.0))
    rng = np.random.default_rng([seed, len(shape), *shape])
    signs = 1 if name in POSITIVE else rng.choice([-1, 1], shape)
    return np.asarray(signs * rng.uniform(low, high, shape))


class Problem:
    """Elementwise function with inputs, cotangents and gy of given shapes."""

    def __init__(self, name, shapes, dtype=np.float64):
        self.name, self.op = name, OPERATORS[name]
        rng = np.random.default_rng(1)
        self.inputs = [draw(name, s, i).astype(dtype) for i, s in enumerate(shapes)]
        space = np.broadcast_shapes(*shapes)
        self.gy = np.asarray(rng.standard_normal(space)).astype(dtype)
        self.h = [np.asarray(rng.standard_normal(s)).astype(dtype) for s in shapes]

    def arguments(self, phase):
        return {
            "forward": self.inputs,
            "backward": [*self.inputs, self.gy],
            "double_backward": [*self.inputs, self.gy, *self.h],
            "jvp": [*self.inputs, *self.h],
        }[phase]

    def run(self, phase, **keywords):
        function = self.op if phase == "forward" else getattr(self.op, phase)
        result = function(*self.arguments(phase), **keywords)
        return result if isinstance(result, tuple) else (result,)

    def map(self, function):
        other = Problem.__new__(Problem)
        other.name, other.op = self.name, self.op
        other.inputs, other.h = [*map(function, self.inputs)], [*map(function, self.h)]
        other.gy = function(self.gy)
        return other

    def expected(self, phase):
        def forward(*inputs):
            return (reference.forward(self.name, *inputs),)

        def backward(*inputs):
            return reference.backward(self.name, *inputs, self.gy)

        if phase == "forward":
            return forward(*self.inputs)
        if phase == "backward":
            return backward(*self.inputs)
        dy = derivative(forward, self.inputs, self.h)
        return dy if phase == "jvp" else derivative(backward, self.inputs, self.h) + dy


def problem(name, pair="same", dtype=np.float64):
    shapes = PAIRS[pair]
    return Problem(name, shapes if name in BINARY else shapes[:1], dtype)
