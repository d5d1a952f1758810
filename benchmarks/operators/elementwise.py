"""Elementwise operators beside NumPy, torch and Aidge, in one process, with fresh outputs.

`python -m benchmarks.operators.elementwise` prints the tables; `./run bench` has them too.
"""

import argparse
import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import numpy as np

import pyops

M = 10**6
BURST = 0.02
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
SHAPES = ((1000, 1000), (30 * M,), (M, 3), (3, M), (100, 100, 100))
AXES = (0, 1, -1, None)


@dataclass
class Line:
    """One call by each library."""

    title: str
    threads: int
    calls: dict[str, Callable[[], object]]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    bytes: int = 0

    def ratio(self, library: str) -> float:
        pairs = zip(self.seconds[library], self.seconds["pyops"], strict=True)
        return median(theirs / ours for theirs, ours in pairs)


def drawn(shape, seed=0):
    values = np.random.default_rng(seed).random(shape, np.float32)
    return np.asarray(0.1 + 0.8 * values, np.float32)


def summed_to(array, shape):
    axes = tuple(range(array.ndim - len(shape)))
    array = array.sum(axes) if axes else array
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and array.shape[i] > 1)
    return array.sum(axes, keepdims=True) if axes else array


def binary_lines(torch, threads):
    """multiply, forward and backward, for all pairs of shapes."""
    for shapes in PAIRS:
        a, b = (drawn(shape, seed) for seed, shape in enumerate(shapes))
        g = drawn(np.broadcast_shapes(*shapes), 2)
        title = " and ".join(str(shape) for shape in shapes)
        forward = {"pyops": lambda a=a, b=b: pyops.multiply(a, b)}
        forward["NumPy"] = lambda a=a, b=b: np.multiply(a, b)
        backward = {"pyops": lambda a=a, b=b, g=g: pyops.multiply.backward(a, b, g)}
        backward["NumPy"] = lambda a=a, b=b, g=g: (
            summed_to(g * b, a.shape),
            summed_to(g * a, b.shape),
        )
        if torch:
            x, y, z = (torch.from_numpy(array) for array in (a, b, g))
            forward["torch"] = lambda x=x, y=y: x * y
            leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
            product = leaves[0] * leaves[1]
            backward["torch"] = lambda p=product, leaves=leaves, z=z: torch.autograd.grad(
                p, leaves, z, retain_graph=True
            )
        yield Line(f"multiply, {title}", threads, forward)
        yield Line(f"multiply backward, {title}", threads, backward)


NOT_IN_NUMPY = "relu", "leaky_relu", "sigmoid", "softplus", "erf"
TORCH_NAMES = {
    "maximum": "maximum",
    "power": "pow",
    "leaky_relu": "nn.functional.leaky_relu",
    "softplus": "nn.functional.softplus",
}


def function_lines(torch, threads):
    """Every function at one size, and the derivative of the unary ones."""
    from pyops._functions import PUBLIC

    for function in PUBLIC:
        inputs = [drawn((1000, 1000), seed) for seed in range(function.arity)]
        op = getattr(pyops, function.name)
        calls = {"pyops": lambda op=op, inputs=inputs: op(*inputs)}
        if hasattr(np, function.name):
            theirs = getattr(np, function.name)
            calls["NumPy"] = lambda theirs=theirs, inputs=inputs: theirs(*inputs)
        if torch:
            theirs = torch
            for part in TORCH_NAMES.get(function.name, function.name).split("."):
                theirs = getattr(theirs, part)
            tensors = [torch.from_numpy(x) for x in inputs]
            calls["torch"] = lambda theirs=theirs, tensors=tensors: theirs(*tensors)
        yield Line(f"{function.name}, (1000, 1000)", threads, calls)


def reduction_lines(torch, threads):
    for shape in SHAPES:
        x = drawn(shape)
        tensor = torch.from_numpy(x) if torch else None
        for axis in AXES[: len(shape)] if len(shape) < 3 else AXES:
            for name in "sum", "max":
                calls = {
                    "pyops": lambda x=x, axis=axis, op=getattr(pyops, name): op(x, axis=axis),
                    "NumPy": lambda x=x, axis=axis, op=getattr(np, name): op(x, axis=axis),
                }
                if torch:
                    op = torch.sum if name == "sum" else torch.amax
                    dim = range(x.ndim) if axis is None else axis
                    dim = tuple(dim) if axis is None else dim
                    calls["torch"] = lambda t=tensor, dim=dim, op=op: op(t, dim=dim)
                yield Line(f"{name} over {axis}, {shape}", threads, calls)


def bandwidth_lines(threads):
    """multiply backward into given arrays, beside a triad of the same size."""
    a, g, out = drawn(LARGE), drawn(LARGE, 1), np.empty(LARGE, np.float32)
    triad = lambda: pyops.add(a, g, out=out)  # noqa: E731
    for title, shape in {
        "same": LARGE,
        "row": LARGE[1:],
        "column": (LARGE[0], 1),
        "scalar": (),
    }.items():
        b = drawn(shape, 2)
        outs = np.empty_like(a), np.empty_like(b)
        line = Line(f"multiply backward {LARGE}, {title}", threads, {})
        line.calls = {
            "pyops": lambda b=b, outs=outs: pyops.multiply.backward(a, b, g, out=outs),
            "triad": triad,
        }
        line.bytes = 3 * a.nbytes + 2 * b.nbytes
        yield line


def measure(lines, rounds, match=""):
    """Time all libraries of each line in turn."""
    for line in lines:
        if not re.search(match, line.title):
            continue
        counts = {}
        for name, call in line.calls.items():
            call()
            counts[name] = max(1, round(BURST / max(timed(call, 1), 1e-9)))
            line.seconds[name] = []
        for _ in range(rounds):
            for name in random.sample(list(line.calls), len(line.calls)):
                line.seconds[name].append(timed(line.calls[name], counts[name]))
        line.calls = {}
        yield line


def timed(call, count):
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


PEERS = "NumPy", "torch", "Aidge", "triad"


def cells(line):
    row = [line.title, str(line.threads), f"{1e3 * median(line.seconds['pyops']):.3g} ms"]
    return row + [f"{line.ratio(p):.3g}x" if p in line.seconds else "" for p in PEERS]


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators.elementwise")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--only", nargs="+", default=["bandwidth", "binary", "functions", "reductions"]
    )
    parser.add_argument("--match", default="", help="a regular expression for the titles")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.threads :])
    try:
        import torch

        torch.set_num_threads(options.threads)
    except ModuleNotFoundError:
        torch = None
    pyops.set_num_threads(options.threads)
    groups = {
        "bandwidth": lambda: bandwidth_lines(options.threads),
        "binary": lambda: binary_lines(torch, options.threads),
        "functions": lambda: function_lines(torch, options.threads),
        "reductions": lambda: reduction_lines(torch, options.threads),
    }
    for name in options.only:
        print("| call | threads | pyops | " + " | ".join(PEERS) + " |")
        for line in measure(groups[name](), options.rounds, options.match):
            print("| " + " | ".join(cells(line)) + " |", flush=True)
            if line.bytes:
                share = 2 / 2 * line.bytes / (3 * 4 * np.prod(LARGE)) / (1 / line.ratio("triad"))
                print(f"{line.title}: {100 * share:.0f} % of the triad's bandwidth")


if __name__ == "__main__":
    main()
