"""The public check of derivatives detects errors, and reports no false ones."""

import functools

import numpy as np
import pytest

import pyops
from pyops.testing import check_gradients

from ..support.cases import EVERY, representative, variants


class Wrong:
    """gno_conv with an error in one result of one phase."""

    def __init__(self, phase, spoil, place=None):
        self.phase, self.spoil, self.place = phase, spoil, place
        self.__name__ = "wrong"

    def __call__(self, *inputs, **options):
        return self._result("forward", pyops.gno_conv(*inputs, **options))

    def __getattr__(self, phase):
        def run(*arguments, **options):
            return self._result(phase, getattr(pyops.gno_conv, phase)(*arguments, **options))

        return run

    def _result(self, phase, result):
        if phase != self.phase:
            return result
        if self.place is None:
            return self.spoil(result)
        return tuple(self.spoil(a) if k == self.place else a for k, a in enumerate(result))


FAULTS = {
    "sign": np.negative,
    "factor": lambda a: 1.0001 * a,
    "missing": np.zeros_like,
    "order": lambda a: a.ravel()[::-1].reshape(a.shape),
    "nan": lambda a: a * np.nan,
}
PLACES = [("jvp", None), ("forward", None)]
PLACES += [("backward", k) for k in range(3)] + [("double_backward", k) for k in range(4)]


def arguments(name="gno_conv"):
    problem = representative(name).problem()
    return problem.arguments("forward"), problem.options


@pytest.mark.parametrize("name", EVERY)
def test_right_operators_pass(name):
    inputs, options = arguments(name)
    assert 0 < check_gradients(EVERY[name], *inputs, **options) < 1e-8
    assert check_gradients(EVERY[name], *inputs, order=1, **options) < 1e-8


EVERY_ABSENCE = [
    case
    for op in EVERY.values()
    for case in variants(op)
    if case.choices == next(variants(op)).choices
]
"""Every operator with every subset of its optional inputs."""


@pytest.mark.parametrize("case", EVERY_ABSENCE, ids=str)
def test_optional_inputs_may_be_left_out(case):
    problem = case.problem()
    inputs = problem.arguments("forward")
    whole = check_gradients(problem.op, *inputs, **problem.options)
    names = problem.op.signature.positional
    named = {n: a for n, a in zip(names, inputs, strict=True) if a is not None}
    assert check_gradients(problem.op, **named, **problem.options) == whole < 1e-8
    while inputs[-1] is None:
        inputs.pop()
    assert check_gradients(problem.op, *inputs, **problem.options) == whole


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("phase", "place"), PLACES)
def test_wrong_operators_fail(phase, place, fault):
    inputs, options = arguments()
    with pytest.raises(AssertionError, match=r"^wrong: .+: expected \S+, got \S+, a relative diff"):
        check_gradients(Wrong(phase, FAULTS[fault], place), *inputs, **options)


@pytest.mark.parametrize("place", range(4))
def test_the_message_says_where(place):
    inputs, options = arguments()
    where = "gy" if place == 3 else f"input {place}"
    with pytest.raises(AssertionError, match=f"double_backward by {where} against differences"):
        check_gradients(Wrong("double_backward", np.negative, place), *inputs, **options)


def test_first_order_alone_does_not_look_at_the_second():
    inputs, options = arguments()
    check_gradients(Wrong("double_backward", np.negative, 1), *inputs, order=1, **options)


def test_bounds():
    inputs, options = arguments()
    wrong = Wrong("double_backward", lambda a: (1 + 1e-4) * a, 0)
    check_gradients(wrong, *inputs, rtol=1e-3, **options)
    with pytest.raises(AssertionError, match="wrong: double_backward by input 0"):
        check_gradients(wrong, *inputs, rtol=1e-5, **options)


def test_single_precision_is_checked_in_double():
    inputs, options = arguments()
    graph, *arrays = inputs
    arrays = [a.astype(np.float32) for a in arrays]
    assert check_gradients(pyops.gno_conv, graph, *arrays, **options) < 1e-8


@pytest.mark.parametrize("change", [lambda r: r[:-1], lambda r: (*r, r[-1]), lambda r: r[0]])
@pytest.mark.parametrize("phase", ["backward", "double_backward"])
def test_there_is_a_derivative_for_each_input(phase, change):
    inputs, options = arguments()
    wrong = Wrong(phase, change)
    with pytest.raises(
        AssertionError, match=f"^wrong: {phase}: .*expected (. arrays|a tuple|None)"
    ):
        check_gradients(wrong, *inputs, **options)


