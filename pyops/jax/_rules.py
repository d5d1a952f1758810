"""Derivatives of the primitives: each is that of the previous one.

Each is linear in its arguments after the inputs x: `tangent` in t, `gradient` in gy, `second`, the
Hessian of <gy, y> times h, in gy and in h, and `second_tangent`, the second derivative of y along t
and s, in both. `second_tangent` has no kernel: it is computed component by component from `second`.
Its transpose, which reverse-over-forward mode needs, is a single call of `second`. The rules of all
primitives share the split of arguments, so they are one module.

Results are float32 where rows have half precision. JAX then rounds y and its tangent, and
transposition the gradients. So arguments of rules in float32 that belong to rows of half precision
have been widened, and are narrowed to the same values.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, mlir

from ._primitives import bind, lowered, make_primitive, result_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._call import Call

MaybeArray: TypeAlias = "jax.Array | None"
Symbolic: TypeAlias = "jax.Array | ad.Zero"
"""Tangent or cotangent of a rule."""
Linear: TypeAlias = "jax.Array | ad.UndefinedPrimal"
"""Argument of a transposition rule, undefined if its cotangent is requested."""
Item = TypeVar("Item")

value, tangent, gradient, second, second_tangent = map(
    make_primitive, ("value", "tangent", "gradient", "second", "second_tangent")
)
JvpResult: TypeAlias = "tuple[list[jax.Array], Sequence[Symbolic]]"


def _phase(call: Call, phase: str, *present: Sequence[bool], wanted: Sequence[str] = ()) -> Call:
    """Return the call of another phase on the same inputs, with further arrays."""
    mask = [*call.present[: _count(call)], *(is_present for some in present for is_present in some)]
    return replace(call, phase=phase, present=tuple(mask), wanted=tuple(wanted))


def _mask(call: Call, some: Sequence[MaybeArray]) -> tuple[list[bool], list[jax.Array]]:
    """Return a mask of the inputs that have an array, and these arrays."""
    found = dict(zip(call.names, some, strict=True))
    mask = [found.get(name) is not None for name in call.op.signature.inputs]
    return mask, [a for a in some if a is not None]


def _without_zeros(some: Sequence[Symbolic]) -> list[MaybeArray]:
    """Return the arrays, None for symbolic zeros."""
    return [None if isinstance(a, ad.Zero) else a for a in some]


def _zeros(arrays: Sequence[jax.Array]) -> list[ad.Zero]:
    """Return symbolic zeros as tangents of the arrays."""
    return [ad.Zero(jax.typeof(a).to_tangent_aval()) for a in arrays]


def bind_tangent(
    call: Call, base: Sequence[jax.Array], tangents: Sequence[MaybeArray]
) -> jax.Array:
    """Return dy along tangents of the inputs, None for zero."""
    mask, given = _mask(call, _as_inputs(call, base, tangents))
    return bind(tangent, [*base, *given], _phase(call, "jvp", mask))[0]


def bind_gradient(
    call: Call, base: Sequence[jax.Array], gy: jax.Array, wanted: Sequence[str]
) -> list[jax.Array]:
    """Return the gradients of <gy, y> by the requested inputs (VJP)."""
    phase = _phase(call, "backward", [True], wanted=wanted)
    return bind(gradient, [*base, _as_seed(call, gy)], phase)


def bind_second(
    call: Call,
    base: Sequence[jax.Array],
    gy: jax.Array,
    hs: Sequence[MaybeArray],
    wanted: Sequence[str],
) -> list[jax.Array]:
    """Return the Hessian of <gy, y> times h, by the requested inputs."""
    mask, given = _mask(call, _as_inputs(call, base, hs))
    phase = _phase(call, "double_backward", [True], mask, wanted=wanted)
    return bind(second, [*base, _as_seed(call, gy), *given], phase)


def _as_seed(call: Call, gy: jax.Array) -> jax.Array:
    """Return a cotangent of y in the type that the kernels read."""
    return gy.astype(call.half) if call.half else gy


def _as_inputs(
    call: Call, base: Sequence[jax.Array], some: Sequence[MaybeArray]
) -> Sequence[MaybeArray]:
    """Return tangents or cotangents of the inputs, None for zero, in the types of these."""
    if not call.half:
        return some
    pairs = zip(some, base[call.leading :], strict=True)
    return [None if a is None else a.astype(x.dtype) for a, x in pairs]


def _of_undefined(arguments: Sequence[Linear], found: Sequence[jax.Array]) -> list[MaybeArray]:
    """Return the gradients by the undefined ones of some arguments, in their types."""
    left = iter(found)
    return [
        next(left).astype(a.aval.dtype) if isinstance(a, ad.UndefinedPrimal) else None
        for a in arguments
    ]


def _sum(parts: Sequence[Sequence[jax.Array]]) -> list[jax.Array]:
    return [functools.reduce(jnp.add, some) for some in zip(*parts, strict=True)]


def _split(call: Call, arrays: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Split into indices and inputs, and the linear arguments."""
    end = call.leading + len(call.names)
    return [*arrays[:end]], [*arrays[end:]]


