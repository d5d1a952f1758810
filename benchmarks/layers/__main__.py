"""Compares time, peak memory and results of drop-in layers with their originals, as a table."""

import argparse
import importlib
import os
import random
import subprocess
import sys
import time
from importlib.metadata import version
from multiprocessing import Pipe
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import machine
from benchmarks.layers import sizes
from benchmarks.layers.case import SIDES
from benchmarks.options import positive, thread_count
from benchmarks.report import figure, json_text, table

HEAD = ["layer", "sizes", "threads", "difference", "original", "drop-in", "time", "memory"]
PREAMBLE = """\
Forward and backward, with gradients of inputs and parameters. In the columns of the sides: the
median time of a call and the extra memory at its peak. "Time" and "memory" are how many times
those of the drop-in layer the original takes: of calls in turn, the median of the ratios within a
round. "Difference": the largest one of any result or gradient, by the largest entry of that, or by
a thousandth of the largest of all, as some gradients are 0 but for rounding. Where a gradient
jumps, at 0 of a ReLU or between two maxima, rounding may choose another side; in float64 results
of such layers differ by less than 1e-13."""

OVER_SIZES = """\
How many times the time of the drop-in the original takes, forward and backward, threads: {threads},
by numbers of rows or edges; by an index that is a new tensor in every call, as in mini-batches, or
the same one. Calls in turn, medians of rounds."""


class Side:
    """Process with one side of a case; it reports memory and results first."""

    def __init__(self, file: str, number: int, side: str, threads: int):
        names = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"
        settings = dict.fromkeys(names, str(threads))
        settings |= {"MALLOC_ARENA_MAX": "1", "TQDM_DISABLE": "1"}
        self.connection, child = Pipe()
        words = [file, str(number), side, str(threads), str(child.fileno())]
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.layers.worker", *words],
            env=os.environ | settings,
            pass_fds=[child.fileno()],
        )
        child.close()
        self.extra, self.results = self.connection.recv()

    def seconds(self) -> float:
        self.connection.send(True)
        return self.connection.recv()

    def close(self) -> None:
        self.connection.send(False)
        self.process.wait()


def difference(results, others) -> float:
    largest = [0.0]
    least = max(top for _, top, _ in others) / 1000
    for (shape, _, one), (expected, top, other) in zip(results, others, strict=True):
        if shape != expected:
            raise ValueError(f"shapes {shape} and {expected}")
        if one.size and least:
            exact = one.astype(np.result_type(one, float))  # complex numbers stay complex
            largest.append(float(np.abs(exact - other).max()) / max(top, least))
    return float(np.max(largest))  # NaN if any is


def measure(file: str, number: int, case, threads: int, rounds: int) -> tuple[float, list[str]]:
    """Return the difference of the results, and the line of the table."""
    sides = {name: Side(file, number, name, threads) for name in SIDES}
    theirs, ours = sides.values()
    found = difference(ours.results, theirs.results)
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name in random.sample(SIDES, len(SIDES)):
            time.sleep(0.005)  # until threads of the last call sleep
            seconds[name].append(sides[name].seconds())
    for side in sides.values():
        side.close()
    cells = [
        f"{1e3 * median(seconds[name]):.4g} ms, {side.extra / 1e6:,.1f} MB"
        for name, side in sides.items()
    ]
    ratio = median(a / b for a, b in zip(*seconds.values(), strict=True))
    memory = theirs.extra / max(ours.extra, 1)
    ratios = [f"{figure(ratio)}x", f"{figure(memory)}x"]
    return found, [case.layer, case.what, str(threads), f"{found:.1e}", *cells, *ratios]


def files() -> dict[str, list]:
    """Return the cases of each file of this folder that has any."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("__init__", "__main__", "case", "sizes", "worker"):
            found[path.stem] = importlib.import_module(f"benchmarks.layers.{path.stem}").CASES
    return found


def main() -> int:
    cases = [
        (file, number, case)
        for file, several in files().items()
        for number, case in enumerate(several)
    ]
    layers = sorted({case.layer for _, _, case in cases} | {*sizes.NAMES})
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layers", description=__doc__)
    parser.add_argument("layers", nargs="*", metavar="LAYER", help=f"of {', '.join(layers)}")
    parser.add_argument("--threads", nargs="+", type=thread_count, default=[1, 2])
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--output", type=Path, default=Path("results"), help="default: results/")
    options = parser.parse_args()
    if unknown := set(options.layers) - set(layers):
        parser.error(f"LAYER: expected some of {', '.join(layers)}, got {', '.join(unknown)}")
    lines, wrong, facts = [HEAD], [], machine.describe()
    for file, number, case in cases:
        for threads in options.threads:
            if not options.layers or case.layer in options.layers:
                error, line = measure(file, number, case, threads, options.rounds)
                lines.append(line)
                if not error <= case.tolerance:
                    wrong.append(f"{case.layer}, {case.what}: {error:.1e}")
                print(*line, sep=" | ", file=sys.stderr, flush=True)
    print(f"{PREAMBLE}\n\n{table(lines)}")
    for text in wrong:
        print(f"results differ: {text}")
    versions = {name: version(name) for name in ("torch", "torch_geometric", "neuraloperator")}
    settings = {"rounds": options.rounds, "threads": options.threads}
    found = {"machine": facts, "versions": versions, "settings": settings}
    found["rows"] = [dict(zip(HEAD, line, strict=True)) for line in lines[1:]]
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "layers.json").write_text(json_text(found))
    names = [name for name in sizes.NAMES if not options.layers or name in options.layers]
    for threads in options.threads if names else ():
        print(f"\n{OVER_SIZES.format(threads=threads)}\n", flush=True)
        words = ["-m", "benchmarks.layers.sizes", str(threads), str(options.rounds), *names]
        subprocess.run([sys.executable, *words], check=True)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
