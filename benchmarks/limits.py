"""Limits of the machine: multiply-adds, copies and row gathers. The loops are in limits.c."""

import ctypes
import os
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
ROW = 1024
DEGREE = 32
KINDS = {"float32": "r4", "float64": "r8"}
COPIES = {"copy, 128 KB": 128 << 10, "copy, 64 MB": 64 << 20}
GATHERS = {"gather, 2 MB": 2_000_000, "gather, 20 MB": 20_000_000, "gather, 200 MB": 200_000_000}


class Limits:
    """Best rates so far: multiply-adds in flop/s; gathers, and copies both ways, in byte/s."""

    def __init__(self, threads: tuple[int, ...]):
        self.rates: dict[int, dict[str, float]] = {count: {} for count in threads}
        self.library = compiled(SOURCE)
        for lanes in (self.library.lanes_r4, self.library.lanes_r8):
            lanes.restype = ctypes.c_long

    def measure(self) -> None:
        """Measure all again and keep the best: a limit is the rate of the undisturbed machine."""
        for threads in self.rates:
            for dtype in KINDS:
                self.multiply_add(threads, dtype)
            for name, size in COPIES.items():
                self._copy(threads, name, size)
            for name, size in GATHERS.items():
                self._gather(threads, name, size)

    def multiply_add(self, threads: int, dtype: str) -> None:
        """Measure in bursts that fit between two interruptions on a busy machine."""
        rounds = 500_000
        amount = 2.0 * rounds * threads * getattr(self.library, f"lanes_{KINDS[dtype]}")()
        call = getattr(self.library, f"multiply_add_{KINDS[dtype]}")
        self._best(threads, dtype, amount, call, ctypes.c_long(rounds), repeats=20)

    def _best(self, threads, name, amount, call, *arguments, repeats=2):
        for _ in range(repeats):
            start = time.perf_counter()
            call(threads, *arguments)
            rate = amount / (time.perf_counter() - start)
            self.rates[threads][name] = max(rate, self.rates[threads].get(name, 0.0))

    def _copy(self, threads, name, size):
        target, source = aligned(threads * size), aligned(threads * size)
        repeats = max(1, (256 << 20) // size)
        sizes = ctypes.c_long(repeats), ctypes.c_long(size)
        for call in (self.library.copy_cached, self.library.copy_streaming):
            amount = 2.0 * threads * size * repeats
            self._best(threads, name, amount, call, *sizes, pointer(target), pointer(source))

    def _gather(self, threads, name, size):
        rows, count = size // ROW, 2000 * threads
        table, sums = aligned(rows * ROW), aligned(count * ROW)
        index = np.random.default_rng(0).integers(rows, size=(count + 1) * DEGREE).astype("int32")
        arrays = pointer(index), pointer(table), pointer(sums)
        library = self.library
        for call in (library.gather_cached, library.gather_half_rows, library.gather_rows):
            amount = count * DEGREE * ROW
            self._best(threads, name, amount, call, ctypes.c_long(count), DEGREE, *arrays)


@cache
def compiled(source: Path, *libraries: str) -> ctypes.CDLL:
    """Compile a C file, linked to these libraries, and load it."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, source.with_suffix(".so").name)
        command = [os.environ.get("CC", "cc"), *FLAGS, source, "-o", target, *libraries]
        subprocess.run(command, check=True, capture_output=True)
        return ctypes.CDLL(str(target))


def aligned(size: int) -> np.ndarray:
    """Return `size` zeroed bytes, page-aligned, with every page touched."""
    memory = np.zeros(size + 4096, np.uint8)
    memory.fill(0)
    return memory[-memory.ctypes.data % 4096 :][:size]


def placed(array: np.ndarray, offset: int = 0) -> np.ndarray:
    """Return a copy that starts the given number of bytes after the start of a page."""
    copy = aligned(offset + array.nbytes)[offset:].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
