"""Numerical checks of derivatives, in the manner of `numpy.testing`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ._call.arrays import NOT_NUMBERS, check_array, check_number, check_size, kind_of
from ._call.eager import eager
from ._call.operator import Operator
from ._call.types import Array

if TYPE_CHECKING:
    from ._call.types import Options

__all__ = ["check_gradients"]

Results: TypeAlias = Array | Sequence[Array | None]
Function: TypeAlias = Callable[..., Results]


class Differentiable(Protocol):
    """Anything with the methods of an operator."""

    @property
    def __call__(self) -> Function: ...
    @property
    def backward(self) -> Function: ...
    @property
    def double_backward(self) -> Function: ...
    @property
    def jvp(self) -> Function: ...


@eager
def check_gradients(
    op: Differentiable,
    *inputs: object,
    order: int = 2,
    rtol: float = 1e-6,
    step: float = 3e-5,
    directions: int = 2,
    rng: np.random.Generator | int | None = 0,
    **options: object,
) -> float:
    """Check the derivatives of an operator at given inputs against central differences.

    In float64 along random directions, each input separately, checks `jvp` against the difference
    quotient of the value, and `backward` against `jvp` (<J v, gy> = <v, J^T gy>, to 1e-12) and
    against the difference quotient of <gy, value>. At order 2 also checks `double_backward`
    against the difference quotient of <h, backward> by every input and by gy. With a distributed
    graph it is collective, and inner products are sums over ranks.

    Parameters
    ----------
    op : Operator
        The operator, or anything with the same `__call__`, `backward`, `double_backward`, `jvp`.
    *inputs
        Its inputs; None stays absent, as do those left out. Float32 arrays are converted to
        float64. Keep them a hundred steps away from points where the operator is not smooth.
    order : {1, 2}
        Whether to check second derivatives too.
    rtol : float
        Largest difference allowed, relative to the sum of the magnitudes of the terms, or to a
        thousandth of those of <gy, value> or <h, backward> if nearly all cancel.
    step : float
        Step of the differences, relative to the largest element of the input.
    directions : int
        Number of random directions for each input.
    rng : numpy.random.Generator or int, optional
        Source of the random cotangents and directions, or its seed.
    **options
        The options of the operator, and inputs by name.

    Returns
    -------
    float
        The largest relative difference found.

    Raises
    ------
    AssertionError
        If a derivative is wrong, or one is missing for an input; the message names it and what was
        expected. None stands for zeros.
    TypeError, ValueError
        If `op` has no derivatives, an input is no float32 or float64 array, `order` neither 1 nor
        2, `directions` below 1, `rtol` negative, `step` not positive.

    Examples
    --------
    >>> graph, x = pyops.Graph([0, 1, 2], [1, 2, 0]), np.eye(3)
    >>> pyops.testing.check_gradients(pyops.aggregate, graph, x) < 1e-9
    True
    """
    whole = isinstance(order, (int, np.integer)) and not isinstance(order, NOT_NUMBERS)
    if not whole or order not in (1, 2):
        raise ValueError(f"check_gradients: order: expected 1 or 2, got {order!r}")
    phases = ["backward", "jvp", *["double_backward"] * (order == 2)]
    callables = (callable(getattr(op, name, None)) for name in ("__call__", *phases))
    if isinstance(op, type) or not all(callables):
        raise TypeError(
            f"check_gradients: op: expected an operator, with {', '.join(phases)}, "
            f"got {kind_of(op)}"
        )
    directions = check_size("check_gradients: directions", directions)
    if check_number("check_gradients: rtol", rtol) < 0:
        raise ValueError(f"check_gradients: rtol: expected at least 0, got {rtol!r}")
    if check_number("check_gradients: step", step) <= 0:
        raise ValueError(f"check_gradients: step: expected a positive number, got {step!r}")
    graphs = (a for a in (*inputs[:1], options.get("graph")) if hasattr(a, "_check"))
    make: type[Check] = next((graph._check for graph in graphs), Check)
    check = make(op, inputs, options, step, _generator(rng))
    worst = 0.0
    for _ in range(directions):
        for what, expected, got, scale, allowed in check.differences(order, rtol):
            error = abs(got - expected) / max(scale, np.finfo(np.float64).tiny)
            if not error <= allowed:
                raise AssertionError(
                    f"{check.name}: {what}: expected {expected:.12g}, got {got:.12g}, "
                    f"a relative difference of {error:.2g} where {allowed:.2g} is allowed"
                )
            worst = max(worst, error)
    return worst


class Check:
    """Operator, inputs and cotangents of a check."""

    def __init__(
        self,
        op: Differentiable,
        inputs: Sequence[object],
        options: Options,
        step: float,
        rng: np.random.Generator,
    ) -> None:
        if isinstance(op, Operator):
            inputs = op.arguments(tuple(inputs), options)
        start = sum(1 for a in inputs[:1] if a is not None and not isinstance(a, np.ndarray))
        self.op, self.graph, self.options = op, inputs[:start], options
        self.step, self.rng = step, rng
        self.inputs = self.arrays(inputs[start:])
        self.name = getattr(op, "__name__", type(op).__name__)
        values = _each(self.call(op.__call__, *self.inputs))
        for y in values:
            if not isinstance(y, (np.ndarray, np.generic)):
                raise TypeError(f"check_gradients: op: expected arrays from it, got {kind_of(y)}")
        given = [y for y in values if y is not None]
        self.gy = [self.random(y, i) for i, y in enumerate(given, -len(given))]
        gradients = self.call(op.backward, *self.inputs, *self.gy)
        if isinstance(gradients, (tuple, list)):
            self.inputs += [None] * (len(gradients) - len(self.inputs))
        self.checked("backward", gradients, self.inputs)
        self.h = [None if a is None else self.random(a, i) for i, a in enumerate(self.inputs)]

    def arrays(self, inputs: Sequence[object]) -> list[Array | None]:
        """Return the inputs as arrays of float64."""
        return [
            None if a is None else check_array(f"check_gradients: input {i}", a).astype(np.float64)
            for i, a in enumerate(inputs)
        ]

    def random(self, like: Array, place: int) -> Array:
        """Return a random array for the argument at a place: inputs from 0, gy from -1 down."""
        return np.asarray(self.rng.standard_normal(like.shape))

    def largest(self, array: Array) -> float:
        """Return the magnitude of the largest element."""
        return float(np.abs(array).max(initial=0))

    def dot(self, a: Array | None, b: Array | None, place: int) -> tuple[float, float]:
        """Return the inner product, and that of the magnitudes; 0 for absent arrays."""
        if a is None or b is None:
            return 0.0, 0.0
        products = np.asarray(a) * np.asarray(b)
        return float(products.sum()), float(np.abs(products).sum())

    def dots(self, a: Sequence[Array | None], b: Results, first: int) -> tuple[float, float]:
        """Return the sums of `dot` over pairs of arrays at places from `first` on."""
        pairs = enumerate(zip(a, _each(b), strict=True), first)
        products = [self.dot(x, y, i) for i, (x, y) in pairs]
        return sum(s for s, _ in products), sum(s for _, s in products)

    def checked(
        self, phase: str, found: object, like: Sequence[Array | None]
    ) -> Sequence[Array | None]:
        """Return the results of a phase, one for each array in `like`; None stands for zeros."""
        label = f"{self.name}: {phase}"
        if not isinstance(found, (tuple, list)):
            raise AssertionError(f"{label}: expected a tuple, got {kind_of(found)}")
        if len(found) != len(like):
            raise AssertionError(f"{label}: expected {len(like)} arrays, got {len(found)}")
        for i, (array, other) in enumerate(zip(found, like, strict=True)):
            shape, expected = (getattr(a, "shape", None) for a in (array, other))
            if array is not None and shape != expected:
                wanted = "None" if other is None else f"shape {expected}"
                got = kind_of(array) if shape is None else shape
                raise AssertionError(f"{label}: result {i}: expected {wanted}, got {got}")
        return found

    def call(self, phase: Callable[..., Results], *arrays: Array | None) -> Results:
        return phase(*self.graph, *arrays, **self.options)

    def differences(
        self, order: int, rtol: float
    ) -> Iterator[tuple[str, float, float, float, float]]:
        """Yield each comparison: label, value expected, value got, scale, bound."""
        gradients = self.gradients(*self.inputs, *self.gy)
        last = -len(self.gy)
        least = 1e-3 * self.dots(self.gy, self.call(self.op.__call__, *self.inputs), last)[1]
        seconds: Results = ()
        if order == 2:
            seconds = self.call(self.op.double_backward, *self.inputs, *self.gy, *self.h)
            self.checked("double_backward", seconds, [*self.inputs, *self.gy])
        for i, at in enumerate(self.inputs):
            if at is None:
                continue
            along = self.random(at, i)
            tangents = [along if k == i else None for k in range(len(self.inputs))]
            dy = _each(self.call(self.op.jvp, *self.inputs, *tangents))
            self.checked("jvp", dy, self.gy)
            got, scale = self.dot(along, gradients[i], i)
            scale = max(scale, least)
            yield (
                f"backward by input {i} against jvp",
                self.dots(self.gy, dy, last)[0],
                got,
                scale + self.dots(self.gy, dy, last)[1],
                1e-12,
            )
            expected, size = self.dots(self.gy, self.slope(self.value, i, along), last)
            yield f"backward by input {i} against differences", expected, got, scale + size, rtol
        least = 1e-3 * self.dots(self.h, gradients, 0)[1]
        for i, (at, second) in enumerate(zip([*self.inputs, *self.gy], seconds, strict=False)):
            if at is None:
                continue
            along = self.random(at, i)
            expected, size = self.dots(self.h, self.slope(self.gradients, i, along), 0)
            got, scale = self.dot(along, second, i)
            scale = max(scale, least)
            count = len(self.inputs)
            name = f"input {i}" if i < count else "gy" if len(self.gy) == 1 else f"gy {i - count}"
            yield (
                f"double_backward by {name} against differences",
                expected,
                got,
                scale + size,
                rtol,
            )

    def value(self, *arrays: Array | None) -> Results:
        return self.call(self.op.__call__, *arrays[: len(self.inputs)])

    def gradients(self, *arrays: Array | None) -> Sequence[Array | None]:
        return self.checked("backward", self.call(self.op.backward, *arrays), self.inputs)

    def slope(
        self, function: Callable[..., Results], i: int, along: Array
    ) -> tuple[Array | None, ...]:
        """Return the derivative of a function of (inputs, gy) by argument i, by two differences."""
        arrays = [*self.inputs, *self.gy]
        at = arrays[i]
        assert at is not None
        size = self.step * max(self.largest(at), 1e-3)

        def difference(step: float) -> list[Any]:
            ends: list[object] = []
            for end in (step, -step):
                arrays[i] = np.asarray(at + end * along)
                ends.append(_each(function(*arrays)))
            return [None if p is None else (p - m) / (2 * step) for p, m in zip(*ends, strict=True)]

        fine, coarse = difference(size / 2), difference(size)
        return tuple(f if f is None else (4 * f - c) / 3 for f, c in zip(fine, coarse, strict=True))


def _each(results: Any) -> tuple[Array | None, ...]:
    """Return the results of a call as a tuple, also for a single result."""
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _generator(rng: np.random.Generator | int | None) -> np.random.Generator:
    """Return the generator, or a new one from a seed."""
    try:
        if isinstance(rng, NOT_NUMBERS):
            raise TypeError
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(
            "check_gradients: rng: expected a numpy.random.Generator, an integer from 0 on or "
            f"None, got {rng!r}"
        ) from None
