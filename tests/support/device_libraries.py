"""Device libraries that were built, and operators that compute by their kernels."""

from __future__ import annotations

import ctypes
import importlib.resources
import os
import re
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

import pyops
from pyops._call.operator import OPERATORS

from .kernels import replaced

if TYPE_CHECKING:
    from collections.abc import Callable

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
    declaration
    for declaration in dict.fromkeys(op.declaration for op in OPERATORS.values())
    if any(hasattr(library, f"pyops_{declaration}_forward_r4") for library in BUILT.values())
]
THREADS = ThreadpoolController()
TYPES = {"int64": ctypes.c_int64, "int32": ctypes.c_int32, "float64": ctypes.c_double}


class Memory(NamedTuple):
    """Memory functions of the device of a library; of the host if its runtime has no device."""

    make: Callable
    free: Callable
    give: Callable
    """Copies bytes from a host address to a device address."""
    take: Callable


def memory(flavour):
    """Return the memory functions of a library, None if it computes on the host."""
    library = BUILT[flavour]
    if flavour == "acc":
        library.acc_malloc.restype = ctypes.c_void_p
        copies = library.acc_memcpy_to_device, library.acc_memcpy_from_device
        return Memory(library.acc_malloc, library.acc_free, *copies)
    if flavour == "target":
        here, there = library.omp_get_initial_device(), library.omp_get_default_device()
        zero = ctypes.c_size_t(0)

        def copy(to, of, size, *devices):
            assert library.omp_target_memcpy(to, of, size, zero, zero, *devices) == 0

        library.omp_target_alloc.restype = ctypes.c_void_p
        return Memory(
            lambda size: library.omp_target_alloc(size, there),
            lambda address: library.omp_target_free(address, there),
            lambda to, of, size: copy(to, of, size, there, here),
            lambda to, of, size: copy(to, of, size, here, there),
        )
    return None


@contextmanager
def there(on, array):
    """Yield the address of an array in device memory, if there is any, and copy it back."""
    here = ctypes.c_void_p(array.ctypes.data)
    if on is None:
        yield here
        return
    size = ctypes.c_size_t(array.nbytes)
    address = ctypes.c_void_p(on.make(ctypes.c_size_t(max(1, array.nbytes))))
    assert address.value, f"no memory for {array.nbytes} bytes"
    try:
        on.give(address, here, size)
        yield address
        if array.flags.writeable:
            on.take(here, address, size)
    finally:
        on.free(address)


class Kernel:
    """Stand-in for an f2py wrapper that runs a device kernel on copies of the arrays."""

    def __init__(self, compiled, function, order, memory):
        self.function, self.order, self.memory = function, order, memory
        self.names = compiled.interface.parameters
        arguments = compiled.interface.arguments
        self.types = {a.name: None if a.is_array else TYPES[a.type] for a in arguments}

    def __call__(self, *values):
        given = dict(zip(self.names, values, strict=True))
        status = ctypes.c_int32(-99)
        arguments = []
        with ExitStack() as held:
            for name in self.order:
                if name == "status":
                    arguments.append(ctypes.byref(status))
                elif self.types[name] is None:
                    arguments.append(held.enter_context(self.address(name, given)))
                else:
                    arguments.append(self.types[name](given[name]))
            self.function(*arguments)
        return status.value

    def address(self, name, given):
        """Return the address of one of the given arguments."""
        assert given[name].flags.f_contiguous
        return there(None if name == "layout" else self.memory, given[name])


@cache
def header():
    """Return pyops.h as installed."""
    return _file("include", "pyops.h").read_text()


@cache
def prototypes():
    """Return the argument names of each kernel in order, from the C header."""
    found = re.findall(r"^void (pyops_\w+_r[48])\((.*?)\);", header(), re.DOTALL | re.MULTILINE)
    return {name: re.findall(r"(\w+)(?:\[[^,]*)?(?:,|$)", arguments) for name, arguments in found}


@contextmanager
def through(flavour, op):
    """Run the operator with the kernels of a library."""
    on = memory(flavour)

    def stand_in(compiled):
        name = compiled.symbol
        return Kernel(compiled, getattr(BUILT[flavour], name, None), prototypes()[name], on)

    unread, op.signature.unread = op.signature.unread, {}  # device kernels read every input
    threads = 4 if flavour == "threads" else 1
    try:
        with replaced(op, stand_in), THREADS.limit(limits=threads, user_api="openmp"):
            yield
    finally:
        op.signature.unread = unread


def run_both(flavour, op, run):
    """Return what `run` returns with the CPU kernels, and with those of the library."""
    expected = run()
    with through(flavour, op):
        return run(), expected


def assert_agree(got, expected, dtype):
    """Assert equality to rounding, relative to the largest of all results."""
    tolerance = 2e-4 if dtype == np.float32 else 1e-11
    largest = max((np.abs(b).max(initial=0) for b in expected if b is not None), default=0)
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert (a is None) == (b is None), f"result {number}"
        if a is not None:
            assert a.shape == b.shape, f"result {number}"
            size = max(np.abs(b).max(initial=0), 0.1 * largest)
            error = np.abs(a - b).max(initial=0)
            assert error <= tolerance * size, f"result {number}: {error:.2e} of {size:.2e}"
