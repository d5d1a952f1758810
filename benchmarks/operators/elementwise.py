"""Elementwise operators against NumPy, torch and Aidge, in one process, with new outputs.

`python -m benchmarks.operators.elementwise` prints the table alone.
"""

import argparse
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import pyops
from benchmarks.options import positive, thread_count
from pyops._functions import PUBLIC

BURST, LONG = 0.02, 1.0
PEERS = ("NumPy", "torch", "Aidge", "triad")
PREAMBLE = """\
One call by pyops, and how many times its time the others take (median of the ratios within a
round). Outputs are new arrays on all sides, except beside the triad (a + b of the same size, by
pyops), where they are given."""
M = 10**6
LARGE = (8000, 4000)
PAIRS = (
    *[((n,), (n,)) for n in (M, 4 * M, 30 * M)],
    *[(s, s) for s in ((1000, 1000), LARGE, (100, 100, 100), (10, 10, 100, 100))],
    *[(s, s[-1:]) for s in ((1000, 1000), LARGE, (M, 3), (M, 8), (30_000, 40), (3, M), (30, M))],
    *[(s, (s[0], 1)) for s in ((1000, 1000), LARGE, (M, 3), (M, 8), (30_000, 40), (3, M), (30, M))],
    *[(s, ()) for s in ((M,), LARGE, (30 * M,))],
    ((32, 64, 56, 56), (64, 1, 1)),
    ((32, 64, 56, 56), (32, 64, 1, 1)),
    ((16, 512, 768), (16, 1, 768)),
    ((64, 128, 1024), (128, 1024)),
    ((4000, 1), (1, 4000)),
    ((200, 1, 64), (1, 200, 64)),
    ((300, 1, 3), (1, 4000, 3)),
    ((100, 1, 100, 1), (100, 1, 100)),
)
REDUCED = ((1000, 1000), (30 * M,), (M, 3), (3, M), (100, 100, 100))
TORCH_NAMES = {"power": "pow", "leaky_relu": "leaky_relu", "softplus": "softplus"}


@dataclass
class Line:
    """One call by each library; `moved` is the number of bytes read and written."""

    title: str
    threads: int
    calls: dict[str, Callable[[], object]] = field(repr=False)
    moved: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, library: str) -> float:
        pairs = zip(self.seconds[library], self.seconds["pyops"], strict=True)
        return median(theirs / ours for theirs, ours in pairs)

    def cells(self) -> list[str]:
        ratios = [f"{self.ratio(peer):.3g}x" if peer in self.seconds else "" for peer in PEERS]
        if self.moved:
            triad = 12 * np.prod(LARGE)
            ratios[-1] = f"{100 * self.ratio('triad') * self.moved / triad:.0f} % of its rate"
        return [
            self.title,
            str(self.threads),
            f"{1e3 * median(self.seconds['pyops']):.3g} ms",
            *ratios,
        ]


def drawn(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).random(shape, np.float32)
    return np.asarray(0.1 + 0.8 * values, np.float32)


