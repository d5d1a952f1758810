"""Inputs of a case, the same for every peer."""

from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.cases import ALONE, Case
from benchmarks.limits import placed


@dataclass(frozen=True)
class Problem:
    """Graph, inputs by name, and one cotangent for each array.

    `graph` holds `src`, `dst` (sorted) and `offsets` (of each destination's first edge), and other
    arrays that the operator takes; `numbers` what its formula is compiled for.
    """

    case: Case
    graph: dict[str, np.ndarray]
    numbers: dict[str, Any]
    inputs: dict[str, np.ndarray]
    gy: np.ndarray
    cotangents: list[np.ndarray]


def operator_module(case: Case) -> ModuleType:
    return import_module(f"benchmarks.operators.{case.operator}")


def make(case: Case) -> Problem:
    """Create a random multigraph, or the operator's own graph, and random arrays, reproducibly."""
    rng = np.random.default_rng(20)
    operator = operator_module(case)
    src, dst = getattr(operator, "ends", random_ends)(case, rng)
    graph = {"src": src, "dst": dst, "offsets": np.searchsorted(dst, np.arange(case.nodes + 1))}
    if hasattr(operator, "pairs") and case.peers != ALONE:
        graph |= operator.pairs(case, graph["src"], graph["dst"])
    numbers: dict[str, Any] = {}
    if hasattr(operator, "constants"):
        for name, value in operator.constants(case, rng, **graph).items():
            (graph if isinstance(value, np.ndarray) else numbers)[name] = value
    place = partial(placed, offset=case.offset)
    inputs = {name: place(array) for name, array in operator.inputs(case, rng).items()}
    gy = place(normal(case, rng, *operator.output_shape(case)))
    cotangents = [place(normal(case, rng, *array.shape)) for array in inputs.values()]
    return Problem(case, graph, numbers, inputs, gy, cotangents)


def random_ends(case: Case, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    dst = rng.integers(case.nodes, size=case.edges)
    if case.hub:
        dst[: case.edges // 2] = 0
    if case.steep:
        dst = by_power_law(case, rng)
    dst.sort()
    return (by_power_law if case.steep else uniform)(case, rng), dst


def uniform(case: Case, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(case.nodes, size=case.edges)


def by_power_law(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Return an end node for each edge: rank r has probability proportional to r**(-0.8)."""
    rank = case.nodes * rng.random(case.edges) ** 5
    return rng.permutation(case.nodes)[rank.astype(int)]


def tiny(case: Case) -> Problem:
    """Return the same operator on a few nodes, to trigger lazy loading."""
    return make(replace(case, nodes=8, degree=2))


def normal(case: Case, rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=case.dtype)


def kernel_inputs(case: Case, rng: np.random.Generator, dims: int) -> dict[str, np.ndarray]:
    """Return the parameters of a kernel network, with the first layer's on a grid.

    Weights (and coordinates) at multiples of 1/64 and biases at odd multiples of 1/8192 make the
    first layer exact and never 0: every peer is on the same side of each kink of relu.
    """
    outputs = case.width * case.out_features
    bias = 2 * rng.integers(-4096, 4096, size=case.hidden) + 1
    return {
        "hidden_weight": grid(case, rng, case.hidden, dims),
        "hidden_bias": (bias / 8192).astype(case.dtype),
        "weight": normal(case, rng, outputs, case.hidden) / np.sqrt(case.hidden).astype(case.dtype),
        "bias": normal(case, rng, outputs),
    }


def grid(case: Case, rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.integers(-64, 65, size=shape) / 64).astype(case.dtype)
