"""Interfaces of the compiled procedures: their arguments, in order, with types and intents."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .declaration import GRAPH_SIZES, Shape, Signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

HALVES = ("bf16",)
"""Variants that read rows of half precision; widening float16 would take ten instructions."""
INDEX_ARRAYS = {
    "in_offsets": "int64",
    "in_nodes": "int32",
    "in_edges": "int64",
    "in_order": "int64",
    "in_entries": "int64",
    "out_offsets": "int64",
    "out_nodes": "int32",
    "out_edges": "int64",
    "out_entries": "int64",
    "id_offsets": "int64",
    "id_entries": "int64",
}
"""Index arrays of a graph and their types, in the order in which kernels take them."""

GROUPS = {
    "in": ("in_offsets", "in_nodes", "in_edges"),
    "out": ("out_offsets", "out_nodes", "out_edges"),
    "id": ("id_offsets", "id_entries"),
    "shared": ("shared_edges",),
}
READS = {"forward": "in", "backward": "in out id"}
"""What the kernels of an operator with a graph take, where its declaration does not say otherwise;
double_backward takes what backward does."""


@dataclass(frozen=True)
class Argument:
    """Argument of a procedure, as in Fortran."""

    name: str
    type: str
    """real of the procedure's precision, float64, int64 or int32."""
    intent: str
    """value, in, inout or out."""
    extents: tuple[str, ...] = ()
    """Of an array in Fortran's order; the last is assumed."""
    half: bool = False
    """Whether procedures for half precision take an array of 16-bit integers here."""

    @property
    def is_array(self) -> bool:
        return bool(self.extents)


@dataclass(frozen=True)
class Procedure:
    """Interface of a phase of an operator, for all precisions."""

    operator: str
    phase: str
    arguments: tuple[Argument, ...]

    @property
    def name(self) -> str:
        return f"{self.operator}_{self.phase}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(argument.name for argument in self.arguments)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the arguments in Python, where the status is returned."""
        return self.names[:-1]


def half_arrays(signature: Signature) -> frozenset[str]:
    """Return the names of the arrays that kernels read in half precision, too."""
    names = [tag + name for name in signature.half for tag in ("", "h")]
    return frozenset([*names, *("g" + y for y in signature.results if names)])


@functools.cache
def procedures(signature: Signature) -> dict[str, Procedure]:
    """Return the procedures of an operator by phase.

    Those that store or read the intermediates of forward end in ``_kept``; attention is forward
    with the weights as its result, by_sample is backward without the sum over the samples.
    """
    found = {}
    half = half_arrays(signature)
    for phase in "forward", "attention", "backward", "by_sample", "double_backward":
        exists = {"attention": signature.attention, "by_sample": signature.by_sample}
        if not exists.get(phase, True):
            continue
        keeping = signature.keeps and phase not in exists
        for ending in ("", "_kept") if keeping else ("",):
            arguments = tuple(
                replace(a, half=a.intent == "in" and a.name in half)
                for a in _arguments(signature, phase, bool(ending))
            )
            name = phase + ending
            found[name] = Procedure(signature.name, name, arguments)
    return found


def elementwise() -> dict[str, Procedure]:
    """Return the procedures that all elementwise functions and reductions share."""
    operands, results = ("x1", "x2"), {"forward": ("y",), "backward": ("gx1", "gx2")}
    results["double_backward"] = "dx1", "dx2", "dgy"
    found = {}
    for phase, outputs in results.items():
        cotangents = () if phase == "forward" else ("gy",)
        given = ("given",) if phase == "double_backward" else ()
        tangents = tuple("h" + name for name in operands if given)
        arguments = [
            *_values("int64", ("axes", "split", "piece", "parts")),
            *_values("int32", ("code", "operation", "threads", "accumulate")),
            *_values("int32", ("present", "wanted", *given)),
            *_values("float64", ("constant", "divisor")),
            Argument("layout", "int64", "in", ("axes", "*")),
            *_any_shape("in", (*operands, *cotangents, *tangents)),
            *_any_shape("inout", outputs),
            Argument("status", "int32", "out"),
        ]
        found[phase] = Procedure("elementwise", phase, tuple(arguments))
    return found | _softmax()


def _softmax() -> dict[str, Procedure]:
    """Return the procedures of softmax and its logarithm: the value, and all derivatives."""
    shapes = {"forward": (("x",), ("y",)), "vjps": (("x", "gy", "hx"), ("gx", "dx", "dgy"))}
    found = {}
    for phase, (operands, results) in shapes.items():
        arguments = [
            *_values("int64", ("outer", "length", "inner")),
            *_values("int32", ("logarithm", "threads", "accumulate", "wanted")),
            *_any_shape("in", operands),
            *_any_shape("inout", results),
            Argument("status", "int32", "out"),
        ]
        name = f"softmax_{phase}"
        found[name] = Procedure("elementwise", name, tuple(arguments))
    return found


