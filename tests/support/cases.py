"""Table of cases: operators x choices of their options x graphs x widths."""

import itertools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyops import Graph
from pyops._call import operator
from pyops._call.compound import COMPOUNDS
from pyops._call.operator import Operator

from ..reference import edge_mlp, edge_network, gat, gat_v2
from ..reference.gno_kernel import preactivations
from .graphs import GRAPHS, reverses

PHASES = "forward", "backward", "double_backward", "jvp"
OPERATORS = {name: op for name, op in operator.OPERATORS.items() if op.name == op.declaration}
"""Operators with kernels of their own, whose declarations have shapes."""
EVERY = OPERATORS | COMPOUNDS
"""The same and the compound operators."""
SOFTMAX = {name for name in OPERATORS if name in ("gat", "gat_v2", "transformer_conv")}
SOFTMAX |= OPERATORS.keys() & {"segment_softmax"}
"""Operators with a softmax over the incoming edges."""
STATISTICS = "mul", "powermean", "softmax", "std", "var", "amax", "amin"
"""Reductions that are no sums of some of the messages."""
SELECTING = "max", "min", "median"
"""Reductions whose results are single messages."""
PAIRED = [name for name, op in OPERATORS.items() if "exclude" in op.signature.options]
"""Operators on pairs of consecutive edges, with the same nodes as sources and destinations."""
ANGULAR = [name for name in PAIRED if "vectors" in OPERATORS[name].signature.inputs]
"""Operators with angles between the edges of such a pair."""
KINKED = {"gat": gat.preactivations, "gat_v2": gat_v2.preactivations}
KINKED |= {"edge_mlp": edge_mlp.preactivations, "edge_network": edge_network.preactivations}
WIDTHS = {
    "one": {"dim": 1, "hidden": 1, "depth": 1, "in_features": 1, "out_features": 1, "columns": 1}
    | {"points": 2, "modes": 1, "width": 1, "heads": 1, "edge_width": 1, "x_width": 1}
    | {"max_degree": 0, "num_spherical": 1, "num_radial": 1, "exponent": 1, "channels": 1}
    | {"middle": 1, "src_width": 1, "dst_width": 1, "own_width": 1, "num_bases": 1},
    "small": {"dim": 2, "hidden": 5, "depth": 2, "in_features": 3, "out_features": 4, "columns": 4}
    | {"points": 7, "modes": 3, "width": 5, "heads": 2, "edge_width": 3, "x_width": 5}
    | {"max_degree": 3, "num_spherical": 3, "num_radial": 2, "exponent": 5, "channels": 4}
    | {"middle": 3, "src_width": 4, "dst_width": 2, "own_width": 2, "num_bases": 3},
    "wide": {"dim": 1, "hidden": 2, "depth": 3, "in_features": 65, "out_features": 3, "columns": 3}
    | {"width": 33, "heads": 2, "edge_width": 1, "x_width": 64}
    | {"num_spherical": 4, "num_radial": 2, "channels": 33, "middle": 1}
    | {"src_width": 33, "dst_width": 32, "own_width": 1, "num_bases": 2},
    "odd": {"dim": 3, "hidden": 33, "depth": 2, "in_features": 17, "out_features": 9, "columns": 9}
    | {"points": 41, "modes": 35, "width": 37, "heads": 3, "edge_width": 5, "x_width": 37}
    | {"max_degree": 9, "num_spherical": 8, "num_radial": 5, "exponent": 6, "channels": 19}
    | {"middle": 17, "src_width": 19, "dst_width": 37, "own_width": 7, "num_bases": 9},
}
OTHER_WIDTH = {"one": 1, "small": 3, "wide": 2, "odd": 7}
"""Sizes that the table above does not name."""


