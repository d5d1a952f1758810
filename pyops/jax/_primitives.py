"""JAX primitives for the phases of an operator: shapes, evaluation, lowering and batching."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching
from jax.sharding import NamedSharding, PartitionSpec

from .._call.threads import limits
from . import _handler
from ._call import Call, run, text_of
from ._devices import unsharded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax.core import ShapedArray

TARGET = "pyops"
jax.ffi.register_ffi_target(TARGET, _handler.target(run, limits), platform="cpu")
SIZES = "num_src", "num_dst", "num_edges"


def make_primitive(name: str) -> Primitive:
    primitive = Primitive(f"pyops_{name}")
    primitive.multiple_results = True
    primitive.def_impl(functools.partial(_evaluate, primitive))
    primitive.def_abstract_eval(result_types)
    batching.primitive_batchers[primitive] = functools.partial(_batch, primitive)
    return primitive


def bind(primitive: Primitive, arrays: Sequence[jax.Array], call: Call) -> list[jax.Array]:
    """Return the results of a primitive, traced or evaluated."""
    results: list[jax.Array] = primitive.bind(*arrays, call=call)
    return results


def _evaluate(primitive: Primitive, *arrays: jax.Array, call: Call) -> list[jax.Array]:
    if call.constants is not None:  # graphs of equal sizes share a compiled function
        call = replace(call, constants=None)
    with jax.disable_jit(False):  # else the compiled function would bind the primitive again
        return compiled(primitive, call)(*arrays)


@functools.lru_cache(maxsize=1000)
def compiled(primitive: Primitive, call: Call) -> Callable[..., list[jax.Array]]:
    """Return a primitive with its parameters as a compiled function of arrays."""

    def run(*arrays: jax.Array) -> list[jax.Array]:
        return bind(primitive, arrays, call)

    function: Callable[..., list[jax.Array]] = jax.jit(run)
    return function


def result_types(*arrays: ShapedArray, call: Call) -> list[ShapedArray]:
    """Return shapes, dtypes and shardings of the results, which are float32 for half precision."""
    inputs = call.by_parameter(arrays)[: len(call.op.signature.inputs)]
    held = dict(zip(call.op.signature.inputs, inputs, strict=True))
    first = next(a for a in inputs if a is not None)
    dtype = np.dtype(np.float32) if call.half else first.dtype
    if call.phase.endswith("backward"):
        wanted = (held[name] for name in call.wanted)
        return [a.update(dtype=dtype, weak_type=False) for a in wanted if a is not None]
    sizes = dict(zip(SIZES, call.sizes, strict=False))
    if call.sizes:
        sizes["num_entries"] = arrays[0].shape[0]
    shape = call.op.output_shape(sizes, inputs, dict(call.options), call.phase == "attention")
    sharding = NamedSharding(first.sharding.mesh, PartitionSpec(*[None] * len(shape)))
    return [first.update(shape=shape, dtype=dtype, weak_type=False, sharding=sharding)]


def lowered(*arrays: jax.Array, call: Call) -> Sequence[jax.Array]:
    """Call the handler."""
    shapes = result_types(*map(jax.typeof, arrays), call=call)
    results = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes]
    handler: Callable[..., Sequence[jax.Array]] = jax.ffi.ffi_call(TARGET, results)
    return handler(*arrays, text=text_of(call, arrays, shapes))


def _batch(
    primitive: Primitive, arrays: Sequence[jax.Array], axes: Sequence[int | None], *, call: Call
) -> tuple[list[jax.Array], list[int]]:
    """Evaluate the primitive for each element of a batch in turn."""
    first = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(arrays, axes, strict=True)]
    batches = [unsharded(a) for a, d in zip(first, axes, strict=True) if d is not None]
    if any(d is not None for d in axes[: call.leading]):
        call = replace(call, constants=None)

    def element(some: list[jax.Array]) -> list[jax.Array]:
        rest = iter(some)
        given = [a if d is None else next(rest) for a, d in zip(first, axes, strict=True)]
        return bind(primitive, given, call)

    with jax.disable_jit(False):  # lax.map without jit refuses an empty batch
        results = jax.lax.map(element, batches)
    return results, [0] * len(results)
