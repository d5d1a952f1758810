"""Operators that read half precision, beside float32, on one thread and on all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

import pyops
from benchmarks.limits import placed
from benchmarks.parts.gat_rows import shortest

NODES = (100_000, 32, 256), (400_000, 8, 64), (2_000, 16, 64)
EDGES = (100_000, 16, 64), (2_000, 16, 64)
MATRICES = (20_000, 8, 64), (100, 8, 64)
"""Nodes, edges into each, columns: of operators on features of nodes, of edges, and on matrices."""
OPERATORS = {
    "aggregate sum": (pyops.aggregate, {"reduce": "sum"}, "x", NODES),
    "aggregate max": (pyops.aggregate, {"reduce": "max"}, "x", NODES),
    "gat": (pyops.gat, {"heads": 4}, "xxw", NODES),
    "edge_update": (pyops.edge_update, {}, "xxe", EDGES),
    "edge_update sum": (pyops.edge_update, {"mode": "sum"}, "xxe", EDGES),
    "edge_to_edge": (pyops.edge_to_edge, {}, "e", EDGES),
    "gno_aggregate": (pyops.gno_aggregate, {}, "xm", MATRICES),
    "dimenet_aggregate": (pyops.dimenet_aggregate, {}, "dreq", EDGES),
    "gno_conv": (pyops.gno_conv, {"hidden": 32}, "xcp", EDGES),
    "kernel_conv": (pyops.kernel_conv, {"kernel": "diagonal"}, "xev", EDGES),
    "segment_softmax": (pyops.segment_softmax, {}, "s", EDGES),
    "relu": (pyops.relu, {}, "e", EDGES),
    "silu": (pyops.silu, {}, "e", EDGES),
    "multiply": (pyops.multiply, {}, "ee", EDGES),
    "sum, last axis": (pyops.sum, {"axis": 1}, "e", EDGES),
    "mean, first axis": (pyops.mean, {"axis": 0}, "e", EDGES),
    "max, last axis": (pyops.max, {"axis": 1}, "e", EDGES),
    "softmax": (pyops.softmax, {}, "e", EDGES),
}
"""Operator, options, inputs (features of nodes x and of edges e, scores s, radial parts r and
matrices m of edges, and what stays float32: weights w, v and q, coordinates c, vectors d, a network
p) and sizes, by name."""
SINGLE = "wvqcdp"
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


def calls(
    name: str, graph: pyops.Graph, arrays: dict[str, np.ndarray]
) -> dict[str, Callable[[], object]]:
    """Return a call forward, and one forward and backward."""
    op, options, taken, _ = OPERATORS[name]
    given = [graph] * op.signature.has_graph + [arrays[n] for n in taken]
    forward = partial(op, *given, **options)
    gy = placed(forward())

    def both() -> None:
        forward()
        op.backward(*given, gy=gy, **options)

    return {"forward": forward, "and backward": both}


def in_type(drawn: dict[str, np.ndarray], kind: type) -> dict[str, np.ndarray]:
    """Return arrays that begin with a cache line, all but those that stay float32 in a type."""
    return {n: placed(a if n in SINGLE else a.astype(kind)) for n, a in drawn.items()}


def measure(counts: list[int], rounds: int) -> Iterator[Line]:
    rng = np.random.default_rng(0)
    before = pyops.get_num_threads()
    try:
        for sizes in dict.fromkeys((*NODES, *EDGES, *MATRICES)):
            nodes, degree, columns = sizes
            src = rng.integers(nodes, size=nodes * degree)
            graph = pyops.Graph(src, np.repeat(np.arange(nodes), degree), nodes, nodes)
            shapes = {"x": (nodes, columns), "w": (2 * columns,)}
            if sizes in EDGES:
                shapes |= {"e": (src.size, columns), "s": (src.size, 4), "c": (src.size, 3)}
                shapes |= {"v": (columns, columns), "p": (32 * 4 + 33 * 16 * columns,)}
                shapes |= {"d": (src.size, 3), "r": (src.size, 42), "q": (42 + columns, 8)}
            if sizes in MATRICES:
                shapes |= {"m": (src.size, 16 * columns)}
            drawn = {n: rng.standard_normal(s, dtype=np.float32) for n, s in shapes.items()}
            repeats = max(1, 2_000_000 // src.size)
            for name in (n for n, (*_, some) in OPERATORS.items() if sizes in some):
                each = [calls(name, graph, in_type(drawn, kind)) for kind in types()]
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
