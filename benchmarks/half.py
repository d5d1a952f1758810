"""Operators that read half precision, beside float32, on one thread and on all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

import pyops
from benchmarks.limits import placed
from benchmarks.rows import shortest

SIZES = (100_000, 32, 256), (400_000, 8, 64), (2_000, 16, 64)
"""Nodes, edges into each, columns."""
OPERATORS = {
    "aggregate sum": (pyops.aggregate, {"reduce": "sum"}),
    "aggregate max": (pyops.aggregate, {"reduce": "max"}),
    "gat": (pyops.gat, {"heads": 4}),
}
"""Operator and options, by name."""
HEAD = [
    *("operator", "nodes", "edges", "columns", "phase", "threads"),
    *("float32", "bfloat16", "float16"),
]
PREAMBLE = """\
Time of float32, and as a multiple of it the speed with bfloat16 and float16, from NumPy, with
results in the type of the features, which begin with a cache line. Medians of ratios; calls
alternate."""


@dataclass(frozen=True)
class Line:
    operator: str
    nodes: int
    degree: int
    columns: int
    phase: str
    threads: int
    seconds: float
    ratios: tuple[float, ...]

    def cells(self) -> list[str]:
        edges = f"{self.nodes * self.degree:,}"
        sizes = [f"{self.nodes:,}", edges, str(self.columns)]
        shown = [f"{ratio:.2f}" for ratio in self.ratios]
        time = f"{1e3 * self.seconds:.2f} ms"
        return [self.operator, *sizes, self.phase, str(self.threads), time, *shown]


def types() -> list[type]:
    from ml_dtypes import bfloat16

    return [np.float32, bfloat16, np.float16]


def calls(name: str, graph: pyops.Graph, x: np.ndarray) -> dict[str, Callable[[], object]]:
    """Return a call forward, and one forward and backward."""
    op, options = OPERATORS[name]
    weights = np.random.default_rng(1).standard_normal(2 * x.shape[1], dtype=np.float32)
    inputs = (x, x, weights) if op is pyops.gat else (x,)
    forward = partial(op, graph, *inputs, **options)

    def both() -> None:
        forward()
        op.backward(graph, *inputs, gy=x, **options)

    return {"forward": forward, "and backward": both}


def measure(counts: list[int], rounds: int) -> Iterator[Line]:
    rng = np.random.default_rng(0)
    before = pyops.get_num_threads()
    try:
        for sizes in SIZES:
            nodes, degree, columns = sizes
            src = rng.integers(nodes, size=nodes * degree)
            graph = pyops.Graph(src, np.repeat(np.arange(nodes), degree), nodes, nodes)
            x = rng.standard_normal((nodes, columns), dtype=np.float32)
            repeats = max(1, 2_000_000 // src.size)
            for name in OPERATORS:
                each = [calls(name, graph, placed(x.astype(kind))) for kind in types()]
                for count in counts:
                    pyops.set_num_threads(count)
                    for phase in each[0]:
                        some = [partial(repeated, c[phase], repeats) for c in each]
                        times = [shortest(1, *some) for _ in range(rounds + 1)][1:]
                        ratios = np.median([[t[0] / other for other in t[1:]] for t in times], 0)
                        seconds = float(np.median(times, 0)[0]) / repeats
                        yield Line(name, *sizes, phase, count, seconds, tuple(ratios.tolist()))
    finally:
        pyops.set_num_threads(before)


def repeated(call: Callable[[], object], count: int) -> None:
    for _ in range(count):
        call()
