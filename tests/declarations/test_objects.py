"""Operators as Python objects."""

import builtins
import inspect
import pickle
import pydoc
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pyops
from pyops._call.compound import COMPOUNDS
from pyops._call.operator import OPERATORS

from ..support.cases import EVERY, PHASES, representative
from ..support.compare import assert_same

every_operator = pytest.mark.parametrize("name", EVERY)


@every_operator
def test_help(name):
    op = EVERY[name]
    text = pydoc.plain(pydoc.render_doc(op))
    assert repr(op) == f"{name}{inspect.signature(op)}"
    for i in op.signature.inputs.values():
        assert f"{i.name} : array, shape (" in text
    for option in [*op.signature.options.values()]:
        assert re.search(rf"^ +(.*, )?{option.name}(, .*)? : ", text, re.MULTILINE)
        for choice in option.choices if option.kind is not bool else ():
            assert repr(choice) in text or f'"{choice}"' in text
    for part in "Returns", "References", ".backward(", ".double_backward(", ".jvp(":
        assert part in text


def test_short_calls(monkeypatch):
    """A call whose plan is cached enters few functions of Python, whose time adds to the kernel's.

    torch.compile, where it is imported, may exclude functions from tracing by further calls.
    """
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    graph = pyops.Graph([0, 1, 2], [1, 2, 0])
    rng = np.random.default_rng(0)
    x, attention = rng.random((3, 4)), rng.random(8)
    entered = []

    def call():
        return pyops.gat(graph, x, x, attention, heads=2)

    def note(frame, event, argument):
        if event == "call" and frame.f_code is not call.__code__:
            entered.append(frame.f_code.co_name)

    call()
    sys.setprofile(note)
    call()
    sys.setprofile(None)
    assert len(entered) <= 15, entered


def test_star_import():
    """A star import brings public names, and shadows no builtin function."""
    found = {}
    exec("from pyops import *", found)
    del found["__builtins__"]
    assert found == {name: getattr(pyops, name) for name in pyops.__all__}
    assert {*OPERATORS, *COMPOUNDS} - found.keys() == {"abs", "max", "min", "sum"}
    assert not found.keys() & {*dir(builtins)}
    star = {"check_gradients": pyops.testing.check_gradients}
    assert {n: getattr(pyops.testing, n) for n in pyops.testing.__all__} == star


@every_operator
def test_signature(name):
    op = EVERY[name]
    parameters = inspect.signature(op).parameters
    names = [*op.signature.positional, *op.signature.options, *op.signature.indexed]
    assert list(parameters) == names
    for i in op.signature.inputs.values():
        shown = [", ".join(size.text for size in form) for form in i.forms]
        assert parameters[i.name].annotation == " | ".join(shown)
    for option in op.signature.options.values():
        assert parameters[option.name].kind is inspect.Parameter.KEYWORD_ONLY


@every_operator
@pytest.mark.parametrize("phase", PHASES[1:])
def test_signature_of_a_phase(name, phase):
    """A phase takes the arguments of its signature, by position and by name."""
    problem, method = representative(name).problem(), getattr(EVERY[name], phase)
    bound = inspect.signature(method).bind(*problem.arguments(phase), **problem.options)
    inputs = problem.op.signature.inputs
    own = {"h" + n: "t" + n for n in inputs} if phase == "jvp" else {}
    expected = [own.get(n, n) for n in problem.names(phase)]
    assert [n for n in bound.arguments if n not in {"graph", *problem.options}] == expected
    y = method(**bound.arguments)
    assert_same(y if isinstance(y, tuple) else (y,), problem.run(phase))


@every_operator
def test_pickle(name):
    op = EVERY[name]
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(op, protocol)) is op
    assert pickle.loads(pickle.dumps(op.backward)) == op.backward


@every_operator
def test_python_threads_at_once(name):
    """Each thread has its own problem, with one kernel thread or several."""
    widths = [{"hidden": 8 + k % 5, "dim": 2} for k in range(8)]
    problems = [representative(name).problem(**w) for w in widths]

    def work(k):
        return [problems[k % 8].run(phase) for phase in PHASES]

    alone = [work(k) for k in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            for k, results in enumerate(pool.map(work, range(400))):
                for got, expected in zip(results, alone[k % 8], strict=True):
                    assert_same(got, expected)
    finally:
        sys.setswitchinterval(interval)
