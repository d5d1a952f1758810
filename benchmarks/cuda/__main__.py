"""The command line, and a process of its own for what uses the device.

That process serves case after case. Where it dies, or the device is lost in it, another one goes on
with the next case.
"""

import argparse
import multiprocessing
import time
from pathlib import Path

import benchmarks.cuda
from benchmarks.cuda.cases import CASES, OPERATORS
from benchmarks.cuda.report import Report, say

HELP = """\
A case takes half a minute to two minutes where torch and JAX are installed, most of it in their
compilers, and a few seconds alone; all {count} cases take about ten (estimates: no device was at
hand). The most important cases are the first; what has no time left is named and left out.
"""
GRACE = 45
"""Seconds that what has begun may take beyond the time."""


def serve(pipe):
    """Answer a request, a name and arguments, with records and None after them."""
    from benchmarks.cuda import measure

    while request := pipe.recv():
        name, *arguments = request
        for record in getattr(measure, name)(*arguments):
            pipe.send(record)
        pipe.send(None)


class Worker:
    """A process with the device, started when first asked."""

    process = None

    def ask(self, until, *request):
        """The records of an answer; the last says so where the process ends before its answer."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, there = context.Pipe()
            self.process = context.Process(target=serve, args=(there,), daemon=True)
            self.process.start()
            there.close()
        try:
            self.pipe.send(request)
            while self.pipe.poll(max(0, until + GRACE - time.time())):
                record = self.pipe.recv()
                if record is None:
                    return
                yield record
            why = "it took too long and was stopped"
        except (EOFError, OSError):
            self.process.join(10)
            why = f"its process ended, status {self.process.exitcode}: is the device lost?"
        self.close()
        yield {"what": "failure", "who": " ".join(map(str, request[:2])), "why": why}

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


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
    for record in worker.ask(until, "facts"):
        report.add(record)
    wanted = asked.operator or OPERATORS
    numbers = [number for number, case in enumerate(CASES) if case.operator in wanted]
    for number in numbers:
        if time.time() > until:
            say(f"\n{CASES[number].title}, {CASES[number].nodes} nodes: no time was left")
            continue
        for record in worker.ask(until, "measure", number, until):
            report.add(record)
        report.compare(number)
        report.save()
    worker.close()
    report.finish(numbers)


if __name__ == "__main__":
    main()
