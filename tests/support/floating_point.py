"""Floating-point exceptions of kernels: `python -m tests.support.floating_point` lists them.

Flags are per thread, so kernels run on the calling one, and each call is checked separately. If
scratch.c is preloaded, memory and stack are filled with signalling NaN before each call. The stack
is placed so that its own addresses, which kernels leave there, are signalling NaN of float32, too.
"""

import ctypes
import itertools
import mmap
import platform
import sys
from dataclasses import replace

import numpy as np

import pyops

from . import broadcasts
from .cases import CASES, EVERY_VARIANT, PHASES
from .kernels import replaced

FLAGS = {
    "x86_64": {1: "invalid", 4: "divide by zero", 8: "overflow"},
    "aarch64": {1: "invalid", 2: "divide by zero", 4: "overflow"},
}.get(platform.machine(), {})
"""Bits of <fenv.h>; empty if unknown."""
LIBM = ctypes.CDLL("libm.so.6") if FLAGS else None
LIBC = ctypes.CDLL(None)
FILL_STACK = getattr(LIBC, "fill_stack", lambda: None)
STACK = 0x20_7F80_0000, 1 << 22
"""Address and bytes of the stack: the lower halves of its addresses are signalling NaN."""


class Kernel:
    """Wrapper of a compiled procedure that records the exceptions of its calls."""

    def __init__(self, kernel, raised):
        self.kernel, self.raised = kernel, raised

    def __call__(self, *values):
        FILL_STACK()
        LIBM.feclearexcept(sum(FLAGS))
        status = self.kernel(*values)
        flags = LIBM.fetestexcept(sum(FLAGS))
        self.raised.update(word for bit, word in FLAGS.items() if flags & bit)
        return status


def problems():
    """Yield every case, variant and function, also with zeros and with large values, by name."""
    hard = {"zeros": np.zeros_like}
    for name, factor in {"large": 100, "huge": 1e8, "tiny": 1e-25}.items():
        hard[name] = lambda a, factor=factor: np.asarray(factor * a)
    for case in CASES:
        yield str(case), case.problem()
    for case, (name, make) in itertools.product(EVERY_VARIANT, hard.items()):
        yield f"{case}, {name}", replace(case, graph="isolated nodes").problem().map(make)
    for function, pair in itertools.product(broadcasts.FUNCTIONS, ("same", "bias")):
        problem = broadcasts.problem(function, pair)
        yield f"{function}-{pair}", problem
        scaled = hard | {"vast": lambda a: np.asarray(1e10 * a)}
        zero_first = problem.map(np.copy)
        zero_first.inputs[0][...] = 0
        yield f"{function}-{pair}, first of zeros", zero_first
        yield from ((f"{function}-{pair}, {name}", problem.map(m)) for name, m in scaled.items())


def calls(problem):
    """Yield the calls of a problem, by name."""
    signature = problem.op.signature
    runs = {phase: (phase, {}) for phase in PHASES}
    if signature.attention:
        runs["attention"] = "forward", {"return_attention": True}
    if signature.by_sample:
        runs["by sample"] = "backward", {"per_sample": True}
    if signature.keeps:
        graph = [] if problem.graph is None else [problem.graph]
        _, saved = problem.op.forward(*graph, *problem.inputs, **problem.options)
        runs |= {f"{phase} saved": (phase, {"saved": saved}) for phase in PHASES[1:]}
    return runs


def finite(results):
    arrays = [a for r in results for a in (r if isinstance(r, tuple) else (r,)) if a is not None]
    return all(np.isfinite(a).all() for a in arrays)


def main():
    """Print each call with finite results that raises an exception, and the number of calls."""
    pyops.set_num_threads(1)
    count = wrong = 0
    for (name, problem), dtype in itertools.product(problems(), (np.float32, np.float64)):
        typed, raised = problem.map(dtype), set()
        with replaced(typed.op, lambda c, raised=raised: Kernel(c.call, raised)):
            for what, (phase, keywords) in calls(typed).items():
                raised.clear()
                if not finite(typed.run(phase, **keywords)):
                    continue
                count += 1
                if raised:
                    wrong += 1
                    words = ", ".join(sorted(raised))
                    print(f"{name} {what} {np.dtype(dtype)}: {words}", flush=True)
    print(f"floating_point: {count} calls", file=sys.stderr)
    return wrong > 0


def placed(function):
    """Return what a function returns in a thread with a stack at STACK."""
    results = []
    address, size = (ctypes.c_void_p(value) for value in STACK)
    attributes, thread = ctypes.create_string_buffer(128), ctypes.c_void_p()
    start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: results.append(function()))
    LIBC.mmap.restype = ctypes.c_void_p
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = LIBC.mmap(address, size, protection, flags, -1, ctypes.c_long(0))
    assert memory == STACK[0], hex(memory)
    assert LIBC.pthread_attr_init(attributes) == 0
    assert LIBC.pthread_attr_setstack(attributes, address, size) == 0
    assert LIBC.pthread_create(ctypes.byref(thread), attributes, start, None) == 0
    assert LIBC.pthread_join(thread, None) == 0
    return results[0]


if __name__ == "__main__":
    sys.exit(placed(main))
