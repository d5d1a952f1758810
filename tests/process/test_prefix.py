"""The library for Fortran and C alone: meson installs it, and CMake, fpm and pkg-config find it."""

import shutil

import pytest

from .. import ROOT
from ..support.pages import Server
from ..support.user_programs import EXAMPLES, FC, build_by_cmake, check_gradients, need, run

pytestmark = [pytest.mark.bare, pytest.mark.slow]  # the whole library is compiled
QUICK = "-Dlevels=[]", "-Dbuildtype=debug", "-Ddebug=false", "-Doptimization=1"


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


def test_fpm(build, tmp_path):
    """The package for fpm needs nothing but a compiler."""
    need("fpm")
    run("meson", "compile", "-C", build, "fpm")
    package = shutil.copytree(build / "fpm", tmp_path / "pyops")
    flags = "--profile", "debug", "--flag", "-O1 -DPYOPS_VECTOR=16"
    for example in "gno_conv", "gno_conv_c":
        output = run("fpm", "run", "--example", example, *flags, cwd=package, FPM_FC=FC)
        check_gradients(output.splitlines()[-1])