@pytest.mark.parametrize(("phase", "place"), PLACES)
def test_derivatives_are_of_the_shape_of_their_inputs(phase, place):
    """Derivatives must have the shape of their inputs, even if NumPy would broadcast them."""
    inputs, options = arguments()
    if phase != "forward":
        with pytest.raises(
            AssertionError, match=f"^wrong: {phase}: result .: expected shape .*, g"
        ):
            check_gradients(Wrong(phase, lambda a: a[:1], place), *inputs, **options)


@pytest.mark.parametrize(("phase", "place"), PLACES)
def test_none_stands_for_zeros(phase, place):
    inputs, options = arguments()
    kind, text = (TypeError, "from it") if phase == "forward" else (AssertionError, r"\S+, got")
    with pytest.raises(kind, match=f": expected .*{text}"):
        check_gradients(Wrong(phase, lambda a: None, place), *inputs, **options)


class Linear:
    """Multiplication by two, without zeros for vanishing derivatives."""

    def __call__(self, x):
        return 2 * x

    def backward(self, x, gy):
        return (2 * gy,)

    def double_backward(self, x, gy, h):
        return None, 2 * h

    def jvp(self, x, t):
        return 2 * t


class Squared(Linear):
    """Square without second derivatives."""

    def __call__(self, x):
        return x**2

    def backward(self, x, gy):
        return (2 * x * gy,)

    def double_backward(self, x, gy, h):
        return None, None

    def jvp(self, x, t):
        return 2 * x * t


def test_second_derivatives_that_are_left_out():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    check_gradients(Linear(), x)
    with pytest.raises(AssertionError, match="Squared: double_backward by input 0 against diff"):
        check_gradients(Squared(), x)
    check_gradients(Squared(), x, order=1)


def test_gradients_of_absent_inputs_are_none():
    inputs, options = arguments("kernel_conv")
    *inputs, _ = inputs
    check_gradients(EVERY["kernel_conv"], *inputs, **options)

    class Present(Wrong):
        def __getattr__(self, phase):
            run = getattr(EVERY["kernel_conv"], phase)
            return lambda *a, **o: tuple(np.ones(1) if r is None else r for r in run(*a, **o))

        def __call__(self, *inputs, **options):
            return EVERY["kernel_conv"](*inputs, **options)

    with pytest.raises(AssertionError, match=r"^wrong: backward: result \d: expected None, got"):
        check_gradients(Present("", None), *inputs, **options)


NO_OPERATORS = [np.sin, lambda x: x, functools.partial(pyops.exp), None, "gat", Linear]
NO_OPERATORS += [pyops.exp.backward, pyops.radius_graph, 1.0]


@pytest.mark.parametrize("op", NO_OPERATORS, ids=lambda op: type(op).__name__)
def test_what_is_no_operator(op):
    text = "^check_gradients: op: expected an operator, with backward, jvp, double_backward, got"
    with pytest.raises(TypeError, match=text):
        check_gradients(op, np.ones(3))


REFUSED = [
    ("directions", "2", TypeError),
    ("directions", 2.5, TypeError),
    ("directions", True, TypeError),
    ("directions", 0, ValueError),
    ("rtol", "a", TypeError),
    ("rtol", None, TypeError),
    ("rtol", np.nan, ValueError),
    ("rtol", np.inf, ValueError),
    ("rtol", -1, ValueError),
    ("step", "a", TypeError),
    ("step", 0, ValueError),
    ("step", -1e-5, ValueError),
    ("step", np.nan, ValueError),
    ("step", np.inf, ValueError),
    ("rng", "a", TypeError),
    ("rng", 2.5, TypeError),
    ("rng", True, TypeError),
    ("rng", -1, ValueError),
]


@pytest.mark.parametrize(("name", "value", "kind"), REFUSED)
def test_refused_numbers(name, value, kind):
    with pytest.raises(kind, match=f"^check_gradients: {name}: expected .*, got {value!r}"):
        check_gradients(pyops.exp, np.ones(3), **{name: value})


@pytest.mark.parametrize("order", [0, 3, "2", True, 2.0, None])
def test_refused_order(order):
    inputs, options = arguments()
    with pytest.raises(ValueError, match=r"^check_gradients: order: expected 1 or 2, got"):
        check_gradients(pyops.gno_conv, *inputs, order=order, **options)
