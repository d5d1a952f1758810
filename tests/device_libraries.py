"""The device libraries that were built, and operators that compute through their kernels."""

from __future__ import annotations

import ctypes
import importlib.resources
import os
import re
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from threadpoolctl import ThreadpoolController

import pyops
from pyops._operator import OPERATORS
from pyops._plan import arguments_of

os.environ.setdefault("ACC_DEVICE_TYPE", "host")
os.environ.setdefault("OMP_TARGET_OFFLOAD", "DISABLED")


def _file(*words):
    return Path(str(importlib.resources.files(pyops).joinpath(*words)))


FLAVOURS = {"acc": "-Dopenacc=enabled"}
FLAVOURS |= dict.fromkeys(("target", "threads"), "-Dopenmp_target=enabled")
PATHS = {
    name: Path(os.environ.get(f"PYOPS_{name.upper()}") or _file("lib", f"libpyops_{name}.so"))
    for name in FLAVOURS
}
BUILT = {name: ctypes.CDLL(str(path)) for name, path in PATHS.items() if path.exists()}
COVERED = [
    room
    for room in dict.fromkeys(op.room for op in OPERATORS.values())
    if any(hasattr(library, f"pyops_{room}_forward_r4") for library in BUILT.values())
]
THREADS = ThreadpoolController()
TYPES = {"long": ctypes.c_int64, "int": ctypes.c_int32, "float": ctypes.c_double}


class Kernel:
    """Called like the wrapper of f2py that it stands for, with host arrays as device addresses."""

    def __init__(self, wrapper, function, order):
        self.__doc__ = wrapper.__doc__
        self.function, self.order = function, order
        self.names = arguments_of(wrapper)
        lines = re.findall(r"^(\w+) : (?:input|in/output) (\w+)", wrapper.__doc__, re.MULTILINE)
        self.types = {name: TYPES.get(kind) for name, kind in lines}

    def __call__(self, *values):
        given = dict(zip(self.names, values, strict=True))
        status = ctypes.c_int32(-99)
        arguments = []
        for name in self.order:
            if name == "status":
                arguments.append(ctypes.byref(status))
            elif self.types[name] is None:
                assert given[name].flags.f_contiguous
                arguments.append(ctypes.c_void_p(given[name].ctypes.data))
            else:
                arguments.append(self.types[name](given[name]))
        self.function(*arguments)
        return status.value


@cache
def prototypes():
    """The arguments of the kernels in their order, as the header for C has them."""
    header = _file("include", "pyops.h").read_text()
    found = re.findall(r"^void (pyops_\w+_r[48])\((.*?)\);", header, re.DOTALL | re.MULTILINE)
    return {name: re.findall(r"(\w+)(?:\[[^,]*)?(?:,|$)", arguments) for name, arguments in found}


@contextmanager
def through(flavour, op):
    """The operator computes with the kernels of a library."""
    phases = filter(None, [*op._phases.values(), op._by_sample, op._attention])
    before = [(phase, phase._variants, phase._plans) for phase in phases]
    unread, op.signature.unread = op.signature.unread, {}  # these kernels read all
    for phase, wrappers, _ in before:
        phase._plans, phase._variants = {}, {}
        for v, wrapper in wrappers.items():
            name = "pyops_" + wrapper.__doc__.partition("(")[0].split()[-1]
            function = getattr(BUILT[flavour], name)
            phase._variants[v] = Kernel(wrapper, function, prototypes()[name])
    try:
        with THREADS.limit(limits=4 if flavour == "threads" else 1, user_api="openmp"):
            yield
    finally:
        op.signature.unread = unread
        for phase, wrappers, plans in before:
            phase._variants, phase._plans = wrappers, plans


def run_both(flavour, op, run):
    """What `run` returns with the kernels of the CPU, and with those of the library."""
    expected = run()
    with through(flavour, op):
        return run(), expected


def assert_agree(got, expected, dtype):
    """Equal to rounding, beside the largest of all results."""
    tolerance = 2e-4 if dtype == np.float32 else 1e-11
    largest = max((np.abs(b).max(initial=0) for b in expected if b is not None), default=0)
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert (a is None) == (b is None), f"result {number}"
        if a is not None:
            assert a.shape == b.shape, f"result {number}"
            size = max(np.abs(b).max(initial=0), 0.1 * largest)
            error = np.abs(a - b).max(initial=0)
            assert error <= tolerance * size, f"result {number}: {error:.2e} of {size:.2e}"
