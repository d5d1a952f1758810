"""Gradients of the Fortran interface, one at a time and from plain arrays.

``get_partial_<operator>_<input>_val(upstream_grad, left, right, ..., indices, adj_ja)`` is the
procedure of that name in Fortran, applied to a node assembled from arrays: the operands in the
order of the operator, `indices` and, for operators on graphs, `adj_ja`. Gradients also have the
names of the Fortran library athena. `dir(pyops.partials)` lists them all. They are for comparing
with, and porting from, Fortran codes; `pyops.<operator>.backward` computes all gradients at once.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ._call.eager import eager
from ._call.operator import OPERATORS, Operator
from ._call.partial import Partial, words_of
from ._schema import Signature, show_shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._call.types import Array


def _describe(op: Operator, name: str) -> str:
    words = [w + _numbers_of(op.signature, w) for w in words_of(op.name)]
    words[:0] = ["adj_ia (num_dst + 1 numbers)"] * op.signature.has_graph
    held = ",\n    ".join(words)
    held += ";\n    choices may be left out" * any(" (1 " in word for word in words)
    shapes = "".join(
        f"{i.name} : array, shape {show_shape(i.forms[-1], {})}{', or None' * i.optional}\n"
        for i in op.signature.inputs.values()
    )
    graph = "adj_ja : array of integers, shape (num_entries, 2)\n" * op.signature.has_graph
    graph += "    Neighbour and edge of each entry, from 1.\n" * op.signature.has_graph
    samples = "per_sample : bool\n    Leave the gradients of the samples apart.\n"
    return (
        f"The gradient of `{op.name}` by {name}.\n\nParameters\n----------\n"
        f"upstream_grad : array, shape {show_shape(op.signature.output, {})}\n{shapes}"
        f"indices : array of integers, as in Fortran\n    {held}.\n"
        f"{graph}{samples * (name in op.signature.by_sample)}\n"
        f"Returns\n-------\narray, as {name}\n\n"
        "Raises\n------\nTypeError, ValueError, OverflowError\n"
        "    If shapes or indices do not fit.\n"
    )


def _numbers_of(signature: Signature, word: str) -> str:
    """Describe the numbers that stand for the choices of an option."""
    option = signature.options.get(word)
    if option is None or not option.choices:
        return ""
    if option.kind is bool:
        return " (1 or 0)"
    ours = {i.choice for i in signature.indexed.values() if i.option == word}
    choices = [c for c in option.choices if c not in ours]
    return f" ({', '.join(f'{k} {c}' for k, c in enumerate(choices, start=1))})"


def _make(op: Operator, number: int, called: str) -> Callable[..., Array]:
    checked = Partial(op, number, called)

    @eager
    def partial(*arguments: object, **keywords: object) -> Array:
        return checked(*arguments, **keywords)

    partial.__name__ = partial.__qualname__ = called
    partial.__doc__ = _describe(op, checked.name)
    partial.__signature__ = checked.__signature__  # type: ignore[attr-defined]
    return partial


@functools.cache
def _all() -> dict[str, tuple[Operator, int]]:
    """Map each gradient's name to its operator and the number of the input."""
    found = {}
    for op in OPERATORS.values():
        if op.name != op.declaration:
            continue
        for number, name in enumerate(op.signature.inputs):
            for called in f"{op.name}_{name}", op.signature.also.get(name, f"{op.name}_{name}"):
                found[f"get_partial_{called}_val"] = (op, number)
    return found


def __dir__() -> list[str]:
    return sorted(_all())


@functools.cache
def __getattr__(name: str) -> Callable[..., Array]:
    try:
        return _make(*_all()[name], name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
