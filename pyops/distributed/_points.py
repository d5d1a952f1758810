"""Operators over points, such as `orthonormalize`, whose points are distributed over ranks.

What is distributed follows from the declaration: arrays with an axis of points. Every other array
is the same on all ranks.

The operators over points share their checks and factors, so they are one module.
"""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .._call.arrays import check_array, check_outputs, check_size
from .._call.operator import OPERATORS
from ._halo import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from .._call.phase import Phase
    from .._call.types import Array
    from .._schema import Shape
    from ._communicator import Communicator
    from ._mpi import Counts, Values

_POINTS = "points"


def run(
    phase: Phase,
    comm: Communicator,
    given: Sequence[object],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
    out: Sequence[Values | None] | None,
    accumulate: bool,
) -> tuple[Array | None, ...]:
    """Check a call on all ranks, run it, and return the outputs of own points."""
    shapes, arrays, own = comm._together(
        phase.caller,
        lambda: _check(phase, given, options, wanted, out, accumulate),
        lambda found: _equal(phase, found[1], options, wanted),
    )
    lengths = comm._engine.gather(np.array([own]))[:, 0]
    comm._together(phase.caller, lambda: _check_sizes(phase, arrays, int(lengths.sum())))
    wants = {n: s for n, s in zip(phase.outputs, shapes, strict=True) if s is not None}
    held = {s.name: a for s, a in zip(phase.slots, arrays, strict=True) if a is not None}
    if phase.signature.name == "orthonormalize":
        basis, gy = _Basis(comm, held["basis"], held.get("hbasis")), held.get("gy")
        compute: dict[str, Callable[[], Values]] = {
            "y": basis.value,
            "dgy": basis.along,
            "gbasis": lambda: basis.gradient(gy, None),
            "dbasis": lambda: basis.gradient(None, gy),
        }
        results = {name: compute[name]() for name in phase.outputs if name in wants}
    else:
        results = _transform(phase, comm, held, wants, lengths)
    dtype = next(iter(held.values())).dtype.newbyteorder("=")
    found = [np.ascontiguousarray(results[n], dtype) if n in wants else None for n in phase.outputs]
    store(found, out, accumulate)
    return tuple(found)


def is_distributed(shape: Shape) -> bool:
    """Return whether an array has an axis of points."""
    return any(size.text == _POINTS for size in shape)


def store(
    found: list[Values | None], out: Sequence[Values | None] | None, accumulate: bool
) -> None:
    """Store results in the arrays of `out`, which then are the results."""
    for i, given in enumerate(out or ()):
        if given is not None:
            given[...] = given + found[i] if accumulate else found[i]
            found[i] = given


def _check(
    phase: Phase,
    given: Sequence[object],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
    out: Sequence[object] | None,
    accumulate: bool,
) -> tuple[list[tuple[int, ...] | None], list[Array | None], int]:
    """Check the arguments of this rank; return shapes of outputs, an array a slot, and points."""
    caller, slots = phase.caller, phase.slots
    if phase.signature.has_graph:
        raise TypeError(f"{caller}: graph: expected DistributedGraph, got Communicator")
    if _POINTS not in phase.signature.sizes:
        expected = "an array, as the operator is local"
        raise TypeError(f"{caller}: argument 0: expected {expected}, got Communicator")
    if phase.kernel.startswith("by_sample"):
        raise ValueError(f"{caller}: per_sample: expected False with a communicator, got True")
    arrays = [
        None if a is None else check_array(f"{caller}: {slot.label}", a)
        for slot, a in zip(slots, phase._split(given)[1], strict=True)
    ]
    held = [(slot, a) for slot, a in zip(slots, arrays, strict=True) if a is not None]
    for slot, array in held:
        if array.ndim in [len(form) for form in slot.forms[1:]]:
            raise ValueError(
                f"{caller}: {slot.label}: expected shape (points, modes) with a communicator, got "
                f"{array.shape}; pyops.blocks.unpack_basis converts a packed block"
            )
    axes = [
        length
        for slot, array in held
        for size, length in zip(slot.shape, array.shape, strict=False)
        if size.text == _POINTS
    ]
    if _POINTS in options:
        axes.append(check_size(f"{caller}: points", options[_POINTS], 0))
    empty = not any(axes)
    local = [a for slot, a in zip(slots, arrays, strict=True) if slot in _taken(phase)]
    if empty:  # the checks of one rank refuse 0 points
        options = {**options, **dict.fromkeys({_POINTS} & options.keys(), 1)}
        local = [
            np.ones([n or 1 for n in a.shape], a.dtype) if a is not None and 0 in a.shape else a
            for a in local
        ]
    plan = _any_modes(phase)._plan(local, dict(options), wanted)
    assert plan is not None
    points = 0 if empty else plan.values[_POINTS]
    assert isinstance(points, int)
    shapes = [
        None if made is None else _with_points(shape, made, points)
        for shape, made in zip(phase.outputs.values(), plan.outputs, strict=True)
    ]
    if out is not None or accumulate is not False:
        check_outputs(caller, phase.labels, shapes, plan.dtype, out, accumulate)
    return shapes, arrays, points


