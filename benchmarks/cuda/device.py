"""What the benchmark has of CuPy: waiting, memory, the facts of the machine."""

import cupy
import numpy as np

import pyops
from benchmarks.machine import describe


def wait(results=None):
    """Until all that was queued on the device is done, by any library."""
    cupy.cuda.Device().synchronize()


def free():
    cupy.get_default_memory_pool().free_all_blocks()


class Memory(cupy.cuda.MemoryHook):
    """The most bytes that arrays of CuPy held at once, beyond those from before."""

    name = "Memory"

    def __init__(self):
        self.held = self.most = 0

    def malloc_postprocess(self, **facts):
        self.held += facts["mem_size"]
        self.most = max(self.most, self.held)

    def free_postprocess(self, **facts):
        self.held -= facts["mem_size"]


def peak(call):
    with Memory() as memory:
        call()
    wait()
    return memory.most


def machine():
    """What a figure needs beside it."""
    runtime = cupy.cuda.runtime
    facts = runtime.getDeviceProperties(0)
    return describe() | {
        "device": facts["name"].decode(),
        "device memory": facts["totalGlobalMem"],
        "multiprocessors": facts["multiProcessorCount"],
        "level 2 cache": facts["l2CacheSize"],
        "driver": runtime.driverGetVersion(),
        "runtime": runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
        "numpy": np.__version__,
        "pyops": f"{pyops.__version__}, {pyops.__file__}",
    }
