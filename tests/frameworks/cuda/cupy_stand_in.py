"""Stand-in for the parts of CuPy that the benchmark uses, with host arrays as device arrays."""

import contextlib
from types import ModuleType, SimpleNamespace

import numpy as np

from . import host
from .platform import to_device


class Device:
    def synchronize(self):
        pass


class MemoryHook(contextlib.AbstractContextManager):
    """Hook that sees one array allocated and freed."""

    def __exit__(self, *_):
        facts = {"device_id": 0, "mem_size": 512, "mem_ptr": 1, "pmem_id": 1}
        self.malloc_postprocess(size=500, **facts)
        self.free_postprocess(**facts)


class RawKernel:
    """Kernel compiled for the host."""

    def __init__(self, code, name, options=()):
        defined = [option[2:].split("=") for option in options if option.startswith("-D")]
        head = "".join(f"#define {key} {value}\n" for key, value in defined)
        label = "-".join([name, *(value for _, value in defined)])
        self.library, self.name = host.build(head + code, [name], f"{label}.so"), name

    def __call__(self, grid, block, args):
        host.start(self.library, self.name, self.name, grid, block, args)


PROPERTIES = {"name": b"none", "totalGlobalMem": 1, "multiProcessorCount": 1, "l2CacheSize": 1}


def stand_in():
    made = ModuleType("cupy")
    made.__version__ = "0"
    made.cuda = SimpleNamespace(
        Device=Device,
        MemoryHook=MemoryHook,
        runtime=SimpleNamespace(
            getDeviceProperties=lambda number: PROPERTIES,
            driverGetVersion=lambda: 13000,
            runtimeGetVersion=lambda: 13000,
        ),
    )
    made.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    made.RawKernel = RawKernel
    made.copyto = np.copyto
    made.asarray = to_device
    made.ones = lambda shape, kind: to_device(np.ones(shape, kind))
    made.empty_like = lambda array: to_device(np.empty_like(array))
    made.take = lambda array, rows, axis: to_device(np.take(array, rows, axis))
    return made
