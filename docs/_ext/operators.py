"""Writes a page for every operator, from its declaration, before Sphinx reads the sources.

All sections of a page come from one declaration, so this is one module.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import numpy as np
from docstrings import Docstring, parameters, title, write_changed

from pyops._call.compound import COMPOUNDS, Compound
from pyops._call.operator import OPERATORS, Operator
from pyops._schema import show_shape
from pyops.cuda._dispatch import PRECISE
from pyops.cuda._runtime import PRECISIONS
from pyops.partials import _all as partials

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference" / "operators"
FAMILIES = {
    "convolution": "Graph neural operators",
    "attention": "Attention",
    "neighbours": "Message passing",
    "triplets": "Directional message passing",
    "bases": "Bases",
    "transforms": "Orthogonal and Laplace neural operators",
    "elementwise": "Elementwise functions and reductions",
}
"""Folders of the kernels, and headings."""
SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**"}
SIGNS |= {"negative": "-"}
"""Operators of Fortran that stand for functions."""
INTRINSIC = {"max": "maxval", "min": "minval"}
"""Names in Fortran, where the intrinsic of the same meaning has another name."""
SIZES = {"num_src": 5, "num_dst": 4, "num_edges": 12, "num_entries": 12, "num_samples": 12}
SIZES |= {
    "dim": 3,
    "hidden": 8,
    "depth": 1,
    "in_features": 4,
    "out_features": 2,
    "columns": 2,
    "width": 3,
}
SIZES |= {"x_width": 3, "edge_width": 2, "own_width": 2, "src_width": 3, "dst_width": 2}
SIZES |= {"heads": 2, "num_bases": 2, "points": 9, "modes": 4, "max_degree": 2}
SIZES |= {"num_spherical": 7, "num_radial": 6, "exponent": 5, "channels": 4, "middle": 3}
"""Sizes of the examples; those of options with a default are the defaults."""
OTHER_SIZE = 3
BOUNDS = {"min": 0.3, "max": 0.6}
"""Options of `clip`, which have no defaults."""
RESULTS = {
    "forward": "Returns the result, and `saved`, which the derivatives of the same inputs accept.",
    "backward": "Returns the gradients {}.",
    "double_backward": "Returns the gradients {} of the inner product of the first-order gradients "
    "with the cotangents h.",
    "jvp": "Returns the tangent {} of the result.",
}


def operators() -> dict[str, Operator]:
    """Return all operators by name."""
    return OPERATORS | COMPOUNDS


def declarations(op: Operator) -> list[str]:
    """Return the names under which kernels are filed."""
    parts = op.parts.values() if isinstance(op, Compound) else [op]
    return [part.declaration for part in parts]


def family(op: Operator) -> str:
    """Return the folder of the kernels, of which the Fortran sources have one for each family."""
    name = declarations(op)[0]
    return next(f for f in FAMILIES if (ROOT / "fortran" / f / f"{name}.fypp").exists())


def docstring(op: Operator) -> Docstring:
    """Return the docstring of the declaration."""
    text = (op.__doc__ or "").removeprefix(f"{op._usage()}\n\n")
    return Docstring(text.removesuffix(f"\n\n{op._derivatives()}"))


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a list table; cells may have several lines."""
    text = ".. list-table::\n   :header-rows: 1\n   :widths: auto\n\n"
    for row in (header, *rows):
        for number, cell in enumerate(row):
            lines = cell.replace("\n", "\n       ")
            text += f"   {' ' if number else '*'} - {lines}\n"
    return re.sub(r" +\n", "\n", text + "\n")


def literal(value: object) -> str:
    """Return a value as code."""
    return f"``{value}``"


def shapes(op: Operator, name: str) -> str:
    """Return the shapes that an input may have."""
    forms = op.signature.inputs[name].forms
    return " or ".join("any" if f[0].text == "..." else literal(show_shape(f, {})) for f in forms)


