"""Machine on JAX arrays; derivatives and compilation are those of JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from .. import jax as _ops
from .._call.arrays import kind_of
from .._call.indices import check_bounds, check_indices
from ..graph import Graph, _restore
from ..jax._graph import host_indices
from . import _calls, _graphs
from ._calls import GRAPH, REAL
from ._interpreter import evaluate
from ._model import check_columns, seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .._call.indices import Indices
    from .._call.types import Dtype
    from ._calls import Options
    from ._program import Input, Program


def call(
    program: Program,
    label: str,
    dtype: Dtype,
    given: Mapping[str, object],
    parameters: Mapping[str, object],
    buffers: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]],
) -> jax.Array | tuple[jax.Array, ...]:
    """Return the results of a program for inputs and parameters by name."""
    machine = JaxMachine(dtype)
    reals = {name: machine.real(f"{label}: {name}", array) for name, array in parameters.items()}
    others: dict[str, object] = {}
    for one in program.inputs:
        name, value = f"{label}: {one.name}", given[one.name]
        if one.kind == REAL:
            reals[one.name] = machine.real(name, value)
            check_columns(name, reals[one.name].shape, one.columns)
        elif one.kind != GRAPH:
            others[one.name] = _index(name, value)
    rows = {name: array.shape[0] for name, array in reals.items() if array.ndim}
    rows |= {n: i.shape[0] for n, i in others.items() if isinstance(i, np.ndarray | jax.Array)}
    for one in program.inputs:
        if one.kind == GRAPH:
            others[one.name] = _graph(f"{label}: {one.name}", given[one.name], one, rows)
    for name, buffer in buffers.items():
        if buffer.dtype == dtype:
            reals[name] = machine.real(name, buffer)
        elif buffer.dtype.kind == "i":
            others[name] = buffer
    inputs = {one.name for one in program.inputs}
    values = {
        name: array if name in inputs else array.reshape(seen(array.shape))
        for name, array in reals.items()
    }
    results = evaluate(program, machine, values, others)
    return results[0] if len(results) == 1 else tuple(results)


def _is_traced(value: object) -> bool:
    return isinstance(value, jax.core.Tracer)


def _index(label: str, given: object) -> Indices | jax.Array:
    if not _is_traced(given):
        return check_indices(label, np.asarray(given) if isinstance(given, jax.Array) else given)
    assert isinstance(given, jax.Array)
    if given.ndim != 1 or given.dtype.kind != "i":
        raise TypeError(f"{label}: expected a vector of integers, got {given.dtype} of shape "
                        f"{given.shape}")  # fmt: skip
    return given


def _graph(label: str, given: object, one: Input, rows: Mapping[str, int]) -> Graph | _ops.Graph:
    if isinstance(given, Graph | _ops.Graph):
        return given
    pairs = given if isinstance(given, jax.Array) else np.asarray(given)
    if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.dtype.kind != "i":
        raise TypeError(f"{label}: expected a graph or integers of shape (2, num_edges), "
                        f"got {kind_of(given)}")  # fmt: skip
    if not one.num_src or not one.num_dst:
        raise TypeError(f"{label}: expected a graph, as no input has a row for each node")
    return _of_ends(pairs[0], pairs[1], rows[one.num_src], rows[one.num_dst])


def _of_ends(src: object, dst: object, num_src: int, num_dst: int) -> Graph | _ops.Graph:
    """Return a graph of the host, or one whose indices JAX traces, which the kernels check."""
    if not _is_traced(src) and not _is_traced(dst):
        return Graph(np.asarray(src), np.asarray(dst), num_src, num_dst)
    ends = tuple(jnp.asarray(end, np.int32) for end in (src, dst))
    return _ops.Graph.tree_unflatten((num_src, num_dst, int(ends[0].shape[0])), ends)


def _on_host(graph: object) -> Graph | None:
    """Return a graph of the host, None while JAX traces its indices."""
    if isinstance(graph, Graph):
        return graph
    assert isinstance(graph, _ops.Graph)
    held = host_indices(graph.indices)
    return None if held is None else _restore(*held, *graph.sizes)


class JaxMachine:
    """Machine on JAX arrays of one type."""

    def __init__(self, dtype: Dtype) -> None:
        self.dtype = dtype

    def real(self, label: str, given: object) -> jax.Array:
        """Return a real input or a tensor."""
        if not isinstance(given, jax.Array | np.ndarray):
            raise TypeError(f"{label}: expected an array, got {kind_of(given)}")
        if given.dtype != self.dtype:
            raise TypeError(f"{label}: expected {self.dtype} like the parameters, "
                            f"got {given.dtype}")  # fmt: skip
        found = jnp.asarray(given)
        if found.dtype != self.dtype:
            raise TypeError(f"{label}: expected jax_enable_x64 for {self.dtype}; or load the model "
                            "with dtype=numpy.float32")  # fmt: skip
        return found

    def operator(
        self,
        name: str,
        graph: object,
        inputs: Mapping[str, jax.Array | None],
        options: Mapping[str, object],
    ) -> jax.Array:
        leading = () if graph is None else (graph,)
        found: jax.Array = getattr(_ops, name)(*leading, *inputs.values(), **options)
        return found

    def shape(self, x: jax.Array) -> tuple[int, ...]:
        return tuple(x.shape)

    def number(self, number: float) -> jax.Array:
        return jnp.asarray(number, self.dtype)

    def constant(self, values: tuple[float, ...]) -> jax.Array:
        return jnp.asarray(values, self.dtype)

    def full(self, shape: tuple[int, ...], number: float) -> jax.Array:
        return jnp.full(shape, number, self.dtype)

    def detached(self, x: jax.Array) -> jax.Array:
        return jax.lax.stop_gradient(x)

    def compare(self, name: str, x1: jax.Array, x2: jax.Array) -> jax.Array:
        function = {"less": jnp.less, "equal": jnp.equal}[name]
        return function(x1, x2).astype(self.dtype)

    def matmul(self, a: jax.Array, b: jax.Array, transposed: bool) -> jax.Array:
        return jnp.matmul(a, b.T if transposed else b, precision="highest")

    def add_bias(self, product: jax.Array, bias: jax.Array) -> jax.Array:
        return product + bias

    def layer_norm(
        self, x: jax.Array, weight: jax.Array | None, bias: jax.Array | None, eps: float
    ) -> jax.Array:
        return _calls.layer_norm(self, x, weight, bias, eps)

    def transpose(self, x: jax.Array) -> jax.Array:
        return x.T

    def reshape(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return x.reshape(shape)

    def concat(self, parts: Sequence[jax.Array], axis: int) -> jax.Array:
        return jnp.concatenate(parts, axis=axis)

    def slice(self, x: jax.Array, axis: int, start: int, stop: int) -> jax.Array:
        return jax.lax.slice_in_dim(x, start, stop, axis=axis)

    def gather(self, x: jax.Array, index: object) -> jax.Array:
        """Gather rows; an index that is traced, and so not checked, gives NaN out of bounds."""
        if not _is_traced(index):
            check_bounds("index", _graphs.as_index(np.asarray(index)), x.shape[0], "rows of x")
        places = jnp.asarray(index)
        places = jnp.where(places < 0, x.shape[0], places)
        return x.at[places].get(mode="fill", fill_value=jnp.nan)

    def scatter_sum(self, x: jax.Array, index: object, rows: int | None) -> jax.Array:
        assert isinstance(index, np.ndarray | jax.Array)
        if index.shape[0] != x.shape[0]:
            raise ValueError(f"index: expected {x.shape[0]} elements, got {index.shape[0]}")
        if rows is None:
            if _is_traced(index):
                raise ValueError("index: expected one that is not traced, as its largest element "
                                 "is a size; close over it, or leave out jax.jit")  # fmt: skip
            rows = 1 + int(np.asarray(index).max(initial=-1))
        graph = _of_ends(jnp.zeros_like(index), index, 1, rows)
        columns = x if x.ndim == 2 else x[:, None]
        found = self.operator("aggregate", graph, {"x": None, "edge": columns}, {})
        return found if x.ndim == 2 else found[:, 0]

    def in_degrees(self, graph: object) -> jax.Array:
        host = _on_host(graph)
        if host is not None:
            return jnp.asarray(host.in_degrees(), self.dtype)
        assert isinstance(graph, _ops.Graph)
        counts = jnp.zeros(graph.sizes[1], self.dtype)
        return counts.at[graph.indices[1]].add(1, mode="drop")

    def rearranged(
        self, name: str, graph: object, index: object, options: Options
    ) -> Graph | _ops.Graph:
        host = _on_host(graph)
        if host is not None and not _is_traced(index):
            return _graphs.rearranged(name, host, index, options)
        if isinstance(graph, Graph):
            graph = _ops.Graph(graph)
        assert isinstance(graph, _ops.Graph)
        (src, dst, *ids), (num_src, num_dst, num_edges) = graph.indices, graph.sizes
        if name == "reverse":
            return _ops.Graph.tree_unflatten((num_dst, num_src, num_edges), (dst, src, *ids))
        if name == "per_edge":
            return _of_ends(src, jnp.arange(src.shape[0]), num_src, src.shape[0])
        if name == "by_relation":
            relations = options["relations"]
            assert isinstance(relations, int)
            if num_dst * relations >= 2**31 - 1:
                raise OverflowError(f"relations: expected fewer for {num_dst} destinations, got "
                                    f"{relations}")  # fmt: skip
            places = jnp.asarray(index)
            if places.shape != dst.shape:
                raise ValueError(f"index: expected {dst.shape[0]} relations, one for each edge, "
                                 f"got {places.shape[0]}")  # fmt: skip
            inside = (places >= 0) & (places < relations)
            dst = jnp.where(inside, dst * relations + places, -1)  # refused by the kernel
            return _ops.Graph.tree_unflatten(
                (num_src, num_dst * relations, num_edges), (src, dst.astype(np.int32), *ids)
            )
        raise ValueError("graph: expected one that is not traced, as the number of its self loops "
                         "is a size; close over it, or leave out jax.jit")  # fmt: skip

    def ends(self, name: str, graph: object) -> object:
        place = 0 if name == "sources" else 1
        if isinstance(graph, Graph):
            return (graph.src, graph.dst)[place]
        assert isinstance(graph, _ops.Graph)
        return graph.indices[place]

    def graph_of(self, src: object, dst: object, num_src: int, num_dst: int) -> object:
        return _of_ends(src, dst, num_src, num_dst)