def _defined(arrays: Sequence[Linear]) -> list[jax.Array]:
    return [a for a in arrays if not isinstance(a, ad.UndefinedPrimal)]


def _undefined(names: Sequence[str], arrays: Sequence[Linear]) -> list[str]:
    """Return the names of the arguments whose cotangents are requested."""
    named = zip(names, arrays, strict=True)
    return [name for name, array in named if isinstance(array, ad.UndefinedPrimal)]


def _by_input(call: Call, first: int, some: Sequence[Item]) -> list[Item | None]:
    """Return the arrays of the parameters from `first` on, one or None for each input present."""
    mask = call.present[first : first + _count(call)]
    rest = iter(some)
    found = [next(rest) if is_present else None for is_present in mask]
    return [a for a, n in zip(found, call.op.signature.inputs, strict=True) if n in call.names]


def _count(call: Call) -> int:
    return len(call.op.signature.inputs)


def _value_jvp(
    arrays: Sequence[jax.Array], tangents: Sequence[Symbolic], *, call: Call
) -> JvpResult:
    y = bind(value, arrays, call)
    given = _without_zeros(tangents[call.leading :])
    if all(t is None for t in given):
        return y, _zeros(y)
    return y, [bind_tangent(call, arrays, given)]


def _tangent_jvp(
    arrays: Sequence[jax.Array], tangents: Sequence[Symbolic], *, call: Call
) -> JvpResult:
    base, ts = _split(call, arrays)
    dy = bind(tangent, arrays, call)
    by_base, by_ts = (_without_zeros(some) for some in _split(call, tangents))
    parts = []
    if any(s is not None for s in by_base[call.leading :]):
        mask, ss = _mask(call, by_base[call.leading :])
        phase = replace(call, phase="jvp", present=(*call.present, *mask))
        parts.append(bind(second_tangent, [*base, *ts, *ss], phase))
    if any(t is not None for t in by_ts):
        parts.append([bind_tangent(call, base, _by_input(call, _count(call), by_ts))])
    return dy, _sum(parts) if parts else _zeros(dy)


def _tangent_transpose(
    cts: Sequence[Symbolic], *arrays: Linear, call: Call
) -> Sequence[MaybeArray]:
    base, ts = _split(call, arrays)
    names = _linear_names(call, _count(call))
    (ct,) = cts
    if isinstance(ct, ad.Zero):
        return [None] * len(arrays)
    found = bind_gradient(call, _defined(base), ct, _undefined(names, ts))
    return [*[None] * len(base), *_of_undefined(ts, found)]


def _gradient_jvp(
    arrays: Sequence[jax.Array], tangents: Sequence[Symbolic], *, call: Call
) -> JvpResult:
    base, (gy,) = _split(call, arrays)
    gx = bind(gradient, arrays, call)
    by_base, (by_gy,) = (_without_zeros(some) for some in _split(call, tangents))
    parts = []
    if any(s is not None for s in by_base[call.leading :]):
        parts.append(bind_second(call, base, gy, by_base[call.leading :], call.wanted))
    if by_gy is not None:
        parts.append(bind_gradient(call, base, by_gy, call.wanted))
    return gx, _sum(parts) if parts else _zeros(gx)


def _gradient_transpose(
    cts: Sequence[Symbolic], *arrays: Linear, call: Call
) -> Sequence[MaybeArray]:
    base, gy = _split(call, arrays)
    none: list[MaybeArray] = [None] * len(base)
    if all(isinstance(c, ad.Zero) for c in cts):
        return [*none, None]
    found = bind_tangent(call, _defined(base), _for_inputs(call, cts))
    return [*none, *_of_undefined(gy, [found])]


def _second_jvp(
    arrays: Sequence[jax.Array], tangents: Sequence[Symbolic], *, call: Call
) -> JvpResult:
    base, (gy, *hs) = _split(call, arrays)
    by_base, (by_gy, *by_hs) = (_without_zeros(some) for some in _split(call, tangents))
    if any(s is not None for s in by_base[call.leading :]):
        raise _unsupported(call)
    result = bind(second, arrays, call)
    parts, start = [], _count(call) + 1
    if by_gy is not None:
        parts.append(bind_second(call, base, by_gy, _by_input(call, start, hs), call.wanted))
    if any(h is not None for h in by_hs):
        parts.append(bind_second(call, base, gy, _by_input(call, start, by_hs), call.wanted))
    return result, _sum(parts) if parts else _zeros(result)


