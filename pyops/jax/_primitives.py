"""JAX primitives for the phases of an operator; the derivative of each is the next one.

Each is linear in its arguments after the inputs x: `tangent` in t, `gradient` in gy, `second`, the
Hessian of <gy, y> times h, in gy and in h, and `moved`, the second derivative of y along t and s,
in both. `moved` has no kernel: it is computed component by component from `second`. Its
transpose, which reverse-over-forward mode needs, is a single call of `second`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from .._call.threads import limits
from . import _handler
from ._call import Call, run, text_of
from ._devices import together

TARGET = "pyops"
jax.ffi.register_ffi_target(TARGET, _handler.target(run, limits), platform="cpu")
SIZES = "num_src", "num_dst", "num_edges"


def _primitive(name: str) -> Primitive:
    primitive = Primitive(f"pyops_{name}")
    primitive.multiple_results = True
    primitive.def_impl(functools.partial(_run, primitive))
    primitive.def_abstract_eval(_shapes)
    batching.primitive_batchers[primitive] = functools.partial(_batch, primitive)
    return primitive


def _run(primitive: Primitive, *arrays: Any, call: Call) -> Any:
    if call.constants is not None:  # graphs of equal sizes share a compiled function
        call = replace(call, constants=None)
    with jax.disable_jit(False):  # else the compiled function would bind the primitive again
        return compiled(primitive, call)(*arrays)


@functools.lru_cache(maxsize=1000)
def compiled(primitive: Primitive, call: Call) -> Any:
    """Return a primitive with its parameters as a compiled function of arrays."""
    return jax.jit(lambda *arrays: primitive.bind(*arrays, call=call))


def _shapes(*arrays: Any, call: Call) -> list[Any]:
    inputs = call.places(arrays)[: len(call.op.signature.inputs)]
    held = dict(zip(call.op.signature.inputs, inputs, strict=True))
    first = next(a for a in inputs if a is not None)
    if call.phase.endswith("backward"):
        return [held[name].update(weak_type=False) for name in call.wanted]
    sizes = dict(zip(SIZES, call.sizes, strict=False))
    if call.sizes:
        sizes["num_entries"] = arrays[0].shape[0]
    shape = call.op.output_shape(sizes, inputs, dict(call.options), call.phase == "attention")
    sharding = NamedSharding(first.sharding.mesh, PartitionSpec(*[None] * len(shape)))
    return [first.update(shape=shape, weak_type=False, sharding=sharding)]


def _lowered(*arrays: Any, call: Call) -> Any:
    shapes = _shapes(*map(jax.typeof, arrays), call=call)
    results = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes]
    return jax.ffi.ffi_call(TARGET, results)(*arrays, text=text_of(call, arrays, shapes))


def _batch(primitive: Primitive, arrays: Any, axes: Any, *, call: Call) -> Any:
    """Evaluate the primitive for each element of a batch in turn."""
    moved = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(arrays, axes, strict=True)]
    many = [together(a) for a, d in zip(moved, axes, strict=True) if d is not None]
    if any(d is not None for d in axes[: call.leading]):
        call = replace(call, constants=None)

    def one(some: Any) -> Any:
        rest = iter(some)
        picked = [a if d is None else next(rest) for a, d in zip(moved, axes, strict=True)]
        return primitive.bind(*picked, call=call)

    with jax.disable_jit(False):  # lax.map without jit refuses an empty batch
        results = jax.lax.map(one, many)
    return results, [0] * len(results)


value, tangent, gradient, second, moved = map(
    _primitive, ("value", "tangent", "gradient", "second", "moved")
)


def _phase(call: Call, phase: str, *present: Sequence[bool], wanted: Any = ()) -> Call:
    """Return the call of another phase on the same inputs, with further arrays."""
    count = len(call.op.signature.inputs)
    mask = [*call.present[:count], *(there for some in present for there in some)]
    return replace(call, phase=phase, present=tuple(mask), wanted=tuple(wanted))


def _along(call: Call, some: Sequence[Any]) -> tuple[list[bool], list[Any]]:
    """Return a mask of the inputs that have an array, and these arrays."""
    found = dict(zip(call.names, some, strict=True))
    mask = [found.get(name) is not None for name in call.op.signature.inputs]
    return mask, [a for a in some if a is not None]


def _real(some: Sequence[Any]) -> list[Any]:
    return [None if type(a) is ad.Zero else a for a in some]


def push(call: Call, base: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Return dy along tangents of the inputs, None for zero."""
    mask, along = _along(call, tangents)
    return tangent.bind(*base, *along, call=_phase(call, "jvp", mask))[0]


def pull(call: Call, base: Sequence[Any], gy: Any, wanted: Sequence[str]) -> list[Any]:
    """Return the gradients of <gy, y> by the requested inputs (VJP)."""
    return [*gradient.bind(*base, gy, call=_phase(call, "backward", [True], wanted=wanted))]


