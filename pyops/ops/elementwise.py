"""Elementwise operators from the table of functions, and reductions; NumPy's names and shapes."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated

from .._call.elementwise import Elementwise
from .._call.reduction import Reduction
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


def __getattr__(name: str) -> Operator:
    try:
        return operators[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
