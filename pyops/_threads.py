"""How many threads the kernels use."""

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from . import _kernels

_available: Callable[[], int] = _kernels.pyops_process.available_threads
MOST = 1024
_asked: int | None = None

os.register_at_fork(before=_kernels.pyops_process.release_threads)


def set_num_threads(number: int | None) -> None:
    """Set the number of threads of all following calls, or None for the default.

    Results do not depend on it, not in the last bit.

    Raises
    ------
    TypeError, ValueError
        If `number` is neither None nor a positive integer.
    """
    global _asked
    if number is not None:
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
            raise TypeError(
                f"set_num_threads: number: expected a positive integer or None, got {number!r}"
            )
        number = int(number)
        if not 1 <= number <= MOST:
            raise ValueError(f"set_num_threads: number: expected 1 to {MOST}, got {number}")
    _asked = number


def get_num_threads() -> int:
    """The number of threads that the next call may use.

    By default what OpenMP offers (``OMP_NUM_THREADS``, threadpoolctl), but no more than the
    processors this process may run on.
    """
    return _asked or min(_available(), _processors())


def _processors() -> int:
    """Processors that affinity and the control groups leave to this process."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    return min(count, _quota())


@functools.cache
def _quota() -> int:
    return max(1, min((int(share) for share in _quotas(Path("/"))), default=MOST))


def _quotas(root: Path) -> Iterator[float]:
    """Processors that each control group of this process, and each above it, may keep busy."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        group = mount / path.strip("/")
        for folder in (group, *group.parents):
            if controllers:  # version 1
                quota = _lines(folder / "cpu.cfs_quota_us") + _lines(folder / "cpu.cfs_period_us")
            else:
                quota = " ".join(_lines(folder / "cpu.max")).split()
            if len(quota) == 2 and quota[0].isdigit():
                yield int(quota[0]) / int(quota[1])
            if folder == mount:
                break


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
