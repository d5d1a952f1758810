"""A new graph with its index arrays, against sorts by torch and a counting sort in C."""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import pyops
from benchmarks.limits import SOURCE, aligned, compiled, pointer
from benchmarks.parts.gat_rows import shortest
from benchmarks.report import figure

EDGES, DEGREE = (10**3, 10**4, 10**5, 10**6, 10**7), 10
HEAD = ["edges", "threads", "pyops", "counting sort", "of it", "torch", "torch/pyops"]
PREAMBLE = """\
Random edges, ten a node, grouped by destination and by source: what the first forward and backward
pass on a new graph needs. pyops copies, checks and converts the indices as well. The counting sort
is in C, on one thread, into memory that is there. torch: stable sorts, as `EdgeIndex` of PyTorch
Geometric makes them without pyg_lib. Shortest times."""


@dataclass(frozen=True)
class Line:
    edges: int
    threads: int
    seconds: float
    limit: float
    torch: float | None = None

    def cells(self) -> list[str]:
        milliseconds, limit = (f"{1e3 * value:.4g} ms" for value in (self.seconds, self.limit))
        others = ["", ""]
        if self.torch:
            others = [f"{1e3 * self.torch:.4g} ms", f"{figure(self.torch / self.seconds)}x"]
        ratio = f"{figure(self.seconds / self.limit)}x"
        return [f"{self.edges:,}", str(self.threads), milliseconds, limit, ratio, *others]


def pack(src: np.ndarray, dst: np.ndarray, nodes: int) -> None:
    names = "in_offsets", "in_nodes", "out_offsets", "out_nodes"
    pyops.Graph(src, dst, nodes, nodes)._indices(names)


def counting_sort(
    library: ctypes.CDLL, src: np.ndarray, dst: np.ndarray, nodes: int
) -> Callable[[], None]:
    """Return a function that sorts both ways into memory that is there."""
    arrays = [aligned(size) for size in (8 * nodes + 8, 8 * len(src), 4 * len(src))]
    sizes = ctypes.c_long(nodes), ctypes.c_long(len(src))

    def call() -> None:
        for ends in ((dst, src), (src, dst)):
            library.counting_sort(*sizes, *map(pointer, (*ends, *arrays)))

    return call


def sort(torch: Any, src: np.ndarray, dst: np.ndarray, nodes: int) -> Callable[[], None]:
    tensors = torch.from_numpy(src), torch.from_numpy(dst)

    def call() -> None:
        for key, other in (tensors[::-1], tensors):
            values, order = key.sort(stable=True)
            torch._convert_indices_to_csr(values, nodes)
            other[order]

    return call


def measure(threads: list[int], rounds: int) -> Iterator[Line]:
    torch: Any = None
    if find_spec("torch"):
        import torch
    rng, before = np.random.default_rng(0), pyops.get_num_threads()
    library = compiled(SOURCE)
    try:
        for edges in EDGES:
            nodes = edges // DEGREE
            ends = rng.integers(nodes, size=(2, edges))
            calls = [partial(pack, *ends, nodes), counting_sort(library, *ends, nodes)]
            calls += [sort(torch, *ends, nodes)] if torch else []
            for count in threads:
                pyops.set_num_threads(count)
                if torch:
                    torch.set_num_threads(count)
                yield Line(edges, count, *shortest(max(rounds, 10**6 // edges), *calls))
    finally:
        pyops.set_num_threads(before)