def inputs(op: Operator, doc: Docstring) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of inputs."""
    if op.signature.has_graph:
        yield literal("graph"), "", "A :class:`pyops.Graph`, or that of the front end."
    for name, i in op.signature.inputs.items():
        shape = shapes(op, name) + ", optional" * i.optional
        yield literal(name), shape, doc.parameter(name)


def options(op: Operator, doc: Docstring) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of options."""
    signature = op.signature
    for o in signature.options.values():
        if o.kind is str:
            kind = ", ".join(literal(repr(c)) for c in o.choices)
        else:
            kind = o.kind.__name__ if isinstance(o.kind, type) else o.kind.replace("|", "or")
        default = "required" if o.default is inspect.Parameter.empty else literal(repr(o.default))
        yield literal(o.name), kind, default, doc.parameter(o.name)
    for i in signature.indexed.values():
        about = f"{doc.parameter(i.name)}\n\nOnly with ``{i.option}={i.choice!r}``.".strip()
        yield literal(i.name), f"integers, shape ``({i.length},)``", literal(None), about
    if signature.attention is not None:
        shape = show_shape(signature.attention, {})
        about = f"Whether the attention weights, of shape ``{shape}``, are returned as well."
        yield literal("return_attention"), "bool", literal(False), about
    if op.declaration.startswith(PRECISE):
        kind = ", ".join(literal(repr(name)) for name in PRECISIONS)
        about = "Precision of matrix products on a CUDA device; only there."
        yield literal("precision"), kind, literal(repr(PRECISIONS[0])), about


def sizes(op: Operator) -> Iterator[str]:
    """Yield which sizes follow from choices and absent inputs, and what else binds the inputs."""
    signature = op.signature
    for case, found in signature.where.items():
        word = case.removeprefix("no ")
        absent = "without" if word in signature.inputs else "if not"
        what = f"{absent} ``{word}``" if case != word else f"with ``{word}``"
        equal = " and ".join(f"``{n} = {getattr(s, 'text', s)}``" for n, s in found.items())
        yield f"* {equal} {what}."
    for flag, both in signature.equal.items():
        yield f"* ``{' = '.join(both)}`` with ``{flag}``."
    for name, most in signature.at_most.items():
        yield f"* ``{name}`` is at most ``{most}``."
    if signature.one_of:
        yield f"* At least one of {' and '.join(map(literal, signature.one_of))} must be given."


def phases(op: Operator) -> Iterator[str]:
    """Yield the entry of each phase."""
    results = op.signature.results
    tags = {"backward": "g", "double_backward": "d", "jvp": ""}
    for phase in op.phases:
        names = [tags[phase] + n for n in op.signature.inputs] if tags.get(phase) else []
        names += {"double_backward": [f"dg{y}" for y in results]}.get(phase, [])
        names += [f"d{y}" for y in results] if phase == "jvp" else []
        about = RESULTS[phase].format(", ".join(map(literal, names)))
        signature = parameters(inspect.signature(getattr(op, phase)))
        yield f".. py:method:: {op.name}.{phase}{signature}\n\n   {about}\n"


def ford(name: str) -> str:
    """Return a link to the page that FORD writes for a module."""
    return f"`module pyops_{name} <../../fortran/module/pyops_{name}.html>`__"


def fortran_shape(op: Operator) -> str:
    """Return how the first matrix of an operator is declared in Fortran."""
    for name, i in op.signature.inputs.items():
        if len(i.forms[-1]) == 2:
            rows, columns = (size.text for size in i.forms[-1])
            return f"; takes matrices with reversed axes: ``{name}({columns}, {rows})``"
    return ""


def front_ends(op: Operator) -> Iterator[tuple[str, str]]:
    """Yield the front ends that have the operator, and its name there."""
    found = declarations(op)
    yield "NumPy", f"`pyops.{op.name}`"
    yield "PyTorch", f"`pyops.torch.{op.name}`"
    yield "JAX", f"`pyops.jax.{op.name}`"
    if all((ROOT / "pyops/cuda/ops" / f"{name}.py").exists() for name in found):
        yield "CUDA", f"`pyops.{op.name}` on CuPy arrays, `pyops.torch.{op.name}` on CUDA tensors"
    kind = "a subroutine" if isinstance(op, Compound) else "a function"
    name = INTRINSIC.get(op.name, op.name)
    if op.name in SIGNS:
        kind, name = "an operator", SIGNS[op.name]
    node = op.name if isinstance(op, Compound) else found[0]
    yield (
        "Fortran",
        f"``{name}``, {kind} of ``use pyops``, from {ford(f'{node}_node')}{fortran_shape(op)}",
    )
    yield "Fortran, kernels", ", ".join(map(ford, found))
    gradients = [name for name, (owner, _) in partials().items() if owner is op]
    if gradients:
        yield "Fortran, single gradients", ", ".join(f"``{name}``" for name in gradients)
    yield "C", ", ".join(f":doc:`pyops_{name}_* <../c/{name}>` of ``pyops.h``" for name in found)
    if all((ROOT / "fortran/device" / f"{name}.fypp").exists() for name in found):
        yield "OpenACC, OpenMP target", "the procedures of C and Fortran on device addresses"


