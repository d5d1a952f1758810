"""Elementwise operators from the table of functions, and reductions; NumPy's names and shapes."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Annotated

from .._call.elementwise import Elementwise
from .._call.reduction import Reduction
from .._call.selection import ClipPhase, Selection, WherePhase
from .._call.softmax import Softmax
from .._functions import PUBLIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._call.operator import Operator
    from .._call.types import Array

ARITY = {function.name: function.arity for function in PUBLIC}
DEFAULT = {function.name: function.option[1] for function in PUBLIC}
REDUCTIONS = {
    "sum": "Sum over axes.\n\n.. math:: y = \\sum x",
    "mean": "Mean over axes.\n\n.. math:: y = \\frac{1}{n} \\sum x",
    "max": "Largest element along axes, NaN if one of them is.\n\n.. math:: y = \\max x\n\n"
    "Elements that are the largest share the gradient equally.",
    "min": "Smallest element along axes, NaN if one of them is.\n\n.. math:: y = \\min x\n\n"
    "Elements that are the smallest share the gradient equally.",
}


def declaration(name: str) -> Callable[..., object]:
    """Return a declaration: the signature of an operator, and the docstring of a reduction."""

    def unary(x: Annotated[Array, "..."]) -> Annotated[Array, "..."]: ...

    def binary(
        x1: Annotated[Array, "..."], x2: Annotated[Array, "..."]
    ) -> Annotated[Array, "..."]: ...

    def leaky_relu(
        x: Annotated[Array, "..."], *, negative_slope: float = DEFAULT["leaky_relu"]
    ) -> Annotated[Array, "..."]: ...

    def elu(
        x: Annotated[Array, "..."], *, alpha: float = DEFAULT["elu"]
    ) -> Annotated[Array, "..."]: ...

    def reduction(
        x: Annotated[Array, "..."],
        *,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
    ) -> Annotated[Array, "..."]:
        """Parameters
        ----------
        x : array, any shape
            Elements to reduce.
        axis : int, tuple of int or None
            Axes that go, negative ones counted from the last; None for all.
        keepdims : bool
            Whether they stay with length 1.

        Returns
        -------
        array, the shape of x without these axes
            Reduced elements. Sums are taken in float64 whatever the type.

        Notes
        -----
        Time O(n) for n elements. Memory beside inputs and results: float64 sums of the size of the
        result.
        """  # noqa: D205

    if name in REDUCTIONS:
        return reduction
    with_option: dict[str, Callable[..., object]] = {"leaky_relu": leaky_relu, "elu": elu}
    return with_option.get(name, binary if ARITY[name] == 2 else unary)


def make_reduction(name: str) -> Reduction:
    """Return the operator of a reduction, with its formula and the options in the docstring."""
    function = declaration(name)
    function.__name__ = name
    function.__doc__ = f"{REDUCTIONS[name]}\n\n{inspect.getdoc(function)}"
    return Reduction(function)


operators: dict[str, Operator] = {
    **{f.name: Elementwise(f, declaration(f.name)) for f in PUBLIC},
    **{name: make_reduction(name) for name in REDUCTIONS},
}


@functools.partial(Selection, WherePhase)
def where(
    condition: Annotated[Array, "..."],
    x1: Annotated[Array, "..."],
    x2: Annotated[Array, "..."],
) -> Annotated[Array, "..."]:
    r"""Elements of x1 where a condition holds, those of x2 elsewhere.

    .. math:: y = c \, ? \, x_1 : x_2

    An operand has a gradient of 0 where it is not selected, also if the cotangent or the other
    operand is not a number there. The condition has none.

    Parameters
    ----------
    condition : array, shapes that broadcast
        Booleans, integers, or numbers of the type of x1; it holds where they are not 0.
    x1, x2 : array, shapes that broadcast
        Operands, broadcast to one shape with the condition.

    Returns
    -------
    array, the shape that they have together
        Selected elements.

    Notes
    -----
    Time O(n) for n elements. Memory beside inputs and results: the condition in the type of x1;
    for gradients of broadcast operands float64 sums of their size.
    """


@functools.partial(Selection, ClipPhase)
def clip(x: Annotated[Array, "..."], *, min: float, max: float) -> Annotated[Array, "..."]:
    r"""Elements within bounds: the nearer bound in place of those outside.

    .. math:: y = \min(\max(x, a), b)

    The slope is 1 within the bounds and at them, 0 outside. For one bound alone, see `maximum` and
    `minimum`.

    Parameters
    ----------
    x : array, any shape
        Operand.
    min : float
        Lower bound a, a finite number.
    max : float
        Upper bound b, at least a.

    Returns
    -------
    array, the shape of x
        Elements within the bounds; those that are not numbers remain so.

    Notes
    -----
    Time O(n) for n elements. Memory beside inputs and results: at most 192 KB for each thread.
    """


@Softmax
def softmax(x: Annotated[Array, "..."], *, axis: int = -1) -> Annotated[Array, "..."]:
    r"""Softmax along an axis.

    .. math:: y_i = \frac{e^{x_i}}{\sum_j e^{x_j}}

    Powers are those of differences from the largest element, so none overflows. If an element is
    not a number, no result along its axis is one.

    Parameters
    ----------
    x : array, any shape of at least one axis
        Elements.
    axis : int
        Axis along which results add up to 1, a negative one counted from the last.

    Returns
    -------
    array, the shape of x
        Shares of each element.

    Notes
    -----
    Time O(n) for n elements. Memory beside inputs and results: blocks of 8,192 elements for each
    thread.
    """


@Softmax
def log_softmax(x: Annotated[Array, "..."], *, axis: int = -1) -> Annotated[Array, "..."]:
    r"""Logarithm of the softmax along an axis, also of shares that are 0 in its precision.

    .. math:: y_i = x_i - \log \sum_j e^{x_j}

    Parameters
    ----------
    x : array, any shape of at least one axis
        Elements.
    axis : int
        Axis along which the powers of the results add up to 1, a negative one counted from the
        last.

    Returns
    -------
    array, the shape of x
        Logarithms.

    Notes
    -----
    Time O(n) for n elements. Memory beside inputs and results: blocks of 8,192 elements for each
    thread.
    """


def __getattr__(name: str) -> Operator:
    try:
        return operators[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
