"""Runs one peer at one thread count in its own process, with requests over a pipe.

Started as `python -m benchmarks.worker PEER THREADS DESCRIPTOR`, so that threads and affinity are
set before the library is loaded, and peak memory is that of the peer alone.
"""

import ctypes
import gc
import math
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import peers, problem

SAMPLE = 100_000
BURST, LONG = 0.02, 1.0


class Session:
    """Commands of the worker: each method answers one request."""

    def __init__(self, peer: str, threads: int):
        Path("/proc/self/oom_score_adj").write_text("1000")  # first choice of the OOM killer
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
        self.peer = peers.peer_module(peer)
        self.peer.set_threads(threads)
        self.calls = {}

    def versions(self):
        return self.peer.versions()

    def load(self, case):
        """Create the inputs, after a run of a tiny case if that compiles nothing."""
        self.case, self.operator = case, problem.operator_module(case)
        if not self.peer.COMPILED:
            for call in self.peer.load(self.operator, problem.tiny(case)).values():
                call()
        self.calls = self.peer.load(self.operator, problem.make(case))

    def first(self, phase):
        """Compile, then call once; return the additional memory and a sample of the results."""
        call = self.calls[phase]
        if self.peer.COMPILED:
            call()
        results, extra = peak_memory(call)
        arrays = self.peer.arrays(self.operator, self.case, results)
        return extra, [sample(array) for array in arrays]

    def seconds(self, phase):
        """Time a call, or the mean of a burst, after one warm-up call."""
        call = self.calls[phase]
        once = timed(call, 1)
        return once if once > LONG else timed(call, math.ceil(BURST / once))

    def overhead(self, case):
        """Return the seconds of one call of each phase of pyops, the median of many bursts."""
        calls = self.peer.alone(problem.operator_module(case), problem.make(case))
        for call in calls.values():
            call()
        return {
            phase: median(timed(call, 200) for _ in range(100)) for phase, call in calls.items()
        }

    def drop(self):
        self.calls = {}
        gc.collect()


def timed(call, count):
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def peak_memory(call):
    """Return the peak of resident bytes during the call, relative to those before it."""
    gc.collect()
    if memory := sys.modules.get("pyops._call.memory"):
        memory.Pages.lent.clear()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    results = call()
    return results, status("VmHWM") - before


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def sample(array):
    """Return the shape, and at most SAMPLE elements at fixed random positions."""
    places = np.random.default_rng(0).integers(max(array.size, 1), size=SAMPLE)
    flat = array.reshape(-1)
    return array.shape, flat if array.size <= SAMPLE else flat[places]


def serve(peer, threads, connection):
    gc.disable()
    session = None
    while True:
        try:
            command, *arguments = connection.recv()
        except EOFError:
            return
        try:
            session = session or Session(peer, threads)
            connection.send((True, getattr(session, command)(*arguments)))
        except ModuleNotFoundError as error:
            connection.send((False, f"{error.name}: not installed"))
        except Exception as error:
            connection.send((False, f"{type(error).__name__}: {error}".split("\n")[0]))


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Connection(int(sys.argv[3])))