def _with_points(shape: Shape, lengths: tuple[int, ...], points: int) -> tuple[int, ...]:
    pairs = zip(shape, lengths, strict=True)
    return tuple(points if size.text == _POINTS else length for size, length in pairs)


def _taken(phase: Phase) -> list[object]:
    """Return the slots of the arrays that a phase takes; its kernel may have more."""
    return [slot for slot in phase.slots if phase.seeds or slot.role != "gy"]


@functools.cache
def _any_modes(phase: Phase) -> Phase:
    """Return the phase for the points of a rank, which may be fewer than the modes."""
    found, found.signature = copy.copy(phase), copy.copy(phase.signature)
    found.signature.at_most, found._plans = {}, {}
    return found


def _equal(
    phase: Phase,
    arrays: Sequence[Array | None],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
) -> tuple[object, ...]:
    """Return what has to be equal on all ranks: shapes without the axis of points, options."""

    def others(shape: Shape, array: Array) -> list[int]:
        pairs = zip(shape, array.shape, strict=True)
        return [length for size, length in pairs if size.text != _POINTS]

    shapes = [
        None if a is None else (a.dtype.char, others(slot.shape, a))
        for slot, a in zip(phase.slots, arrays, strict=True)
    ]
    fixed = {**options, **dict.fromkeys({_POINTS} & options.keys(), 1)}  # 0 would be refused
    rest = sorted((n, value) for n, value in phase.checked(fixed).items() if n != _POINTS)
    return phase.kernel, shapes, rest, None if wanted is None else sorted({*wanted})


def _check_sizes(phase: Phase, arrays: Sequence[Array | None], points: int) -> None:
    """Check the number of points of all ranks."""
    if points == 0:
        raise ValueError(f"{phase.caller}: expected points on some rank, got none")
    for slot, array in zip(phase.slots, arrays, strict=True):
        if array is None:
            continue
        sizes = {size.text: n for size, n in zip(slot.shape, array.shape, strict=True)}
        for name in phase.signature.at_most:
            if {name, _POINTS} <= sizes.keys() and sizes[name] > points:
                raise ValueError(
                    f"{phase.caller}: {slot.label}: expected {name} <= points, got "
                    f"{name}={sizes[name]} and points={points} on all ranks"
                )


class _Table(Protocol):
    """Matrix (points, modes) of own points that depends on parameters."""

    def value(self) -> Values:
        """Return the matrix."""

    def along(self) -> Values:
        """Return its derivative in the directions h of the parameters."""

    def gradients(self, first: Values | None, second: Values | None) -> list[Values]:
        """Return the gradients of <first, matrix> + <second, derivative in the directions h>."""


