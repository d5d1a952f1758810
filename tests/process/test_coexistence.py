"""The library beside others in one process: processor modes, OpenMP, torch."""

import importlib.util
import os
import platform

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import pyops
from pyops._call.threads import _quotas

from ..support.programs import run


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the registers of x86-64")
def test_floating_point_modes():
    """Rounding, precision, traps and the flushing of subnormal numbers remain unchanged."""
    run(
        """
        import ctypes
        libm = ctypes.CDLL("libm.so.6")
        def modes():
            registers = (ctypes.c_uint32 * 2)()
            assert libm.fegetmode(registers) == 0
            x87, mxcsr = registers
            return x87 & 0xffff, mxcsr & ~0x3f  # without the exceptions so far
        before = modes()
        import numpy as np, pyops
        assert modes() == before
        from tests.support.cases import PHASES, VARIANTS
        for threads in 1, 2:
            pyops.set_num_threads(threads)
            for case in VARIANTS:
                problem = case.problem()
                for dtype in np.float32, np.float64:
                    for phase in PHASES:
                        problem.map(dtype).run(phase)
                        assert modes() == before
        """,
        first="",
    )


@threadpool_limits.wrap(limits=4)  # torch may have set OpenMP to one thread
def test_number_of_threads():
    default = pyops.get_num_threads()
    assert 1 <= default <= min(4, os.cpu_count())
    with threadpool_limits(1):
        assert pyops.get_num_threads() == 1
    pyops.set_num_threads(default + 5)
    assert pyops.get_num_threads() == default + 5
    with threadpool_limits(1):  # the later limit holds
        assert pyops.get_num_threads() == 1
        pyops.set_num_threads(default + 3)
        assert pyops.get_num_threads() == default + 3
    assert pyops.get_num_threads() == default + 3
    pyops.set_num_threads(None)
    assert pyops.get_num_threads() == default


def test_openmp_says_how_many_threads():
    said = run("print(pyops._kernels.pyops_process.available_threads())", OMP_NUM_THREADS="3")
    assert int(said) == 3


def test_threadpoolctl_limits_what_runs():
    assert "libgomp" in [pool["prefix"] for pool in threadpool_info()]
    run("""
        import os
        from threadpoolctl import threadpool_limits
        def threads():
            return len(os.listdir("/proc/self/task"))
        arguments = problem(300, 10, 16, 16, 16)
        before = threads()
        with threadpool_limits(1, user_api="openmp"):
            pyops.gno_conv(*arguments, hidden=16)
            assert threads() == before
        pyops.gno_conv(*arguments, hidden=16)
        assert threads() == before + pyops.get_num_threads() - 1
    """)


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")
@pytest.mark.parametrize("modules", ["pyops, torch", "torch, pyops"])
def test_one_openmp_with_torch(modules):
    said = run(
        f"""
        import {modules}
        maps = [line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line]
        print(*sorted(set(maps)))
        """,
        first="",
    )
    assert len(said.split()) == 1


@pytest.mark.parametrize(
    ("groups", "files", "processors"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, [1.5]),
        ("0::/", {"cpu.max": "max 100000"}, []),
        ("0::/a/b", {"a/cpu.max": "400000 100000", "a/b/cpu.max": "max 100000"}, [4]),
        (
            "3:cpu,cpuacct:/job\n1:memory:/",
            {"cpu/job/cpu.cfs_quota_us": "250000", "cpu/job/cpu.cfs_period_us": "100000"},
            [2.5],
        ),
        ("3:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, []),
        ("0::/not/mounted/here", {}, []),
    ],
)
def test_quotas_of_control_groups(tmp_path, groups, files, processors):
    texts = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in (texts | {"proc/self/cgroup": groups}).items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert [*_quotas(tmp_path)] == processors
