"""Builds of the Fortran API, shared by the tests of this folder."""

import functools

import pytest

from .compilers import COMPILERS, Build, Sources, available


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    return Sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session")
def compiled(sources, tmp_path_factory):
    """Return a function of a compiler that returns its build of the nodes, compiled once."""

    @functools.cache
    def nodes(compiler):
        if compiler not in available():
            pytest.skip(f"no {compiler} here")
        return Build(compiler, sources, tmp_path_factory.mktemp(compiler))

    return nodes


@pytest.fixture(scope="session", params=COMPILERS)
def build(request, compiled):
    return compiled(request.param)
