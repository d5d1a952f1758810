"""Command line of the device benchmarks."""

import argparse
import time
from pathlib import Path

import benchmarks.cuda
from benchmarks.cuda.cases import CASES, OPERATORS
from benchmarks.cuda.report import Report, say
from benchmarks.cuda.worker import Worker

HELP = """\
A case takes half a minute where torch and JAX are installed, most of it in their compilers, and a
few seconds alone; all {count} cases take five minutes on an H200. The most important cases are the
first; what has no time left is named and left out.
"""


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda",
        description=benchmarks.cuda.__doc__,
        epilog=HELP.format(count=len(CASES)),
    )
    parser.add_argument("operator", nargs="*", help=f"all, or some of {', '.join(OPERATORS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all numbers go")
    parser.add_argument(
        "--minutes", type=float, default=9, help="after these nothing new begins (default: 9)"
    )
    found = parser.parse_args(arguments)
    if unknown := set(found.operator) - set(OPERATORS):
        parser.error(f"operator: expected some of {', '.join(OPERATORS)}, got {unknown.pop()}")
    return found


def main(arguments=None, worker=None):
    asked = parse(arguments)
    until = time.time() + 60 * asked.minutes
    report, worker = Report(asked.json), worker or Worker()
    wanted = asked.operator or OPERATORS
    numbers = [number for number, case in enumerate(CASES) if case.operator in wanted]
    try:
        run(report, worker, numbers, until)
    finally:
        worker.close()
        report.finish(numbers)


def run(report, worker, numbers, until):
    for record in worker.ask(until, "facts"):
        report.add(record)
    for number in numbers:
        if time.time() > until:
            say(f"\n{CASES[number].title}, {CASES[number].nodes} nodes: no time was left")
            continue
        for record in worker.ask(until, "measure", number, until):
            report.add(record)
        report.compare(number)
        report.save()


if __name__ == "__main__":
    main()
