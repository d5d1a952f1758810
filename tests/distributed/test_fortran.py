"""Programs in Fortran over ranks, by mpi_f08 of the compiler's MPI and by the ABI of MPI 5."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import pyops.__main__

from .. import ROOT
from .programs import fortran
from .test_ranks import ENVIRONMENT, MPIS, SECONDS, UNBOUND, passes

pytestmark = pytest.mark.bare
PROGRAMS = ROOT / "tests" / "distributed" / "programs"
EXAMPLE = ROOT / "examples" / "fortran" / "ranks.f90"
FC = os.environ.get("FC", "gfortran")
CHECKED = ["-g", "-O1", "-fcheck=all,no-array-temps", "-Wall", "-Wextra", "-Werror"]
CHECKED += ["-Wno-compare-reals", "-Wno-unused-dummy-argument", "-Wno-maybe-uninitialized"]
RANKS = 1, 2, 3


@dataclass(frozen=True)
class Toolchain:
    """Access to MPI: the file that programs include, compiler, flags and launcher."""

    file: str
    compiler: str
    flags: tuple[str, ...]
    launcher: tuple[str, ...]


def by_abi():
    """Return the toolchain of the ABI: the library of the wheel, and its launcher."""
    folder = MPIS.get("MPICH", Path())
    library = folder.parent / "lib"
    if not (library / "libmpi_abi.so").exists():
        return None
    flags = "-L", str(library), f"-Wl,-rpath,{library}", "-lmpi_abi"
    return Toolchain("pyops_ranks_abi.f90", FC, flags, (str(folder / "mpiexec"),))


def by_module():
    """Return the toolchain of the module mpi_f08: the wrapper of an MPI, and its launcher."""
    compiler = shutil.which("mpifort")
    launcher = compiler and Path(compiler).with_name("mpiexec")
    if not launcher or not launcher.exists():
        return None
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout
    options = UNBOUND["Open MPI"] if re.search("open.?mpi", version, re.IGNORECASE) else ()
    return Toolchain("pyops_ranks.f90", compiler, (), (str(launcher), *options))


TOOLCHAINS = {"the ABI": by_abi(), "mpi_f08": by_module()}


class Build:
    """Programs of one toolchain, in a folder."""

    def __init__(self, toolchain, folder):
        self.toolchain, self.folder = toolchain, folder
        source = folder / "ranks.f90"
        source.write_text(f'include "{toolchain.file}"\n')
        self.compile("-c", source)

    def compile(self, *arguments, folder=None):
        ours, flags = self.toolchain, pyops.__main__.flags()
        words = [ours.compiler, *CHECKED, *arguments, *flags, *ours.flags]
        done = subprocess.run(
            [str(word) for word in words],
            cwd=folder or self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def link(self, source):
        program = self.folder / source.stem
        if not program.exists():
            self.compile(source, "ranks.o", "-o", program)
        return program

    def run(self, ranks, program, *arguments):
        command = [*self.toolchain.launcher, "-n", ranks, program, *arguments]
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def passes(self, *arguments):
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module", params=TOOLCHAINS)
def build(request, tmp_path_factory):
    toolchain = TOOLCHAINS[request.param]
    if toolchain is None:
        pytest.skip(f"there is no MPI by {request.param}")
    if not shutil.which(FC):
        pytest.skip(f"there is no {FC}")
    return Build(toolchain, tmp_path_factory.mktemp("fortran"))


@pytest.fixture(scope="module")
def operators(build):
    """Return a program with a call of every operator."""
    (build.folder / "calls.inc").write_text(fortran.calls())
    (build.folder / "replicated.inc").write_text(fortran.replicated())
    source = build.folder / "operators.f90"
    fypp = Path(sys.executable).with_name("fypp")
    template = PROGRAMS / "operators.fypp"
    subprocess.run([fypp, f"-DCOUNT={len(fortran.chosen())}", template, source], check=True)
    return build.link(source)


@pytest.mark.parametrize("ranks", RANKS)
def test_operators(build, operators, ranks, tmp_path):
    """Every operator, all options, phases and precisions: equal to Python to the last bit.

    In `degree_normalised`, Python takes the degrees of all ranks, the nodes factors of messages.
    """
    passes(next(iter(MPIS)), ranks, "fortran", str(tmp_path))
    build.passes(ranks, operators, tmp_path)
    for rank in range(ranks):
        given, expected, found = (
            (tmp_path / f"{name}-{rank}").open("rb") for name in ("given", "expected", "found")
        )
        with given, expected, found:
            for case, what, dtype, length in fortran.results(given):
                a, b = (np.frombuffer(f.read(length), dtype) for f in (found, expected))
                assert a.nbytes == length, (rank, str(case), what)
                label = f"rank {rank}: {case}: {what}"
                if str(case).startswith("degree_normalised"):
                    close = 8 * np.finfo(dtype).eps * np.abs(b).max(initial=1)
                    np.testing.assert_allclose(a, b, rtol=0, atol=close, err_msg=label)
                else:
                    np.testing.assert_array_equal(a, b, label)
            assert not expected.read() + found.read()


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_derivatives(build, ranks):
    """A composed function against central differences, in all modes and orders."""
    build.passes(ranks, build.link(PROGRAMS / "derivatives.f90"))


MISTAKES = {
    "columns": "rank 1: exchange: x: expected 4 columns, got shape (2, 2)",
    "rows": "rank 1: expected the call of rank 0, exchange of 2 rows, real32, "
    "got exchange of 1 rows, real32",
    "owner": "rank 1: from_edges: dst: edge 1: expected a node of this rank from 5 to 8, got 13",
    "source": "rank 1: from_edges: src: edge 2: expected a node from 1 to 12, got 0",
    "lengths": "from_edges: src and dst: expected equal lengths, got 2 and 1",
    "ranges": "from_edges: owned: expected ranges that follow each other in the order of ranks, "
    "from 5 on rank 1, got 6 to 8",
    "reverse": "rank 1: from_edges: reverse: expected as many numbers as edges, 1, got 2",
    "other reverse": "rank 1: from_edges: reverse: expected the reverse of an edge to run from its "
    "destination to its source, got 1, which does not",
    "bipartite": "edge_to_edge: graph: expected the same nodes as sources and destinations, got "
    "one with owned_src",
    "values": "rank 1: replicated of shape (4, 1), real32 that requires a gradient: expected "
    "values that are equal on all ranks, got others than those of rank 0",
    "gradient": "rank 1: sum_over_ranks: gradient: expected values that are equal on all ranks",
    "constant": "rank 1: expected the call of rank 0, exchange of 1 rows, real32 that requires a "
    "gradient, got exchange of 1 rows, real32",
    "order": "rank 1: expected the call of rank 0, exchange of 1 rows, real32 that requires a "
    "gradient, got accumulate of 1 rows, real32",
    "operator": "gno_conv: coords: expected shape",
    "failed": "rank 1: exchange: expected arrays without errors",
    "cleared": "exchange: graph: expected one that has been filled",
    "finished": "replicated: comm: expected a communicator that was started",
    "started": "start: expected a communicator that was not started",
    "stop": "pyops: rank 1 of 3 ends without comm%finish(), and so do all ranks",
    "error stop": "out of luck",
    "finish": "rank 1: expected the call of rank 0, exchange of 1 rows, real32 that requires a "
    "gradient, got finish",
    "abort": "",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(build, name):
    """An error on one rank ends all of them, with an exit code and the reason."""
    done = build.run(3, build.link(PROGRAMS / "mistakes.f90"), name)
    assert done.returncode != 0
    assert "not reached" not in done.stdout
    assert MISTAKES[name] in done.stderr


@pytest.mark.parametrize("name", ["none", "handled"])
def test_program_goes_on(build, name):
    """Without an error, or if a handler takes it, all ranks go on and end by themselves."""
    done = build.run(3, build.link(PROGRAMS / "mistakes.f90"), name)
    assert done.returncode == 0, done.stderr
    heard = [line for line in done.stderr.splitlines() if line.startswith("heard")]
    operator = "gno_conv: coords: expected shape (1, 3), got (1, 2)"
    expected = [f"heard 2 {MISTAKES['columns']}", f"heard 3 {MISTAKES['ranges']}"] * 3
    expected += [f"heard 2 {operator}", *[f"heard 2 rank 1: {operator}"] * 2]
    assert sorted(heard) == (sorted(expected) if name == "handled" else [])


@pytest.mark.parametrize("flag", ["", "-fdefault-integer-8"])
def test_page(build, flag, tmp_path):
    """The program of the guide, also with integers of 8 bytes; any number of ranks agrees."""
    text = (ROOT / "docs" / "guide" / "fortran_distributed.md").read_text()
    program = re.search(r"```fortran\n(.*?)```", text, re.DOTALL)[1]
    source = tmp_path / "train.f90"
    source.write_text(program.replace("pyops_ranks.f90", build.toolchain.file))
    wide = [flag, "-Wno-conversion"] if flag else []
    build.compile(*wide, source, "-o", "train", folder=tmp_path)
    one, *others = (build.passes(ranks, tmp_path / "train") for ranks in RANKS)
    assert re.fullmatch(r"10  +\d\.\d{4}\n20  +\d\.\d{4}\n", one)
    assert others == [one, one]


def test_example(build):
    """Losses of the example agree on any number of ranks to all printed digits."""
    source = build.folder / "example.f90"
    source.write_text(EXAMPLE.read_text().replace('include "pyops_ranks.f90"\n', ""))
    program = build.link(source)
    outputs = [build.passes(ranks, program, 50) for ranks in RANKS]
    losses = [re.findall(r"step +\d+ +loss +\S+", output) for output in outputs]
    assert len(losses[0]) == 3
    assert losses[1:] == losses[:1] * (len(RANKS) - 1)
    first, *_, last = (float(line.split()[-1]) for line in losses[0])
    assert last < 0.3 * first
