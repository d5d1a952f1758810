"""Calls of the device operators with host arrays, through the device front end."""

import contextlib
import importlib
from unittest import mock

import numpy as np

from pyops import Graph
from pyops._call.operator import OPERATORS as OPERATORS
from pyops._call.phase import Phase
from pyops.cuda import _device, ops
from pyops.cuda._dispatch import supported

from .platform import Platform, to_device

MODULES = {name: importlib.import_module(f"{ops.__name__}.{name}") for name in supported()}
DEVICE = False
"""Whether there is a real device, which determines its own order of execution."""


def move(argument):
    """Move an argument to the device."""
    if isinstance(argument, Graph):
        return argument.to_device()
    if not isinstance(argument, np.ndarray):
        return argument
    if DEVICE:
        import cupy

        return cupy.asarray(argument)
    return to_device(argument)


def back(result):
    """Move a result to the host."""
    return result.get() if DEVICE else result.view(np.ndarray)


@contextlib.contextmanager
def on_device(rt):
    """Run operators that have device kernels on the device, with results moved to the host."""
    run = Phase.run

    def moved(phase, given, options, wanted=None, out=None, accumulate=False):
        if not {part.declaration for part in phase.parts} <= MODULES.keys():
            return run(phase, given, options, wanted, out, accumulate)
        outs = None if out is None else [*map(move, out)]
        results = run(phase, [*map(move, given)], options, wanted, outs, accumulate)
        return tuple(None if r is None else back(r) for r in results)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Phase, "run", moved))
        if not DEVICE:
            stack.enter_context(mock.patch.object(_device, "found", return_value=Platform(rt)))
        yield
