"""Measures the overhead of the Fortran tape: gno_conv by nodes and by direct kernel calls."""

import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.frameworks.fortran.compilers import Build, Sources, command

SOURCE = Path(__file__).with_suffix(".f90")
PREAMBLE = (
    "`gno_conv` on 2,000 nodes with 20 edges each, d 3, H 64, F 32, float32, one thread: forward\n"
    "and all gradients through `array_type`, and by calling the kernels, in turn."
)
HEAD = ["nodes", "kernels", "ratio", "memory", "of which results"]


@dataclass
class Cost:
    nodes: float
    kernels: float
    ratio: float
    memory: int
    results: int

    def cells(self) -> list[str]:
        times = [f"{1e3 * t:.1f} ms" for t in (self.nodes, self.kernels)]
        sizes = [f"{size / 2**20:.0f} MB" for size in (self.memory, self.results)]
        return [*times, f"{self.ratio:.2f}", *sizes]


class Optimised(Build):
    flags = ("-O2", "-fopenmp")


def measure(*_) -> list[Cost]:
    """Return medians over rounds of the program, and the median of ratios within rounds."""
    with tempfile.TemporaryDirectory() as folder:
        sources, target = Path(folder, "sources"), Path(folder, "build")
        sources.mkdir()
        target.mkdir()
        build = Optimised(os.environ.get("FC", "gfortran"), Sources(sources), target)
        text = command(build.link(SOURCE), cwd=target)
    *rounds, memory = ([float(word) for word in line.split()] for line in text.splitlines())
    cost = Cost(
        statistics.median(a for a, _ in rounds),
        statistics.median(b for _, b in rounds),
        statistics.median(a / b for a, b in rounds),
        int(memory[0]),
        int(memory[1]),
    )
    return [cost]


if __name__ == "__main__":
    (cost,) = measure()
    print(PREAMBLE)
    for name, cell in zip(HEAD, cost.cells(), strict=True):
        print(f"  {name}: {cell}")
