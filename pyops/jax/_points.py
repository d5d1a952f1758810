"""Operators over points, and reductions of rows, that are distributed over the devices of a mesh.

An array with an axis of points has those of the device, any other is the same on all devices.
Derivatives of all orders are those that JAX takes of these steps; the factorisation of a basis and
the extreme over devices have a rule for the first, in steps that JAX differentiates.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from .._call.reduction import Reduction
from ._call import Call
from ._devices import check_varying, rank_inside, varying_axes
from ._primitives import bind
from ._rules import value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._call.operator import Operator
    from .._call.types import Values

_POINTS = "points"
_ORTHONORMALIZE = Call("orthonormalize", "forward", (), 0, (), (True,), (), ())


@jax.tree_util.register_static
@dataclass(frozen=True)
class Devices:
    """The devices along an axis of a mesh, whose points and rows are one set.

    Inside `jax.shard_map` over this axis, operators over points (`orthonormalize`, `ono_encode`,
    `ono_decode`, `lno_encode`, `lno_decode`) and reductions (`sum`, `mean`, `max`, `min`) take it
    where others take the graph, with the device's own points or rows. All devices have equal
    numbers of these, counted in the order of devices. Arrays without points, such as poles, are
    the same on all devices, and results without points or rows are.

    Parameters
    ----------
    axis : str
        Axis of the mesh.

    Examples
    --------
    On two devices, with 4 of 8 points each:

    >>> import functools, jax, pyops.jax
    >>> from jax.sharding import PartitionSpec as P
    >>> mesh = jax.sharding.Mesh(jax.devices()[:2], ("ranks",))
    >>> encode = functools.partial(pyops.jax.ono_encode, pyops.jax.Devices("ranks"))
    >>> encode = jax.shard_map(encode, mesh=mesh, in_specs=(P(None, "ranks"), P("ranks")),
    ...     out_specs=P())
    >>> encode(np.ones((5, 8), "f4"), np.eye(8, 3, dtype="f4")).shape
    (5, 3)
    """

    axis: str = "ranks"

    def __post_init__(self) -> None:
        if not isinstance(self.axis, str):
            raise TypeError(f"Devices: axis: expected a str, got {type(self.axis).__name__}")

    def _check_inside(self, label: str) -> None:
        """Check that a device makes the call, where JAX knows which arrays differ."""
        label = f"{label}: devices"
        check_varying(label, self.axis, rank_inside(label, self.axis))


def call_over_devices(
    op: Operator,
    label: str,
    function: Callable[..., object],
    devices: Devices,
    arrays: Sequence[jax.Array | None],
    options: dict[str, object],
) -> jax.Array:
    """Return the own points or rows of the result of an operator, given those of its inputs."""
    if _POINTS not in op.signature.sizes and not isinstance(op, Reduction):
        expected = "an array, as the operator is local"
        raise TypeError(f"{label}: argument 0: expected {expected}, got Devices")
    devices._check_inside(label)
    axis, given = devices.axis, [a for a in arrays if a is not None]
    chosen: Values = op.checked(options)
    if isinstance(op, Reduction):
        of_rows = cast("Callable[..., jax.Array]", function)  # one array
        return _reduced(op, label, of_rows, axis, given[0], chosen)
    _check_shapes(op, label, axis, arrays, chosen)
    if op.name == "orthonormalize":
        return _orthonormalized(axis, given[0])
    x, *parameters = given
    if op.name.startswith("ono_"):
        table = _orthonormalized(axis, parameters[0])
    else:
        table = _exponentials(axis, parameters, chosen.get(_POINTS, x.shape[-1]))
    return _summed(axis, x @ table) if op.name.endswith("_encode") else x @ table.T


def _check_shapes(
    op: Operator, label: str, axis: str, arrays: Sequence[jax.Array | None], options: Values
) -> None:
    """Check the shapes of arrays as those with the points of all devices."""
    size = jax.lax.axis_size(axis)
    whole: list[jax.ShapeDtypeStruct | None] = []
    for array, declared in zip(arrays, op.signature.inputs.values(), strict=True):
        if array is None:
            whole.append(None)
            continue
        if array.ndim in [len(form) for form in declared.forms[1:]]:
            raise ValueError(
                f"{label}: {declared.name}: expected shape (points, modes) over devices, got "
                f"{array.shape}; pyops.blocks.unpack_basis converts a packed block"
            )
        shape = list(array.shape)
        for place, length in enumerate(declared.shape[: array.ndim]):
            shape[place] *= size if length.text == _POINTS else 1
        whole.append(jax.ShapeDtypeStruct(shape, array.dtype))
    every = {n: v * size if n == _POINTS else v for n, v in options.items()}
    try:
        op.output_shape({}, whole, every)
    except ValueError as error:
        raise ValueError(f"{error}, with the points of {size} devices") from None


def _own(axis: str, array: jax.Array) -> jax.Array:
    """Return an array as one that differs between devices."""
    return array if axis in varying_axes(array) else jax.lax.pcast(array, axis, to="varying")


def _summed(axis: str, array: jax.Array) -> jax.Array:
    """Return the sum over devices."""
    found: jax.Array = jax.lax.psum(_own(axis, array), axis)
    return found


def _gathered(axis: str, array: jax.Array) -> jax.Array:
    """Return the arrays of all devices, stacked; a sum, whose result is the same on all devices."""
    size, rank = jax.lax.axis_size(axis), jax.lax.axis_index(axis)
    return _summed(axis, jnp.zeros((size, *array.shape), array.dtype).at[rank].set(array))


def _wide(array: jax.Array) -> jax.Array:
    """Return an array in float64 where that is enabled."""
    return array.astype(jax.dtypes.canonicalize_dtype(np.float64))


def _orthonormalized(axis: str, basis: jax.Array) -> jax.Array:
    return _factors(axis, _own(axis, basis))[0].astype(basis.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _factors(axis: str, basis: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return own rows of Q, and the inverse of R; B = Q R.

    Each device orthonormalises its rows, B = Q1 T, all devices orthonormalise the T of all, and Q =
    Q1 times the own rows of the result (TSQR). Rows that are no more than columns are passed on as
    T. Where columns depend on others, both results are zero in their columns, the inverse in their
    rows too.
    """
    own, factor, modes = None, _wide(basis), basis.shape[1]
    if len(basis) > modes:
        (own,) = bind(value, [factor], _ORTHONORMALIZE)
        factor = own.T @ factor
    stack = _gathered(axis, factor)
    rows = stack.reshape(-1, modes)
    # Which columns depend on others is a question of the precision of the basis.
    (whole,) = bind(value, [rows.astype(basis.dtype)], _ORTHONORMALIZE)
    whole = _wide(whole)
    q = whole.reshape(stack.shape)[jax.lax.axis_index(axis)]
    dependent, one = ~whole.any(0), jnp.eye(modes, dtype=rows.dtype)
    r = jnp.where(dependent, one, jnp.triu(whole.T @ rows))
    inverse = jnp.where(dependent, 0, solve_triangular(r, one))
    return q if own is None else own @ q, inverse


