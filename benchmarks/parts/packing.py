"""A new graph and its index arrays, against stable sorts by torch and a counting sort in C."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

import pyops
from benchmarks.gat_rows import shortest
from benchmarks.limits import aligned, compiled, pointer
from benchmarks.report import figure

EDGES, DEGREE = (10**3, 10**4, 10**5, 10**6, 10**7), 10
HEAD = ["edges", "threads", "pyops", "torch", "counting sort", "torch/pyops", "pyops/counting sort"]
PREAMBLE = """\
Random edges, ten a node, sorted by their targets and by their sources: what a new graph costs its
first forward and backward pass. PyTorch Geometric sorts by torch's stable sort. The counting sort
is a loop in C on one thread without checks. Shortest times."""


@dataclass(frozen=True)
class Line:
    edges: int
    threads: int
    seconds: float
    torch: float
    limit: float

    def cells(self) -> list[str]:
        times = [f"{1e3 * value:.4g} ms" for value in (self.seconds, self.torch, self.limit)]
        ratios = [figure(self.torch / self.seconds), figure(self.seconds / self.limit)]
        return [f"{self.edges:,}", str(self.threads), *times, *(f"{ratio}x" for ratio in ratios)]


def pack(src: np.ndarray, dst: np.ndarray, nodes: int) -> None:
    names = "in_offsets", "in_nodes", "out_offsets", "out_nodes"
    pyops.Graph(src, dst, nodes, nodes)._indices(names)


def sort(src: torch.Tensor, dst: torch.Tensor, nodes: int) -> None:
    for key, other in ((dst, src), (src, dst)):
        order = key.sort(stable=True).indices
        torch.bincount(key, minlength=nodes).cumsum(0)
        other[order]


def counting_sort(library: ctypes.CDLL, src: np.ndarray, dst: np.ndarray, nodes: int):
    """Return a function that sorts by either side into memory that is there."""
    offsets, order = aligned(8 * (nodes + 1)), aligned(8 * len(src))
    others = aligned(4 * len(src))
    sizes = ctypes.c_long(nodes), ctypes.c_long(len(src))

    def call() -> None:
        for key, other in ((dst, src), (src, dst)):
            arrays = (key, other, offsets, order, others)
            library.counting_sort(*sizes, *map(pointer, arrays))

    return call


def measure(threads: list[int], rounds: int) -> Iterator[Line]:
    rng, before = np.random.default_rng(0), (pyops.get_num_threads(), torch.get_num_threads())
    library = compiled(Path(__file__).with_name("limits.c"))
    try:
        for edges in EDGES:
            nodes = edges // DEGREE
            src, dst = rng.integers(nodes, size=(2, edges))
            for count in threads:
                pyops.set_num_threads(count)
                torch.set_num_threads(count)
                calls = (
                    partial(pack, src, dst, nodes),
                    partial(sort, torch.from_numpy(src), torch.from_numpy(dst), nodes),
                    counting_sort(library, src, dst, nodes),
                )
                yield Line(edges, count, *shortest(max(rounds, 10**6 // edges), *calls))
    finally:
        pyops.set_num_threads(before[0])
        torch.set_num_threads(before[1])
