"""Runs the same training with the layers of two packages, each in a process of its own."""

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np


def measured(train, package, threads):
    """Results of the training, its time, and its peak memory beside that of the imports."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    step, result = train(package)
    torch.manual_seed(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = result()
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return [t.detach().numpy() for t in found], float(np.median(seconds)), peak / 1024, loss


def compare(train, original, drop_in, threads=1):
    """Print both and their differences; returns the largest, and the ratios of time and memory.

    `train(package)` returns two functions: a training step, which returns the loss, and one that
    returns the tensors to compare.
    """
    rows = []
    for package in (original, drop_in):
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            rows.append(pool.submit(measured, train, package, threads).result())
        _, seconds, peak, loss = rows[-1]
        print(
            f"{package:22} {1e3 * seconds:8.0f} ms a step  {peak:8.0f} MB at the peak"
            f"   loss {loss:.6f}"
        )
    (theirs, *others), (ours, *own) = rows
    difference = max(
        float(np.abs(one - other).max() / np.abs(other).max())
        for one, other in zip(ours, theirs, strict=True)
    )
    time_ratio, memory_ratio = others[0] / own[0], others[1] / max(own[1], 1e-3)
    print(f"largest difference of any result or gradient, by its largest entry: {difference:.1e}")
    print(f"{time_ratio:.1f} times as fast, {memory_ratio:.1f} times less memory\n")
    return difference, time_ratio, memory_ratio
