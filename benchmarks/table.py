"""Operators, sizes, widths, phases, threads and front ends, each beside the best peer there.

The first sizes and widths are the commonest ones. What no time is left for is named and left out.

    python -m benchmarks.table
"""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

from tqdm import tqdm

from benchmarks import machine, report
from benchmarks.__main__ import start
from benchmarks.cases import ATTENTION, BASES, CASES, PHASES, WITHOUT_GRAPH, Case
from benchmarks.limits import Limits
from benchmarks.measure import measure, revive, takes_part
from benchmarks.options import positive, thread_count
from benchmarks.row import Row

EDGES = 1000, 100_000, 10, 10_000_000
WIDTHS = 32, 8, 128, 1, 64, 16, 256, 4
DEGREE = 16
PER_EDGE = "gno_conv", "gno_kernel", "gno_aggregate", "kernel_conv"
MOST = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 32
"""Largest size in bytes of the largest array of a peer: each of the workers has the inputs."""
LEAST = 0.95
"""Ratio below which a cell is a loss."""
SIDES = {
    "NumPy": ("pyops", ("torch", "torch_compile", "jax")),
    "torch": ("pyops_torch", ("torch",)),
    "torch.compile": ("pyops_torch_compile", ("torch_compile",)),
    "jax.jit": ("pyops_jax", ("jax",)),
}
"""The front ends: ours, and the peers of each."""
OPERATORS = sorted({case.operator for case in CASES} - {"integral_transform"})
HEAD = ["operator", "edges", "width", "phase", "threads", "time", "of the limit", *SIDES]
PREAMBLE = """\
Time of a call of pyops from NumPy. Then, for each front end, how many times the time of pyops there
the best peer there takes: torch, torch.compile or jax.jit of the formula (for NumPy the best of
these), median of the ratios within a round. **Bold**: a peer is faster, below 0.95. Phases add up.
"Of the limit" as in the benchmarks of operators. Operators over points have samples in place of
edges."""


@dataclass
class Cell:
    """One operator at one size and width, in one phase and on a number of threads."""

    operator: str
    edges: int
    width: int
    phase: str
    threads: int
    seconds: float | None
    limit: str
    ratios: dict[str, float | None]

    def texts(self) -> list[str]:
        took = "" if self.seconds is None else report.figure(1e3 * self.seconds) + " ms"
        marked = (
            "" if r is None else f"**{report.figure(r)}**" if r < LEAST else report.figure(r)
            for r in self.ratios.values()
        )
        head = self.operator, f"{self.edges:,}", self.width, self.phase, self.threads
        return [*map(str, head), took, self.limit, *marked]


