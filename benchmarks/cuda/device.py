"""Uses of CuPy: synchronization, memory, and facts of the machine."""

import cupy
import numpy as np

import pyops
from benchmarks.machine import describe


def wait(results=None):
    """Wait until all work queued on the device, by any library, is done."""
    cupy.cuda.Device().synchronize()


def free():
    cupy.get_default_memory_pool().free_all_blocks()


class Memory(cupy.cuda.MemoryHook):
    """Peak of bytes that CuPy arrays hold, excluding arrays from before."""

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
    """Return the facts needed to interpret a measurement."""
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
