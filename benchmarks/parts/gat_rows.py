"""Graph attention with rows of any width, on one thread, against a gather of equally many rows."""

import ctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

import pyops
from benchmarks.limits import SOURCE, aligned, compiled, placed, pointer

NODES, DEGREE = 20_000, 25
HEADS, WIDTHS = (1, 3, 8), (7, 8, 16, 33, 64, 256)
HEAD = ["heads", "width", "table", "forward", "gather", "forward of the gather"]
PREAMBLE = f"""\
`gat` forward, float32, {NODES:,} nodes with {DEGREE} edges each, one thread; beside it the sum of
as many rows of that size, without weights, at the same places. Shortest times."""


@dataclass(frozen=True)
class Line:
    heads: int
    width: int
    seconds: float
    limit: float

    def cells(self) -> list[str]:
        return [
            str(self.heads),
            str(self.width),
            f"{4e-6 * NODES * self.heads * self.width:.1f} MB",
            f"{1e3 * self.seconds:.1f} ms",
            f"{1e3 * self.limit:.1f} ms",
            f"{self.seconds / self.limit:.1f}x",
        ]


def shortest(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Return the shortest time of each call; calls alternate, as the machine's speed varies."""
    found = [float("inf")] * len(calls)
    for _ in range(rounds):
        for k, call in enumerate(calls):
            start = time.perf_counter()
            call()
            found[k] = min(found[k], time.perf_counter() - start)
    return found


def gather(library: ctypes.CDLL, x: np.ndarray, index: np.ndarray) -> list[Callable[[], None]]:
    """Return ways to sum the rows of x that each node gathers."""
    nodes, degree, width = len(x), index.size // len(x), x[0].size
    spare = 64  # floats past the last row
    table = aligned(x.nbytes + 4 * spare)
    table[: x.nbytes] = x.reshape(-1).view(np.uint8)
    sums = aligned(x.nbytes + 4 * spare)
    ahead = np.concatenate([index, index[:64]]).astype("int32")
    sizes = 1, ctypes.c_long(nodes), degree, ctypes.c_long(width)
    arrays = pointer(ahead), pointer(table), pointer(sums)

    def call(function, _=(ahead, table, sums)):  # keeps the arrays behind the pointers alive
        function(*sizes, *arrays)

    return [partial(call, library.gather_any), partial(call, library.gather_any_cached)]


def measure(_, rounds: int) -> Iterator[Line]:
    rng = np.random.default_rng(0)
    library = compiled(SOURCE)
    src = rng.integers(NODES, size=NODES * DEGREE)
    graph = pyops.Graph(src, np.repeat(np.arange(NODES), DEGREE), num_src=NODES, num_dst=NODES)
    threads = pyops.get_num_threads()
    pyops.set_num_threads(1)
    try:
        for heads in HEADS:
            for width in WIDTHS:
                x = placed(rng.standard_normal((NODES, heads, width), dtype=np.float32))
                a = pyops.blocks.pack_gat(x[0], x[1])
                call = partial(pyops.gat, graph, x, x, a, heads=heads)
                seconds, *limits = shortest(rounds, call, *gather(library, x, src))
                yield Line(heads, width, seconds, min(limits))
    finally:
        pyops.set_num_threads(threads)
