"""Small matrix products: the micro kernel of pyops against OpenBLAS and libxsmm.

All libraries are loaded into this process and called in turn by the loops in products.c, on one
thread. OpenBLAS selects its kernels when loaded, so a copy is loaded for each kernel set.
"""

import ctypes
import math
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
from tqdm import tqdm

import pyops._kernels
from benchmarks import machine
from benchmarks.limits import KINDS, Limits, compiled, placed
from benchmarks.row import TOLERANCE, distance

SOURCE = Path(__file__).with_suffix(".c")
LINK_LIBXSMM = ("-Wl,-u,libxsmm_smmdispatch,-u,libxsmm_dmmdispatch", "-lxsmm", "-lxsmmnoblas")
CORES = {"Cooperlake": "avx512_bf16", "SkylakeX": "avx512f", "Zen": "avx2", "Haswell": "avx2"}
TILE, PACKED_TILE = OURS = ("tile", "packing and tile")
DEEP = 256  # terms of a long sum per block
BURST = 1e8  # floating-point operations per timing


@dataclass(frozen=True)
class Product:
    """Product C = A B or, with `add`, C += A B; A is m x k, B is k x n, row-major if `outer`.

    m is a multiple of 16, so that all panels are complete. Sums of more than DEEP terms need `add`.
    """

    use: str
    m: int
    n: int
    k: int
    outer: bool = False
    add: bool = False

    @property
    def operations(self) -> int:
        return 2 * self.m * self.n * self.k


PRODUCTS = (
    Product("weight times Z of 8 rows, F 64", 64, 8, 64 * 65, add=True),
    Product("weight times Z of 32 rows, F 64", 64, 32, 64 * 65, add=True),
    Product("weight times Z of 8 rows, F 16", 16, 8, 16 * 65, add=True),
    Product("Z of a row, 32 entries, F 64", 64, 65, 32, outer=True),
    Product("Z of a row, 32 entries, F 16, H 16", 16, 17, 32, outer=True),
    Product("gradients of 4 rows", 64, 4, 64),
    Product("layer of 64 entries, d 3", 64, 64, 4),
)


@dataclass
class Timing:
    """Timing of one product by one library, with `deep` terms of the sum per block."""

    product: Product
    dtype: str
    name: str
    deep: int
    seconds: list[float] = field(default_factory=list)
    failure: str = ""
    peak: float = 0.0  # rate of one thread, in flop/s

    @property
    def least(self) -> float:
        return min(self.seconds, default=math.inf)

    @property
    def rate(self) -> float:
        return self.product.operations / self.least


class Operands(ctypes.Structure):
    """Argument structure of a product in products.c."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("m", "n", "k", "deep", "ldb")),
        ("transb", ctypes.c_char_p),
        *((name, ctypes.c_long) for name in ("lanes", "bytes")),
        ("add", ctypes.c_int),
        *((x, ctypes.c_void_p) for x in ("a", "b", "b_panels", "one", "beta", "a_panels", "c")),
    )

    def __init__(self, product: Product, dtype: str):
        m, n, k = product.m, product.n, product.k
        transb, ldb = (b"T", n) if product.outer else (b"N", k)
        size = np.dtype(dtype).itemsize
        super().__init__(m, n, k, k, ldb, transb, 64 // size, size, product.add)
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
        self.exact = (a.astype(float) @ b.astype(float)).T
        self.values = {
            "a": a.T,
            "b": b if product.outer else b.T,
            "a_panels": in_panels(a, 64 // size),
            "b_panels": in_panels(b.T, 64 // size),
            "one": np.ones(1, dtype),
            "beta": np.full(1, product.add, dtype),
            "c": np.zeros((n, m), dtype),
        }

    def place(self) -> None:
        """Copy the arrays to new addresses: some are slower than others."""
        self.arrays = {}
        for name, values in self.values.items():
            self.arrays[name] = placed(values, 64 * random.randrange(64))
            setattr(self, name, self.arrays[name].ctypes.data)

    def error(self) -> float:
        """Return the relative error of C."""
        arrays = self.arrays["c"], self.exact
        return distance(*([(values.shape, values)] for values in arrays))


def in_panels(rows: np.ndarray, lanes: int) -> np.ndarray:
    """Pack panels of `lanes` rows, column-major, with zeros below the last row."""
    padded = np.pad(rows, ((0, -len(rows) % lanes), (0, 0)))
    return padded.reshape(-1, lanes, rows.shape[1]).transpose(0, 2, 1)


class Libraries:
    """Libraries that are installed."""

    def __init__(self):
        self.loops = compiled(SOURCE)
        self.pyops = ctypes.CDLL(pyops._kernels.__file__)
        self.openblas = load_openblas()
        self.libxsmm = load_libxsmm()

    def versions(self) -> dict[str, str]:
        found = {"pyops": pyops.__version__, "numpy": np.__version__}
        for library in self.openblas.values():
            library.scipy_openblas_get_config64_.restype = ctypes.c_char_p
            found["OpenBLAS"] = library.scipy_openblas_get_config64_().decode().split()[1]
        if self.libxsmm:
            found["libxsmm"] = machine.output("pkg-config", "--modversion", "libxsmm")
        return found

    def calls(self, product: Product, dtype: str) -> Iterator[tuple[str, int, str, list]]:
        """Yield name, terms per block, loop of products.c, and the procedures that it calls."""
        part, kind = min(DEEP, product.k), KINDS[dtype]
        multiply, outer, pack = (
            self.pyops[f"__pyops_micro_gemm_{kind}_MOD_{name}"]
            for name in ("tile_multiply", "tile_outer", "pack_panels")
        )
        if product.outer:
            yield TILE, product.k, "run_outer", [outer]
        else:
            yield TILE, product.k, "run_tile", [multiply]
            yield PACKED_TILE, product.k, "run_packing", [multiply, pack]
        letter = "s" if dtype == "float32" else "d"
        for deep in sorted({part, product.k}):
            for core, library in self.openblas.items():
                yield f"OpenBLAS {core}", deep, "run_gemm", [library[f"scipy_{letter}gemm_64_"]]
            if self.libxsmm:
                make = self.libxsmm[f"libxsmm_{letter}mmdispatch"]
                depths = (deep, product.k % deep or deep)
                made = [dispatch(make, product, dtype, depth) for depth in depths]
                if all(made):
                    yield "libxsmm", deep, "run_jit", made


def load_openblas() -> dict[str, ctypes.CDLL]:
    """Load NumPy's own copy once per kernel set, by name; first the set that it selects itself."""
    bundled = Path(np.__file__).parents[1].glob("numpy.libs/libscipy_openblas64_*.so")
    flags = machine.field("/proc/cpuinfo", "flags").split()
    found: dict[str, ctypes.CDLL] = {}
    for source in bundled:
        for core in (None, *(core for core, flag in CORES.items() if flag in flags)):
            library = load_copy(source, core)
            library.scipy_openblas_get_corename64_.restype = ctypes.c_char_p
            found.setdefault(library.scipy_openblas_get_corename64_().decode(), library)
    if not found:
        print("OpenBLAS: left out: this NumPy brings none")
    return found


