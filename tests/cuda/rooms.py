"""Rooms of the device in the place of the compiled kernels of this machine."""

import contextlib
import functools
import importlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from pyops._operator import OPERATORS
from pyops._plan import arguments_of
from pyops.cuda import ops

ROOMS = {
    name: importlib.import_module(f"{ops.__name__}.{name}")
    for name in sorted(path.stem for path in Path(ops.__file__).parent.glob("[!_]*.py"))
}


def _kernel(room, compiled, rt):
    """The function of a room that stands for a compiled one, with its arguments by their names."""
    names = arguments_of(compiled)
    called = str(compiled.__doc__).partition("(")[0].split()[-1]
    function = getattr(ROOMS[room], called.removeprefix(f"{room}_")[:-3])

    def call(*values):
        held = {
            name: value.T if hasattr(value, "T") else value
            for name, value in zip(names, values, strict=True)
        }
        function(rt, SimpleNamespace(**held))
        return 0

    return call


@contextlib.contextmanager
def on_device(rt):
    """Operators with a room run in it, on the arrays of this machine."""
    with contextlib.ExitStack() as stack:
        for op in OPERATORS.values():
            if op.room not in ROOMS:
                continue
            for phase in (*op._phases.values(), *filter(None, (op._by_sample, op._attention))):
                stack.enter_context(mock.patch.object(phase, "_plans", {}))
                make = functools.partial(_make_plan, phase._make_plan, op.room, rt)
                stack.enter_context(mock.patch.object(phase, "_make_plan", make))
        yield


def _make_plan(make, room, rt, *args):
    plan = make(*args)
    return replace(plan, kernel=_kernel(room, plan.kernel, rt))
