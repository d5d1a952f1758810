"""Sums, means and extremes over rows that are distributed over ranks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .._call.arrays import check_outputs
from .._call.operator import OPERATORS
from .._call.reduction import SELECT, ReductionPhase
from ._points import store

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .._call.reduction import Axes
    from .._call.types import Array, Dtype
    from ._communicator import Communicator
    from ._mpi import Values

    Checked = tuple[dict[str, Array], Axes, Dtype, list[tuple[int, ...] | None]]


def run(
    phase: ReductionPhase,
    comm: Communicator,
    given: Sequence[object],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
    out: Sequence[Any] | None,
    accumulate: bool,
) -> tuple[Array | None, ...]:
    """Check a call on all ranks, run it, and return the outputs: of own rows, or of all."""

    def check() -> Checked:
        found = phase._checked(given, dict(options), wanted)
        if out is not None or accumulate is not False:
            check_outputs(phase.caller, phase.labels, found[3], found[2], out, accumulate)
        if found[0]["x"].ndim == 0:
            raise ValueError(f"{phase.caller}: x: expected rows, got shape ()")
        return found

    held, axes, dtype, shapes = comm._together(
        phase.caller, check, lambda found: _equal(found, phase.checked(options), wanted)
    )
    x = held["x"]
    if not over_rows(options.get("axis"), x.ndim):
        return phase.run(given, dict(options), wanted, out, accumulate)
    rows = int(comm._engine.gather(np.array([len(x)])).sum())
    terms = rows * math.prod(
        n for n, kept in zip(x.shape[1:], axes.keep[1:], strict=True) if n != kept
    )
    made = {n: s for n, s in zip(phase.outputs, shapes, strict=True) if s is not None}
    if phase.function in ("sum", "mean"):
        results = _sums(phase, comm, given, options, wanted, terms)
    else:
        results = _extremes(phase, comm, held, axes, terms, made)
    found = [results[n].reshape(made[n]) if n in made else None for n in phase.outputs]
    found = [None if f is None else np.asarray(f, dtype) for f in found]
    store(found, out, accumulate)
    return tuple(found)


def over_rows(axis: object, ndim: int) -> bool:
    """Return whether an option `axis` names the first axis."""
    return axis is None or not {0, -ndim}.isdisjoint(axis if isinstance(axis, tuple) else [axis])


def _equal(
    found: Checked, options: Mapping[str, object], wanted: Collection[str] | None
) -> tuple[object, ...]:
    """Return what has to be equal on all ranks."""
    held, _, dtype, _ = found
    names = None if wanted is None else sorted({*wanted})
    return held["x"].shape[1:], dtype.char, sorted(held), sorted(options.items()), names


def _check_terms(caller: str, terms: int) -> None:
    if terms == 0:
        raise ValueError(f"{caller}: x: expected elements along axis on some rank, got none")


def _sums(
    phase: ReductionPhase,
    comm: Communicator,
    given: Sequence[object],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
    terms: int,
) -> dict[str, Values]:
    """Return the outputs of a sum or mean, by name."""
    found = OPERATORS["sum"].run(phase.name, given, dict(options), wanted)
    results = {n: f for n, f in zip(phase.outputs, found, strict=True) if f is not None}
    for name in results.keys() & {"y", "dgy"}:
        results[name] = comm._engine.sum(results[name])
    if phase.function == "mean":
        empty = math.nan if phase.name == "forward" else math.inf
        results = {name: array / (terms or empty) for name, array in results.items()}
    return results


def _extremes(
    phase: ReductionPhase,
    comm: Communicator,
    held: Mapping[str, Array],
    axes: Axes,
    terms: int,
    made: Mapping[str, tuple[int, ...]],
) -> dict[str, Values]:
    """Return the outputs of max or min, by name; equal extremes share the gradient on all ranks."""
    engine, x = comm._engine, held["x"]
    comm._together(phase.caller, lambda: _check_terms(phase.caller, terms))
    extreme = OPERATORS[phase.function]
    over = tuple(k for k, n in enumerate(axes.keep) if n == 1)
    own = [extreme(x, axis=over).reshape(1, -1)] if len(x) else []
    rows, _ = engine.rows(np.concatenate([np.empty((0, math.prod(axes.keep)), x.dtype), *own]))
    y = extreme(rows, axis=0).reshape(axes.keep)
    if phase.name == "forward":
        return {"y": y}

    def chosen(weights: Values) -> Values:
        """Return the sum over the extreme elements of all ranks."""
        _, total = SELECT.backward(x, y, weights, wanted=("x2",))
        assert total is not None
        return engine.sum(total)

    number = chosen(np.broadcast_to(np.ones((), x.dtype), x.shape))
    results = {name: np.zeros(shape, x.dtype) for name, shape in made.items()}
    if "gx" in made and "gy" in held:
        shares = np.broadcast_to(held["gy"].reshape(axes.keep) / number, x.shape)
        gradient = SELECT.backward(x, y, shares, wanted=("x1",))[0]
        assert gradient is not None
        results["gx"] = gradient
    if "dgy" in made and "hx" in held:
        results["dgy"] = chosen(held["hx"]) / number
    return results
