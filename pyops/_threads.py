"""How many threads the kernels use."""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from . import _kernels
from ._eager import eager

_available: Callable[[], int] = _kernels.pyops_process.available_threads
_processors: Callable[[], int] = _kernels.pyops_process.available_processors
_startable: Callable[[int], int] = _kernels.pyops_process.startable_threads
MOST = 1024
_asked: int | None = None
_available_then = MOST  # when that was asked for
_started = threading.local()  # by the calling thread: .number of threads that were seen to start
_trial = threading.Lock()  # two at once would take each other's threads

_kernels.pyops_process.release_before_fork()


def _forget() -> None:
    global _started, _trial
    _started, _trial = threading.local(), threading.Lock()


os.register_at_fork(after_in_child=_forget)


@eager
def set_num_threads(number: int | None) -> None:
    """Set the number of threads of all following calls, or None for the default.

    Results do not depend on it, not in the last bit. A lower limit that is set afterwards for all
    of OpenMP, by threadpoolctl or torch, holds as well.

    Raises
    ------
    TypeError, ValueError
        If `number` is neither None nor a positive integer.
    """
    global _asked, _available_then
    if number is not None:
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
            raise TypeError(
                f"set_num_threads: number: expected a positive integer or None, got {number!r}"
            )
        number = int(number)
        if not 1 <= number <= MOST:
            raise ValueError(f"set_num_threads: number: expected 1 to {MOST}, got {number}")
    _asked, _available_then = number, _available()


@eager
def get_num_threads() -> int:
    """The number of threads that the next call may use.

    By default what OpenMP offers (``OMP_NUM_THREADS``, threadpoolctl), but no more than the
    processors this process may run on.
    """
    return _number()


def _number() -> int:
    available = _available()
    if _asked is None:
        return min(available, _processors(), _quota())
    return _asked if available >= _available_then else min(_asked, available)


def team() -> int:
    """The threads of a call. OpenMP ends the process if it cannot start one, so they are tried."""
    number = _number()
    started: int = getattr(_started, "number", 1)
    if number > started:
        with _trial:
            started = _started.number = _startable(number)
    return min(number, started)


@functools.cache
def _quota() -> int:
    """Processors that the control groups leave to this process."""
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
