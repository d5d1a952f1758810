"""Guarantees to a process that loads the library."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import pyops
import pyops.__main__

from ..support.cases import OPERATORS, PHASES, representative
from ..support.programs import run

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


@pytest.mark.bare
@pytest.mark.parametrize("name", OPERATORS)
def test_memory_stays(name):
    problem = representative(name).problem()
    for _ in range(500):
        for phase in PHASES:
            problem.run(phase)
    before = resident()
    for _ in range(2500):
        for phase in PHASES:
            problem.run(phase)
    assert resident() - before < 2**20


def test_no_array_of_edges_by_matrix_entries():
    """No array of edges times matrix elements is allocated: it would take 328 MB."""
    grown = run("""
        graph, *arrays = problem(1000, 20, 64, 64, 64)
        gy = rng.standard_normal((1000, 64), np.float32)
        h = [np.ones_like(a) for a in arrays]
        pyops.gno_conv(*problem(50, 20, 64, 8, 8), hidden=64)
        before = peak()
        pyops.gno_conv(graph, *arrays, hidden=64)
        pyops.gno_conv.backward(graph, *arrays, gy, hidden=64)
        pyops.gno_conv.double_backward(graph, *arrays, gy, *h, hidden=64)
        print(peak() - before)
    """)
    assert int(grown) < 64 * 2**20


@pytest.mark.bare
def test_memory_error():
    """A failed allocation of a work array raises MemoryError, and the interpreter survives."""
    said = run("""
        wide = problem(2, 1, 3000, 3000, 1)
        small = problem(10, 3, 4, 3, 3)
        pyops.gno_conv(*small, hidden=4)
        pyops.set_num_threads(1)
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + 2**26, -1))
        try:
            pyops.gno_conv(*wide, hidden=3000)
        except MemoryError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        pyops.gno_conv(*small, hidden=4)
        print("alive")
    """)
    assert said == "gno_conv: not enough memory for the working arrays\nalive\n"


@pytest.mark.bare
def test_threads_that_the_system_refuses():
    """If threads cannot be started, calls still succeed; OpenMP alone would end the process."""
    said = run("""
        from pyops._call.threads import team
        arguments = problem(300, 10, 16, 16, 16)
        pyops.set_num_threads(1)
        alone = pyops.gno_conv(*arguments, hidden=16)
        pyops.set_num_threads(1000)
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + 2**28, -1))
        ends = rng.integers(0, 50, (2, 200_000), np.int32)
        for _ in range(10):
            try:
                pyops.aggregate(pyops.Graph(*ends, 50, 50), np.ones((50, 1)))
                assert (pyops.gno_conv(*arguments, hidden=16) == alone).all()
            except MemoryError:
                pass
        print(team())
    """)
    assert 1 <= int(said) < 1000


LARGE = {
    "long": (4, 10_000, 100_000, 100_000, {"hidden": 2, "dim": 1, "in_features": 1}),
    "wide": (14, 1, 4500, 1500, {"hidden": 400, "dim": 400, "in_features": 40}),  # shared rows
}
"""MiB by which the limit grows, nodes, entries, edges, widths."""


@pytest.mark.bare
@pytest.mark.parametrize("size", LARGE)
@pytest.mark.parametrize("name", OPERATORS)
def test_memory_error_at_any_allocation(name, size):
    """With any memory limit, a call raises MemoryError or returns correct results."""
    step, nodes, entries, edges, widths = LARGE[size]
    said = run(
        f"""
        from tests.support.cases import PHASES, representative
        from tests.support.compare import assert_same
        from tests.support.graphs import shared
        ids = rng.permutation(np.arange({entries}) % {edges})
        graph = shared(*rng.integers(0, {nodes}, (2, {entries})), ids, {nodes}, {nodes}, {edges})
        large = representative("{name}").problem(graph, out_features=1, columns=1, **{widths})
        small = representative("{name}").problem()
        for phase in PHASES:
            small.run(phase)
        right = {{phase: large.run(phase) for phase in PHASES}}
        refused = 0
        for phase in PHASES:
            for extra in range(0, {step} * 5 * 2**20, {step} * 2**20):
                size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (size + extra, -1))
                try:
                    results = large.run(phase)
                except MemoryError:
                    refused += 1
                    results = None
                resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
                if results is not None:
                    assert_same(results, right[phase])
                del results
        print(refused)
    """,
        MALLOC_MMAP_THRESHOLD_="16384",
        MALLOC_ARENA_MAX="1",  # excludes reservations of other threads' arenas from the limit
    )
    has_rows = "num_" in representative(name).problem().rows("y")
    assert int(said) > 0 or size == "wide" or not has_rows  # these have only to survive


@pytest.mark.bare
def test_no_library_but_openmp():
    """The library links OpenMP, but no Fortran run-time library.

    The compiler calls its run-time library for temporary copies of arrays. Programs that stop look
    up the one procedure that they need by name.
    """
    library = pyops.__main__.library()
    assert set(re.findall(rb"_gfortran_\w*", library.read_bytes())) == {b"_gfortran_backtrace"}


@pytest.mark.bare
def test_arrays_begin_with_a_cache_line():
    """The linker has replaced malloc by an aligned allocator."""
    assert b"posix_memalign" in pyops.__main__.library().read_bytes()


def test_other_threads_run_meanwhile():
    """The GIL is released."""
    problem = representative("gno_conv").problem(
        pyops.Graph(*np.random.default_rng(0).integers(0, 4000, (2, 200_000))), hidden=64
    )
    pyops.set_num_threads(1)
    problem.run("forward")

    def longest_gap():
        """Return the longest gap as a share of the call."""
        thread = threading.Thread(target=problem.run, args=["backward"])
        gaps, start = [0.0], time.perf_counter()
        thread.start()
        while thread.is_alive():
            tick = time.perf_counter()
            time.sleep(1e-4)
            gaps.append(time.perf_counter() - tick)
        return max(gaps) / (time.perf_counter() - start)

    assert any(longest_gap() < 0.5 for _ in range(5))  # other programs may delay one


def test_main():
    before = os.times()
    done = subprocess.run([sys.executable, "-m", "pyops"], capture_output=True, text=True)
    after = os.times()
    assert done.returncode == 0, done.stdout + done.stderr
    used = sum(after[2:4]) - sum(before[2:4])  # processor time, independent of other programs
    assert used < 10
    assert f"pyops {pyops.__version__}" in done.stdout
    assert "libpyops" in done.stdout
    table = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    for name in [*OPERATORS, "elementwise"]:
        *phases, error = table[name]
        assert phases[:3] == ["forward", "backward", "double_backward"]
        assert float(error) < 1e-8
    assert {"multiply", "erf", "max"} <= set(done.stdout.split())
