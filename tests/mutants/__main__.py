"""Mutation testing: the share of seeded faults that the tests detect: `./run mutants`.

Seeds faults into kernels, macros and nodes one at a time, in copies of the tree. Faults that do not
compile, or that compile to the same code, do not count. Results are kept in results/mutants.json by
fault: a run with the same seed continues where the last one ended.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice
from queue import SimpleQueue

from .copy import NOT_COUNTED, UNDECIDED, Copy
from .fault_sites import FAMILIES, ROOT
from .mutations import Mutant, drawn

RESULTS = ROOT / "results" / "mutants.json"
LEAST_SHARE = 0.95


class Results:
    """Results of each fault, in a file."""

    def __init__(self, candidates: list[Mutant], seed: int) -> None:
        self.seed = seed
        self.known = {str(mutant): mutant for mutant in candidates}
        self.rows = json.loads(RESULTS.read_text())["mutants"] if RESULTS.exists() else {}

    def add(self, mutant: Mutant, killer: str) -> None:
        names = "family", "file", "kind"
        row = {name: getattr(mutant, name) for name in names} | {"seed": self.seed}
        self.rows[str(mutant)] = row | {"killer": killer}
        RESULTS.parent.mkdir(exist_ok=True)
        partial = RESULTS.with_suffix(".partial")
        partial.write_text(json.dumps({**self.figures(), "mutants": self.rows}, indent=1) + "\n")
        partial.replace(RESULTS)

    def drop(self, name: str) -> None:
        del self.rows[name]

    def here(self) -> dict[str, dict]:
        """Return the results of this run's candidates."""
        return {name: row for name, row in self.rows.items() if name in self.known}

    def counted(self) -> list[dict]:
        return [row for row in self.here().values() if row["killer"] not in NOT_COUNTED]

    def figures(self) -> dict[str, float]:
        counted = self.counted()
        killed = sum(bool(row["killer"]) for row in counted)
        found = Counter(row["killer"] for row in self.here().values())
        share = killed / max(1, len(counted))
        figures = {"seed": self.seed, "counted": len(counted), "killed": killed, "share": share}
        return figures | {reason: found[reason] for reason in NOT_COUNTED}

    def report(self) -> float:
        """Print all results and return the share killed."""
        for key in "family", "kind":
            table(key, self.counted())
        killers = Counter(row["killer"].split("::")[0] for row in self.counted() if row["killer"])
        print(f"\n{'killed by':34}{'killed':>14}")
        for killer, times in killers.most_common():
            print(f"{killer:34}{times:14}")
        print()
        for name, row in self.here().items():
            if not row["killer"]:
                print("survived:", name)
        figures = self.figures()
        print(
            "\n{killed} of {counted} killed, {share:.1%}; not counted:".format(**figures), end=" "
        )
        print(", ".join(f"{figures[reason]} {reason}" for reason in NOT_COUNTED))
        return figures["share"]


def table(key: str, counted: list[dict]) -> None:
    """Print the numbers killed, by an attribute of the mutants."""
    tried = Counter(row[key] for row in counted)
    killed = Counter(row[key] for row in counted if row["killer"])
    print(f"\n{key:26}{'tried':>6}{'killed':>8}{'share':>9}")
    for name in sorted(tried):
        share = killed[name] / tried[name]
        print(f"{name:26}{tried[name]:6}{killed[name]:8}{share:9.0%}")


def verdicts(copies: list[Copy], candidates: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Yield candidates with the results of `try_out`, lazily."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def verdict(mutant):
        copy = free.get()
        try:
            return copy.try_out(mutant)
        finally:
            free.put(copy)

    waiting = iter(candidates)
    with ThreadPoolExecutor(len(copies)) as pool:
        running = {pool.submit(verdict, mutant): mutant for mutant in islice(waiting, len(copies))}
        while running:
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(done), done.result()
                running |= {pool.submit(verdict, m): m for m in islice(waiting, 1)}


def main():
    parser = argparse.ArgumentParser(prog="./run mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--number", type=int, default=200, help="mutants that count (200)")
    parser.add_argument("--all", action="store_true", help="every mutant there is")
    parser.add_argument("--family", choices=FAMILIES, action="append", help="of some families")
    parser.add_argument("--only", metavar="FILE", default="*", help="of one file, such as gat")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other mutants")
    parser.add_argument("--again", action="store_true", help="those that survived once more")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count()))
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    chosen = parser.parse_args()
    candidates = drawn(chosen.family or FAMILIES, chosen.seed, chosen.only)
    number = len(candidates) if chosen.all else chosen.number
    if chosen.list:
        for mutant in islice(candidates, number):
            print(mutant)
        return 0

    os.nice(10)
    results = Results(candidates, chosen.seed)
    if chosen.again:
        candidates = [m for m in candidates if results.rows.get(str(m), {}).get("killer") == ""]
        for mutant in candidates:
            results.drop(str(mutant))
    else:
        tried = {name for name, row in results.rows.items() if row["killer"] != UNDECIDED}
        candidates = [mutant for mutant in candidates if str(mutant) not in tried]
    copies = [Copy(ROOT / "build" / "mutants" / str(worker)) for worker in range(chosen.workers)]
    if len(results.counted()) < number:
        for mutant, killer in verdicts(copies, candidates):
            results.add(mutant, killer)
            print(killer or "survived", mutant, sep=": ", file=sys.stderr, flush=True)
            if len(results.counted()) >= number:
                break
    killers = {row["killer"] for row in results.here().values() if "::" in row["killer"]}
    if failed := copies[0].test(sorted(killers)):
        sys.exit(f"{copies[0].log.read_text()}\nmutants: fails without a fault: {failed}")
    return results.report() < LEAST_SHARE


if __name__ == "__main__":
    sys.exit(main())