@dataclass(frozen=True)
class Problem:
    """Operator with all arguments of its phases: inputs, gy and a cotangent h for each input."""

    op: Operator
    graph: Graph | None
    options: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray | None]

    @property
    def inputs(self):
        return [self.arrays[name] for name in self.op.signature.inputs]

    @property
    def cotangents(self):
        return [self.arrays["h" + name] for name in self.op.signature.inputs]

    @property
    def seeds(self):
        """Return the cotangents of the results: gy, but for compounds."""
        return ["g" + name for name in self.op.signature.results]

    def names(self, phase):
        """Return the names of the arrays that a phase takes, in its order."""
        inputs = [*self.op.signature.inputs]
        return {
            "forward": inputs,
            "backward": [*inputs, *self.seeds],
            "double_backward": [*inputs, *self.seeds, *("h" + name for name in inputs)],
            "jvp": [*inputs, *("h" + name for name in inputs)],
        }[phase]

    def rows(self, name):
        """Return what the rows of an array count: num_src, num_dst, num_edges, or None."""
        signature = self.op.signature
        shapes = {i.name: i.shape for i in signature.inputs.values()}
        shape = signature.output if name in ("gy", "y") else shapes.get(name) or shapes[name[1:]]
        return shape[0].text

    def result_rows(self, phase):
        """Return what the rows of each result of a phase count."""
        inputs = [self.rows(name) for name in self.op.signature.inputs]
        y = [self.rows("y")]
        return {"backward": inputs, "double_backward": inputs + y}.get(phase, y)

    def arguments(self, phase):
        graph = [] if self.graph is None else [self.graph]
        return graph + [self.arrays[name] for name in self.names(phase)]

    def run(self, phase, **keywords):
        """Return the results of a phase, always as a tuple."""
        function = self.op if phase == "forward" else getattr(self.op, phase)
        result = function(*self.arguments(phase), **{**self.options, **keywords})
        return result if isinstance(result, tuple) else (result,)

    def having(self, **arrays):
        """Return the problem with some arrays replaced."""
        return replace(self, arrays={**self.arrays, **arrays})

    def map(self, function):
        """Return the problem with a function applied to every array."""
        arrays = {name: None if a is None else function(a) for name, a in self.arrays.items()}
        return replace(self, arrays=arrays)


@dataclass(frozen=True)
class Case:
    op: str
    choices: tuple[tuple[str, str | bool], ...]
    absent: tuple[str, ...]
    graph: str = "random"
    widths: str = "small"

    def __str__(self):
        chosen = [(f"no {n}", n)[c] if isinstance(c, bool) else c for n, c in self.choices]
        words = [self.op, *chosen, *(f"no {name}" for name in self.absent)]
        return "-".join([*words, self.graph, self.widths])

    def problem(self, graph=None, *, seed=0, **widths):
        """Return random float64 arrays for the case; its graph and widths may be replaced."""
        op = EVERY[self.op]
        rng = np.random.default_rng([seed, zlib.crc32(str(self).encode())])
        graph = graph or GRAPHS[self.graph]()
        others = dict.fromkeys(op.signature.sizes, OTHER_WIDTH[self.widths])
        sizes = {**others, **WIDTHS[self.widths], **widths}
        for name in "num_src", "num_dst", "num_edges", "num_entries":
            sizes[name] = getattr(graph, name)
        sizes["num_samples"] = graph.num_edges
        for flag, (one, other) in op.signature.equal.items():
            if dict(self.choices)[flag]:
                sizes[other] = sizes[one]
        follows = op.signature.follows(dict(self.choices), self.absent)
        for name in sorted(follows, key=lambda name: len(follows[name].names)):
            sizes[name] = follows[name].value(sizes)
        options = dict(self.choices)
        options |= {"softmax": {"temperature": 0.7}, "powermean": {"power": 2.5}}.get(
            options.get("reduce"), {}
        )
        options |= {o.name: sizes[o.name] for o in op.signature.options.values() if o.is_size}
        for i in op.signature.indexed.values():
            if options[i.option] == i.choice:  # any row, and -1 for none
                rows = sizes[i.length]
                if i.reverses:
                    options[i.name] = reverses(graph)
                    continue
                options[i.name] = rng.integers(-1, rows, rows) if rows else np.zeros(0, int)

        def draw(shape, draw=rng.standard_normal):
            return np.asarray(draw([size.value(sizes) for size in shape]))

        inputs = op.signature.inputs.values()
        given = [i for i in inputs if i.name not in self.absent]
        arrays = {i.name: None for i in inputs} | {"h" + i.name: None for i in inputs}
        arrays |= {i.name: draw(i.shape, _law(rng, i.name, options)) for i in given}
        arrays |= {"g" + name: draw(shape) for name, shape in op.signature.results.items()}
        arrays |= {"h" + i.name: draw(i.shape) for i in given}
        if options.get("activation") == "relu" and "coords" in arrays:
            keep_from_kinks(rng, arrays["coords"], arrays["params"], options["hidden"])
        problem = Problem(op, graph if op.signature.has_graph else None, options, arrays)
        if op.name in KINKED and options["activation"] in ("leaky_relu", "relu", "elu"):
            keep_scores_from_kinks(rng, problem)
        return problem


