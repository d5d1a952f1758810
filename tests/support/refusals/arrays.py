"""Arguments that are no arrays, or arrays of the wrong type or shape."""

import re

import numpy as np

from .refusal import refusal

# Function that makes it of an array, and its description in the error message.
NO_ARRAYS = {
    "list": (np.ndarray.tolist, "a NumPy array, got list"),
    "number": (np.max, r"a NumPy array, got numpy\.float64"),
    "masked array": (np.ma.array, r"a plain NumPy array, got numpy\.ma\S*\.MaskedArray"),
    "matrix": (
        lambda a: a.reshape(-1).view(np.matrix),
        r"a plain NumPy array, got numpy\S*\.matrix",
    ),
    "complex": (lambda a: a + 0j, "float32 or float64, got complex128"),
    "integer": (lambda a: a.astype(np.int64), "float32 or float64, got int64"),
    "boolean": (lambda a: a > 0, "float32 or float64, got bool"),
    "object": (lambda a: a.astype(object), "float32 or float64, got object"),
    "string": (lambda a: a.astype("U8"), "float32 or float64, got <U8"),
    "extended precision": (
        lambda a: a.astype(np.longdouble),
        f"float32 or float64, got {np.dtype(np.longdouble)}",
    ),
}


def refusals(problem):
    inputs = problem.op.signature.inputs
    cotangents = ["h" + name for name in inputs]
    introduced = {
        "forward": [*inputs],
        "backward": problem.seeds,
        "double_backward": cotangents,
        "jvp": cotangents,
    }
    for phase, names in introduced.items():
        for name in names:
            yield from _types(problem, phase, name)
            yield from _shapes(problem, phase, name)
    for i in inputs.values():
        if not i.optional:
            absent = problem.having(**{i.name: None})
            message = "expected a NumPy array, got None"
            yield refusal("None", absent, "forward", i.name, TypeError, message)


def _types(problem, phase, name):
    array = problem.arrays[name]
    label = "t" + name[1:] if phase == "jvp" else name
    for cause, (change, message) in NO_ARRAYS.items():
        changed = problem.having(**{name: change(array)})
        yield refusal(cause, changed, phase, label, TypeError, f"expected {message}")
    if len(problem.names(phase)) > 1:
        # The error names the first array that differs from its predecessor.
        changed = problem.having(**{name: array.astype(np.float32)})
        message = r"expected (float32 like \w+, got float64|float64 like \w+, got float32)"
        yield refusal("mixed dtypes", changed, phase, r"\w+", TypeError, message)


def _shapes(problem, phase, name):
    array = problem.arrays[name]
    label = "t" + name[1:] if phase == "jvp" else name
    inputs = problem.op.signature.inputs
    owner = inputs.get(name) or inputs.get(name[1:])
    forms = owner.forms if owner else ()
    down = np.asarray(array[0])
    if any(len(form) == down.ndim for form in forms):
        down = np.asarray(down[0])
    for cause, changed in ("rank up", array[None]), ("rank down", down):
        came = re.escape(str(changed.shape))
        message = rf"expected shape \(.+\), got {came}"
        changed = problem.having(**{name: changed})
        yield refusal(cause, changed, phase, label, ValueError, message)
    for axis, cause, changed in other_lengths(array):
        if phase == "forward" and _free(problem, name, axis):
            continue
        came = re.escape(str(changed.shape))
        changed = problem.having(**{name: changed})
        if phase == "forward":
            # Sizes are inferred from the inputs: the error names the first contradicting one.
            message = r"expected shape \(.+\).*, got \([\d, ]+\)"
            yield refusal(cause, changed, "backward", r"\w+", ValueError, message)
        else:
            message = rf"expected shape \(.*\d.*\), got {came}"
            yield refusal(cause, changed, phase, label, ValueError, message)


def _free(problem, name, axis):
    """Return whether no other array or option of the operator has the size of an axis."""
    signature = problem.op.signature
    shapes = [i.shape for i in signature.inputs.values()] + [signature.output]
    sizes = [size.names for shape in shapes for size in shape]
    own = signature.inputs[name].shape[axis].names
    return sum(bool(own & names) for names in sizes) == 1 and not own & signature.options.keys()


def other_lengths(array):
    """Return the array with one of its axes shorter or longer by 1."""
    for axis in range(array.ndim):
        yield axis, f"axis {axis} shorter", np.delete(array, 0, axis)
        yield axis, f"axis {axis} longer", np.insert(array, 0, 0, axis)
