"""Number of threads of the kernels."""

import os
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .. import _kernels
from .eager import eager

_available = _kernels.pyops_process.available_threads
_processors = _kernels.pyops_process.available_processors
_startable = _kernels.pyops_process.startable_threads
MOST = 1024
_started = threading.local()  # .number: most threads that have started for the calling thread
_trial = threading.Lock()  # concurrent trials would compete for threads

_kernels.pyops_process.release_before_fork()


def _forget() -> None:
    global _started, _trial
    _started, _trial = threading.local(), threading.Lock()


os.register_at_fork(after_in_child=_forget)


@eager
def set_num_threads(number: int | None) -> None:
    """Set the number of threads of all following calls, or None for the default.

    Results do not depend on it, in any bit. A lower limit set afterwards for all of OpenMP, by
    threadpoolctl or torch, also applies.

    Parameters
    ----------
    number : int or None
        Number of threads, at least 1.

    Raises
    ------
    TypeError, ValueError
        If `number` is neither None nor a positive integer.
    """
    if number is not None:
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
            raise TypeError(
                f"set_num_threads: number: expected a positive integer or None, got {number!r}"
            )
        number = int(number)
        if not 1 <= number <= MOST:
            raise ValueError(f"set_num_threads: number: expected 1 to {MOST}, got {number}")
    limits[0], limits[1] = number or 0, _available()


@eager
def get_num_threads() -> int:
    """Return the number of threads that the next call may use.

    The default is what OpenMP offers (``OMP_NUM_THREADS``, threadpoolctl), but at most the number
    of processors available to this process.
    """
    return _number()


def _number() -> int:
    available = _available()
    chosen, available_then, quota = limits
    if not chosen:
        return min(available, _processors(), quota)
    return chosen if available >= available_then else min(chosen, available)


def team() -> int:
    """Return the team size. OpenMP aborts if a thread cannot start, so that is tried beforehand."""
    number = _number()
    started: int = getattr(_started, "number", 1)
    if number > started:
        with _trial:
            started = _started.number = _startable(number)
    return min(number, started)


def _quota() -> int:
    """Return the processors that the control groups allow this process."""
    return max(1, min((int(share) for share in _quotas(Path("/"))), default=MOST))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quota of each control group of this process and of its ancestors."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        group = mount / path.strip("/")
        for folder in (group, *group.parents):
            if controllers:  # cgroup version 1
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


limits = array("i", [0, MOST, _quota()])
"""The number set or 0, the number available when it was set, and the quota; also read by the
handler of JAX, whose `team` follows the one above."""
