"""The benchmark, line by line: small cases, stand-ins for CuPy and for torch's memory."""

import importlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cases import PHASES, Case
from benchmarks.cuda import __main__ as command
from benchmarks.cuda import report as reports
from benchmarks.cuda import worker as workers
from benchmarks.cuda.cases import CASES, OPERATORS, PEERS, TARGETS
from pyops.cuda import _device

from ... import ROOT
from .cupy_stand_in import stand_in
from .host import COMPILER
from .platform import Platform

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
MODULES = "device", "limits", "sides", "measure"
SMALL = {"nodes": 6, "degree": 2, "hidden": 4, "width": 4}
SMALL_CASES = [replace(case, **SMALL, heads=min(2, case.heads)) for case in CASES]


@pytest.fixture
def bench(monkeypatch):
    """Return the benchmark's modules, with stand-ins for the parts of a device."""
    names = [f"benchmarks.cuda.{name}" for name in MODULES]
    monkeypatch.setitem(sys.modules, "cupy", stand_in())
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    made = Platform()
    monkeypatch.setattr(_device, "found", lambda: made)
    _, limits, sides, measure = map(importlib.import_module, names)
    monkeypatch.setattr(limits, "SIZE", 400)
    monkeypatch.setattr(limits, "SIDE", 8)
    monkeypatch.setattr(limits, "UNROLLED", (2,))
    timing = importlib.import_module("benchmarks.cuda.timing")
    monkeypatch.setattr(timing, "SECONDS", 0)
    monkeypatch.setattr(timing, "BATCH", 0)
    monkeypatch.setattr(sides, "TORCH", "cpu")
    monkeypatch.setattr(sides, "JAX", "cpu")
    try:
        import torch
    except ImportError:
        pass
    else:
        for name in "synchronize", "reset_peak_memory_stats", "empty_cache":
            monkeypatch.setattr(torch.cuda, name, lambda: None)
        for name in "memory_allocated", "max_memory_allocated":
            monkeypatch.setattr(torch.cuda, name, lambda: 0)
        monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    yield measure
    for name in names:
        sys.modules.pop(name, None)


class Here:
    """Worker in this process, with small cases."""

    def __init__(self, measure):
        self.measure = measure

    def ask(self, until, name, *arguments):
        more = [SMALL_CASES] if name == "measure" else []
        yield from getattr(self.measure, name)(*arguments, *more)

    def close(self):
        pass


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator(operator, bench, tmp_path, capsys):
    path = tmp_path / "new" / "cuda.json"
    command.main([operator, f"--json={path}"], Here(bench))
    text, found = capsys.readouterr().out, json.loads(path.read_text())
    mine = [r for r in found["records"] if r.get("who") == "pyops" and r["what"] == "time"]
    asked = [phase for case in CASES if case.operator == operator for phase in case.phases]
    assert [r["phase"] for r in mine] == asked, text
    assert all(r["seconds"] > 0 and r["bytes"] == 512 for r in mine)
    assert not any(r.get("who") in ("gather", "limits") for r in found["records"]), text
    gathers = operator in ("gat", "gat_v2", "transformer_conv")
    assert ("one gather of the rows" in text) == gathers
    halves = [r for r in found["records"] if r.get("who") == "pyops float16"]
    assert [r["phase"] for r in halves] == asked * gathers, text
    assert all(r["apart"] < 0.05 for r in halves), text
    assert len(found["targets"]) == sum(
        target.operator == case.operator and target.phase in case.phases
        for target in TARGETS
        for case in CASES
        if case.operator == operator
    )
    if importlib.util.find_spec("torch"):
        theirs = [r for r in found["records"] if r.get("who") in ("torch", "torch_compile")]
        assert [r["what"] for r in theirs] == ["time"] * (2 * len(asked)), text
        assert max(r["apart"] for r in theirs) < 1e-4
    if not importlib.util.find_spec("jax"):
        assert "jax: ModuleNotFoundError" in text


