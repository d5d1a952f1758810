"""Machine on NumPy arrays that records a tape, whose gradients may be recorded again.

A primitive has a vector-Jacobian product made of primitives: operators, matrix products and linear
maps, so a backward pass is a program like the forward pass, with a backward pass of its own. Here
are all primitives and the tape, which know each other, so this is one module.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .._call.indices import check_bounds
from .._call.operator import OPERATORS, Operator
from ..graph import Graph, _of_groups
from ..ops.aggregate import aggregate
from . import _graphs
from ._calls import layer_norm

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .._call.indices import Indices
    from .._call.types import Array, Dtype, Values
    from ._calls import Options

_SIGNS = {"add": (1, 1), "subtract": (1, -1)}
"""Slopes of the functions whose cotangent is passed on without a copy where the slope is 1."""


class Node:
    """Array of a tape."""

    __slots__ = ("needed", "tangent", "value")

    def __init__(self, value: Array, tangent: Array | None = None, needed: bool = False) -> None:
        self.value = value
        self.tangent = tangent
        self.needed = needed
        """Whether gradients by it, or through it, are requested."""


class Primitive(Protocol):
    """Differentiable function of arrays, of which some may be absent."""

    def run(self, values: Sequence[Array | None]) -> Sequence[Array | None]:
        """Return the results."""

    def jvp(self, values: Sequence[Array | None], tangents: Sequence[Array | None]) -> Array:
        """Return the derivative of the only result, for tangents of which one is given."""

    def vjp(
        self,
        tape: Tape,
        inputs: Sequence[Node | None],
        cotangents: Sequence[Node | None],
    ) -> Sequence[Node | None]:
        """Return the gradients by the inputs that are needed, as nodes of the tape."""


@dataclass(frozen=True)
class _Applied:
    primitive: Primitive
    inputs: tuple[Node | None, ...]
    outputs: tuple[Node | None, ...]


def _held(value: Array | None) -> Array:
    assert value is not None
    return value


class _Only:
    """Part of primitives that occur in backward passes alone."""

    def jvp(self, values: Sequence[Array | None], tangents: Sequence[Array | None]) -> Array:
        raise NotImplementedError("pyops.models: jvp of a backward pass")


class OperatorCall:
    """Operator with its graph and options."""

    def __init__(
        self, operator: Operator, graph: object, options: Mapping[str, object], keep: bool
    ) -> None:
        self.operator = operator
        self.graph = () if graph is None else (graph,)
        self.options: Values = dict(options)
        self.keep = keep
        """Whether intermediates are kept for derivatives."""
        self.saved: tuple[Array, ...] = ()

    def run(self, values: Sequence[Array | None]) -> Sequence[Array | None]:
        if not self.keep:
            return [self.operator(*self.graph, *values, **self.options)]
        y, self.saved = self.operator.forward(*self.graph, *values, **self.options)
        assert isinstance(y, np.ndarray | np.generic)
        return [np.asarray(y)]

    def jvp(self, values: Sequence[Array | None], tangents: Sequence[Array | None]) -> Array:
        return self.operator.jvp(*self.graph, *values, *tangents, **self.options)

    def vjp(
        self, tape: Tape, inputs: Sequence[Node | None], cotangents: Sequence[Node | None]
    ) -> Sequence[Node | None]:
        (gy,) = cotangents
        assert gy is not None
        wanted = [node is not None and node.needed for node in inputs]
        passed: list[Node | None] = [None] * len(inputs)
        for place, sign in enumerate(_SIGNS.get(self.operator.name, ())):
            node = inputs[place]
            whole = node is not None and node.value.shape == gy.value.shape
            if wanted[place] and sign == 1 and whole:
                passed[place], wanted[place] = gy, False
        if not any(wanted):
            return passed
        names = [n for n, w in zip(self.operator.signature.inputs, wanted, strict=True) if w]
        found = tape.apply(OperatorBackward(self, names), *inputs, gy)
        return [one if other is None else other for one, other in zip(found, passed, strict=True)]


class OperatorBackward(_Only):
    """Backward pass of an operator; the last input is the cotangent."""

    def __init__(self, call: OperatorCall, names: Sequence[str]) -> None:
        self.call = call
        self.names = names

    def run(self, values: Sequence[Array | None]) -> Sequence[Array | None]:
        call = self.call
        return call.operator.backward(
            *call.graph, *values, saved=call.saved, wanted=self.names, **call.options
        )

    def vjp(
        self, tape: Tape, inputs: Sequence[Node | None], cotangents: Sequence[Node | None]
    ) -> Sequence[Node | None]:
        names = [*self.call.operator.signature.inputs, "gy"]
        wanted = [
            name
            for name, node in zip(names, inputs, strict=True)
            if node is not None and node.needed
        ]
        return tape.apply(OperatorDoubleBackward(self.call, wanted), *inputs, *cotangents)[
            : len(names)
        ]


class OperatorDoubleBackward(_Only):
    """Second derivatives of an operator; the cotangents of its gradients follow its cotangent."""

    def __init__(self, call: OperatorCall, names: Sequence[str]) -> None:
        self.call = call
        self.names = names

    def run(self, values: Sequence[Array | None]) -> Sequence[Array | None]:
        call = self.call
        return call.operator.double_backward(
            *call.graph, *values, saved=call.saved, wanted=self.names, **call.options
        )

    def vjp(
        self, tape: Tape, inputs: Sequence[Node | None], cotangents: Sequence[Node | None]
    ) -> Sequence[Node | None]:
        raise NotImplementedError("pyops.models: expected at most second derivatives")


@dataclass(frozen=True)
class Matmul:
    """Product of two matrices, each transposed or not."""

    first: bool = False
    second: bool = False

    def run(self, values: Sequence[Array | None]) -> Sequence[Array | None]:
        a, b = map(_held, values)
        return [(a.T if self.first else a) @ (b.T if self.second else b)]

    def jvp(self, values: Sequence[Array | None], tangents: Sequence[Array | None]) -> Array:
        (a, b), (ta, tb) = values, tangents
        terms = [
            _held(self.run(pair)[0]) for pair in ((ta, b), (a, tb)) if None not in map(_kind, pair)
        ]
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def vjp(
        self, tape: Tape, inputs: Sequence[Node | None], cotangents: Sequence[Node | None]
    ) -> Sequence[Node | None]:
        (a, b), (gy,) = inputs, cotangents
        found: list[Node | None] = [None, None]
        if a is not None and a.needed:
            order, flags = ((b, gy), (self.second, True)) if self.first else (
                (gy, b), (False, not self.second)
            )  # fmt: skip
            found[0] = tape.apply(Matmul(*flags), *order)[0]
        if b is not None and b.needed:
            order, flags = ((gy, a), (True, self.first)) if self.second else (
                (a, gy), (not self.first, False)
            )  # fmt: skip
            found[1] = tape.apply(Matmul(*flags), *order)[0]
        return found


def _kind(value: Array | None) -> bool | None:
    return None if value is None else True


class LinearMap:
    """Linear function of its inputs, given by its value and by the adjoint for each input."""

    def run(self, values: Sequence[Array | None]) -> Sequence[Array | None]:
        return [self.value([_held(value) for value in values])]

    def value(self, values: Sequence[Array]) -> Array:
        raise NotImplementedError

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        raise NotImplementedError

    def jvp(self, values: Sequence[Array | None], tangents: Sequence[Array | None]) -> Array:
        given = zip(values, tangents, strict=True)
        return self.value([np.zeros_like(_held(v)) if t is None else t for v, t in given])

    def vjp(
        self, tape: Tape, inputs: Sequence[Node | None], cotangents: Sequence[Node | None]
    ) -> Sequence[Node | None]:
        nodes = [node for node in inputs if node is not None]
        maps = self.adjoints([node.value for node in nodes])
        return [
            tape.apply(adjoint, *cotangents)[0] if node.needed else None
            for node, adjoint in zip(nodes, maps, strict=True)
        ]


@dataclass(frozen=True)
class Reshape(LinearMap):
    shape: tuple[int, ...]

    def value(self, values: Sequence[Array]) -> Array:
        return values[0].reshape(self.shape)

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        return [Reshape(values[0].shape)]


@dataclass(frozen=True)
class Transpose(LinearMap):
    def value(self, values: Sequence[Array]) -> Array:
        return values[0].T

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        return [self]


@dataclass(frozen=True)
class Concat(LinearMap):
    axis: int

    def value(self, values: Sequence[Array]) -> Array:
        return np.concatenate(values, axis=self.axis)

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        ends = np.cumsum([0, *(value.shape[self.axis] for value in values)]).tolist()
        return [Slice(self.axis, *pair) for pair in itertools.pairwise(ends)]


@dataclass(frozen=True)
class Slice(LinearMap):
    axis: int
    start: int
    stop: int

    def value(self, values: Sequence[Array]) -> Array:
        place = slice(self.start, self.stop)
        return values[0][place] if self.axis == 0 else values[0][:, place]

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        return [Pad(self.axis, self.start, values[0].shape[self.axis])]


@dataclass(frozen=True)
class Pad(LinearMap):
    """Adjoint of a slice of an axis of some length."""

    axis: int
    start: int
    length: int

    def value(self, values: Sequence[Array]) -> Array:
        (x,) = values
        shape = list(x.shape)
        stop, shape[self.axis] = self.start + shape[self.axis], self.length
        found = np.zeros(shape, x.dtype)
        place = slice(self.start, stop)
        found[place if self.axis == 0 else (slice(None), place)] = x
        return found

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        stop = self.start + values[0].shape[self.axis]
        return [Slice(self.axis, self.start, stop)]


@dataclass(frozen=True)
class AddBias(LinearMap):
    """Sum of a matrix, which is overwritten, and a vector."""

    def value(self, values: Sequence[Array]) -> Array:
        product, bias = values
        np.add(product, bias, out=product)
        return product

    def jvp(self, values: Sequence[Array | None], tangents: Sequence[Array | None]) -> Array:
        product, bias = tangents
        found = np.zeros_like(_held(values[0])) if product is None else product
        return found if bias is None else found + bias

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        return [Reshape(values[0].shape), SumOfRows(len(values[0]))]


@dataclass(frozen=True)
class SumOfRows(LinearMap):
    """Sum of so many rows, in float64."""

    rows: int

    def value(self, values: Sequence[Array]) -> Array:
        found: Array = OPERATORS["sum"](values[0], axis=0)
        return found

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        return [Repeat(self.rows)]


@dataclass(frozen=True)
class Repeat(LinearMap):
    """Matrix of so many equal rows."""

    rows: int

    def value(self, values: Sequence[Array]) -> Array:
        return np.broadcast_to(values[0], (self.rows, *values[0].shape))

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        return [SumOfRows(self.rows)]


class LayerNorm:
    """Layer norm of rows, in fewer passes than its composition, by which it is recorded again."""

    def __init__(self, eps: float) -> None:
        self.eps = eps

    def _normal(self, x: Array) -> tuple[Array, Array]:
        """Return the rows with mean 0 and variance 1, and what they were multiplied by."""
        normal = x - x.mean(axis=1, keepdims=True)
        variance = np.square(normal).mean(axis=1, keepdims=True)
        scale = 1 / np.sqrt(variance + x.dtype.type(self.eps))
        normal *= scale
        return normal, scale

    def run(self, values: Sequence[Array | None]) -> Sequence[Array | None]:
        x, weight, bias = values
        y, _ = self._normal(_held(x))
        if weight is not None:
            y *= weight
        if bias is not None:
            y += bias
        return [y]

    def jvp(self, values: Sequence[Array | None], tangents: Sequence[Array | None]) -> Array:
        (x, weight, _), (tx, tweight, tbias) = values, tangents
        normal, scale = self._normal(_held(x))
        found = np.zeros_like(normal) if tx is None else self._projected(normal, scale, tx)
        found = found if weight is None else found * weight
        found = found if tweight is None else found + normal * tweight
        return found if tbias is None else found + tbias

    @staticmethod
    def _projected(normal: Array, scale: Array, g: Array) -> Array:
        """Return the product with the derivative of the normal rows, which is symmetric."""
        found: Array = g - g.mean(axis=1, keepdims=True)
        found -= normal * (normal * g).mean(axis=1, keepdims=True)
        found *= scale
        return found

    def vjp(
        self, tape: Tape, inputs: Sequence[Node | None], cotangents: Sequence[Node | None]
    ) -> Sequence[Node | None]:
        (gy,), (x, weight, bias) = cotangents, inputs
        assert gy is not None
        assert x is not None
        if tape.recording:
            start = len(tape.calls)
            return tape.through(start, layer_norm(tape, x, weight, bias, self.eps), gy, inputs)
        normal, scale = self._normal(x.value)
        found: list[Node | None] = [None, None, None]
        if x.needed:
            g = gy.value if weight is None else gy.value * weight.value
            found[0] = Node(self._projected(normal, scale, g))
        if weight is not None and weight.needed:
            found[1] = Node(OPERATORS["sum"](gy.value * normal, axis=0))
        if bias is not None and bias.needed:
            found[2] = Node(OPERATORS["sum"](gy.value, axis=0))
        return found


@dataclass(frozen=True)
class Gather(LinearMap):
    index: Indices

    def value(self, values: Sequence[Array]) -> Array:
        return values[0].take(self.index, axis=0)

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        return [ScatterSum(_of_groups(self.index, len(values[0])), self.index)]


@dataclass(frozen=True)
class ScatterSum(LinearMap):
    """Sums of rows, which are the edges of a graph, by destination."""

    graph: Graph
    index: Indices

    def value(self, values: Sequence[Array]) -> Array:
        (x,) = values
        rows = x[:, None] if x.ndim == 1 else x
        found: Array = aggregate(self.graph, edge=rows)
        return found[:, 0] if x.ndim == 1 else found

    def adjoints(self, values: Sequence[Array]) -> Sequence[LinearMap]:
        return [Gather(self.index)]


class Tape:
    """Machine whose calls are recorded if gradients by their inputs are needed."""

    def __init__(self, dtype: Dtype) -> None:
        self.dtype = dtype
        self.calls: list[_Applied] = []
        self.recording = True

    def apply(self, primitive: Primitive, *inputs: Node | None) -> tuple[Node | None, ...]:
        """Return the results of a primitive."""
        values = [None if node is None else node.value for node in inputs]
        results = primitive.run(values)
        tangent = None
        if any(node is not None and node.tangent is not None for node in inputs):
            tangents = [None if node is None else node.tangent for node in inputs]
            tangent = primitive.jvp(values, tangents)
        needed = self.recording and any(node is not None and node.needed for node in inputs)
        nodes = tuple(None if one is None else Node(one, tangent, needed) for one in results)
        if needed:
            self.calls.append(_Applied(primitive, inputs, nodes))
        return nodes

    def gradients(
        self, seeds: Iterable[tuple[Node, Node]], by: Sequence[Node], again: bool
    ) -> list[Node | None]:
        """Return the gradients of the sum of nodes times cotangents, by nodes that are needed.

        If `again` is set, they may be differentiated; otherwise the tape is consumed.
        """
        cotangents: dict[int, Node] = {}
        own: set[int] = set()
        for node, cotangent in seeds:
            if node.needed:
                self._add(cotangents, own, node, cotangent)
        calls = list(self.calls)
        self.recording = again
        if not again:
            self.calls.clear()
        self._sweep(calls, cotangents, own, {id(node) for node in by})
        return [cotangents.get(id(node)) for node in by]

    def through(
        self, start: int, output: Node, cotangent: Node, by: Sequence[Node | None]
    ) -> list[Node | None]:
        """Return the gradients through the calls that were recorded from a place on."""
        cotangents = {id(output): cotangent}
        kept = {id(node) for node in by if node is not None}
        self._sweep(self.calls[start:], cotangents, set(), kept)
        return [None if node is None else cotangents.get(id(node)) for node in by]

    def _sweep(
        self,
        calls: list[_Applied],
        cotangents: dict[int, Node],
        own: set[int],
        kept: Collection[int],
    ) -> None:
        """Add to the cotangents those of the inputs of calls, from the last call to the first."""
        while calls:
            call = calls.pop()
            outputs = [node for node in call.outputs if node is not None]
            found = [cotangents.get(id(node)) for node in outputs]
            for node in outputs:
                if id(node) not in kept:
                    cotangents.pop(id(node), None)
            if any(node is not None for node in found):
                places = iter(found)
                given = [None if node is None else next(places) for node in call.outputs]
                gradients = call.primitive.vjp(self, call.inputs, given)
                for target, gradient in zip(call.inputs, gradients, strict=True):
                    if target is not None and target.needed and gradient is not None:
                        self._add(cotangents, own, target, gradient)

    def _add(self, cotangents: dict[int, Node], own: set[int], node: Node, gradient: Node) -> None:
        """Add to the cotangent of a node; a sum that is not recorded is overwritten by the next."""
        held = cotangents.get(id(node))
        if held is None:
            own.discard(id(node))
        elif self.recording:
            gradient = self.operator("add", None, {"x1": held, "x2": gradient}, {})
        elif id(node) in own:
            held.value += gradient.value
            gradient = held
        else:
            gradient = Node(held.value + gradient.value)
            own.add(id(node))
        cotangents[id(node)] = gradient

    def _one(self, primitive: Primitive, *inputs: Node | None) -> Node:
        (found,) = self.apply(primitive, *inputs)
        assert found is not None
        return found

    def operator(
        self,
        name: str,
        graph: object,
        inputs: Mapping[str, Node | None],
        options: Mapping[str, object],
    ) -> Node:
        keep = self.recording and any(n is not None and n.needed for n in inputs.values())
        call = OperatorCall(OPERATORS[name], graph, options, keep)
        return self._one(call, *inputs.values())

    def shape(self, x: Node) -> tuple[int, ...]:
        return x.value.shape

    def number(self, number: float) -> Node:
        return Node(np.asarray(number, self.dtype))

    def constant(self, values: tuple[float, ...]) -> Node:
        return Node(np.array(values, self.dtype))

    def full(self, shape: tuple[int, ...], number: float) -> Node:
        return Node(np.full(shape, number, self.dtype))

    def detached(self, x: Node) -> Node:
        return Node(x.value)

    def compare(self, name: str, x1: Node, x2: Node) -> Node:
        function = {"less": np.less, "equal": np.equal}[name]
        return Node(np.asarray(function(x1.value, x2.value), self.dtype))

    def matmul(self, a: Node, b: Node, transposed: bool) -> Node:
        return self._one(Matmul(False, transposed), a, b)

    def add_bias(self, product: Node, bias: Node) -> Node:
        return self._one(AddBias(), product, bias)

    def layer_norm(self, x: Node, weight: Node | None, bias: Node | None, eps: float) -> Node:
        return self._one(LayerNorm(eps), x, weight, bias)

    def transpose(self, x: Node) -> Node:
        return self._one(Transpose(), x)

    def reshape(self, x: Node, shape: tuple[int, ...]) -> Node:
        return x if x.value.shape == shape else self._one(Reshape(shape), x)

    def concat(self, parts: Sequence[Node], axis: int) -> Node:
        return self._one(Concat(axis), *parts)

    def slice(self, x: Node, axis: int, start: int, stop: int) -> Node:
        return self._one(Slice(axis, start, stop), x)

    def gather(self, x: Node, index: object) -> Node:
        held = _graphs.as_index(index)
        check_bounds("index", held, len(x.value), "rows of x")
        return self._one(Gather(held), x)

    def scatter_sum(self, x: Node, index: object, rows: int | None) -> Node:
        held = _graphs.as_index(index)
        if len(held) != len(x.value):
            raise ValueError(f"index: expected {len(x.value)} elements, got {len(held)}")
        rows = 1 + int(held.max(initial=-1)) if rows is None else rows
        return self._one(ScatterSum(_of_groups(held, rows), held), x)

    def in_degrees(self, graph: object) -> Node:
        return Node(_graphs.as_graph(graph).in_degrees().astype(self.dtype))

    def rearranged(self, name: str, graph: object, index: object, options: Options) -> Graph:
        return _graphs.rearranged(name, _graphs.as_graph(graph), index, options)

    def ends(self, name: str, graph: object) -> Indices:
        held = _graphs.as_graph(graph)
        return held.src if name == "sources" else held.dst

    def graph_of(self, src: object, dst: object, num_src: int, num_dst: int) -> Graph:
        return Graph(_graphs.as_index(src), _graphs.as_index(dst), num_src, num_dst)