def summed_to(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum over the axes along which a shape was broadcast."""
    if axes := tuple(range(array.ndim - len(shape))):
        array = array.sum(axes)
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and array.shape[i] > 1)
    return array.sum(axes, keepdims=True) if axes else array


def in_numpy(a, b, g):
    return summed_to(g * b, a.shape), summed_to(g * a, b.shape)


def in_aidge(aidge, a, b, g):
    """Run the scheduler's backward pass through a graph of one Mul."""
    nodes = [aidge.Producer(aidge.Tensor(x), name) for x, name in ((a, "a"), (b, "b"))]
    product, graph = aidge.Mul("product"), aidge.GraphView()
    for place, node in enumerate(nodes):
        node.add_child(product, 0, place)
        graph.add(node)
    graph.add(product)
    graph.set_backend("cpu")
    graph.set_datatype(aidge.dtype.float32)
    graph.forward_dims()
    scheduler = aidge.SequentialScheduler(graph)
    scheduler.forward()
    product.get_operator().get_output(0).grad.copy_from(aidge.Tensor(g))
    return scheduler.backward


def against_triad(libraries: dict[str, Any], threads: int) -> Iterator[Line]:
    a, g, out = drawn(LARGE), drawn(LARGE, 1), np.empty(LARGE, np.float32)
    shapes = {"same": LARGE, "row": (1, LARGE[1]), "column": (LARGE[0], 1), "scalar": (1, 1)}
    for name, shape in shapes.items():
        b = drawn(shape, 2)
        given = np.empty_like(a), np.empty_like(b)
        calls = {
            "pyops": partial(pyops.multiply.backward, a, b, g, out=given),
            "triad": partial(pyops.add, a, g, out=out),
        }
        if aidge := libraries.get("aidge"):
            calls["Aidge"] = in_aidge(aidge, a, b, g)
        moved = 3 * a.nbytes + 2 * b.nbytes
        yield Line(f"multiply backward, {LARGE} by {name}, given arrays", threads, calls, moved)


def of_pairs(libraries: dict[str, Any], threads: int) -> Iterator[Line]:
    for shapes in PAIRS:
        a, b = (drawn(shape, seed) for seed, shape in enumerate(shapes))
        g = drawn(np.broadcast_shapes(*shapes), 2)
        title = " by ".join(map(str, shapes))
        forward = {"pyops": partial(pyops.multiply, a, b), "NumPy": partial(np.multiply, a, b)}
        backward = {
            "pyops": partial(pyops.multiply.backward, a, b, g),
            "NumPy": partial(in_numpy, a, b, g),
        }
        if torch := libraries.get("torch"):
            x, y, z = (torch.from_numpy(array) for array in (a, b, g))
            forward["torch"] = partial(torch.mul, x, y)
            leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
            backward["torch"] = partial(
                torch.autograd.grad, leaves[0] * leaves[1], leaves, z, retain_graph=True
            )
        yield Line(f"multiply, {title}", threads, forward)
        yield Line(f"multiply backward, {title}", threads, backward)


def of_functions(libraries: dict[str, Any], threads: int) -> Iterator[Line]:
    for function in PUBLIC:
        inputs = [drawn((1000, 1000), seed) for seed in range(function.arity)]
        if not function.positive:  # torch's elu computes nothing where all arguments are positive
            inputs = [2 * x - 1 for x in inputs]
        calls = {"pyops": partial(getattr(pyops, function.name), *inputs)}
        if hasattr(np, function.name):
            calls["NumPy"] = partial(getattr(np, function.name), *inputs)
        if torch := libraries.get("torch"):
            name = TORCH_NAMES.get(function.name, function.name)
            theirs = getattr(torch, name, None) or getattr(torch.nn.functional, name)
            calls["torch"] = partial(theirs, *map(torch.from_numpy, inputs))
        yield Line(f"{function.name}, (1000, 1000)", threads, calls)


def of_reductions(libraries: dict[str, Any], threads: int) -> Iterator[Line]:
    for shape in REDUCED:
        x = drawn(shape)
        for axis in (*range(x.ndim), None)[-3:]:
            for name in "sum", "max":
                calls = {
                    "pyops": partial(getattr(pyops, name), x, axis=axis),
                    "NumPy": partial(getattr(np, name), x, axis=axis),
                }
                if torch := libraries.get("torch"):
                    theirs = {"sum": torch.sum, "max": torch.amax}[name]
                    axes = tuple(range(x.ndim)) if axis is None else axis
                    calls["torch"] = partial(theirs, torch.from_numpy(x), dim=axes)
                yield Line(f"{name} over {axis}, {shape}", threads, calls)


PARTS = against_triad, of_pairs, of_functions, of_reductions


def peers() -> dict[str, Any]:
    """Return the installed libraries."""
    found = {}
    try:
        import torch

        found["torch"] = torch
    except ModuleNotFoundError:
        pass
    try:
        import aidge_backend_cpu  # noqa: F401
        import aidge_core

        found["aidge"] = aidge_core
    except ModuleNotFoundError:
        pass
    return found


def measure(threads: list[int], rounds: int, match: str = "") -> Iterator[Line]:
    """Measure all lines whose titles match, calling the libraries in turn in random order."""
    libraries = peers()
    cores = os.sched_getaffinity(0)
    for count in threads:
        os.sched_setaffinity(0, sorted(cores)[-count:])
        pyops.set_num_threads(count)
        if "torch" in libraries:
            libraries["torch"].set_num_threads(count)
        for line in (line for part in PARTS for line in part(libraries, count)):
            if re.search(match, line.title):
                timed(line, rounds)
                yield line
    os.sched_setaffinity(0, cores)
    pyops.set_num_threads(None)


def timed(line: Line, rounds: int) -> None:
    """Time the calls; calls longer than LONG, which are not of interest here, run once."""
    once = {name: seconds(call, 1) for name, call in line.calls.items()}
    for name, call in line.calls.items():
        if once[name] < LONG:
            once[name] = seconds(call, 1)  # without the overhead of the first call
    for _ in range(rounds):
        for name in random.sample(list(line.calls), len(line.calls)):
            count = max(1, round(BURST / once[name]))
            taken = seconds(line.calls[name], count) if once[name] < LONG else once[name]
            line.seconds.setdefault(name, []).append(taken)
    line.calls = {}


def seconds(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


HEAD = ["call", "threads", "pyops", *PEERS]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators.elementwise")
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--threads", nargs="+", type=thread_count, default=[1])
    parser.add_argument("--match", default="", help="a regular expression for the titles")
    options = parser.parse_args()
    print("|", " | ".join(HEAD), "|")
    print("|---" * len(HEAD) + "|")
    for line in measure(options.threads, options.rounds, options.match):
        print("|", " | ".join(line.cells()), "|", flush=True)


if __name__ == "__main__":
    main()
