"""Programs in Fortran and C against the package: flags, CMake and pkg-config."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyops.__main__

from ..support.user_programs import EXAMPLES, FC, build_by_cmake, check_gradients, need, run

pytestmark = pytest.mark.bare
STRICT = "-Wall", "-Wextra", "-pedantic", "-Werror"


def directory(option):
    """Return what `python -m pyops` prints, which an editable package refuses."""
    command = sys.executable, "-m", "pyops", option
    done = subprocess.run(command, capture_output=True, text=True)
    if "editable" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_cmake_with_the_wheel(tmp_path):
    build_by_cmake(tmp_path, f"-Dpyops_DIR={directory('--cmakedir')}")


MAKEFILE = """\
all: fortran c
fortran:
\t$(FC) {examples}/gno_conv.f90 $$(pkg-config --cflags --libs pyops) -o fortran
c:
\t$(CC) {examples}/gno_conv.c $$(pkg-config --cflags --libs pyops) -lm -o c
"""


def test_make_with_the_wheel(tmp_path):
    need("pkg-config", "make", "cc")
    search = directory("--pkgconfigdir")
    (tmp_path / "Makefile").write_text(MAKEFILE.format(examples=EXAMPLES))
    run("make", f"FC={FC}", cwd=tmp_path, PKG_CONFIG_PATH=search)
    for program in "fortran", "c":
        check_gradients(run(tmp_path / program))


def test_flags(tmp_path):
    """`pip install pyops-kernels` is enough for Fortran and C."""
    need(FC, "cc")
    flags = run(sys.executable, "-m", "pyops", "--flags").splitlines()[-1].split()
    run(FC, EXAMPLES / "gno_conv.f90", *flags, "-o", tmp_path / "fortran")
    check_gradients(run(tmp_path / "fortran"))
    run("cc", EXAMPLES / "gno_conv.c", *flags, "-lm", "-o", tmp_path / "c")
    check_gradients(run(tmp_path / "c"))


@pytest.mark.parametrize("name", ["a folder", "a\tb", "[0-9]*", "what?", "plain"])
def test_flags_in_a_shell(name, tmp_path):
    """Folder names with shell metacharacters are quoted."""
    need("sh", FC)
    for other in name, "a-folder", "0x", "whats":
        (tmp_path / other).mkdir(exist_ok=True)
    folders = [word for word in pyops.__main__.flags() if Path(word).is_dir()]
    links = {folder: tmp_path / name / str(i) for i, folder in enumerate(folders)}
    for folder, link in links.items():
        link.symlink_to(folder)
    words = [str(links.get(word, word)) for word in pyops.__main__.flags()]
    (tmp_path / "printed").write_text(" ".join(map(pyops.__main__.for_shell, words)))
    assert run("sh", "-c", "printf '%s\\n' $(cat printed)", cwd=tmp_path).splitlines() == words
    if name == "a folder":
        run("sh", "-c", f"{FC} {EXAMPLES / 'gno_conv.f90'} $(cat printed) -o example", cwd=tmp_path)
        check_gradients(run(tmp_path / "example"))


@pytest.mark.parametrize(
    "compiler",
    [("cc", "-std=c99"), ("cc", "-std=c17"), ("c++", "-std=c++11", "-x", "c++")],
    ids=lambda c: c[1][5:],
)
def test_header(compiler, tmp_path):
    """The header and the example compile without warnings, in C and C++."""
    need(compiler[0])
    flags = pyops.__main__.flags()
    run(*compiler, *STRICT, EXAMPLES / "gno_conv.c", *flags, "-lm", "-o", tmp_path / "example")
    check_gradients(run(tmp_path / "example"))


def test_header_is_whole():
    """Every procedure of the library with a C name is declared and documented in the header."""
    need("nm")
    include = pyops.__main__.flags()[1]
    header = Path(include, "pyops.h").read_text()
    symbols = run("nm", "--dynamic", "--defined-only", pyops.__main__.library())
    compiled = set(re.findall(r" T (pyops_[a-z0-9_]+)$", symbols, re.MULTILINE))
    assert set(re.findall(r"\b(pyops_\w+)\(", header)) == compiled
    for name in "coords", "poles", "edge_weight", "activation", "in_offsets":
        assert re.search(rf"^ \* {name} +\S+", header, re.MULTILINE), name


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return the folder of the examples of training, compiled against the package."""
    need(FC)
    folder = tmp_path_factory.mktemp("programs")
    flags = pyops.__main__.flags()
    for name in "darcy", "burgers":
        run(FC, "-O1", "-J", folder, EXAMPLES / f"{name}.f90", "-o", folder / name, *flags)
    return folder


@pytest.fixture
def twin(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    import twin

    return twin


def test_darcy(programs, twin, capfd):
    """Training in Fortran and in Python from the same initial values gives the same losses."""
    sizes = "--steps=24", "--samples=16", "--spacing=0.15", "--layers=2"
    losses, errors = twin.main([str(programs / "darcy"), *sizes])
    assert len(losses["Fortran"]) == 24
    assert losses["Fortran"][-1] < 0.5 * losses["Fortran"][0]
    np.testing.assert_allclose(losses["Fortran"][:20], losses["Python"][:20], rtol=0, atol=1e-5)
    assert errors["Fortran"] == pytest.approx(errors["Python"], abs=2e-3)


def test_burgers(programs):
    """The learned correction improves the solver."""
    output = run(programs / "burgers", "150", OMP_NUM_THREADS="1")
    plain, helped = map(float, re.search(r"end: +(\S+), +(\S+) with", output).groups())
    assert helped < 0.7 * plain
    assert re.search(r"takes \d+\.\d microseconds", output)
