"""Packages for Fortran and C: meson, CMake, fpm, pkg-config and pip build the examples."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyops.__main__

from .. import ROOT
from ..support.pages import Server

pytestmark = pytest.mark.bare
EXAMPLES = ROOT / "examples" / "fortran"
STRICT = "-Wall", "-Wextra", "-pedantic", "-Werror"
QUICK = "-Dlevels=[]", "-Dbuildtype=debug", "-Ddebug=false", "-Doptimization=1"
FC = os.environ.get("FC", "gfortran")


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"there is no {tool}")


def run(*command, cwd=None, **environment):
    """Return the output of a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=os.environ | {name: str(value) for name, value in environment.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}"
    return done.stdout


def check_gradients(output):
    """Run an example, which compares a slope with a central difference and fails if they differ."""
    slope, difference = map(float, re.findall(r"-?\d+\.\d+", output))
    assert slope == pytest.approx(difference, rel=1e-6)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Return a build folder of the library for Fortran and C alone."""
    need("meson", "ninja", "fypp", FC)
    folder = tmp_path_factory.mktemp("library")
    prefix = f"--prefix={folder / 'prefix'}"
    run("meson", "setup", folder / "build", ROOT, "-Dpython=disabled", prefix, *QUICK)
    run("meson", "install", "-C", folder / "build")
    return folder / "build"


@pytest.fixture(scope="module")
def prefix(build):
    return build.parent / "prefix"


@pytest.fixture(scope="module")
def search(prefix):
    """Return PKG_CONFIG_PATH."""
    (file,) = prefix.rglob("pyops.pc")
    return file.parent


@pytest.fixture(scope="module")
def programs(search, tmp_path_factory):
    """Return the examples, built by meson."""
    need("pkg-config")
    folder = tmp_path_factory.mktemp("meson")
    run("meson", "setup", folder, EXAMPLES, PKG_CONFIG_PATH=search)
    run("meson", "compile", "-C", folder)
    return folder


@pytest.mark.parametrize("example", ["gno_conv", "gno_conv_c"])
def test_meson(programs, example):
    check_gradients(run(programs / example))


def test_nothing_of_python(prefix):
    assert [path for path in prefix.rglob("*") if "python" in path.name] == []


def build_by_cmake(folder, *options):
    """Build and run the examples."""
    need("cmake")
    environment = {} if shutil.which("make") else {"CMAKE_GENERATOR": "Ninja"}
    run("cmake", "-S", EXAMPLES, "-B", folder, *options, **environment)
    run("cmake", "--build", folder)
    for example in "gno_conv", "gno_conv_c":
        check_gradients(run(folder / example))


def test_cmake(prefix, tmp_path):
    build_by_cmake(tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")


def test_cmake_version(prefix, tmp_path):
    """An unavailable version is refused."""
    need("cmake")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(user LANGUAGES NONE)\n"
        "find_package(pyops 99)\nif(pyops_FOUND)\nmessage(FATAL_ERROR found)\nendif()\n"
    )
    environment = {} if shutil.which("make") else {"CMAKE_GENERATOR": "Ninja"}
    run("cmake", "-S", tmp_path, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", **environment)


def test_pkg_config(search, tmp_path):
    need("pkg-config")
    flags = run("pkg-config", "--cflags", "--libs", "pyops", PKG_CONFIG_PATH=search).split()
    run(FC, EXAMPLES / "gno_conv.f90", *flags, "-o", tmp_path / "example")
    check_gradients(run(tmp_path / "example"))


def test_page_of_linking(prefix, search, tmp_path):
    """The build files and commands of the page, with the programs that it shows."""
    environment = {} if shutil.which("make") else {"CMAKE_GENERATOR": "Ninja"}
    environment |= {"PKG_CONFIG_PATH": search, "CMAKE_PREFIX_PATH": prefix}
    server = Server(**environment)
    count, report = server.run(ROOT / "docs" / "guide" / "linking.md", tmp_path)
    server.close()
    assert count or "there is no" in report


def test_moved(prefix, tmp_path):
    """No installed file contains the installation prefix."""
    need("pkg-config")
    moved = shutil.copytree(prefix, tmp_path / "moved")
    (file,) = moved.rglob("pyops.pc")
    flags = run("pkg-config", "--cflags", "--libs", "pyops", PKG_CONFIG_PATH=file.parent)
    assert str(prefix) not in flags
    run(FC, EXAMPLES / "gno_conv.f90", *flags.split(), "-o", tmp_path / "example")
    check_gradients(run(tmp_path / "example"))


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


@pytest.mark.slow
def test_fpm(build, tmp_path):
    """The package for fpm needs nothing but a compiler."""
    need("fpm")
    run("meson", "compile", "-C", build, "fpm")
    package = shutil.copytree(build / "fpm", tmp_path / "pyops")
    flags = "--profile", "debug", "--flag", "-O1 -DPYOPS_VECTOR=16"
    for example in "gno_conv", "gno_conv_c":
        output = run("fpm", "run", "--example", example, *flags, cwd=package, FPM_FC=FC)
        check_gradients(output.splitlines()[-1])


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