class _Basis:
    """Orthonormalised basis B = Q R, and its derivatives; R is the same on all ranks.

    Each rank orthonormalises its rows, B = Q1 T, all ranks orthonormalise the T of all, and Q = Q1
    times the own rows of the result (TSQR). Rows that are no more than columns are passed on as T.
    The derivatives follow from sums over ranks of products of columns; see
    docs/explanation/orthogonal.md.
    """

    def __init__(self, comm: Communicator, basis: Values, h: Values | None) -> None:
        self._engine = comm._engine
        orthonormalize = OPERATORS["orthonormalize"]

        def factor() -> tuple[Values | None, Values]:
            wide = np.ascontiguousarray(basis, np.float64)
            if len(wide) <= wide.shape[1]:
                return None, wide
            own: Values = orthonormalize(wide)
            return own, own.T @ wide

        caller = "orthonormalize"
        own, factors = comm._together(caller, factor)
        rows, counts = comm._engine.rows(factors)
        # Which columns depend on others depends on the precision of the basis.
        narrow = np.ascontiguousarray(rows, basis.dtype.newbyteorder("="))
        whole = comm._together(caller, lambda: orthonormalize(narrow)).astype(np.float64)
        first, last = joined(counts)[comm.rank : comm.rank + 2]
        self._q: Values = whole[first:last] if own is None else own @ whole[first:last]
        self._r = np.triu(whole.T @ rows)
        self._dependent = ~whole.any(0)
        self._r[:, self._dependent] = np.eye(len(self._r))[:, self._dependent]
        self._w = None
        if h is not None:
            self._w = _over(self._masked(h), self._r)
            a = self._dots(self._q, self._w)
            self._u = np.triu(a) + np.tril(a, -1).T

    def value(self) -> Values:
        return self._q

    def along(self) -> Values:
        if self._w is None:
            return np.zeros_like(self._q)
        return self._masked(self._w - self._q @ self._u)

    def gradient(self, first: Values | None, second: Values | None) -> Values:
        by_q = np.zeros_like(self._q) if first is None else self._masked(first)
        by_r = np.zeros_like(self._r)  # R times the transposed gradient by R
        if second is not None and self._w is not None:
            second = self._masked(second)
            symmetric = _symmetric(-self._dots(second, self._q))
            by_w = second + self._q @ symmetric
            by_q = by_q + self._w @ symmetric - second @ self._u.T
            by_r = -self._dots(by_w, self._w)
        symmetric = _symmetric(by_r - self._dots(by_q, self._q))
        found = by_q + self._q @ symmetric
        return self._masked(np.linalg.solve(self._r, found.T).T)

    def gradients(self, first: Values | None, second: Values | None) -> list[Values]:
        return [self.gradient(first, second)]

    def _dots(self, a: Values, b: Values) -> Values:
        return self._engine.sum(a.T @ b)

    def _masked(self, columns: Values) -> Values:
        """Return the columns with zeros for those that depend on others."""
        found: Values = np.where(self._dependent, 0.0, columns)
        return found


def _symmetric(matrix: Values) -> Values:
    """Return the symmetric matrix with this lower triangle."""
    found: Values = np.tril(matrix) + np.tril(matrix, -1).T
    return found


def _over(columns: Values, r: Values) -> Values:
    """Return columns times the inverse of an upper triangular matrix, without pivoting."""
    found: Values = np.linalg.solve(r.T[::-1, ::-1], columns.T[::-1])[::-1].T
    return found


