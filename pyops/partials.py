"""The gradients of the Fortran face, one at a time and from plain arrays.

``get_partial_<operator>_<input>_val(upstream_grad, left, right, ..., indices, adj_ja)`` is the
procedure of that name in Fortran, given a node that is put together by hand: the operands in the
order of the operator, `indices` and, for operators on graphs, `adj_ja`. Gradients have names of
the Fortran library athena besides. `dir(pyops.partials)` lists them all; they are there to compare
and to take over from Fortran codes, while `pyops.<operator>.backward` checks more and computes all
gradients at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _kernels
from ._arrays import VARIANTS, Array, check_array, plain
from ._operator import OPERATORS, Operator
from ._signature import Input

_MOST = 10


def _describe(op: Operator, name: str) -> str:
    operands = ", ".join(op.signature.inputs)
    graph = (
        "\nadj_ja : array of integers, shape (num_entries, 2)\n"
        "    Neighbour and edge of each entry, counted from 1.\n"
    )
    held = "adj_ia, then the options" if op.signature.has_graph else "sizes, then the choices"
    return (
        f"The gradient of `{op.name}` by {name}.\n\nParameters\n----------\n"
        f"upstream_grad : array\n{operands} : arrays\n"
        "    As `backward` takes them, bases as blocks, None where one is not there.\n"
        f"indices : array of integers\n    {held}, as in Fortran; choices count from 1 and may be"
        f" left out.{graph if op.signature.has_graph else ''}\n"
        "Returns\n-------\narray\n\nRaises\n------\nValueError\n"
        "    If shapes or indices do not fit.\n"
    )


def _integers(label: str, values: Any, ndim: int) -> Any:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.dtype.kind not in "iu" or array.ndim != ndim:
        raise TypeError(
            f"{label}: expected integers with {ndim} axes, got {array.dtype} with {array.ndim}"
        )
    if array.size and not 0 <= array.min() <= array.max() < 2**31:
        raise ValueError(f"{label}: expected numbers from 0 to 2**31 - 1")
    return np.ascontiguousarray(array, np.int32)


def _rows_and_columns(array: Array) -> tuple[int, int]:
    """The shape that Fortran sees."""
    rows = int(np.prod(array.shape[1:])) if array.ndim > 1 else len(array)
    return rows, len(array) if array.ndim > 1 else 1


def _make(op: Operator, number: int, called: str) -> Callable[..., Array]:
    inputs = list(op.signature.inputs.values())
    apart = inputs[number].name in op.signature.by_sample

    def partial(
        upstream_grad: Array,
        *operands_and_indices: Any,
        per_sample: bool = False,
    ) -> Array:
        count = len(inputs)
        more = 2 if op.signature.has_graph else 1
        if len(operands_and_indices) != count + more:
            names = [i.name for i in inputs] + ["indices", "adj_ja"][:more]
            raise TypeError(
                f"{called}: expected upstream_grad, {', '.join(names)}, "
                f"got {1 + len(operands_and_indices)} arguments"
            )
        if per_sample and not apart:
            raise ValueError(f"{called}: per_sample: expected False, there are no such gradients")
        operands = operands_and_indices[:count]
        upstream = _checked(called, "upstream_grad", upstream_grad, None)
        arrays = [
            None if x is None and i.optional else _checked(called, i.name, x, i, upstream)
            for i, x in zip(inputs, operands, strict=True)
        ]
        this = arrays[number]
        if this is None:
            raise ValueError(f"{called}: {inputs[number].name}: expected an array, got None")
        shape = (len(upstream), this.size) if per_sample else this.shape
        output = np.empty(shape, upstream.dtype)
        indices = _integers(f"{called}: indices", operands_and_indices[count], 1)
        pairs = np.empty((0, 2), np.int32)
        if more == 2:
            pairs = _integers(f"{called}: adj_ja", operands_and_indices[-1], 2)
            if pairs.shape[1] != 2:
                raise ValueError(f"{called}: adj_ja: expected two columns, got {pairs.shape[1]}")
        shapes = np.full((_MOST + 2, 2), -1, np.int64)
        slots = [*arrays, *[None] * (_MOST - count), upstream, output]
        for k, array in enumerate(slots):
            if array is not None:
                shapes[k] = _rows_and_columns(array)
        nothing = np.zeros(1, upstream.dtype)
        kernel = getattr(_kernels.pyops_partials, f"{op.name}_{VARIANTS[upstream.dtype.char]}")
        status = kernel(
            number + 1,
            len(indices),
            len(pairs),
            shapes.T,
            np.append(indices, np.int32(0)),
            np.concatenate([pairs, np.zeros((1, 2), np.int32)]).T,
            *(nothing if a is None or not a.size else a.reshape(-1) for a in slots[:-1]),
            output.reshape(-1) if output.size else nothing,
        )
        if status:
            raise MemoryError(f"{called}: not enough memory for the operands")
        held = [a for a in [*arrays, upstream] if a is not None]
        if output.size and np.isnan(output).all() and not any(np.isnan(a).any() for a in held):
            raise ValueError(f"{called}: expected shapes and indices that fit together")
        return output

    partial.__name__ = partial.__qualname__ = called
    partial.__doc__ = _describe(op, inputs[number].name)
    return partial


def _checked(
    called: str, name: str, array: object, declared: Input | None, like: Array | None = None
) -> Array:
    label = f"{called}: {name}"
    found = plain(check_array(label, array))
    if like is not None and found.dtype.char != like.dtype.char:
        raise TypeError(f"{label}: expected {like.dtype} like upstream_grad, got {found.dtype}")
    block = declared is not None and len(declared.forms) > 1 and len(declared.forms[1]) == 1
    if found.ndim == 0 or (block and found.ndim != 1):
        expected = "a block with one axis" if block else "one axis or more"
        raise ValueError(f"{label}: expected {expected}, got shape {found.shape}")
    return found


@functools.cache
def _all() -> dict[str, tuple[Operator, int]]:
    """Operator and number of the input, by the names of the gradients."""
    found = {}
    for op in OPERATORS.values():
        if op.name != op.room:
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
