"""Builds of the Fortran API, shared by the tests of this folder."""

import pytest

from .compilers import COMPILERS, Build, Sources, available


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    return Sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session", params=COMPILERS)
def build(request, sources, tmp_path_factory):
    if request.param not in available():
        pytest.skip(f"no {request.param} here")
    return Build(request.param, sources, tmp_path_factory.mktemp(request.param))