def _second_transpose(cts: Sequence[Symbolic], *arrays: Linear, call: Call) -> Sequence[MaybeArray]:
    base, (gy, *hs) = _split(call, arrays)
    none: list[MaybeArray] = [None] * len(base)
    if all(isinstance(c, ad.Zero) for c in cts):
        return [*none, *[None] * (1 + len(hs))]
    along = _for_inputs(call, cts)
    if isinstance(gy, ad.UndefinedPrimal):
        mask, ss = _mask(call, _as_inputs(call, _defined(base), along))
        present = (*call.present[: _count(call)], *call.present[_count(call) + 1 :], *mask)
        phase = replace(call, phase="jvp", present=present, wanted=())
        found = bind(second_tangent, [*_defined(base), *_defined(hs), *ss], phase)
        return [*none, *_of_undefined([gy], found), *[None] * len(hs)]
    needed = _undefined(_linear_names(call, _count(call) + 1), hs)
    found = bind_second(call, _defined(base), gy, along, needed)
    return [*none, None, *_of_undefined(hs, found)]


def _second_tangent_jvp(
    arrays: Sequence[jax.Array], tangents: Sequence[Symbolic], *, call: Call
) -> JvpResult:
    base, both = _split(call, arrays)
    by_base, by_both = (_without_zeros(some) for some in _split(call, tangents))
    if any(s is not None for s in by_base[call.leading :]):
        raise _unsupported(call)
    result = bind(second_tangent, arrays, call)
    count = sum(call.present[_count(call) : 2 * _count(call)])
    parts = []
    for side in slice(0, count), slice(count, None):
        if any(a is not None for a in by_both[side]):
            changed = [*both]
            changed[side] = [
                jnp.zeros_like(o) if a is None else a
                for a, o in zip(by_both[side], both[side], strict=True)
            ]
            parts.append(bind(second_tangent, [*base, *changed], call))
    return result, _sum(parts) if parts else _zeros(result)


def _second_tangent_transpose(
    cts: Sequence[Symbolic], *arrays: Linear, call: Call
) -> Sequence[MaybeArray]:
    base, both = _split(call, arrays)
    (ct,) = cts
    if isinstance(ct, ad.Zero):
        return [None] * len(arrays)
    n = _count(call)
    count = sum(call.present[n : 2 * n])
    sides = [(n, both[:count]), (2 * n, both[count:])]
    is_first = any(isinstance(a, ad.UndefinedPrimal) for a in both[:count])
    (first, unknown), (start, known) = sides if is_first else sides[::-1]
    needed = _undefined(_linear_names(call, first), unknown)
    along = _by_input(call, start, _defined(known))
    ours = _of_undefined(unknown, bind_second(call, _defined(base), ct, along, needed))
    others: list[MaybeArray] = [None] * len(known)
    return [*[None] * len(base), *(ours + others if is_first else others + ours)]


def _second_tangent_lowered(*arrays: jax.Array, call: Call) -> Sequence[jax.Array]:
    """Compute component e of the second tangent as <second(x, e, t), s>, for each e in turn."""
    base, both = _split(call, arrays)
    n = _count(call)
    count = sum(call.present[n : 2 * n])
    ts, ss = _by_input(call, n, both[:count]), _by_input(call, 2 * n, both[count:])
    wanted = [name for name, s in zip(call.names, ss, strict=True) if s is not None]
    (shape,) = result_types(*map(jax.typeof, arrays), call=call)
    size = int(np.prod(shape.shape))

    def component(place: jax.Array) -> jax.Array:
        e = jnp.zeros(size, shape.dtype).at[place].set(1).reshape(shape.shape)
        found = zip(
            bind_second(call, base, e, ts, wanted), (s for s in ss if s is not None), strict=True
        )
        return functools.reduce(jnp.add, [jnp.vdot(f, s) for f, s in found])

    return [jax.lax.map(component, jnp.arange(size)).reshape(shape.shape)]


def _linear_names(call: Call, first: int) -> list[str]:
    """Return the inputs whose parameters from `first` on are present."""
    names = call.op.signature.inputs
    mask = call.present[first : first + len(names)]
    return [name for name, is_present in zip(names, mask, strict=True) if is_present]


def _for_inputs(call: Call, cts: Sequence[Symbolic]) -> list[MaybeArray]:
    """Return cotangents of the requested outputs, one or None for each input present."""
    found = dict(zip(call.wanted, _without_zeros(cts), strict=True))
    return [found.get(name) for name in call.names]


def _unsupported(call: Call) -> NotImplementedError:
    return NotImplementedError(
        f"pyops.jax.{call.operator}: third derivatives: pyops ends at the second"
    )


ad.primitive_jvps.update(
    {
        value: _value_jvp,
        tangent: _tangent_jvp,
        gradient: _gradient_jvp,
        second: _second_jvp,
        second_tangent: _second_tangent_jvp,
    }
)
ad.primitive_transposes.update(
    {
        tangent: _tangent_transpose,
        gradient: _gradient_transpose,
        second: _second_transpose,
        second_tangent: _second_tangent_transpose,
    }
)
for _primitive in value, tangent, gradient, second, second_tangent:
    _rule = _second_tangent_lowered if _primitive is second_tangent else lowered
    mlir.register_lowering(_primitive, mlir.lower_fun(_rule, multiple_results=True))