def load_copy(source: Path, core: str | None) -> ctypes.CDLL:
    settings = {"OPENBLAS_NUM_THREADS": "1"} | ({"OPENBLAS_CORETYPE": core} if core else {})
    with patch.dict(os.environ, settings), tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(shutil.copy(source, folder))


def load_libxsmm() -> ctypes.CDLL | None:
    try:
        return compiled(SOURCE, *LINK_LIBXSMM)
    except subprocess.CalledProcessError:
        print("libxsmm: left out: not installed")
        return None


def dispatch(function, product: Product, dtype: str, depth: int) -> int | None:
    """Return the kernel that libxsmm generates for this product, if it can."""
    real = {"float32": ctypes.c_float, "float64": ctypes.c_double}[dtype]
    leads = (product.m, product.n if product.outer else product.k, product.m)
    transposed, no_prefetch = 2 * product.outer, 0
    values = [
        *map(ctypes.c_int, leads),
        *map(real, (1, product.add)),
        *map(ctypes.c_int, (transposed, no_prefetch)),
    ]
    function.restype = ctypes.c_void_p
    return function(product.m, product.n, depth, *map(ctypes.byref, values))


def measure(rounds: int) -> tuple[list[Timing], dict[str, str]]:
    """Measure all products by all libraries, the peak rate at the same time, and the versions."""
    limits, libraries = Limits((1,)), Libraries()
    turns = [(product, dtype) for product in PRODUCTS for dtype in KINDS]
    timings = []
    for product, dtype in tqdm(turns, unit="product", dynamic_ncols=True, disable=None):
        limits.multiply_add(1, dtype)
        timings += measure_product(product, dtype, libraries, rounds)
    for timing in timings:
        timing.peak = limits.rates[1][timing.dtype]
    return timings, libraries.versions()


def measure_product(product, dtype, libraries, rounds) -> list[Timing]:
    operands, repeats = Operands(product, dtype), max(1, round(BURST / product.operations))
    timings, turns = [], []
    for name, deep, loop, procedures in libraries.calls(product, dtype):
        run = runner(operands, deep, libraries.loops[loop], procedures)
        operands.place()
        run(1)
        error = operands.error()
        failure = "" if error <= TOLERANCE[dtype] else f"wrong: {error:.1e}"
        timings.append(Timing(product, dtype, name, deep, failure=failure))
        if not failure:
            turns.append((timings[-1].seconds, run))
    for _ in range(rounds):
        operands.place()
        for seconds, run in random.sample(turns, len(turns)):
            run(1)
            start = time.perf_counter()
            run(repeats)
            seconds.append((time.perf_counter() - start) / repeats)
    return timings


def runner(operands, deep, loop, procedures) -> Callable[[int], None]:
    pointers = [ctypes.cast(procedure, ctypes.c_void_p) for procedure in procedures]
    array = (ctypes.c_void_p * len(pointers))(*pointers)

    def run(repeats):
        operands.deep = deep
        loop(ctypes.byref(operands), array, ctypes.c_long(repeats))

    return run