class Script:
    """Worker that answers with given records."""

    def __init__(self, times, gather=1.0):
        self.times, self.gather = times, gather

    def ask(self, until, name, number=None, *_):
        case = number is not None and CASES[number]
        where = {"case": number, "title": "", "nodes": 1}
        if case:
            ways = {"pyops.aggregate": self.gather}
            yield where | {"what": "gather", "seconds": self.gather, "bytes": 1, "ways": ways}
        for (who, phase), took in self.times.items() if case else ():
            number = {"seconds": took, "launch": 0.0, "first": 0.0, "bytes": None, "apart": 2e-3}
            yield where | {"what": "time", "who": who, "phase": phase, **number}

    def close(self):
        pass


@pytest.mark.parametrize(
    ("operator", "times", "reached", "ratio"),
    [
        ("gat", {("pyops", "backward"): 4.0}, "reached", 2),
        ("gat", {("pyops", "backward"): 4.1}, "NOT REACHED", 2.05),
        ("gno_conv", {("pyops", "backward"): 1.0, ("jax", "backward"): 10.0}, "reached", 10),
        (
            "gno_conv",
            {("pyops", "backward"): 1.0, ("jax", "backward"): 9.0, ("torch", "backward"): 20.0},
            "NOT REACHED",
            9,
        ),
        ("gno_conv", {("pyops", "backward"): 1.0}, "not measured", None),
        ("gno_conv", {("jax", "backward"): 1.0}, "not measured", None),
        (
            "dimenet_aggregate",
            {("pyops", "double_backward"): 1.0, ("torch", "double_backward"): 5.0},
            "reached",
            5,
        ),
    ],
)
def test_targets(operator, times, reached, ratio, tmp_path, capsys):
    command.main([operator, f"--json={tmp_path / 'a.json'}"], Script(times))
    results = json.loads((tmp_path / "a.json").read_text())["targets"]
    assert {r["reached"] for r in results} == {reached}
    assert {r["ratio"] for r in results} == {ratio}
    assert reached in capsys.readouterr().out


def test_other_answers_are_said_loudly(capsys):
    times = {("pyops", "forward"): 1.0, ("torch", "forward"): 2.0}
    command.main(["gat"], Script(times))
    assert "THE ANSWERS OF torch DIFFER FROM OURS: 2.0e-03" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "one\ntwo"])
def test_a_side_that_fails_is_a_line(text, bench, monkeypatch):
    sides = sys.modules["benchmarks.cuda.sides"]

    def fail(name, problem):
        raise RuntimeError(text)

    monkeypatch.setattr(sides, "side", fail)
    found = [*bench.measure(0, np.inf, [Case("gno_conv", **SMALL, phases=PHASES[:1])])]
    failed = [r for r in found if r["what"] == "failure"]
    assert [r["who"] for r in failed] == list(PEERS)
    assert all(r["why"] in ("RuntimeError: nothing said", "RuntimeError: one") for r in failed)
    assert next(r["who"] for r in found if r["what"] == "time") == "pyops"


def test_nothing_begins_after_the_time(bench, capsys):
    found = [*bench.measure(0, 0, [Case("gno_conv", **SMALL)])]
    assert {r["why"] for r in found} == {"no time was left"}
    command.main(["gat", "--minutes=-1"], Script({}))
    assert "no time was left" in capsys.readouterr().out


def test_a_process_that_ends_is_a_record(monkeypatch):
    """A lost process, as after a device failure, gives a record; the next case has a new one."""
    monkeypatch.setattr(workers, "serve", dies)
    worker = workers.Worker()
    for _ in range(2):
        (found,) = worker.ask(time.time() + 60, "measure", 3)
        assert "its process ended, status 7" in found["why"]
    assert reports.LINES["failure"](None, found)


def dies(pipe):
    pipe.recv()
    sys.exit(7)


def test_the_process_runs_as_a_program(tmp_path):
    """Without a device the lines report that, and the process still ends."""
    hidden = "import sys; sys.modules['cupy'] = None"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cuda", "gat", "--minutes=0.1"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *sys.path[1:]])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0
    assert "import of cupy halted" in done.stderr
    assert "not measured" in done.stdout


def test_the_command_line(capsys):
    with pytest.raises(SystemExit):
        command.main(["nothing"])
    assert "expected some of gno_conv, gat" in capsys.readouterr().err