def product() -> dict[str, Procedure]:
    """Return the procedure of matrix products, which the arrays of Fortran use."""
    arguments = [
        *_values("int64", ("rows", "depth", "columns")),
        *_values("int32", ("transposed", "threads", "accumulate")),
        Argument("a", "real", "in", ("*",)),
        Argument("b", "real", "in", ("*",)),
        Argument("c", "real", "inout", ("rows", "*")),
        Argument("status", "int32", "out"),
    ]
    return {"forward": Procedure("product", "forward", tuple(arguments))}


def variants(name: str, declarations: Path) -> dict[str, tuple[str, str]]:
    """Return the compiled variants of an operator: NumPy's types of arrays, and of `half` ones."""
    found = {"r4": ("float32", "float32"), "r8": ("float64", "float64")}
    if any(a.half for p in interfaces(name, declarations).values() for a in p.arguments):
        found |= dict.fromkeys(HALVES, ("float32", "int16"))
    return found


def interfaces(name: str, declarations: Path) -> dict[str, Procedure]:
    """Return the procedures of a kernel by phase, declared in a folder or here."""
    tables = {"elementwise": elementwise, "product": product}
    if name in tables:
        return tables[name]()
    return procedures(Signature.read(declarations / f"{name}.py"))


def _any_shape(intent: str, names: Iterable[str]) -> Iterator[Argument]:
    return (Argument(name, "real", intent, ("*",), half=True) for name in names)


def _values(type_: str, names: Iterable[str]) -> Iterator[Argument]:
    return (Argument(name, type_, "value") for name in names)


def _arguments(signature: Signature, phase: str, kept: bool) -> Iterator[Argument]:
    first = phase in ("forward", "attention")
    second = phase == "double_backward"
    inputs = signature.inputs.values()
    read = () if signature.linear and not first else inputs
    index_arrays = _index_arrays(signature, phase)
    options = signature.options.values()

    yield from _values("int64", GRAPH_SIZES if signature.has_graph else ())
    yield from _values("int64", signature.sizes)
    yield from _values("int32", (o.name for o in options if o.choices))
    yield from _values("float64", (o.name for o in options if o.kind is float))
    if any(len(i.forms[-1]) == 1 < len(i.shape) for i in inputs):
        yield from _values("int32", ("packed",))
    yield from _values("int32", ("threads", "accumulate"))
    if any(i.optional for i in read):
        yield from _values("int32", ("present",))
    yield from _values("int32", () if first else ("wanted", "given") if second else ("wanted",))
    yield from _values("int32", (name for name in index_arrays if name not in INDEX_ARRAYS))
    for name, type_ in INDEX_ARRAYS.items():
        if name in index_arrays:
            yield Argument(name, type_, "in", ("*",))
    for name in signature.indexed:
        yield Argument(name, "int64", "in", ("*",))

    for i in read:
        yield Argument(i.name, "real", "in", _extents(signature, i.shape))
    if not first and not (signature.linear and second):
        for name, shape in signature.results.items():
            yield Argument("g" + name, "real", "in", _extents(signature, shape))
    for i in inputs if second else ():
        yield Argument("h" + i.name, "real", "in", _extents(signature, i.shape))
    if kept and not first:
        yield Argument("kept", "real", "in", _extents(signature, signature.keeps))

    for name, shape in _outputs(signature, phase).items():
        yield Argument(name, "real", "inout", _extents(signature, shape))
    if kept and first:
        yield Argument("kept", "real", "inout", _extents(signature, signature.keeps))
    yield Argument("status", "int32", "out")


def _outputs(signature: Signature, phase: str) -> dict[str, Shape]:
    if phase == "attention":
        assert signature.attention is not None
        return {"alpha": signature.attention}
    if phase == "forward":
        return signature.results
    tag = "d" if phase == "double_backward" else "g"
    found = {tag + i.name: i.shape for i in signature.inputs.values()}
    if phase == "double_backward":
        found |= {"dg" + name: shape for name, shape in signature.results.items()}
    if phase == "by_sample":
        found |= {"g" + name: shape for name, shape in signature.by_sample.items()}
    return found


def _index_arrays(signature: Signature, phase: str) -> list[str]:
    if not signature.has_graph:
        return []
    reads = {**READS, **signature.reads}
    stem = {"attention": "forward", "by_sample": "backward"}.get(phase, phase)
    words = reads.get(stem, reads["backward"]).split()
    return [name for word in words for name in GROUPS.get(word, (word,))]


def _extents(signature: Signature, shape: Shape | None) -> tuple[str, ...]:
    """Return the extents of an array: rows of all axes but the first, or none if it may be flat."""
    assert shape is not None
    flat = any(i.shape == shape for i in signature.inputs.values() if len(i.forms) > 1)
    if flat or len(shape) == 1:
        return ("*",)
    rows = [size.text for size in reversed(shape[1:])]
    return rows[0] if len(rows) == 1 else "*".join(f"({text})" for text in rows), "*"
