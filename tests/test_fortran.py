"""The Fortran face: every node against finite differences in Fortran, and against Python."""

import pytest

from .compilers import COMPILERS, ROOT, Build, Sources, available

PROGRAMS = ROOT / "tests" / "fortran"
pytestmark = pytest.mark.bare


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    return Sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session", params=COMPILERS)
def build(request, sources, tmp_path_factory):
    if request.param not in available():
        pytest.skip(f"no {request.param} here")
    return Build(request.param, sources, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("variant", ["r8", "r4"])
def test_operators(build, sources, variant):
    programs = []
    for name in "checking", "operators":
        target = sources.folder / f"{name}_{variant}.f90"
        sources.expand(PROGRAMS / f"{name}.fypp", target, VARIANT=variant, KERNELS=sources.kernels)
        programs.append(target)
    build.run(*programs)
