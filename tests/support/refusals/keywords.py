"""Invalid values of wanted, saved, out and accumulate."""

import re

import numpy as np

from ..cases import PHASES
from .refusal import refusal


def refusals(problem):
    for phase in "backward", "double_backward":
        yield from _wanted(problem, phase)
    for phase in "backward", "double_backward", "jvp":
        for saved, kind in ((1,), "tuple"), (np.zeros(3), "ndarray"), ("x", "str"):
            cause = f"saved: {kind}"
            message = f"expected what {problem.op.name}.forward returned, got {kind}"
            yield refusal(cause, problem, phase, "saved", ValueError, message, saved=saved)
        if problem.op.signature.keeps:
            yield from _kept(problem, phase)
    for phase in PHASES:
        yield from _outputs(problem, phase)


def _kept(problem, phase):
    """Return the saved intermediates of a forward pass at other inputs."""
    _, (kept,) = problem.op.forward(*problem.arguments("forward"), **problem.options)
    other = np.float32 if kept.dtype == np.float64 else np.float64
    for cause, saved, error, message in (
        ("fewer rows", (kept[1:],), ValueError, rf"expected shape .*, got \({len(kept) - 1}, "),
        ("one axis", (kept.ravel(),), ValueError, "expected shape "),
        ("dtype", (kept.astype(other),), TypeError, f"expected {kept.dtype} like x_src, got "),
        (
            "two arrays",
            (kept, kept),
            ValueError,
            "expected what .* returned, got tuple of numpy.ndarray, numpy",
        ),
        ("nothing in it", (None,), ValueError, "expected what .* returned, got tuple of None$"),
        ("list", [kept], ValueError, "expected what .* returned, got list"),
    ):
        yield refusal(f"saved: {cause}", problem, phase, "saved", error, message, saved=saved)


def _wanted(problem, phase):
    first, *rest = problem.op.signature.inputs
    names = ", ".join([first, *rest] + problem.seeds * (phase == "double_backward"))
    for cause, wanted, error, message in (
        ("string", first, TypeError, "expected a collection of names, got str"),
        ("number", 1, TypeError, "expected a collection of names, got int"),
        ("boolean", True, TypeError, "expected a collection of names, got bool"),
        ("unknown name", ["?", first], ValueError, rf"expected names among {names}, got '\?'"),
        ("gradient", ["g" + first], ValueError, f"expected names among {names}, got 'g{first}'"),
        ("index", [0], ValueError, f"expected names among {names}, got 0"),
    ):
        cause = f"wanted: {cause}"
        yield refusal(cause, problem, phase, "wanted", error, message, wanted=wanted)
    for i in problem.op.signature.inputs.values():
        if i.optional:
            cause = "wanted: absent input"
            absent = problem.having(**{i.name: None, "h" + i.name: None})
            message = f"expected names of inputs given, {i.name} is None"
            yield refusal(cause, absent, phase, "wanted", ValueError, message, wanted=[i.name])


def _outputs(problem, phase):
    results = problem.run(phase)
    single = phase in ("forward", "jvp") and len(results) == 1
    *_, last = results
    names = _names(problem, phase)
    label = "out" if single else f"out: {names[len(results) - 1]}"

    def wrong(cause, array, error, message):
        out = array if single else [*[None] * (len(results) - 1), array]
        return refusal(f"out: {cause}", problem, phase, label, error, message, out=out)

    readonly = np.broadcast_to(last, last.shape)
    broadcast = np.lib.stride_tricks.as_strided(np.zeros(1), last.shape, [0] * last.ndim)
    overlap = np.lib.stride_tricks.as_strided(np.zeros(last.size), last.shape, [8] * last.ndim)
    overlap = broadcast if last.ndim < 2 or min(last.shape) < 2 else overlap
    longer = np.zeros((len(last) + 1, *last.shape[1:]))
    shapes = rf"expected shape {_text(last)}, got {_text(longer)}"
    got = "float64 like the inputs, got"
    for cause, array, error, message in (
        ("list", last.tolist(), TypeError, "expected a NumPy array, got list"),
        ("masked array", np.ma.array(last), TypeError, "expected a plain NumPy array, got numpy"),
        ("float32", last.astype("f4"), TypeError, f"expected {got} float32"),
        ("integer", last.astype(int), TypeError, "expected float32 or float64, got int64"),
        ("longer", longer, ValueError, shapes),
        ("rank", last[None], ValueError, rf"expected shape {_text(last)}, got"),
        ("read-only", readonly, ValueError, "expected a writeable array, got a read-only one"),
        ("broadcast", broadcast, ValueError, "expected distinct elements, got strides"),
        ("overlap", overlap, ValueError, "expected distinct elements, got strides"),
    ):
        yield wrong(cause, array, error, message)
    target = problem, phase, "accumulate"
    message = "expected arrays in out to add to, got none"
    yield refusal("accumulate: without out", *target, ValueError, message, accumulate=True)
    out = last if single else [*results]
    for value in "yes", 1, None:
        cause, message = f"accumulate: {value!r}", f"expected True or False, got {value!r}"
        yield refusal(cause, *target, TypeError, message, accumulate=value, out=out)
    if not single:
        yield from _lists(problem, phase, results, names)


def _names(problem, phase):
    """Return the names of the elements of `out`."""
    signature = problem.op.signature
    prefix = {"forward": "", "backward": "g"}.get(phase, "d")
    if phase in ("forward", "jvp"):
        return [prefix + name for name in signature.results]
    seeds = problem.seeds if phase == "double_backward" else []
    return [prefix + name for name in [*signature.inputs, *seeds]]


def _lists(problem, phase, results, names):
    """Yield invalid combinations of elements of `out`."""
    first, second, *_ = *results, None
    listed = f"expected one entry for each of {', '.join(names)}, got"
    for cause, out, error, message in (
        ("array", first, TypeError, "expected a tuple of arrays or None, got numpy.ndarray"),
        ("dict", {}, TypeError, "expected a tuple of arrays or None, got dict"),
        ("too few", results[1:], ValueError, f"{listed} {len(results) - 1}"),
        ("too many", [*results, None], ValueError, f"{listed} {len(results) + 1}"),
    ):
        yield refusal(f"out: {cause}", problem, phase, "out", error, message, out=out)

    if second is None:
        return
    memory = np.zeros(first.size + second.size - 1)
    out = [
        memory[: first.size].reshape(first.shape),
        memory[first.size - 1 :].reshape(second.shape),
        *[None] * (len(results) - 2),
    ]
    label, message = f"out: {names[1]}", "expected memory of its own, got some of another entry"
    yield refusal("out: overlap", problem, phase, label, ValueError, message, out=out)
    if not phase.endswith("backward"):
        return
    out, wanted = [first, *[None] * (len(results) - 1)], [names[1][1:]]
    label, message = f"out: {names[0]}", "expected None, its gradient is not wanted"
    keywords = {"out": out, "wanted": wanted}
    yield refusal("out: not wanted", problem, phase, label, ValueError, message, **keywords)


def _text(array):
    return re.escape(str(array.shape))
