"""Measures, prints the tables, and writes Markdown, JSON and the plot."""

import argparse
import os
import subprocess
from pathlib import Path

from tqdm import tqdm

from benchmarks import machine, products, report
from benchmarks.cases import CASES, QUICK, TINY
from benchmarks.limits import Limits
from benchmarks.measure import Worker, WorkerError, measure, revive, takes_part
from benchmarks.operators import elementwise
from benchmarks.options import positive, thread_count
from benchmarks.parts import gat_rows, half, nodes, packing
from benchmarks.peers import NAMES, PEERS
from benchmarks.row import Row

ALONE = {
    "elementwise": ("Elementwise", elementwise),
    "half": ("Half precision", half),
    "nodes": ("Nodes", nodes),
}
COMPILED = {"packing": ("Packing", packing), "gat_rows": ("Rows of any size", gat_rows)}
"""Parts beside the operators; those whose loops in C need a compiler."""


def arguments() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small cases, about a minute")
    operators = sorted({case.operator for case in CASES})
    parts = [*operators, "products", *ALONE, *COMPILED]
    parser.add_argument("--only", nargs="+", choices=parts, help="default: all, operators if quick")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS, help="default: all")
    parser.add_argument(
        "--threads",
        nargs="+",
        type=thread_count,
        default=sorted({1, cores}),
        help="default: 1 and all",
    )
    parser.add_argument("--rounds", type=positive, help="default: 7; 3 of calls above 3 s")
    parser.add_argument("--output", type=Path, default=Path("results"), help="default: results/")
    options = parser.parse_args()
    options.only = options.only or (operators if options.quick else parts)
    return options


def start(peers: list[str], threads: list[int]) -> tuple[dict[tuple[str, int], Worker], dict]:
    """Start a worker for each peer and thread count; return versions and missing peers."""
    workers, versions = {}, {}
    for peer in peers:
        for count in threads:
            worker = Worker(peer, count)
            try:
                versions |= worker("versions")
                workers[peer, count] = worker
            except WorkerError as failure:
                print(f"{NAMES.get(peer, peer)}: left out: {failure}")
                worker.close()
                break
    return workers, versions


def run(cases, workers, threads, rounds, limits) -> list[Row]:
    """Run all cases, each after another measurement of the limits."""
    rows: list[Row] = []
    with tqdm(cases, unit="case", dynamic_ncols=True, disable=None) as bar:
        for case in bar:

            def note(text, name=f"{case.operator}, {case.nodes} nodes"):
                bar.set_description(f"{name}: {text}")

            note("limits")
            if limits:
                limits.measure()
            revive(workers)
            counts = threads[:1] if case.one_thread else threads
            chosen = [worker for worker in workers.values() if worker.threads in counts]
            chosen = [worker for worker in chosen if takes_part(worker.peer, case)]
            rows += measure(case, chosen, rounds, note)
    return rows


def main() -> int:
    options = arguments()
    options.output.mkdir(parents=True, exist_ok=True)
    facts = machine.describe()
    try:
        limits = Limits(tuple(options.threads))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"limits: left out: no C compiler with OpenMP ({error})")
        limits = None
    rounds = options.rounds or (5 if options.quick else 7)
    timings, found = [], {}
    if limits and "products" in options.only:
        timings, found = products.measure(5 * rounds)
    cases = [case for case in (QUICK if options.quick else CASES) if case.operator in options.only]
    tiny = [case for case in TINY if case.operator in options.only]
    workers, versions = start(options.peers if cases else [], options.threads)
    versions |= found
    overhead = {}
    if worker := workers.get(("pyops", options.threads[0])):
        overhead = {case.operator: worker("overhead", case) for case in tiny}
    rows = run(cases, workers, options.threads, rounds, limits)
    for worker in workers.values():
        worker.close()
    rates = limits.rates if limits and rows else {}
    settings = {"quick": options.quick, "rounds": rounds, "threads": options.threads}
    text = report.markdown(facts, versions, rows, rates, overhead, timings)
    measured: dict[str, list] = {}
    for part, (title, module) in (ALONE | (COMPILED if limits else {})).items():
        if part in options.only:
            measured[part] = list(module.measure(options.threads, rounds))
            table = report.table([module.HEAD, *(line.cells() for line in measured[part])])
            text += f"\n## {title}\n\n{module.PREAMBLE}\n\n{table}\n"
    print("\n" + text)
    (options.output / "benchmark.md").write_text(text)
    everything = report.json_ready(facts, versions, settings, rows, rates, overhead, timings)
    everything |= {part: [vars(line) for line in lines] for part, lines in measured.items()}
    (options.output / "benchmark.json").write_text(report.json_text(everything))
    try:
        from benchmarks.plot import draw

        draw(rows, rates, options.output)
    except ModuleNotFoundError as error:
        print(f"plot: left out: {error.name} is not installed")
    print(f"written to {options.output}/")
    failures = [row.failure for row in rows if row.peer == "pyops"]
    failures += [timing.failure for timing in timings if timing.name in products.OURS]
    return int(any(failures))


if __name__ == "__main__":
    raise SystemExit(main())