def case(operator: str, edges: int, width: int) -> Case | None:
    """Return a case of this size; None if there is none, or if it would not fit."""
    if operator in BASES:
        made = Case(operator, nodes=edges // 10, degree=1, samples=10)
        return made if width == WIDTHS[0] else None
    if operator in WITHOUT_GRAPH:
        modes = min(width, edges)
        fits = 4 * edges * modes < MOST
        return Case(operator, nodes=edges, degree=1, samples=16, hidden=modes) if fits else None
    degree = DEGREE if edges > DEGREE else 2
    made = Case(operator, nodes=edges // degree, degree=degree, width=width, hidden=width)
    if operator in ATTENTION:
        heads = min(8, width)
        made = Case(operator, made.nodes, degree, heads=heads, width=width // heads)
    numbers = {
        "dimenet_aggregate": 42 * degree,
        "edge_update": 3 * width,
        "hetero_basis": 8 * width,
    }.get(operator, width * width if operator in PER_EDGE else width)
    if operator == "hetero_basis":
        made = Case(operator, made.nodes, degree, width=width, hidden=8)
    return made if 4 * edges * numbers < MOST else None


def cells(rows: list[Row], rates: report.Rates, wanted: tuple[str, int, int]) -> Iterator[Cell]:
    """Yield a cell for each phase and number of threads."""
    for found in report.groups(rows):
        any_row = next(iter(found.values()))
        ratios = {
            name: ratio(found.get(ours), [found[peer] for peer in peers if peer in found])
            for name, (ours, peers) in SIDES.items()
        }
        own = found.get("pyops")
        seconds = median(own.seconds) if own and own.seconds else None
        share = report.share(own, rates)
        yield Cell(*wanted, any_row.phase, any_row.threads, seconds, share, ratios)


def ratio(ours: Row | None, peers: list[Row]) -> float | None:
    """Return how many times our time the best peer takes."""
    peers = [peer for peer in peers if peer.seconds]
    if not ours or not ours.seconds or not peers:
        return None
    return min(median(report.ratios(peer, ours)) for peer in peers)


def grid(operators: list[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the operators, sizes and widths; sizes and widths that are both common come first."""
    places = sorted(product(range(len(EDGES)), range(len(WIDTHS))), key=sum)
    for size, width in places:
        for operator in operators:
            if case(operator, EDGES[size], WIDTHS[width]):
                yield operator, EDGES[size], WIDTHS[width]


def arguments() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=OPERATORS, default=OPERATORS)
    parser.add_argument("--edges", nargs="+", type=int, choices=EDGES, default=EDGES)
    parser.add_argument("--widths", nargs="+", type=int, choices=WIDTHS, default=WIDTHS)
    parser.add_argument("--threads", nargs="+", type=thread_count, default=sorted({1, cores}))
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--minutes", type=float, default=55, help="then nothing new begins")
    parser.add_argument("--output", type=Path, default=Path("results"), help="default: results/")
    options = parser.parse_args()
    options.places = [
        place
        for place in grid(options.only)
        if place[1] in options.edges and place[2] in options.widths
    ]
    if options.minutes <= 0:
        parser.error(f"--minutes: {options.minutes:g} is not more than 0")
    if not options.places:
        parser.error("no operator has such a case, or none that fits in memory")
    return options


def main() -> int:
    options = arguments()
    options.output.mkdir(parents=True, exist_ok=True)
    until = time.time() + 60 * options.minutes
    limits = Limits(tuple(options.threads))
    names = {name for ours, peers in SIDES.values() for name in (ours, *peers)}
    workers, versions = start(sorted(names), options.threads)
    found, left, failed = [], [], []
    with tqdm(options.places, unit="case", dynamic_ncols=True, disable=None) as bar:
        for place in bar:
            if time.time() > until:
                left.append(place)
                continue
            bar.set_description(", ".join(map(str, place)))
            limits.measure()
            revive(workers)
            made = case(*place)
            assert made is not None
            chosen = [w for w in workers.values() if takes_part(w.peer, made)]
            rows = measure(made, chosen, options.rounds, lambda _: None)
            found += cells(rows, limits.rates, place)
            failed += [(place, row) for row in rows if row.failure]
    for worker in workers.values():
        worker.close()
    table = report.table([HEAD, *(cell.texts() for cell in found)])
    print(f"\n{PREAMBLE}\n\n{table}")
    for operator, edges, width in left:
        print(f"left out: {operator}, {edges:,} edges, width {width}")
    for (operator, edges, width), row in failed:
        where = f"{operator}, {edges:,} edges, width {width}, {row.phase}, {row.threads} threads"
        print(f"failed: {where}, {row.peer}: {row.failure}")
    losses = [c for c in found for r in c.ratios.values() if r is not None and r < LEAST]
    measured = [r for c in found for r in c.ratios.values() if r is not None]
    print(f"{len(measured)} ratios, {len(losses)} below {LEAST}")
    record = {"machine": machine.describe(), "versions": versions, "phases": PHASES}
    record["cells"] = [vars(cell) for cell in found]
    (options.output / "table.json").write_text(report.json_text(record))
    own = {ours for ours, _ in SIDES.values()}
    return int(any(row.peer in own for _, row in failed))


if __name__ == "__main__":
    raise SystemExit(main())
