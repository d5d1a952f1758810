"""Runs one side of one case in its own process, so that peak memory is that side's alone.

Started as `python -m benchmarks.layers.worker FILE NUMBER SIDE THREADS DESCRIPTOR`.
"""

import gc
import importlib
import os
import sys
import time
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.layers.case import SIDES
from benchmarks.worker import peak_memory

SAMPLE = 200_000


def serve(file, number, side, threads, connection):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    import torch

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(0)
    case = importlib.import_module(f"benchmarks.layers.{file}").CASES[number]
    call = case.make()[SIDES.index(side)]
    call()
    results, extra = peak_memory(call)
    connection.send((extra, [sample(t.detach().numpy()) for t in results]))
    del results
    gc.disable()
    while connection.recv():
        start = time.perf_counter()
        results = call()
        connection.send(time.perf_counter() - start)
        del results


def sample(array):
    """Return the shape, the largest element, and at most SAMPLE elements at random positions."""
    places = np.random.default_rng(0).integers(max(array.size, 1), size=SAMPLE)
    flat = array.reshape(-1)
    largest = float(np.abs(flat).max(initial=0))
    return array.shape, largest, flat if array.size <= SAMPLE else flat[places]


if __name__ == "__main__":
    file, number, side, threads, descriptor = sys.argv[1:]
    serve(file, int(number), side, int(threads), Connection(int(descriptor)))
