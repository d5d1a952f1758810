"""The share of seeded faults that the tests find: `./run mutants`.

Faults go into the kernels one at a time, in copies of the tree. Those that do not compile, and
those that compile to the code of the sound kernel, do not count.
"""

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from time import monotonic

from .mutations import Mutant, drawn

ROOT = Path(__file__).parents[1]
KERNELS = "fortran/kernels"
FIRST = "test_derivatives.py", "test_forward.py", "test_adjoint.py"
LEAST_SHARE = 0.95
MOST_MEMORY = 8 * 2**30
SECONDS_PER_TEST = 60
# An allocator that notices writes past the end, and fills what it hands out with large numbers.
ENVIRONMENT = {
    "LD_PRELOAD": "libc_malloc_debug.so.0",
    "MALLOC_CHECK_": "3",
    "MALLOC_PERTURB_": "129",
    "OMP_WAIT_POLICY": "passive",
}
NOT_COUNTED = "does not compile", "same code"


def run(*command, cwd=ROOT):
    """The output of a command that must succeed."""
    done = subprocess.run(command, cwd=cwd, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nmutants: failed: {shlex.join(map(str, command))}")
    return done.stdout


class Copy:
    """The tree in a folder of its own, built and installed there."""

    def __init__(self, folder: Path) -> None:
        self.source, self.build, self.log = folder / "source", folder / "build", folder / "log"
        ignored = shutil.ignore_patterns(".*", "build", "dist", "results", "__pycache__")
        shutil.copytree(ROOT, self.source, ignore=ignored)
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        (site,) = (folder / "venv").glob("lib/python*/site-packages")
        # The packages of this environment, without those of its own .pth files: pyops itself.
        (site / "outer.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        options = "--quiet", "--no-build-isolation", "--no-deps", "--disable-pip-version-check"
        settings = f"-Cbuild-dir={self.build}", "-Csetup-args=-Dlevels=[]"
        pip = sys.executable, "-m", "pip", "install", *options, *settings
        run(*pip, "--target", site, self.source)
        # A folder without it gives way to what is installed.
        (self.source / "pyops" / "__init__.py").unlink()
        self.installed = site / "pyops" / "lib" / "libpyops.so"
        self.commands = run("ninja", "-t", "commands", "fortran/libpyops.so", cwd=self.build)

    def try_out(self, mutant: Mutant, limit: float) -> str:
        """What kills it, empty if nothing does, or why it does not count."""
        kernel = self.source / KERNELS / mutant.file
        commands = [shlex.split(line) for line in self.commands.splitlines()]
        generated = f"fortran/{kernel.stem}.f90"
        expand, translate = (words for words in commands if words[-1] == generated)
        compiled = self.build / translate[translate.index("-o") + 1]
        sound, code = kernel.read_text(), compiled.read_bytes()

        def fails(command):
            return subprocess.run(command, cwd=self.build, capture_output=True).returncode

        try:
            kernel.write_text(mutant.text)
            if fails(expand) or fails(translate):
                return "does not compile"
            if compiled.read_bytes() == code:
                return "same code"
            if fails(commands[-1]):
                return "does not compile"
            shutil.copy(self.build / "fortran" / "libpyops.so", self.installed)
            return self.test(limit)
        finally:
            kernel.write_text(sound)
            compiled.write_bytes(code)

    def test(self, limit: float | None = None) -> str:
        """The first test that fails, or how else the tests end; empty if they pass."""
        options = [
            *("-qx", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
            *("-o", f"faulthandler_timeout={SECONDS_PER_TEST}"),
            *("-o", "faulthandler_exit_on_timeout=true"),
        ]
        tests = sorted(self.source.glob("tests/test_*.py"), key=lambda p: (p.name not in FIRST, p))
        with self.log.open("w") as log:
            process = subprocess.Popen(
                [self.python, "-m", "pytest", *options, *tests],
                cwd=self.source,
                env=os.environ | ENVIRONMENT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                return "time limit"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if status < 0:
            return signal.Signals(-status).name
        said = self.log.read_text()
        if status and "\nTimeout (" in said:
            return "time limit"
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
        return failed[1] if failed else f"exit status {status}" if status else ""


def verdicts(candidates: list[Mutant], number: int, workers: int) -> Iterator[tuple[Mutant, str]]:
    """Candidates with what `try_out` says of them, until so many count."""
    copies = SimpleQueue()

    def verdict(mutant):
        copy = copies.get()
        try:
            return copy.try_out(mutant, limit)
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        for copy in pool.map(Copy, (Path(folder, str(worker)) for worker in range(workers))):
            copies.put(copy)
        began = monotonic()
        if failed := copy.test():
            sys.exit(f"{copy.log.read_text()}\nmutants: without a fault: {failed}")
        limit = 30 + 4 * (monotonic() - began)
        try:
            for mutant, found in zip(candidates, pool.map(verdict, candidates), strict=True):
                yield mutant, found
                number -= found not in NOT_COUNTED
                if number <= 0:
                    break
        finally:
            pool.shutdown(cancel_futures=True)


def table(title: str, counted: list[tuple[Mutant, str]], key: str) -> None:
    """Print what was killed, grouped by an attribute of the mutants."""
    tried = Counter(getattr(mutant, key) for mutant, _ in counted)
    killed = Counter(getattr(mutant, key) for mutant, killer in counted if killer)
    print(f"\n{title:26}{'tried':>6}{'killed':>8}{'share':>9}")
    for name in sorted(tried):
        share = killed[name] / tried[name]
        print(f"{name:26}{tried[name]:6}{killed[name]:8}{share:9.0%}")


def report(results: list[tuple[Mutant, str]], seed: int) -> float:
    """Print and write the results; the share killed."""
    counted = [(mutant, killer) for mutant, killer in results if killer not in NOT_COUNTED]
    table("kernel", counted, "file")
    table("fault", counted, "kind")
    killers = Counter(killer.split("::")[0] for _, killer in counted if killer)
    print(f"\n{'killed by':26}{'':6}{'killed':>8}")
    for killer, times in killers.most_common():
        print(f"{killer:26}{'':6}{times:8}")
    killed = killers.total()
    share = killed / max(1, len(counted))
    left_out = Counter(found for _, found in results if found in NOT_COUNTED)
    numbers = {"seed": seed, "counted": len(counted), "killed": killed, "share": share}
    numbers |= {reason: left_out[reason] for reason in NOT_COUNTED}
    rows = [{**asdict(mutant), "killer": killer} for mutant, killer in results]
    for row in rows:
        del row["text"]
    output = ROOT / "results" / "mutants.json"
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps({**numbers, "mutants": rows}, indent=1) + "\n")
    print(f"\n{killed} of {len(counted)} killed, {share:.1%}; not counted:", end=" ")
    print(", ".join(f"{left_out[reason]} {reason}" for reason in NOT_COUNTED))
    return share


def main():
    parser = argparse.ArgumentParser(prog="./run mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--number", type=int, default=150, help="mutants that count (150)")
    parser.add_argument("--all", action="store_true", help="every mutant there is")
    parser.add_argument("--only", metavar="KERNEL", help="mutants of one file, such as tile")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other mutants")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count()))
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    chosen = parser.parse_args()
    paths = (ROOT / KERNELS).glob(f"{chosen.only or '*'}.fypp")
    candidates = drawn(paths, chosen.seed)
    number = len(candidates) if chosen.all else chosen.number
    if chosen.list:
        for mutant in islice(candidates, number):
            print(mutant)
        return 0

    os.nice(10)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    results = []
    for mutant, killer in verdicts(candidates, number, chosen.workers):
        results.append((mutant, killer))
        if not killer:
            print("survived:", mutant, flush=True)
        elif len(results) % 25 == 0:
            print(f"mutants: {len(results)} tried", file=sys.stderr, flush=True)
    return report(results, chosen.seed) < LEAST_SHARE


if __name__ == "__main__":
    sys.exit(main())
