"""Wrong numbers of arguments, invalid graphs and invalid options."""

import inspect
import re

import numpy as np

from ..cases import PHASES
from ..graphs import drawn
from .refusal import Refusal, caller_name, refusal

NO_SIZES = {
    "None": (None, TypeError, "an? (positive )?integer, got None"),
    "string": ("5", TypeError, "an? (positive )?integer, got '5'"),
    "float": (5.0, TypeError, r"an? (positive )?integer, got 5\.0"),
    "boolean": (True, TypeError, "an? (positive )?integer, got True"),
    "array": (np.array([5]), TypeError, r"an? (positive )?integer, got array\(\[5\]\)"),
    "time": (np.timedelta64(5, "s"), TypeError, r"an? (positive )?integer, got np\.timedelta64"),
    "zero": (0, ValueError, r"an integer from 1 to (2\*\*31 - 1|\d+), got 0"),
    "negative": (-5, ValueError, r"an integer from [01] to (2\*\*31 - 1|\d+), got -5"),
    "beyond int32": (2**40, ValueError, r"an integer from [01] to .+, got 1099511627776"),
}
NO_NUMBERS = {
    "no number": ("0.2", TypeError, "expected a number, got '0.2'"),
    "flag": (True, TypeError, "expected a number, got True"),
    "time": (np.timedelta64(5, "s"), TypeError, r"expected a number, got np\.timedelta64"),
    "infinity": (np.inf, ValueError, "expected a finite number, got inf"),
    "NaN": (np.nan, ValueError, "expected a finite number, got nan"),
}
NO_CHOICES = {
    "None": (None, TypeError),
    "number": (1, TypeError),
    "list": (["relu"], TypeError),
    "upper case": ("RELU", ValueError),
    "empty": ("", ValueError),
}


def refusals(problem):
    for phase in PHASES:
        yield from _counts(problem, phase)
        if problem.graph is not None:
            yield from _graphs(problem, phase)
        yield from _options(problem, phase)


def _call(problem, phase, arguments, options):
    function = problem.op if phase == "forward" else getattr(problem.op, phase)
    return lambda: function(*arguments, **options)


def _counts(problem, phase):
    caller, arguments = caller_name(problem.op, phase), problem.arguments(phase)
    optional = sum(i.optional for i in problem.op.signature.inputs.values())
    least = len(arguments) - optional * (2 if phase in ("double_backward", "jvp") else 1)
    for cause, given in {
        "no arguments": [],
        "too few arguments": arguments[: least - 1],
        "too many arguments": [*arguments, *arguments[-2:]],
    }.items():
        message = rf"^{caller}: expected arguments \(.+\), got {len(given)} of them"
        call = _call(problem, phase, given, problem.options)
        yield Refusal(cause, caller, call, TypeError, message)


def _graphs(problem, phase):
    caller, (graph, *arrays) = caller_name(problem.op, phase), problem.arguments(phase)
    for cause, wrong, kind in (
        ("None for the graph", None, "NoneType"),
        ("tuple for the graph", (graph.src, graph.dst), "tuple"),
        ("array for the graph", graph.src, "ndarray"),
    ):
        message = rf"^{caller}: graph: expected pyops\.Graph, got {kind}"
        call = _call(problem, phase, [wrong, *arrays], problem.options)
        yield Refusal(cause, caller, call, TypeError, message)
    sizes = {"num_src": graph.num_src, "num_edges": graph.num_edges}
    if phase in ("backward", "double_backward"):
        sizes["num_dst"] = graph.num_dst
    shapes = [i.shape for i in problem.op.signature.inputs.values()]
    shapes += [problem.op.signature.output] if "num_dst" in sizes else []
    named = frozenset().union(*(axis.names for shape in shapes for axis in shape))
    for name, size in sizes.items():
        if name not in named:
            continue
        wrong = {"num_src": graph.num_src, "num_dst": graph.num_dst, "num_edges": graph.num_edges}
        wrong[name] = size + 1
        message = rf"^{caller}: \w+: expected shape \({name}={size + 1}.*\), got \({size},.*\)"
        call = _call(problem, phase, [drawn(*wrong.values()), *arrays], problem.options)
        yield Refusal(f"graph of other {name}", caller, call, ValueError, message)


def _options(problem, phase):
    op = problem.op
    caller, arguments = caller_name(op, phase), problem.arguments(phase)
    declared = ", ".join([*op.signature.options, *op.signature.indexed]) or "none"
    message = rf"^{caller}: unexpected option 'colour'; options are: {declared}; arguments are: "
    for given in arguments, arguments[:-1]:
        call = _call(problem, phase, given, {**problem.options, "colour": 1})
        yield Refusal("unknown option", caller, call, TypeError, message)
    for option in op.signature.options.values():
        if option.is_size:
            if option.default is inspect.Parameter.empty:
                rest = {k: v for k, v in problem.options.items() if k != option.name}
                message = rf"^{caller}: {option.name}: expected this option, it has no default"
                call = _call(problem, phase, arguments, rest)
                yield Refusal(f"no {option.name}", caller, call, TypeError, message)
            shaped = [op.signature.output] if phase in ("backward", "double_backward") else []
            if _in_shapes(op, option.name, shaped):
                cause, message = f"another {option.name}", r"expected shape \(.+\).*, got \(.+\)"
                other = {option.name: problem.options[option.name] + 7}
                yield refusal(cause, problem, phase, r"\w+", ValueError, message, **other)
            for cause, (value, error, message) in NO_SIZES.items():
                if cause == "zero" and option.bounds.least == 0:
                    continue
                wrong = {option.name: value}
                message = f"expected {message}"
                yield refusal(cause, problem, phase, option.name, error, message, **wrong)
        elif not option.choices:
            for cause, (value, error, message) in NO_NUMBERS.items():
                wrong = {option.name: value}
                yield refusal(cause, problem, phase, option.name, error, message, **wrong)
        else:
            for cause, (value, error) in NO_CHOICES.items():
                error = TypeError if option.kind is bool else error
                wrong = {option.name: value}
                message = rf"expected one of \(.+\), got {re.escape(repr(value))}"
                yield refusal(cause, problem, phase, option.name, error, message, **wrong)


def _in_shapes(op, size, others):
    """Return whether the shapes of the inputs, or of other arrays, contradict an option's value."""
    shapes = [i.shape for i in op.signature.inputs.values()] + others
    return any(size in axis.names for shape in shapes for axis in shape)