def sources(op: Operator) -> Iterator[str]:
    """Yield links to copies of the sources."""
    for name in declarations(op):
        paths = {
            "declaration": f"pyops/ops/{name}.py",
            "kernel": f"fortran/{family(op)}/{name}.fypp",
            "CUDA": f"pyops/cuda/ops/{name}.py",
            "OpenACC": f"fortran/device/{name}.fypp",
        }
        for what, path in paths.items():
            if (ROOT / path).exists():
                yield f"* {what}: :download:`{path} <../../../{path}>`"


def draw(name: str, op: Operator, shape: tuple[int, ...]) -> str:
    """Return code that draws an input."""
    if name == "distances":
        return f"rng.uniform(0.1, 1.0, {shape[0]})"
    if name == "frequencies":
        return f"np.pi * np.arange(1, {shape[0] + 1})"
    shown = shape[0] if len(shape) == 1 else shape
    if name == "condition":
        return f"rng.random({shown}) < 0.5"
    if op.signature.inputs[name].shape[0].text == "...":  # where every function is defined
        return f"rng.uniform(0.1, 0.9, {shown})"
    return f"rng.standard_normal({shown})"


def shape_of(op: Operator, name: str, sizes: dict[str, int]) -> tuple[int, ...]:
    """Return the shape of an input in the example."""
    shape = op.signature.inputs[name].shape
    if shape[0].text == "...":  # the second operand is broadcast
        return (3,) if name == "x2" else (4, 3)
    return tuple(size.value(sizes) for size in shape)


def example(op: Operator) -> str:
    """Return a program that calls the operator and its backward pass on random inputs.

    Inputs have the sizes of `SIZES`, others `OTHER_SIZE`; those that are optional are left out.
    """
    signature = op.signature
    sizes = dict.fromkeys(signature.sizes, OTHER_SIZE) | SIZES
    if "exclude" in signature.options:  # sources and destinations are the same nodes
        sizes["num_dst"] = sizes["num_src"]
    given = [name for name, i in signature.inputs.items() if not i.optional]
    given += signature.one_of[:1]
    choices = {o.name: o.default for o in signature.options.values() if o.choices}
    follows = signature.follows(choices, tuple(signature.inputs.keys() - set(given)))
    for name in sorted(follows, key=lambda name: len(follows[name].names)):
        sizes[name] = follows[name].value(sizes)
    lines = ["import numpy as np, pyops", "rng = np.random.default_rng(0)"]
    if signature.has_graph:
        src, dst, edges = (sizes[n] for n in ("num_src", "num_dst", "num_edges"))
        lines.append(
            f"graph = pyops.Graph(rng.integers(0, {src}, {edges}), "
            f"rng.integers(0, {dst}, {edges}), num_src={src}, num_dst={dst})"
        )
    lines += [f"{name} = {draw(name, op, shape_of(op, name, sizes))}" for name in given]
    options = [
        f"{o.name}={BOUNDS.get(o.name) or sizes[o.name]}"
        for o in signature.options.values()
        if o.default is inspect.Parameter.empty
    ]
    inputs = ", ".join(["graph"] * signature.has_graph + given)
    results = [*signature.results]
    cotangents = [f"g{y}=np.ones_like({y})" for y in results]
    forward = ", ".join([inputs, *options])
    backward = ", ".join([inputs, *cotangents, *options])
    lines.append(f"{', '.join(results)} = pyops.{op.name}({forward})")
    lines.append(f"gradients = pyops.{op.name}.backward({backward})")
    names: dict[str, object] = {}
    exec("\n".join(lines), names)
    shapes = " ".join(str(np.shape(names[y])) for y in results)
    shown = ", ".join(f"{y}.shape" for y in results)
    lines.append(f"print({shown})  # {shapes}")
    return "\n".join(lines)