@_factors.defjvp
def _factors_jvp(
    axis: str, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """See docs/explanation/orthogonal.md; not through the local steps, where more is dependent."""
    q, inverse = _factors(axis, *primals)
    w = _wide(tangents[0]) @ inverse
    a = _summed(axis, q.T @ w)
    u = jnp.triu(a) + jnp.tril(a, -1).T  # dR = U R
    return (q, inverse), (w - q @ u, -inverse @ u)


def _exponentials(axis: str, parameters: Sequence[jax.Array], points: int) -> jax.Array:
    """Return exponentials of the poles at own points; at t = 0 they depend on no pole.

    If there are frequencies, they are multiplied by cos + sin of the angles.
    """
    places = _wide(jax.lax.axis_index(axis)) * points + jnp.arange(points)
    t = places[:, None] / max(1, jax.lax.axis_size(axis) * points - 1)
    exponents, *angles = (jnp.where(t == 0, 0, t * _wide(p)) for p in parameters)
    found = jnp.exp(-exponents)
    for angle in angles:
        found = found * (jnp.cos(angle) + jnp.sin(angle))
    return found.astype(parameters[0].dtype)


def _reduced(
    op: Operator,
    label: str,
    function: Callable[..., jax.Array],
    axis: str,
    x: jax.Array,
    options: dict[str, object],
) -> jax.Array:
    if x.ndim == 0:
        raise ValueError(f"{label}: x: expected rows, got shape ()")
    shape = op.output_shape({}, [x], options)
    axes = options["axis"] if isinstance(options["axis"], tuple) else (options["axis"],)
    y: jax.Array
    if {None, 0, -x.ndim}.isdisjoint(axes):
        y = function(x, **options)
    elif op.name in ("sum", "mean"):
        y = _summed(axis, function(x, **options))
        y = y / jax.lax.axis_size(axis) if op.name == "mean" else y
    else:
        y = _extreme(axis, function, options["axis"], _own(axis, x)).reshape(shape)
    return y


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _extreme(
    axis: str, function: Callable[..., jax.Array], axes: object, x: jax.Array
) -> jax.Array:
    """Return the extreme of the rows of all devices; reduced axes have length 1."""
    return function(_gathered(axis, function(x, axis=axes, keepdims=True)), axis=0)


@_extreme.defjvp
def _extreme_jvp(
    axis: str,
    function: Callable[..., object],
    axes: Any,
    primals: tuple[jax.Array],
    tangents: tuple[jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Equal extremes on all devices share the gradient; it is NaN where the extreme is."""
    y = _extreme(axis, function, axes, *primals)
    chosen = (primals[0] == y) | jnp.isnan(y)

    number = _summed(axis, chosen.sum(axes, keepdims=True)).astype(y.dtype)
    along = jnp.where(chosen, tangents[0], 0).sum(axes, keepdims=True)
    return y, _summed(axis, along) / jnp.where(jnp.isnan(y), y, number)
