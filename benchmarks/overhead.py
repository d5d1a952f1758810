"""Overhead of a call: an aggregation of four nodes through every front end.

Lists the time and the Python functions entered by a call like an earlier one. The minimal overhead
is listed too: functions of torch and jax that only return an array.

    python -m benchmarks.overhead
"""

import argparse
import sys
import timeit
from collections.abc import Callable, Iterator

import numpy as np

import pyops
from benchmarks.machine import describe

SRC, DST = [0, 1, 2, 3], [1, 2, 3, 0]
SHAPE = 4, 8
ROUNDS, SECONDS = 7, 0.1


def in_numpy() -> Iterator[tuple[str, Callable[[], object]]]:
    graph, x = pyops.Graph(SRC, DST), np.ones(SHAPE)
    yield "pyops", lambda: pyops.aggregate(graph, x)
    yield "pyops, backward", lambda: pyops.aggregate.backward(graph, x, None, None, None, x)
    attention = np.ones(2 * SHAPE[1])
    yield "pyops.gat", lambda: pyops.gat(graph, x, x, attention, heads=2)


def in_torch() -> Iterator[tuple[str, Callable[[], object]]]:
    import torch

    import pyops.torch as pt

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, gy):
            return gy.clone()

    @torch.library.custom_op("overhead::nothing", mutates_args=())
    def nothing(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    nothing.register_fake(torch.empty_like)
    nothing.register_autograd(
        lambda ctx, gy: nothing(gy), setup_context=lambda ctx, inputs, output: None
    )
    graph, x = pt.Graph(SRC, DST), torch.ones(SHAPE)
    leaf = x.clone().requires_grad_()

    def both(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(leaf), leaf, x)

    calls = {
        "torch.autograd.Function": Nothing.apply,
        "torch.library": nothing,
        "pyops.torch": lambda x: pt.aggregate(graph, x),
    }
    for name, function in calls.items():
        yield name, lambda function=function: function(x)
        yield f"{name}, recorded", lambda function=function: function(leaf)
        yield f"{name}, and backward", both(function)
    for name in ("torch.library", "pyops.torch"):
        function = torch.compile(calls[name], fullgraph=True)
        yield f"{name}, compiled", lambda function=function: function(x)
        yield f"{name}, compiled, and backward", both(function)


def in_jax() -> Iterator[tuple[str, Callable[[], object]]]:
    import jax
    import jax.numpy as jnp

    import pyops.jax as pj

    plain, graph, x = pyops.Graph(SRC, DST), pj.Graph(SRC, DST), jnp.ones(SHAPE)

    def own(x, graph=graph):
        return pj.aggregate(graph, x)

    def slope(function):
        return jax.jit(jax.grad(lambda x: function(x).sum()))

    trivial = jax.jit(lambda x: x + 1)
    jitted, steep, trivial_steep = jax.jit(own), slope(own), slope(lambda x: x * x)
    yield "jax", lambda: (x + 1).block_until_ready()
    yield "jax.jit", lambda: trivial(x).block_until_ready()
    yield "jax.jit of jax.grad", lambda: trivial_steep(x).block_until_ready()
    yield "pyops.jax", lambda: own(x).block_until_ready()
    yield "pyops.jax, pyops.Graph", lambda: pj.aggregate(plain, x).block_until_ready()
    yield "pyops.jax, jax.jit", lambda: jitted(x).block_until_ready()
    yield "pyops.jax, jax.jit, graph as an argument", lambda: jitted(x, graph).block_until_ready()
    yield "pyops.jax, jax.jit of jax.grad", lambda: steep(x).block_until_ready()


FRONT_ENDS = {"numpy": in_numpy, "torch": in_torch, "jax": in_jax}


def microseconds(call: Callable[[], object]) -> float:
    """Return the least mean of several rounds."""
    call()
    once = min(timeit.repeat(call, number=3, repeat=3)) / 3
    count = max(1, int(SECONDS / once))
    return 1e6 * min(timeit.repeat(call, number=count, repeat=ROUNDS)) / count


def python_calls(call: Callable[[], object]) -> int:
    """Return the number of Python functions that a call enters on this thread."""
    entered = []

    def note(frame: object, event: str, argument: object) -> None:
        if event == "call":
            entered.append(frame)

    call()
    sys.setprofile(note)
    call()
    sys.setprofile(None)
    return len(entered) - 1  # but for the lambda


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=FRONT_ENDS, default=[*FRONT_ENDS], help="default: all"
    )
    chosen = parser.parse_args().only
    facts = describe()
    print(f"{facts['processor']}, {facts['cores']} cores, load {facts['load']:.1f}\n")
    print("| call | µs | Python calls |\n|---|---:|---:|")
    for name in chosen:
        for label, call in FRONT_ENDS[name]():
            time, calls = microseconds(call), python_calls(call)
            print(f"| {label} | {time:.1f} | {calls} |", flush=True)


if __name__ == "__main__":
    main()
