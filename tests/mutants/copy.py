"""Copy of the source tree in which faults are tried out one at a time."""

import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from .fault_sites import ROOT, operators, parts, tests
from .mutations import Mutant

DOES_NOT_COMPILE, SAME_CODE, UNDECIDED = "does not compile", "same code", "undecided"
NOT_COUNTED = DOES_NOT_COMPILE, SAME_CODE, UNDECIDED
MOST_MEMORY = 8 * 2**30
MOST_SECONDS = 3600  # wall time, after which the result is undecided
# An allocator that detects writes past the end, and fills memory that it returns.
ALLOCATOR = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3"}
LARGE, SMALL = "129", "126"  # fill bytes of arrays: large values, and small negative ones
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "PYTHONUNBUFFERED": "1"}


def run(*command, cwd=ROOT):
    """Return the output of a command that must succeed."""
    done = subprocess.run(command, cwd=cwd, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nmutants: failed: {shlex.join(map(str, command))}")
    return done.stdout


def prepare(memory: int | None) -> None:
    """Start a process group of its own, of the same priority, with a memory limit."""
    os.setpgrp()
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


class Copy:
    """Source tree in a folder of its own, built and installed there; build results are kept."""

    def __init__(self, folder: Path) -> None:
        self.source, self.build, self.log = folder / "source", folder / "build", folder / "log"
        self.open = folder / "open"  # names the template that has a fault
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.source, ignore_errors=True)
        listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard")
        for name in filter(lambda name: (ROOT / name).exists(), listed.splitlines()):
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.source / name, follow_symlinks=False)
        if self.open.exists():  # built with a fault when the last run was interrupted
            (self.source / self.open.read_text()).touch()
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        (site,) = (folder / "venv").glob("lib/python*/site-packages")
        if not (fypp := self.python.with_name("fypp")).exists():  # tests expect it there
            fypp.symlink_to(shutil.which("fypp"))
        # The packages of this environment without those of its own .pth files, as pyops itself.
        outer = [path for path in sys.path if path.endswith("site-packages")]
        (site / "outer.pth").write_text("\n".join(outer) + "\n")
        options = "--quiet", "--no-build-isolation", "--no-deps", "--disable-pip-version-check"
        settings = f"-Cbuild-dir={self.build}", "-Csetup-args=-Dlevels=[]"
        pip = sys.executable, "-m", "pip", "install", *options, *settings
        run(*pip, "--upgrade", "--target", site, self.source)
        self.open.unlink(missing_ok=True)
        # Without it, the folder does not shadow the installed package.
        (self.source / "pyops" / "__init__.py").unlink()
        self.installed = site / "pyops" / "lib" / "libpyops.so"
        lines = run("ninja", "-t", "commands", "fortran/libpyops.so", cwd=self.build).splitlines()
        self.archive = next(line for line in lines if "libnodes.a.p/" in line and " csr" in line)
        self.link = lines[-1]
        self.made = {line.split()[-1]: line for line in lines if "/fypp " in line}
        self.compiled = {line.split()[-1]: line for line in lines if line.split()[-2] == "-c"}

    def affected(self, template: Path) -> list[str]:
        """Return the sources generated from a template or from templates that include it."""
        found = []
        for generated, line in self.made.items():
            inputs = [word for word in shlex.split(line) if word.endswith(".fypp")]
            whole = (self.build / inputs[0]).resolve().relative_to(self.source)
            if template in parts(ROOT / whole):
                found.append(generated)
        return found

    def try_out(self, mutant: Mutant) -> str:
        """Return what kills a fault, "" if nothing does, or why it does not count."""
        where = mutant.path.relative_to(ROOT)
        template = self.source / where
        self.open.write_text(str(where))
        self.sound = {path: path.read_bytes() for path in (template, self.installed)}
        try:
            template.write_text(mutant.text)
            if reason := self.compile(mutant.path):
                return reason
            stages, reached = tests(mutant.path), operators(mutant.path)
            if killer := next(filter(None, (self.test(s, reached) for s in stages)), ""):
                return killer
            self.compile(mutant.path, " -fcheck=all")  # as in `./run bounds`
            return self.test(stages[0], reached, SMALL)
        finally:
            for path, content in self.sound.items():
                if not path.exists() or path.read_bytes() != content:
                    path.write_bytes(content)
            self.open.unlink()

    def compile(self, template: Path, flags: str = "") -> str:
        """Install the library with the template as it is; if that fails, return why."""
        generated = self.make({self.build / n: self.made[n] for n in self.affected(template)})
        if generated is None:
            return DOES_NOT_COMPILE
        lines = {}
        for path in generated:
            line = self.compiled[path.relative_to(self.build).as_posix()]
            words = shlex.split(line)
            target = self.build / words[words.index("-o") + 1]
            lines[target] = line + flags
            for name in re.findall(r"^module (\w+)", path.read_text(), re.MULTILINE):
                module = target.with_name(f"{name}.mod")  # deleted after a compile error
                self.sound.setdefault(module, module.read_bytes())
        objects = self.make(lines)
        if objects == []:
            return SAME_CODE
        library = self.build / "fortran" / "libpyops.so"
        linked = objects and self.make({library: f"{self.archive} && {self.link}"})
        if not linked:
            return DOES_NOT_COMPILE
        shutil.copy(library, self.installed)
        return ""

    def make(self, commands: dict[Path, str]) -> list[Path] | None:
        """Return the files that commands build differently than without a fault, None on error."""
        for path, command in commands.items():
            self.sound.setdefault(path, path.read_bytes())
            if subprocess.run(command, shell=True, cwd=self.build, capture_output=True).returncode:
                return None
        return [path for path in commands if path.read_bytes() != self.sound[path]]

    def test(self, chosen: list[str], reached: Iterable[str] = (), fill: str = LARGE) -> str:
        """Return the first of some tests that fails, or how else they end; "" if they pass."""
        sanitized = any("gfortran" in word for word in chosen)  # with sanitizer allocators
        options = [
            *("-qx", "--tb=no", "-p", "no:cacheprovider", "-p", "tests.mutants.selection"),
            "--hypothesis-seed=0",
        ]
        environment = os.environ | ENVIRONMENT | ({} if sanitized else ALLOCATOR)
        environment |= {"REACHED": " ".join(reached), "MALLOC_PERTURB_": fill}
        with self.log.open("w") as log:
            process = subprocess.Popen(
                [self.python, "-m", "pytest", *options, *chosen],
                cwd=self.source,
                env=environment,
                stdout=log,
                stderr=log,
                preexec_fn=partial(prepare, None if sanitized else MOST_MEMORY),
            )
            try:
                status = process.wait(MOST_SECONDS)
            except subprocess.TimeoutExpired:
                return UNDECIDED
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if status < 0:
            return signal.Signals(-status).name
        said = self.log.read_text()
        if "subprocess.TimeoutExpired" in said or "TimeoutExpired: " in said:
            return UNDECIDED
        if status in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
            sys.exit(f"{said}\nmutants: pytest fails")
        if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return ""
        failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", said, re.MULTILINE)
        return failed[1] if failed else f"exit status {status}"