def bend(call: Call, base: Any, gy: Any, hs: Sequence[Any], wanted: Sequence[str]) -> list[Any]:
    """Return the Hessian of <gy, y> times h, by the requested inputs."""
    mask, along = _along(call, hs)
    told = _phase(call, "double_backward", [True], mask, wanted=wanted)
    return [*second.bind(*base, gy, *along, call=told)]


def _sum(parts: Sequence[Sequence[Any]]) -> list[Any]:
    return [functools.reduce(jnp.add, some) for some in zip(*parts, strict=True)]


def _split(call: Call, arrays: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Split into indices and inputs, and the linear arguments."""
    end = call.leading + len(call.names)
    return [*arrays[:end]], [*arrays[end:]]


def _placed(call: Call, first: int, some: Sequence[Any]) -> list[Any]:
    """Return the arrays of the parameters from `first` on, one or None for each input present."""
    mask = call.present[first : first + len(call.op.signature.inputs)]
    rest = iter(some)
    found = [next(rest) if there else None for there in mask]
    return [a for a, n in zip(found, call.op.signature.inputs, strict=True) if n in call.names]


def _count(call: Call) -> int:
    return len(call.op.signature.inputs)


def _value_jvp(arrays: Any, tangents: Any, *, call: Call) -> Any:
    y = value.bind(*arrays, call=call)
    moves = _real(tangents[call.leading :])
    if all(t is None for t in moves):
        return y, [ad.Zero.from_primal_value(y[0])]
    return y, [push(call, arrays, moves)]


def _tangent_jvp(arrays: Any, tangents: Any, *, call: Call) -> Any:
    base, ts = _split(call, arrays)
    dy = tangent.bind(*arrays, call=call)
    moves, along = (_real(some) for some in _split(call, tangents))
    parts = []
    if any(s is not None for s in moves[call.leading :]):
        mask, ss = _along(call, moves[call.leading :])
        told = replace(call, phase="jvp", present=(*call.present, *mask))
        parts.append(moved.bind(*base, *ts, *ss, call=told))
    if any(t is not None for t in along):
        parts.append([push(call, base, _placed(call, _count(call), along))])
    return dy, _sum(parts) if parts else [ad.Zero.from_primal_value(dy[0])]


def _tangent_transpose(cts: Any, *arrays: Any, call: Call) -> Any:
    base, ts = _split(call, arrays)
    names = _linear_names(call, _count(call))
    needed = [n for n, t in zip(names, ts, strict=True) if ad.is_undefined_primal(t)]
    if type(cts[0]) is ad.Zero:
        return [None] * len(arrays)
    found = dict(zip(needed, pull(call, base, cts[0], needed), strict=True))
    return [None] * len(base) + [found.get(name) for name in names]


def _gradient_jvp(arrays: Any, tangents: Any, *, call: Call) -> Any:
    base, (gy,) = _split(call, arrays)
    gx = gradient.bind(*arrays, call=call)
    moves, (along,) = (_real(some) for some in _split(call, tangents))
    parts = []
    if any(s is not None for s in moves[call.leading :]):
        parts.append(bend(call, base, gy, moves[call.leading :], call.wanted))
    if along is not None:
        parts.append(pull(call, base, along, call.wanted))
    return gx, _sum(parts) if parts else [ad.Zero.from_primal_value(g) for g in gx]


def _gradient_transpose(cts: Any, *arrays: Any, call: Call) -> Any:
    base, _ = _split(call, arrays)
    if all(type(c) is ad.Zero for c in cts):
        return [None] * (len(base) + 1)
    return [None] * len(base) + [push(call, base, _for_inputs(call, cts))]


def _second_jvp(arrays: Any, tangents: Any, *, call: Call) -> Any:
    base, (gy, *hs) = _split(call, arrays)
    moves, (along, *others) = (_real(some) for some in _split(call, tangents))
    if any(s is not None for s in moves[call.leading :]):
        raise _beyond(call)
    result = second.bind(*arrays, call=call)
    parts, start = [], _count(call) + 1
    if along is not None:
        parts.append(bend(call, base, along, _placed(call, start, hs), call.wanted))
    if any(h is not None for h in others):
        parts.append(bend(call, base, gy, _placed(call, start, others), call.wanted))
    return result, _sum(parts) if parts else [ad.Zero.from_primal_value(r) for r in result]


def _second_transpose(cts: Any, *arrays: Any, call: Call) -> Any:
    base, (gy, *hs) = _split(call, arrays)
    none = [None] * len(base)
    if all(type(c) is ad.Zero for c in cts):
        return none + [None] * (1 + len(hs))
    back = _for_inputs(call, cts)
    names = _linear_names(call, _count(call) + 1)
    if ad.is_undefined_primal(gy):
        mask, ss = _along(call, back)
        present = (*call.present[: _count(call)], *call.present[_count(call) + 1 :], *mask)
        told = replace(call, phase="jvp", present=present, wanted=())
        return none + moved.bind(*base, *hs, *ss, call=told) + [None] * len(hs)
    needed = [n for n, h in zip(names, hs, strict=True) if ad.is_undefined_primal(h)]
    found = dict(zip(needed, bend(call, base, gy, back, needed), strict=True))
    return none + [None] + [found.get(n) for n in names]


def _moved_jvp(arrays: Any, tangents: Any, *, call: Call) -> Any:
    base, both = _split(call, arrays)
    moves, along = (_real(some) for some in _split(call, tangents))
    if any(s is not None for s in moves[call.leading :]):
        raise _beyond(call)
    result = moved.bind(*arrays, call=call)
    count = sum(call.present[_count(call) : 2 * _count(call)])
    parts = []
    for here, mine in ((slice(0, count), along[:count]), (slice(count, None), along[count:])):
        if any(a is not None for a in mine):
            filled = [
                jnp.zeros_like(o) if a is None else a for a, o in zip(mine, both[here], strict=True)
            ]
            changed = [*both]
            changed[here] = filled
            parts.append(moved.bind(*base, *changed, call=call))
    return result, _sum(parts) if parts else [ad.Zero.from_primal_value(result[0])]


def _moved_transpose(cts: Any, *arrays: Any, call: Call) -> Any:
    base, both = _split(call, arrays)
    if type(cts[0]) is ad.Zero:
        return [None] * len(arrays)
    n = _count(call)
    count = sum(call.present[n : 2 * n])
    sides = [(n, both[:count]), (2 * n, both[count:])]
    unknown = [any(map(ad.is_undefined_primal, some)) for _, some in sides]
    (first, needed_side), (start, known) = sides if unknown[0] else sides[::-1]
    names = _linear_names(call, first)
    needed = [m for m, a in zip(names, needed_side, strict=True) if ad.is_undefined_primal(a)]
    found = dict(
        zip(needed, bend(call, base, cts[0], _placed(call, start, known), needed), strict=True)
    )
    mine, other = [found.get(m) for m in names], [None] * len(known)
    return [None] * len(base) + (mine + other if unknown[0] else other + mine)


def _moved_lowered(*arrays: Any, call: Call) -> Any:
    """Compute component e of `moved` as <second(x, e, t), s>, for each e in turn."""
    base, both = _split(call, arrays)
    n = _count(call)
    count = sum(call.present[n : 2 * n])
    ts, ss = _placed(call, n, both[:count]), _placed(call, 2 * n, both[count:])
    wanted = [name for name, s in zip(call.names, ss, strict=True) if s is not None]
    (shape,) = _shapes(*map(jax.typeof, arrays), call=call)
    size = int(np.prod(shape.shape))

    def component(place: Any) -> Any:
        e = jnp.zeros(size, shape.dtype).at[place].set(1).reshape(shape.shape)
        found = bend(call, base, e, ts, wanted)
        return sum(
            jnp.vdot(f, s) for f, s in zip(found, (s for s in ss if s is not None), strict=True)
        )

    return [jax.lax.map(component, jnp.arange(size)).reshape(shape.shape)]


def _linear_names(call: Call, first: int) -> list[str]:
    """Return the inputs whose parameters from `first` on are present."""
    names = call.op.signature.inputs
    mask = call.present[first : first + len(names)]
    return [name for name, there in zip(names, mask, strict=True) if there]


def _for_inputs(call: Call, cts: Sequence[Any]) -> list[Any]:
    """Return cotangents of the requested outputs, one or None for each input present."""
    found = dict(zip(call.wanted, _real(cts), strict=True))
    return [found.get(name) for name in call.names]


def _beyond(call: Call) -> NotImplementedError:
    return NotImplementedError(
        f"pyops.jax.{call.operator}: third derivatives: pyops ends at the second"
    )


RULES = {
    value: (_lowered, _value_jvp, None),
    tangent: (_lowered, _tangent_jvp, _tangent_transpose),
    gradient: (_lowered, _gradient_jvp, _gradient_transpose),
    second: (_lowered, _second_jvp, _second_transpose),
    moved: (_moved_lowered, _moved_jvp, _moved_transpose),
}
for primitive, (lowered, jvp, transpose) in RULES.items():
    mlir.register_lowering(primitive, mlir.lower_fun(lowered, multiple_results=True))
    ad.primitive_jvps[primitive] = jvp
    if transpose is not None:
        ad.primitive_transposes[primitive] = transpose
