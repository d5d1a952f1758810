"""Timing of all sides: queues calls back to back, then synchronizes."""

import statistics
import time

SECONDS = 0.5
BATCH = 0.02


def once(call, wait):
    """Return the time of one call until its results are available."""
    start = time.perf_counter()
    wait(call())
    return time.perf_counter() - start


def seconds(call, wait, most=None):
    """Return the median time of a call, launches included, over as many as fit in the time."""
    for _ in range(3):
        wait(call())
    count = max(1, int(BATCH / once(call, wait)))
    found, stop = [], time.perf_counter() + (SECONDS if most is None else most)
    while len(found) < 5 or time.perf_counter() < stop:
        start = time.perf_counter()
        for _ in range(count):
            results = call()
        wait(results)
        found.append((time.perf_counter() - start) / count)
    return statistics.median(found)


def launch(call, wait, times=10):
    """Return the median time until a call returns with an empty queue: the host's share."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        results = call()
        found.append(time.perf_counter() - start)
        wait(results)
    return statistics.median(found)