def sections(doc: Docstring) -> Iterator[tuple[str, str]]:
    """Yield the last sections of a page: cost, notes and references."""
    cost, _, notes = doc.sections.get("Notes", "").partition("\n\n")
    if not cost.startswith("Time O("):
        cost, notes = "", doc.sections.get("Notes", "")
    found = {"Cost": cost, "Notes": notes, "References": doc.sections.get("References", "")}
    yield from ((name, text) for name, text in found.items() if text)


def page(op: Operator) -> str:
    """Return the page of an operator."""
    doc, signature = docstring(op), op.signature
    text = title(op.name) + ".. py:currentmodule:: pyops\n\n"
    text += f".. py:function:: {op.name}{parameters(op.__signature__)}\n\n{doc.indented_text()}\n"
    text += title("Inputs", "-")
    text += table(("Input", "Shape", "Meaning"), inputs(op, doc))
    bounds = "\n".join(sizes(op))
    chosen = [*options(op, doc)]
    if chosen:
        text += title("Options", "-") + "Options are given by keyword.\n\n"
        text += table(("Option", "Type or choices", "Default", "Meaning"), chosen)
    text += title("Result", "-")
    any_shape = doc.returned()
    rows = []
    for name, shape in signature.results.items():
        shown = any_shape[0] if shape[0].text == "..." else literal(show_shape(shape, {}))
        about = doc.result(name) if len(signature.results) > 1 else any_shape[1]
        rows.append((literal(name), shown, about))
    text += table(("Result", "Shape", "Meaning"), rows)
    text += f"Sizes and inputs:\n\n{bounds}\n\n" if bounds else ""
    text += title("Phases", "-")
    text += "The arguments of all phases are described in :doc:`../phases`.\n\n"
    text += "\n".join(phases(op)) + "\n"
    text += title("Front ends", "-") + table(("Front end", "Name"), front_ends(op))
    shown = parameters(op.__signature__)
    for module, arrays in ("torch", "PyTorch tensors"), ("jax", "JAX arrays"):
        text += f".. py:currentmodule:: pyops.{module}\n\n"
        text += f".. py:function:: {op.name}{shown}\n   :no-contents-entry:\n\n"
        text += f"   `pyops.{op.name}` of {arrays}, with the same inputs and options.\n\n"
    text += ".. py:currentmodule:: pyops\n\n"
    text += title("Example", "-") + ".. code-block:: python\n\n"
    text += indent(example(op), "   ") + "\n\n"
    for section, body in sections(doc):
        text += f"{title(section, '-')}{body}\n\n"
    return text + title("Source", "-") + "\n".join(sources(op)) + "\n"


def summaries(folder: str) -> str:
    """Return the table of a family."""
    rows = [(f":doc:`{op.name}`", docstring(op).summary) for op in members(folder)]
    return table(("Operator", "Computes"), rows)


def members(folder: str) -> list[Operator]:
    """Return the operators of a family."""
    return [op for op in operators().values() if family(op) == folder]


def toctree(pages: Iterable[str]) -> str:
    """Return a table of contents that only the navigation shows."""
    return ".. toctree::\n   :hidden:\n\n" + "".join(f"   {page}\n" for page in pages)


def index() -> str:
    """Return the page that lists all operators by family."""
    text = title("Operators")
    text += "All operators take arrays by position or by name and options by keyword. "
    text += "Every operator has the phases of :doc:`../phases`.\n\n"
    for folder, heading in FAMILIES.items():
        text += title(heading, "-") + summaries(folder)
    return text + toctree(f"family_{folder}" for folder in FAMILIES)


def family_page(folder: str) -> str:
    """Return the page of a family, under which the navigation has its operators."""
    text = title(FAMILIES[folder]) + summaries(folder)
    return text + toctree(op.name for op in members(folder))


def write(folder: Path = FOLDER) -> None:
    """Write all pages."""
    texts = {op.name: page(op) for op in operators().values()}
    texts |= {f"family_{name}": family_page(name) for name in FAMILIES}
    write_changed(folder, {**texts, "index": index()})


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension with Sphinx."""
    app.connect("builder-inited", lambda _: write())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
