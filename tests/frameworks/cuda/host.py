"""Emulated device: NumPy, and the CUDA sources compiled by the host's C++ compiler."""

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from pyops.cuda._runtime import Runtime
from pyops.cuda._source import compose, kernels

HEADER = Path(__file__).with_name("emulation.h")
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
FLAGS = (
    "-std=c++17",
    "-O1",
    "-g",
    "-fPIC",
    "-shared",
    "-Wno-unknown-pragmas",
    "-fno-gnu-unique",
    "-U_FORTIFY_SOURCE",
)
KINDS = {"f": ctypes.c_float, "d": ctypes.c_double, "q": ctypes.c_int64}
MOST = {"threads": 1024, "rows": 65535, "columns": 2**31 - 1, "bytes": 99 << 10}


@functools.cache
def folder():
    """Return the folder of compiled sources, kept until the tests end."""
    path = tempfile.mkdtemp(prefix="pyops-emulation-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def build(text, names, name):
    """Build a library of the kernels of a composed source."""
    code = "\n".join([f'#include "{HEADER}"', text, *(f"EMULATE({kernel})" for kernel in names)])
    path = folder() / name
    done = subprocess.run(
        [COMPILER, *FLAGS, "-x", "c++", "-o", path, "-"],
        input=code,
        text=True,
        capture_output=True,
    )
    if done.returncode:
        raise RuntimeError(f"{name}:\n{done.stderr}")
    return ctypes.CDLL(path)


@functools.cache
def library(source, kind, constants):
    name = "-".join([source, kind, *(f"{key}{value}" for key, value in constants)])
    return build(compose(source, kind, dict(constants)), kernels(source), f"{name}.so")


def argument(value, code, where):
    """Convert a value to a kernel argument; refuse one of another type."""
    if code.startswith("*"):
        if value is None:
            return ctypes.c_void_p(0)
        assert isinstance(value, np.ndarray), f"{where}: expected an array, got {type(value)}"
        assert value.dtype == np.dtype(code[1]), f"{where}: expected {code}, got {value.dtype}"
        assert value.flags.c_contiguous, f"{where}: expected contiguous memory"
        return ctypes.c_void_p(value.ctypes.data if value.size else 0)  # like CuPy's empty arrays
    whole = isinstance(value, (bool, int, np.integer))
    assert whole == (code == "q"), f"{where}: expected {code}, got {value!r}"
    return KINDS[code](value)


def start(made, kernel, where, grid, block, args, shared=0, order=0):
    """Run a kernel of a library."""
    asked = getattr(made, f"{kernel}_arguments")
    asked.restype = ctypes.c_char_p
    codes = asked().decode().split(",")[:-1]
    assert len(codes) == len(args), f"{where}: expected {len(codes)} arguments, got {len(args)}"
    held = [
        argument(a, code, f"{where}: argument {number}")
        for number, (a, code) in enumerate(zip(args, codes, strict=True), 1)
    ]
    pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(a) for a in held))
    dims = (ctypes.c_uint * 4)(*grid, *block)
    if getattr(made, f"{kernel}_run")(pointers, dims, shared, order):
        said = getattr(made, f"{kernel}_message")
        said.restype = ctypes.c_char_p
        raise RuntimeError(f"{where}: {said().decode()}")


class Host(Runtime):
    """Runs the kernels in a given order of blocks, warps and lanes."""

    xp = np

    def __init__(self, order=0):
        self.order = order
        self.launched = []

    def empty(self, shape, dtype):
        """Return an array with contents that reveal reads before writes."""
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8).fill(0xFF)
        return array

    def _product(self, a, b, out, rounded):
        if rounded and a.dtype.char == "f":
            a, b = (self._split(x)[0] for x in (a, b))
        return np.matmul(a, b, out=out)

    def _run(self, source, kernel, dtype, grid, block, args, shared, constants):
        where = f"{source}.cu: {kernel}"
        made = library(source, dtype.char, tuple(constants.items()))
        assert block[0] * block[1] <= MOST["threads"], where
        assert grid[0] <= MOST["columns"], where
        assert grid[1] <= MOST["rows"], where
        assert shared <= MOST["bytes"], where
        self.launched.append((source, kernel, grid, block))
        start(made, kernel, where, grid, block, args, shared, self.order)
