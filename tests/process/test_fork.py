"""Child processes of a process whose kernels use several threads."""

import pytest

from ..support.programs import run


@pytest.mark.parametrize("forks", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_fork(forks):
    run(f"""
        import os, signal
        signal.alarm(55)
        pyops.set_num_threads(4)
        arguments = problem(300, 10, 16, 16, 16)
        y = pyops.gno_conv(*arguments, hidden=16)
        for _ in range({forks}):
            if os.fork() == 0:
                signal.alarm(5)
                os._exit(not (pyops.gno_conv(*arguments, hidden=16) == y).all())
            assert (pyops.gno_conv(*arguments, hidden=16) == y).all()
            assert os.wait()[1] == 0
    """)


def test_fork_by_others():
    """A fork that bypasses Python, as in C libraries, is safe."""
    run("""
        import ctypes, os, signal
        signal.alarm(55)
        pyops.set_num_threads(4)
        arguments = problem(300, 10, 16, 16, 16)
        y = pyops.gno_conv(*arguments, hidden=16)
        for _ in range(20):
            if ctypes.PyDLL(None).fork() == 0:
                signal.alarm(5)
                os._exit(not (pyops.gno_conv(*arguments, hidden=16) == y).all())
            assert (pyops.gno_conv(*arguments, hidden=16) == y).all()
            assert os.wait()[1] == 0
    """)


@pytest.mark.parametrize(
    ("method", "workers"),
    [
        ("fork", 20),
        ("spawn", 2),
        ("forkserver", 4),
        pytest.param("fork", 1000, marks=pytest.mark.slow),
        pytest.param("spawn", 50, marks=pytest.mark.slow),
    ],
)
def test_pool(method, workers):
    """Workers that live for one task each run while their parent computes."""
    run(f"""
        import multiprocessing, signal
        signal.alarm(55)
        pyops.set_num_threads(2)
        arguments = problem(300, 10, 16, 16, 16)
        y = pyops.gno_conv(*arguments, hidden=16)
        with multiprocessing.get_context("{method}").Pool(2, signal.alarm, [10], 1) as pool:
            task = pyops.gno_conv, arguments, dict(hidden=16)
            for result in [pool.apply_async(*task) for _ in range({workers})]:
                while not result.ready():
                    assert (pyops.gno_conv(*arguments, hidden=16) == y).all()
                assert (result.get() == y).all()
    """)
