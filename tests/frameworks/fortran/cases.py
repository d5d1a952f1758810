"""Calls of every operator in the Fortran tests, derived from the declarations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import _functions
import signatures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Entries of four nodes (1-based neighbours), with multiple edges and shared edges, one of which
# runs in both directions.
ADJ_IA = [1, 4, 6, 6, 10]
ADJ_JA = [(2, 1), (5, 2), (2, 3), (1, 1), (4, 4), (5, 5), (5, 6), (3, 7), (4, 2)]
REVERSE = [1, 0, 0, 0, 0, 0, 0]
SIZES = {
    "num_src": 5,
    "num_dst": 4,
    "num_edges": 7,
    "num_entries": 9,
    "num_samples": 4,
    "dim": 2,
    "hidden": 3,
    "depth": 2,
    "in_features": 2,
    "out_features": 3,
    "columns": 3,
    "points": 6,
    "modes": 3,
    "width": 5,
    "heads": 2,
    "edge_width": 3,
    "x_width": 2,
    "max_degree": 2,
    "num_spherical": 3,
    "num_radial": 2,
    "exponent": 4,
    "channels": 3,
    "middle": 2,
    "src_width": 4,
    "dst_width": 2,
    "own_width": 2,
    "num_bases": 3,
}
OTHER_SIZE = 3
REDUCTIONS = "sum", "mean", "maxval", "minval"
NODE = {"r4": "array_type", "r8": "array_type_r8"}
"""Types of the arrays."""


@dataclass(frozen=True)
class Row:
    """Call of an operator: its text, with x1, x2, ... for the leaves, and their shapes."""

    name: str
    text: str
    shapes: Sequence[tuple[int, int]]
    low: float = -1.0
    high: float = 1.0
    operator: str = ""
    options: tuple[tuple[str, object], ...] = ()
    absent: tuple[str, ...] = ()

    def call(self, kind: str) -> str:
        text = self.text.replace("WP", kind)
        for number in range(len(self.shapes), 0, -1):
            text = text.replace(f"x{number}", f"x({number})%node")
        return text


def _literal(value: object, kind: str = "") -> str:
    ending = f"_{kind}" if kind else ""
    if isinstance(value, bool):
        return f".{str(value).lower()}.{ending}"
    return f'"{value}"' if isinstance(value, str) else f"{value}{ending}"


def sizes_of(names: Sequence[str]) -> dict[str, int]:
    """Return the sizes of an operator's calls, before choices determine some of them."""
    return dict.fromkeys(names, OTHER_SIZE) | SIZES


def _operator(name: str) -> list[Row]:
    op = signatures.Operator(name)
    choices = [o for o in op.options if o.kind in ("choice", "flag")]
    optional = [i.name for i in op.inputs if i.optional]
    rows = []
    for values in itertools.product(*(o.choices or (True, False) for o in choices)):
        for given in itertools.product([True, False], repeat=len(optional)):
            absent = [n for n, there in zip(optional, given, strict=True) if not there]
            if set(absent) >= set(op.one_of) > set():
                continue
            sizes = sizes_of(op.signature.sizes)
            chosen = {o.name: value for o, value in zip(choices, values, strict=True)}
            if chosen.get("norm") == "layer":  # few outputs may nearly be equal
                sizes["out_features"] = 8
            for flag, one, other in op.equal:
                sizes[other] = sizes[one] if chosen[flag] else sizes[other]
            for key, size in op.signature.follows(chosen, absent).items():
                sizes[key] = size.value(sizes)
            if any(chosen[flag] and sizes[one] != sizes[other] for flag, one, other in op.equal):
                continue  # an input with one of these sizes is absent
            inputs = [i for i in op.inputs if i.name not in absent]
            shapes = [(eval(i.rows, {}, sizes), eval(i.columns, {}, sizes)) for i in inputs]
            words = ["graph"] * op.has_graph
            words += [f"{i.name}=x{k}" for k, i in enumerate(inputs, start=1)]
            options: list[tuple[str, object]] = [(n, sizes[n]) for n in op.free_sizes]
            options += [(o.name, v) for o, v in zip(choices, values, strict=True)]
            words += [f"{key}={_literal(value)}" for key, value in options]
            full = "-".join([name, *map(str, values), *(f"no_{n}" for n in absent)])
            text = signatures.lines([*words[:-1], words[-1] + ")"])
            rows.append(
                Row(
                    full,
                    f"{name}( &\n        {text}",
                    shapes,
                    operator=name,
                    options=tuple(options),
                    absent=tuple(absent),
                )
            )
    return rows


def complete_rows(operators: str) -> list[Row]:
    """Return the first row of each operator, with all inputs."""
    rows = [_operator(name)[0] for name in operators.split(",") if name != "elementwise"]
    assert not any(row.absent for row in rows)
    return rows


def partials(row: Row) -> list[list[str]]:
    """Return the names of the gradients by each input."""
    op = signatures.Operator(row.operator)
    return [op.partials(name) for name in op.names]