def _law(rng, name, options):
    """Return the distribution of an input: distances up to beyond the cutoff, others normal.

    Means of powers are of positive messages, products of messages whose magnitudes are near 1.
    """
    if name == "distances":
        return lambda shape: rng.uniform(0.05, 1.15, shape)
    if options.get("reduce") == "powermean" and name != "own":
        return lambda shape: rng.uniform(0.5, 1.5, shape)
    if options.get("reduce") == "mul" and name != "own":
        return lambda shape: rng.choice([-1, 1], shape) * rng.uniform(0.998, 1.002, shape)
    return rng.standard_normal


def keep_from_kinks(rng, coords, params, hidden):
    """Redraw coordinates whose preactivations are within 1e-3 of a kink."""
    while len(near := np.flatnonzero((abs(preactivations(coords, params, hidden)) < 1e-3).any(1))):
        coords[near] = rng.standard_normal(coords[near].shape)


def keep_scores_from_kinks(rng, problem):
    """Redraw source features whose scores are near a kink, if there are few entries."""
    graph, x = problem.graph, problem.arrays["x_src"]
    if not 0 < graph.num_entries <= 100:
        return
    while True:
        before = KINKED[problem.op.name](graph, *problem.inputs, **problem.options)
        near = (abs(before) < 1e-3).reshape(graph.num_entries, -1).any(1)
        if not near.any():
            return
        nodes = np.unique(graph.src[near])
        x[nodes] = rng.standard_normal(x[nodes].shape)


def variants(op):
    """Yield the choices of an operator's options, with and without each of its optional inputs.

    Yields all combinations while they are few; of many, every second one, so that all pairs of
    options still occur, with absent inputs in rotation.
    """
    signature = op.signature
    options = [o for o in signature.options.values() if o.choices]
    optional = [i.name for i in signature.inputs.values() if i.optional]
    whole = [*itertools.product(*(enumerate(o.choices) for o in options))]
    if len(whole) > 8 and len(options) > 1:
        whole = [some for some in whole if sum(place for place, _ in some) % 2 == 0]
    for number, some in enumerate(whole):
        choices = [choice for _, choice in some]
        every = [*itertools.product([False, True], repeat=len(optional))]
        if number and len(every) > 2:
            one = [missing for missing in every if sum(missing) == 1]
            turns = range(number - 1, number - 1 + len(one) // 2)
            every = [every[0], *(one[turn % len(one)] for turn in turns)]
        for missing in every:
            gone = set(itertools.compress(optional, missing))
            if signature.one_of and gone >= set(signature.one_of):
                continue
            named = tuple((o.name, choice) for o, choice in zip(options, choices, strict=True))
            if not is_valid(signature, dict(named), gone):
                continue
            yield Case(op.name, named, tuple(itertools.compress(optional, missing)))


def is_valid(signature, chosen, absent):
    """Return whether sizes that a flag requires to be equal can be so without some inputs."""
    follows = signature.follows(chosen, absent)
    return not any(
        chosen[flag] and any(name in follows and follows[name].text == "0" for name in both)
        for flag, both in signature.equal.items()
    )


def representative(name):
    """Return the last variant with all optional inputs, for checks that need no other."""
    return [case for case in variants(EVERY[name]) if not case.absent][-1]


VARIANTS = [case for op in OPERATORS.values() for case in variants(op)]
EVERY_VARIANT = VARIANTS + [case for op in COMPOUNDS.values() for case in variants(op)]


def _cases():
    """Yield every variant on two graphs, and on each of the others every fourth, in rotation."""
    for op in OPERATORS.values():
        for turn, graph in enumerate(GRAPHS):
            every = [*variants(op)]
            if not op.signature.has_graph and graph not in ("no edges", "random", "long rows"):
                continue
            if op.name in ANGULAR and graph == "hubs":  # too many pairs to list
                continue
            if op.name in ANGULAR and graph == "one self loop":  # the edge would pair with itself
                every = [case for case in variants(op) if "node" in dict(case.choices).values()]
            whole = graph in ("random", "shared edges")
            for number, case in enumerate(every):
                if whole or number % 4 == turn % min(4, len(every)):
                    yield replace(case, graph=graph)
                    if graph in ("long rows", "many rows"):
                        yield replace(case, graph=graph, widths="odd")
                    if graph == "hubs":  # more entries than are processed at once at this width
                        yield replace(case, graph=graph, widths="wide")
                    if graph == "random":
                        yield replace(case, widths="one")


CASES = [*_cases()]