class _Exponentials:
    """Exponentials of the poles, times cas of the angles at own points, and their derivatives.

    The conjugate has the frequencies negated: derivatives by poles and frequencies are -t times the
    exponentials and t times the conjugate; those of the conjugate are -t times the conjugate and -t
    times the exponentials. At t = 0 they depend on no pole.
    """

    def __init__(
        self,
        comm: Communicator,
        parameters: Sequence[Values | None],
        h: Sequence[Values | None],
        lengths: Counts,
    ) -> None:
        first, last, count = joined(lengths)[[comm.rank, comm.rank + 1, -1]]
        self._engine, self._h = comm._engine, h
        self._t: Values = np.arange(first, last)[:, None] / max(1, count - 1)
        poles, frequencies = parameters
        self._oscillates = frequencies is not None
        self._values, self._conjugate = self._tables(poles, frequencies)

    def _tables(self, poles: Values | None, frequencies: Values | None) -> tuple[Values, Values]:
        assert poles is not None
        t = self._t
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            decay: Values = np.exp(-t * poles.astype(np.float64))
            tables = decay, decay
            if frequencies is not None:
                angles = t * frequencies.astype(np.float64)
                cos, sin = np.cos(angles), np.sin(angles)
                tables = decay * (cos + sin), decay * (cos - sin)
        for table in tables:
            table[t[:, 0] == 0] = 1
        return tables

    def value(self) -> Values:
        return self._values

    def along(self) -> Values:
        by_poles, by_frequencies = self._h
        found: Values = np.zeros_like(self._values)
        if by_poles is not None:
            found -= self._t * self._values * by_poles
        if by_frequencies is not None:
            found += self._t * self._conjugate * by_frequencies
        return found

    def gradients(self, first: Values | None, second: Values | None) -> list[Values]:
        by_poles, by_frequencies = self._h
        found = np.zeros((1 + self._oscillates, self._values.shape[1]))
        tables = (-self._t * self._values, self._t * self._conjugate)[: len(found)]
        if first is not None:
            found += [(table * first).sum(0) for table in tables]
        if second is not None:
            again = [(self._t * table * second).sum(0) for table in tables]
            if by_poles is not None:
                found -= [by_poles * moment for moment in again]
            if by_frequencies is not None:
                found += [-by_frequencies * again[1], by_frequencies * again[0]]
        return list(self._engine.sum(found))


def _transform(
    phase: Phase,
    comm: Communicator,
    held: Mapping[str, Values],
    shapes: Mapping[str, tuple[int, ...]],
    lengths: Counts,
) -> dict[str, Values]:
    """Return the outputs of a transform, or of its transpose, by name.

    Both are derivatives of F = sum over samples of a^T E b, with values a at the points, modes b
    and a matrix E that depends on parameters. First derivatives are those of F, second ones those
    of F(ha, b) + F(a, hb) + the derivative of F in the directions h of the parameters.
    """
    signature = phase.signature
    (moved, *parameters), (result,) = signature.inputs, signature.results
    encodes = is_distributed(signature.inputs[moved].shape)
    names = (moved, "g" + result) if encodes else ("g" + result, moved)
    a, b = (held.get(n) for n in names)
    ha, hb, *h = (held.get("h" + n) for n in (*names, *parameters))
    if phase.name in ("forward", "backward"):
        ha, hb, h = a, b, [None for _ in parameters]  # F, by its terms below
        pairs = [(a, b)]
    else:
        pairs = [(ha, b), (a, hb)]
    along = any(some is not None for some in h)
    tag = "g" if phase.name == "backward" else "d"
    by_parameters = [tag + name for name in parameters]
    first = second = None
    if not shapes.keys().isdisjoint(by_parameters):
        first = _added([_product(x, y) for x, y in pairs])
        second = _product(a, b) if along else None
    table: _Table
    if signature.name.startswith("ono_"):
        table = _Basis(comm, held[parameters[0]], h[0])
    else:
        table = _Exponentials(comm, [held.get(n) for n in parameters], h, lengths)
    matrices = [table.value(), table.along() if along else None]
    by_points, by_modes = tag + names[0], tag + names[1]
    if phase.name == "forward":
        by_points, by_modes = ("", result) if encodes else (result, "")
    found = {name: np.zeros(shape) for name, shape in shapes.items()}
    for x, y, matrix in zip((ha, a), (hb, b), matrices, strict=True):
        if by_points in shapes and y is not None and matrix is not None:
            found[by_points] += y @ matrix.T
        if by_modes in shapes and x is not None and matrix is not None:
            found[by_modes] += x @ matrix
    if by_modes in shapes:
        found[by_modes] = comm._engine.sum(found[by_modes])
    if not shapes.keys().isdisjoint(by_parameters):
        for name, gradient in zip(by_parameters, table.gradients(first, second), strict=False):
            if name in shapes:
                found[name] += gradient
    return found


def _product(a: Values | None, b: Values | None) -> Values | None:
    """Return a^T b, the gradient of a^T E b by E."""
    return None if a is None or b is None else a.T @ b


def _added(terms: Sequence[Values | None]) -> Values | None:
    given = [t for t in terms if t is not None]
    return sum(given[1:], given[0]) if given else None
