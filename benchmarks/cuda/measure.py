"""Measures one case on all sides, as serializable records: dictionaries of numbers and text."""

import time

from benchmarks.cases import ATTENTION
from benchmarks.cuda import device, limits, sides
from benchmarks.cuda.cases import CASES, PEERS, PRECISE
from benchmarks.cuda.timing import launch, once, seconds
from benchmarks.problem import make


def facts():
    """Return the machine and its limits."""
    yield {"what": "machine", **device.machine(), **sides.versions()}
    try:
        yield {"what": "limits", "copy": limits.copy_rate(), **limits.product_rates()}
    except Exception as error:
        yield {"what": "failure", "who": "limits", "why": sides.said(error)}
    device.free()
    device.wait()


def measure(number, until, cases=CASES):
    """Measure all phases of a case; nothing starts after `until`, in seconds since the epoch."""
    case, expected = cases[number], {}
    where = {"case": number, "operator": case.operator, "title": case.title, "nodes": case.nodes}
    try:
        problem = make(case)
    except Exception as error:
        yield {**where, "what": "failure", "who": "its problem", "why": sides.said(error)}
        return
    begins = {"pyops": lambda: sides.Pyops(problem)}
    if case.operator in ATTENTION:
        yield from gather(problem, where)
    begins |= {name: lambda name=name: sides.side(name, problem) for name in PEERS}
    if case.operator in PRECISE:
        for precision in "tf32x3", "tf32":
            begins[f"pyops {precision}"] = lambda p=precision: sides.Pyops(problem, precision=p)
    if case.operator in ATTENTION:
        for half in "bfloat16", "float16":
            begins[f"pyops {half}"] = lambda h=half: sides.Pyops(problem, half=h)
    for name, begin in begins.items():
        for record in timed(name, begin, case, expected, until):
            yield where | record
        device.wait()  # raises if the device is lost


def gather(problem, where):
    try:
        took = limits.gathers(problem)
        least = min(took.values())
        size = limits.bytes_gathered(problem.case)
        yield where | {"what": "gather", "seconds": least, "bytes": size, "ways": took}
    except Exception as error:
        yield where | {"what": "failure", "who": "gather", "why": sides.said(error)}
    device.free()
    device.wait()


def timed(name, begin, case, expected, until):
    """Yield the phases of a side, each with its results against ours."""
    side, phase = None, case.phases[0]
    try:
        for phase in case.phases:
            if time.time() > until:
                yield {"what": "failure", "who": name, "phase": phase, "why": "no time was left"}
                return
            side = side or begin()
            call = side.phases[phase]
            first, answers, apart = once(call, side.wait), side.answers(phase), None
            if name == "pyops":
                expected[phase] = answers
            elif phase in expected:
                apart = sides.difference(answers, expected[phase])
            yield {
                "what": "time",
                "who": name,
                "phase": phase,
                "first": first,
                "bytes": side.peak(call),
                "seconds": seconds(call, side.wait),
                "launch": launch(call, side.wait),
                "apart": apart,
            }
    except Exception as error:  # a missing or unsupported peer, or lack of memory
        yield {"what": "failure", "who": name, "phase": phase, "why": sides.said(error)}
    finally:
        if side is not None:
            side.close()