def mixtures(row: Row, kinds: Sequence[str]) -> Iterator[Row]:
    """Return the same call with options of other kinds."""
    op = signatures.Operator(row.operator)
    for mixed in op.kinds(kinds):
        text = row.text
        for name, value in row.options:
            if name in mixed:
                literal = _literal(value, mixed[name])
                text = text.replace(f"{name}={_literal(value)}", f"{name}={literal}")
        yield replace(row, name="-".join([row.operator, *mixed.values()]), text=text)


def beyond(row: Row) -> Iterator[tuple[str, int, Row]]:
    """Return the call with an option valid only in its lower half, and the option's bound."""
    op = signatures.Operator(row.operator)
    for option in op.options:
        if option.kind == "size":
            value = f"{option.name}={dict(row.options)[option.name]}"
            text = row.text.replace(value, value.replace("=", "=beyond + "))
            yield option.name, option.most, replace(row, text=text)


def fill_graph() -> str:
    """Return the call that creates the graph of the rows."""
    pairs = signatures.lines([n for pair in ADJ_JA for n in pair])
    return (
        f"call graph%from_csr([{', '.join(map(str, ADJ_IA))}], reshape([ &\n        {pairs}], "
        f"[2, {len(ADJ_JA)}]), &\n        num_src={SIZES['num_src']}, "
        f"reverse=[{', '.join(map(str, REVERSE))}])"
    )


def _elementwise() -> list[Row]:
    rows = []
    full, one_row, one_column, number = (3, 4), (1, 4), (3, 1), (1, 1)
    for f in _functions.PUBLIC:
        low = 0.2 if f.positive or f.name == "reciprocal" else -0.9
        if f.arity == 1:
            rows.append(Row(f.name, f"{f.name}(x1)", [full], low, 0.95))
            continue
        low = max(low, 0.2)
        pairs = [(full, full), (full, one_row), (one_column, full), (one_column, one_row)]
        for turn, pair in enumerate([*pairs, (full, number)]):
            rows.append(Row(f"{f.name}-{turn}", f"{f.name}(x1, x2)", pair, low, 0.95))
    return rows


def rows(operators: str) -> list[Row]:
    """Return all rows of the operators that have kernels of their own in a folder."""
    names = [name for name in operators.split(",") if name != "elementwise"]
    found = [row for name in names for row in _operator(name)]
    found += _elementwise()
    for name in REDUCTIONS:
        found.append(Row(name, f"{name}(x1)", [(3, 4)]))
        found += [Row(f"{name}-{d}", f"{name}(x1, dim={d})", [(3, 4)]) for d in (1, 2)]
    found += [
        Row("square", "x1*x1", [(3, 4)]),
        Row("signs", "-(x1 + x2*2.0_WP - 1.0_WP/x3)**2.0_WP", [(3, 4)] * 3, 0.2, 0.9),
        Row("leaky", "leaky_relu(x1, 0.2_WP)", [(3, 4)]),
        Row("exponential", "elu(x1, 0.2_WP)", [(3, 4)]),
        Row("matmul", "matmul(x1, x2)", [(3, 5), (5, 4)]),
        Row("matmul-self", "matmul(x1, x1)", [(4, 4)]),
        Row("reshape", "reshape(x1, [6, 2])", [(3, 4)]),
        Row("transpose", "transpose(x1)", [(3, 4)]),
        Row("gather", "gather(x1, [4, 1, 1, 2, 4, 4])", [(3, 4)]),
        Row("scatter_sum", "scatter_sum(x1, [3, 1, 1, 3], 4)", [(3, 4)]),
        Row("matmul_transposed", "matmul_transposed(x1, x2)", [(5, 3), (5, 4)]),
        Row("linear", "linear(x1, x2, x3)", [(5, 4), (5, 3), (3, 1)]),
        Row("merge", "merge(x1, x2, reshape([.true., .false., .true.], [3, 1]))", [(3, 1)] * 2),
        Row("softmax-1", "softmax(x1, dim=1)", [(3, 4)]),
        Row("softmax-2", "softmax(x1, dim=2)", [(3, 4)]),
        Row("log_softmax-1", "log_softmax(x1, dim=1)", [(3, 4)]),
        Row("log_softmax-2", "log_softmax(x1, dim=2)", [(3, 4)]),
        Row("layer_norm", "layer_norm(x1, x2, x3, 0.1_WP)", [(5, 4), (5, 1), (5, 1)]),
        Row("layer_norm-plain", "layer_norm(x1)", [(5, 4)]),
        Row("concat-1", "concat(x1, x2, x3, dim=1)", [(3, 4), (2, 4), (1, 4)]),
        Row("concat-2", "concat(x1, x2, dim=2)", [(3, 4), (3, 2)]),
        Row("concat-self", "concat(x1, x1, dim=1)", [(3, 4)]),
        Row("slice-1", "slice(x1, 2, 3, dim=1)", [(4, 3)]),
        Row("slice-2", "slice(x1, 2, 3, dim=2)", [(4, 3)]),
        Row("clip-both", "clip(x1, -0.4_WP, 0.5_WP)", [(3, 4)]),
        Row("clip-high", "clip(x1, high=0.1_WP)", [(3, 4)]),
        Row(
            "network",
            "matmul(x1, tanh(matmul(x2, gather(x3, [2, 2, 1])) + x4))",
            [(2, 5), (5, 3), (3, 4), (5, 1)],
        ),
    ]
    return found
