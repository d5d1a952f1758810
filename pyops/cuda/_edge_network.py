"""Network of several layers for each entry e = (j -> i) of a graph, in batches of entries.

    z_1 = W_src x_j + W_dst x_i + W_edge f_e + b_1,  z_l = W_l act(z_l-1) + b_l

The products with node features are computed once for each node. Derivatives recompute the layers of
a batch. Gradients by z_1 are stored for all entries, then summed by node.

Most of the module is one class, `Network`, whose passes share operands and batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from . import _neighbours as neighbours
from ._arguments import Written
from ._array import DeviceArray, plus, required, store
from ._convolution import WORKSPACE, blocks
from ._network_parts import EDGES, NODES, Dual, Parts, Sum, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._array import Value
    from ._declared import EdgeMlp, EdgeNetwork
    from ._neighbours import Rows
    from ._runtime import Runtime

    Call = TypeVar("Call", EdgeMlp, EdgeNetwork)

WARP = 32
NAMES = "x_src", "params", "x_dst", "edge_features"
Products: TypeAlias = tuple[DeviceArray | None, DeviceArray | None]
"""Product of a weight with a layer, and its tangent; None is 0."""


@dataclass(frozen=True)
class Layers:
    """Layers of the entries of a batch."""

    features: Dual | None
    """Edge features of the entries."""
    z: list[Dual]
    h: list[Dual]
    """Hidden layers, before and after the activation."""
    last: Dual
    """Last layer, normalised if the network has a norm."""
    inverse: Dual | None
    """Inverse standard deviations of its rows."""
    y: DeviceArray | None
    """Results, at second order their tangents."""


@dataclass(frozen=True)
class Gradients:
    """Requested gradients, and arrays from which they are summed after the last batch."""

    by_input: dict[str, DeviceArray | None]
    params: Parts[Sum] | None
    by_z: Dual | None
    """Gradients by z_1."""
    by_entry: DeviceArray | None
    """Gradients by the edge features of each entry."""


class Network(ABC):
    """Network of the entries of a graph, with tangents if `second`."""

    def __init__(self, rt: Runtime, a: EdgeMlp | EdgeNetwork, second: bool) -> None:
        self.rt, self.a, self.graph, self.second = rt, a, a.graph, second
        self.dtype, self.accumulate = a.params.dtype, a.accumulate
        block = Dual(a.params, a.hparams if second else None)
        self.params = parts_of(
            a, lambda part, shape: block.map(lambda array: array[part].reshape(shape))
        )
        self.inputs = {name: self._input(name) for name in (*NODES, EDGES)}
        self.starts = [self._start(name) for name in NODES]
        arrays = 2 * (a.depth + 1) * (1 + second)
        widest = max(a.hidden, a.out_features, a.edge_width)
        self.most = max(1, WORKSPACE // (arrays * widest * a.params.itemsize))
        self.batches = self._split(a.num_entries)

    @abstractmethod
    def add(self, batch: slice, values: DeviceArray, y: DeviceArray) -> None:
        """`y` (+)= the results of a batch."""

    @abstractmethod
    def cotangents(self, batch: slice) -> DeviceArray:
        """Return a copy of the gradients by the results of a batch."""

    def _split(self, rows: int) -> list[slice]:
        """Split rows into batches whose layers fit in `WORKSPACE`."""
        return [slice(n, min(n + self.most, rows)) for n in range(0, rows, self.most)]

    def _input(self, name: str) -> Dual | None:
        value = self.a.array(name)
        if value is None:
            return None
        return Dual(value, self.a.array(f"h{name}") if self.second else None)

    def _start(self, name: str) -> Dual | None:
        """Return the products of a weight of the first layer with the features of all nodes."""
        features = self.inputs[name]
        return None if features is None else self.product(features, self.params.inputs[name].T)

    def multiply(
        self, one: DeviceArray, other: DeviceArray, out: DeviceArray | None = None
    ) -> DeviceArray:
        return self.rt.matmul(one, other, out, self.a.precision)

    def tangent(self, one: Dual, other: Dual) -> DeviceArray | None:
        """Return the tangent of the product of two matrices, None if it is 0."""
        pairs = (one.tangent, other.value), (one.value, other.tangent)
        return plus(*(self.multiply(a, b) for a, b in pairs if a is not None and b is not None))

    def product(self, one: Dual, other: Dual) -> Dual:
        """Return the product of two matrices with its tangent."""
        return Dual(self.multiply(one.value, other.value), self.tangent(one, other))

    def term(self, one: Dual, other: Dual) -> DeviceArray | None:
        """Return the product of two matrices, at second order its tangent."""
        return self.tangent(one, other) if self.second else self.multiply(one.value, other.value)

    def launch(self, kernel: str, threads: int, *args: Value) -> None:
        self.rt.launch("edge_network", kernel, self.dtype, blocks(threads), 256, args)

    def layers(self, batch: slice, with_y: bool) -> Layers:
        """Compute the layers of a batch, and the results if requested."""
        features, z, h = self._features(batch), list[Dual](), list[Dual]()
        products: Products = (None, None)
        if features is not None:
            products = self.product(features, self.params.inputs[EDGES].T)
        self._add_layer(batch, products, z, h)
        for weight in self.params.weights:
            self._add_layer(batch, self.product(h[-1], weight.T), z, h)
        last, inverse = z.pop(), None
        y = last.tangent if self.second else last.value
        if self.params.norm:
            inverse, y = self._normalise(last, with_y)
        return Layers(features, z, h, last, inverse, y)

    def _features(self, batch: slice) -> Dual | None:
        """Return the edge features of the entries of a batch."""
        features = self.inputs[EDGES]
        if features is None:
            return None
        edges = self.graph._index("in_edges")[batch] - 1
        return features.map(lambda array: array.take(edges, axis=0))

    def _add_layer(self, batch: slice, products: Products, z: list[Dual], h: list[Dual]) -> None:
        """Append the layer with these products to z, and its activation to h if it is hidden."""
        bias, starts = self.params.biases[len(z)], [] if z else self.starts
        args = batch, len(bias.value), len(z) < self.a.depth
        values = [None if start is None else start.value for start in starts]
        value, activation = self._layer(*args, products[0], bias.value, values, None)
        tangent = by_activation = None
        if self.second:
            tangents = [None if start is None else start.tangent for start in starts]
            tangent, by_activation = self._layer(*args, products[1], bias.tangent, tangents, value)
        z.append(Dual(value, tangent))
        if activation is not None:
            h.append(Dual(activation, by_activation))

    def _layer(
        self, batch: slice, width: int, activated: bool, product: DeviceArray | None,
        bias: DeviceArray | None, starts: Sequence[DeviceArray | None], at: DeviceArray | None,
    ) -> tuple[DeviceArray, DeviceArray | None]:  # fmt: skip
        """Return a layer and its activation, or the tangents of both for the layer `at`."""
        shape, add = (batch.stop - batch.start, width), product is not None
        z = self.rt.empty(shape, self.dtype) if product is None else product
        h = self.rt.empty(shape, self.dtype) if activated else None
        src, dst = starts or (None, None)
        nodes, rows = self.a.in_nodes[batch], neighbours.owners(self.graph)[batch]
        self.launch(
            "layer_value", z.size, bias, src, nodes, dst, rows, at, z, h, *shape,
            self.a.activation, add,
        )  # fmt: skip
        return z, h

    def _normalise(self, last: Dual, with_y: bool) -> tuple[Dual, DeviceArray | None]:
        """Normalise the last layer in place; return the inverse deviations and the results."""
        (scale, shift), shape = self.params.norm, last.value.shape
        threads, second = WARP * shape[0], self.second
        r = self.rt.empty(shape[0], self.dtype)
        y = self.rt.empty(shape, self.dtype) if with_y else None
        self.launch(
            "normalise", threads, last.value, r, scale.value, shift.value,
            None if second else y, *shape,
        )  # fmt: skip
        if not second:
            return Dual(r), y
        dr = self.rt.empty(shape[0], self.dtype)
        self.launch(
            "normalise_tangent", threads, last.value, r, last.tangent, dr, scale.value,
            scale.tangent, shift.tangent, y, *shape,
        )  # fmt: skip
        return Dual(r, dr), y

    def vjp(self, batch: slice, layers: Layers, out: Gradients) -> None:
        """Propagate the gradients by the results of a batch to z_1 and to the edge features."""
        sums, g = out.params, Dual(self.cotangents(batch))
        if layers.inverse is not None:
            g = self._norm_vjp(layers.last, layers.inverse, g.value, sums)
        for number in reversed(range(self.a.depth)):
            if sums is not None:
                sums.biases[number + 1].add_rows(self._of_order(g))
                sums.weights[number].add(self.term(g.T, layers.h[number]))
            into = None
            if number == 0 and out.by_z is not None:
                into = out.by_z.rows(batch)
            g = self._layer_vjp(g, self.params.weights[number], layers.z[number], into)
        if sums is not None:
            sums.biases[0].add_rows(self._of_order(g))
            if layers.features is not None:
                sums.inputs[EDGES].add(self.term(g.T, layers.features))
        if out.by_entry is not None:
            out.by_entry[batch] = required(self.term(g, self.params.inputs[EDGES]))

    def _of_order(self, g: Dual) -> DeviceArray | None:
        """Return the gradient, at second order its tangent."""
        return g.tangent if self.second else g.value

    def _layer_vjp(self, g: Dual, weight: Dual, z: Dual, into: Dual | None) -> Dual:
        """Return the gradient by a hidden layer z from that by the next layer."""
        by_z = self.multiply(g.value, weight.value, None if into is None else into.value)
        by_h_tangent = by_z_tangent = None
        if self.second:
            by_h_tangent = self.tangent(g, weight)
            by_z_tangent = None if into is None else into.tangent
            if by_z_tangent is None:
                by_z_tangent = self.rt.empty(by_z.shape, self.dtype)
        self.launch(
            "layer_vjp", by_z.size, z.value, z.tangent, by_h_tangent, by_z, by_z_tangent,
            by_z.size, self.a.activation,
        )  # fmt: skip
        return Dual(by_z, by_z_tangent)

    def _norm_vjp(self, last: Dual, inverse: Dual, g: DeviceArray, sums: Parts[Sum] | None) -> Dual:
        """Return the gradient by the last layer before the norm from that by the results."""
        scale, shape = self.params.norm[0], g.shape
        if sums is not None:
            sums.norm[0].add_rows(g * required(self._of_order(last)))
            sums.norm[1].add_rows(None if self.second else g)
        tangent = self.rt.empty(shape, self.dtype) if self.second else None
        self.launch(
            "norm_vjp", WARP * shape[0], last.value, inverse.value, last.tangent, inverse.tangent,
            scale.value, scale.tangent, g, tangent, *shape,
        )  # fmt: skip
        return Dual(g, tangent)

    def run(self, y: DeviceArray | None, out: Gradients | None) -> None:
        """Compute the results, at second order their tangents, and gradients, as requested."""
        for batch in self.batches:
            layers = self.layers(batch, y is not None)
            if y is not None:
                self.add(batch, required(layers.y), y)
            if out is not None:
                self.vjp(batch, layers, out)
        if out is not None:
            self._finish(out)

    def requested(self, prefix: str) -> Gradients | None:
        """Return the gradients whose names begin with `prefix`, None if none is requested."""
        a, rt = self.a, self.rt
        by_input = {name: a.array(f"{prefix}{name}") for name in (*NODES, EDGES)}
        block = a.array(f"{prefix}params")
        if block is None and all(array is None for array in by_input.values()):
            return None
        params = by_z = by_entry = None
        if block is not None:
            counts = [batch.stop - batch.start for batch in self.batches]
            params = parts_of(a, lambda part, shape: Sum(rt, counts, block[part].reshape(shape)))
        if block is not None or any(by_input[name] is not None for name in NODES):
            tables = [
                rt.empty((a.num_entries, a.hidden), self.dtype) for _ in range(1 + self.second)
            ]
            by_z = Dual(*tables)
        if by_input[EDGES] is not None:
            by_entry = rt.empty((a.num_entries, a.edge_width), self.dtype)
        return Gradients(by_input, params, by_z, by_entry)

    def _finish(self, out: Gradients) -> None:
        """Sum the gradients of all entries."""
        graph, by_edge = self.graph, out.by_input[EDGES]
        if out.by_z is not None:
            by_source = neighbours.outgoing(graph, edges=graph._index("out_entries"))
            self._finish_side("x_src", "out", by_source, out.by_z, out)
            self._finish_side("x_dst", "in", neighbours.incoming(graph), out.by_z, out)
        if by_edge is not None and out.by_entry is not None:
            rows = neighbours.of_edges(graph, edges=graph._index("id_entries"))
            neighbours.add_table(self.rt, rows, out.by_entry, by_edge, self.accumulate)
        if out.params is not None:
            for part in out.params.every():
                part.store(self.accumulate)

    def _finish_side(self, name: str, side: str, rows: Rows, by_z: Dual, out: Gradients) -> None:
        """Compute the gradients by the features of the nodes of a side, and by their weight."""
        features, by_features = self.inputs[name], out.by_input[name]
        if features is None or (by_features is None and out.params is None):
            return

        def summed(table: DeviceArray) -> DeviceArray:
            sums = self.rt.empty((rows.count, self.a.hidden), self.dtype)
            neighbours.add_table(self.rt, rows, table, sums, False)
            return sums

        g = by_z.map(summed)
        if by_features is not None:
            found = required(self.term(g, self.params.inputs[name]))
            store(by_features, [self._connected(side, found)], self.accumulate)
        if out.params is not None:
            features = features.map(lambda array: self._connected(side, array))
            for batch in self._split(rows.count):
                term = self.term(g.rows(batch).T, features.rows(batch))
                out.params.inputs[name].add(term)

    def _connected(self, side: str, rows: DeviceArray) -> DeviceArray:
        """Return the rows of nodes, with 0 for nodes without entries, also in place of NaN."""
        if self.graph._shortest(side):
            return rows
        offsets = self.graph._index(f"{side}_offsets")
        connected = (offsets[1:] - offsets[:-1]) > 0
        return self.rt.xp.where(connected[:, None], rows, self.dtype.type(0))


def phases(
    network: Callable[[Runtime, Call, bool], Network],
) -> tuple[Callable[[Runtime, Call], None], ...]:
    """Return forward, backward and double backward."""

    def forward(rt: Runtime, a: Call) -> None:
        network(rt, a, False).run(a.y, None)

    def backward(rt: Runtime, a: Call) -> None:
        of = network(rt, a, False)
        of.run(None, of.requested("g"))

    def double_backward(rt: Runtime, a: Call) -> None:
        if all(a.array(f"h{name}") is None for name in NAMES):
            Written(a).finish(*(f"d{name}" for name in NAMES), "dgy")
            return
        of = network(rt, a, True)
        of.run(a.dgy, of.requested("d"))

    return forward, backward, double_backward
