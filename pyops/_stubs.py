"""Writes the stubs of `pyops`, `pyops.torch` and `pyops.jax`, whose functions are made at import.

Editors and type checkers read a stub (.pyi) in place of the module beside it; that of `_kernels`
declares the compiled procedures. `cuda/_declared.pyi` has no module: it declares the arguments of
the device operators for type checkers. The build runs this script, for which it needs no compiled
kernels; a stub is written if it differs. The stubs of all front ends are built from the same types
and forms, so this is one module.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import types
from importlib.machinery import PathFinder
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ._call.operator import Operator
    from ._schema import Argument

PACKAGE = Path(__file__).resolve().parent
HEADS = {
    "": '''\
# mypy: disable-error-code="override"
# pyright: reportIncompatibleMethodOverride=false

from collections.abc import Collection, Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._call.operator import Operator
from .cuda import DeviceGraph

_Real = TypeVar("_Real", bound=np.floating[Any])

class _DeviceArray(Protocol):
    """Array in the memory of a CUDA device, such as CuPy's."""

    @property
    def __cuda_array_interface__(self) -> Any: ...

__version__: str
''',
    "torch": """\
from typing import Literal, overload

from numpy.typing import ArrayLike
from torch import Tensor

import pyops
from pyops.cuda import DeviceGraph
from pyops.distributed import DistributedGraph
""",
    "jax": """\
from typing import Any, Literal, overload

from jax import Array
from numpy.typing import ArrayLike, NDArray

import pyops
""",
}
KERNELS = """\
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._call.indices import Indices

pyops_partials: object

class pyops_process:
    @staticmethod
    def available_threads() -> int: ...
    @staticmethod
    def available_processors() -> int: ...
    @staticmethod
    def startable_threads(number: int) -> int: ...
    @staticmethod
    def release_threads() -> None: ...
    @staticmethod
    def release_before_fork() -> None: ...

class pyops_graph:
    @staticmethod
    def pack_rows(
        rows: int,
        entries: int,
        row: Indices,
        offsets: NDArray[np.int64],
        order: NDArray[np.int64],
    ) -> int: ...
    @staticmethod
    def pack_ends(
        rows: int,
        entries: int,
        threads: int,
        row: Indices,
        offsets: NDArray[np.int64],
        order: NDArray[np.int64],
    ) -> int: ...
    @staticmethod
    def take_ends(
        entries: int, threads: int, order: Indices, node: Indices, nodes: NDArray[np.int32]
    ) -> None: ...

"""


SEARCH = "num_queries", "num_points", "num_graphs", "num_cells", "within", "threads", "cutoff"
POINTS = "queries", "points", "graph_of_query", "graph_of_point", "cells", "periodic", "offsets"
FOUND = "src", "dst", "vectors", "translations"
SEARCHES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "count_neighbours": (SEARCH, POINTS),
    "list_neighbours": ((*SEARCH, "base", "wanted"), (*POINTS, *FOUND, "reverse")),
    "nearest_neighbours": ((*SEARCH, "base", "wanted"), (*POINTS, *FOUND)),
}
"""Scalars and arrays that the procedures of searches for neighbours take."""


class Types(NamedTuple):
    """Types of graphs, arrays, row numbers and results in one library."""

    graph: str
    array: str
    rows: str
    result: str

    def of(self, op: Operator, p: inspect.Parameter) -> str:
        """Return the type of a parameter."""
        if p.name == "graph":
            return self.graph
        if p.kind is not p.KEYWORD_ONLY:
            declared = op.signature.inputs.get(p.name)
            return self.array + " | None" * (declared is None or declared.optional)
        if p.name in op.signature.indexed:
            return f"{self.rows} | None"
        hint = p.annotation
        hint = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        return re.sub(r"\bArray\b", self.array, hint)

    def tuple_of(self, optional: Iterable[bool]) -> str:
        """Return the type of several results, some of which may be None."""
        return f"tuple[{', '.join(self.result + ' | None' * o for o in optional)}]"

    def results(self, op: Operator) -> str:
        """Return the type of the results of a call."""
        count = len(op.signature.results)
        return self.result if count == 1 else self.tuple_of([False] * count)


NUMPY = Types("Graph", "NDArray[_Real]", "ArrayLike", "NDArray[_Real]")
DEVICE = Types("DeviceGraph", "_DeviceArray", "ArrayLike | _DeviceArray", "Any")
FRAMEWORKS = {
    "torch": Types(
        "pyops.Graph | DeviceGraph | DistributedGraph", "Tensor", "ArrayLike | Tensor", "Tensor"
    ),
    "jax": Types("Graph | pyops.Graph", "Array | NDArray[Any]", "ArrayLike | Array", "Array"),
}


class Form(NamedTuple):
    """One overload of a function."""

    types: Types
    result: str
    keywords: tuple[inspect.Parameter, ...] = ()
    """Keywords added to those of the signature, or in their place."""


def keyword(name: str, annotation: str, *default: object) -> inspect.Parameter:
    """Return a parameter given by name, required unless it has a default."""
    found = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    return found.replace(default=default[0]) if default else found


def precision(op: Operator) -> tuple[inspect.Parameter, ...]:
    """Return the option of operators whose matrix products on a device have a precision."""
    from .cuda._dispatch import PRECISE
    from .cuda._runtime import PRECISIONS

    if not op.declaration.startswith(PRECISE):
        return ()
    return (keyword("precision", f"Literal{[*PRECISIONS]}", PRECISIONS[0]),)


def of_call(op: Operator, types: Types, *keywords: inspect.Parameter) -> Iterator[Form]:
    """Yield the overloads of a call: one or two, without and with alpha or several results."""
    from ._call.several import CHOICE, Several

    y = types.results(op)
    if op.signature.attention is None:
        yield Form(types, y, keywords)
        if isinstance(op, Several):
            each = f"tuple[Literal{[*op.signature.options[CHOICE].choices]}, ...]"
            yield Form(types, f"tuple[{y}, ...]", (*keywords, keyword(CHOICE, each)))
    else:
        without = keyword("return_attention", "Literal[False]", False)
        yield Form(types, y, (*keywords, without))
        both = types.tuple_of([False, False])
        yield Form(types, both, (*keywords, keyword("return_attention", "Literal[True]")))


def of_phase(op: Operator, phase: str) -> Iterator[Form]:
    """Yield the overloads of ``__call__`` or a phase: on NumPy arrays, then on a device."""
    several = len(op.signature.results) > 1
    changed = [keyword("out", "Sequence[Array | None] | None", None)] if several else []
    if phase in ("__call__", "forward"):
        for form in of_call(op, NUMPY, *changed):
            kept = f"tuple[{form.result}, tuple[{NUMPY.array}, ...]]"
            yield form._replace(result=kept) if phase == "forward" else form
        if op.signature.attention is not None:
            changed.append(keyword("return_attention", "bool", False))
    elif phase == "jvp":
        yield Form(NUMPY, NUMPY.results(op), (*changed,))
    else:
        optional = {name: i.optional for name, i in op.signature.inputs.items()}
        if phase == "double_backward":
            optional |= {"g" + y: False for y in op.signature.results}
        names = f"Collection[Literal{[*optional]}]"
        every = NUMPY.tuple_of(optional.values())
        yield Form(NUMPY, every, (keyword("wanted", "None", None),))
        yield Form(NUMPY, NUMPY.tuple_of(True for _ in optional), (keyword("wanted", names),))
        changed = [keyword("wanted", f"{names} | None", None)]
    yield Form(DEVICE, DEVICE.result, (*changed, *precision(op)))


def function(
    op: Operator, name: str, signature: inspect.Signature, forms: Iterable[Form], doc: str | None
) -> str:
    """Return the text of a function.

    Editors read the docstring of each overload, but jedi that of the class for ``__call__``.
    """
    forms, text = [*forms], ""
    for form in forms:
        text += "@overload\n" * (len(forms) > 1) + f"def {name}(\n"
        starred = False
        for p in ({**signature.parameters} | {p.name: p for p in form.keywords}).values():
            text += "    *,\n" * (p.kind is p.KEYWORD_ONLY and not starred)
            starred = p.kind is p.KEYWORD_ONLY
            annotation = "" if p.name == "self" else f": {form.types.of(op, p)}"
            default = "" if p.default is p.empty else f" = {p.default!r}"
            text += f"    {p.name}{annotation}{default},\n"
        once = name == "__call__" and form is not forms[0]
        text += f") -> {form.result}:{' ...' if once else documented(doc)}\n"
    return text


def documented(doc: str | None) -> str:
    return indent(f'\nr"""{doc}\n"""', "    ")


def operator(op: Operator) -> str:
    """Return the text of an operator on NumPy arrays: a class and its one instance."""
    doc = op.__doc__ or ""
    text = f"\nclass _{op.name}(Operator):{documented(doc)}\n"
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for phase in ("__call__", *op.phases):
        method = getattr(op, "forward" if phase == "__call__" else phase)
        signature = inspect.signature(method)
        signature = signature.replace(parameters=[own, *signature.parameters.values()])
        described = doc if phase == "__call__" else inspect.getdoc(method)
        text += indent(
            "\n" + function(op, phase, signature, of_phase(op, phase), described), "    "
        )
    return f'{text}\n{op.name}: _{op.name}\nr"""{doc}\n"""\n'


def of_framework(op: Operator, name: str) -> str:
    """Return the text of an operator as a function of PyTorch's or JAX's arrays."""
    from ._call.framework import DETACHED

    doc = f"{op.__doc__}\n\n{DETACHED}" if op.signature.attention else op.__doc__
    keywords = precision(op) if name == "torch" else ()
    forms = of_call(op, FRAMEWORKS[name], *keywords)
    return "\n" + function(op, op.name, inspect.signature(op), forms, doc)


def syntax(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name / "__init__.py").read_text())


def reexported(name: str) -> dict[str, str]:
    """Return the names that a package imports for its users, each with its module."""
    nodes = (n for n in syntax(name).body if isinstance(n, ast.ImportFrom) and n.level)
    return {a.name: n.module or "" for n in nodes for a in n.names if a.name == a.asname}


def stub(name: str) -> str:
    """Return the stub of a package."""
    from ._call.compound import COMPOUNDS, starred
    from ._call.operator import OPERATORS

    operators = OPERATORS | COMPOUNDS
    others = {n: module for n, module in reexported(name).items() if n not in operators}
    text = f'"""{ast.get_docstring(syntax(name))}\n"""\n\n{HEADS[name]}'
    text += "".join(f"from .{module} import {n} as {n}\n" for n, module in others.items())
    text += "".join(of_framework(op, name) if name else operator(op) for op in operators.values())
    return f"{text}\n__all__ = {[*others, *starred()]}\n"


def arguments(op: Operator) -> str:
    """Return the class of the arguments of a device operator, see `cuda/_arguments.py`."""
    from ._schema import INDEX_ARRAYS, procedures

    signature, maybe = op.signature, "DeviceArray | None"
    options, taken = signature.options.values(), procedures(signature).values()
    types = dict.fromkeys(signature.sizes, "int")
    types |= {o.name: "int" for o in options if o.choices}
    types |= {o.name: "float" for o in options if o.kind is float}
    types["packed"] = "int"
    types |= {n: "DeviceArray" for n in INDEX_ARRAYS if any(n in p.names for p in taken)}
    types |= dict.fromkeys(signature.indexed, maybe)
    for i in signature.inputs.values():
        types[i.name] = maybe if i.optional else "DeviceArray"
        types |= {tag + i.name: maybe for tag in "ghd"}
    for y in signature.results:
        types |= {y: "DeviceArray", f"g{y}": maybe, f"dg{y}": maybe}
    types |= {"alpha": "DeviceArray"} if signature.attention else {}
    base = "OnGraph" if signature.has_graph else "Arguments"
    lines = (f"    {name}: {type_}\n" for name, type_ in types.items())
    return f"\nclass {class_name(op.name)}({base}):\n{''.join(lines)}"


def class_name(operator: str) -> str:
    return operator.title().replace("_", "")


def declared() -> str:
    """Return the stub of the arguments of all device operators."""
    from ._call.operator import OPERATORS

    text = "from ._arguments import Arguments, OnGraph\nfrom ._array import DeviceArray\n"
    operators = (op for name, op in OPERATORS.items() if op.declaration == name)
    return text + "".join(map(arguments, operators))


def kernel_type(argument: Argument, real: str, row: str) -> str:
    """Return the type of an argument of a compiled procedure."""
    if argument.is_array:
        kind = row if argument.half else real
        return f"NDArray[np.{kind if argument.type == 'real' else argument.type}]"
    return "float" if argument.type == "float64" else "int"


def kernels() -> str:
    """Return the stub of the compiled procedures, of which those of operators return a status."""
    from ._call.operator import OPERATORS
    from ._schema import interfaces, variants

    text = f"{KERNELS}\nclass pyops_half_precision:\n"
    for name, source, target in ("widen", "int16", "float32"), ("round", "float32", "int16"):
        taken = f"source: NDArray[np.{source}], target: NDArray[np.{target}]"
        for half in "bf16", "fp16":
            head = f"def {name}_{half}(count: int, threads: int, {taken}) -> None: ..."
            text += f"    @staticmethod\n    {head}\n"
    text += "\nclass pyops_neighbour_search:\n"
    for name, (scalars, buffers) in SEARCHES.items():
        types = [f"{n}: {'float' if n == 'cutoff' else 'int'}" for n in scalars]
        types += [f"{n}: NDArray[Any]" for n in (*buffers, "excess")]
        text += f"    @staticmethod\n    def {name}({', '.join(types)}) -> int: ...\n"
    for name in dict.fromkeys(op.declaration for op in OPERATORS.values()):
        for variant, (real, row) in variants(name, PACKAGE / "ops").items():
            text += f"\nclass pyops_{name}_{variant}:\n"
            for p in interfaces(name, PACKAGE / "ops").values():
                arrays = (f"{a.name}: {kernel_type(a, real, row)}" for a in p.arguments[:-1])
                text += f"    @staticmethod\n    def {p.name}({', '.join(arrays)}) -> int: ...\n"
    return text


def main(stamp: str = "", depfile: str = "") -> None:
    """Write the stubs, and for the build an empty file and what it depends on."""
    for module in filter(None, reexported("").values()):
        importlib.import_module(f"pyops.{module}")
    texts = {PACKAGE / name / "__init__.pyi": stub(name) for name in HEADS}
    texts |= {
        PACKAGE / "_kernels.pyi": kernels(),
        PACKAGE / "cuda" / "_declared.pyi": declared(),
    }
    for path, text in texts.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    if stamp:
        Path(stamp).touch()
        found = (vars(m).get("__file__") for n, m in sys.modules.items() if n.startswith("pyops."))
        read = [*filter(None, found), *(str(PACKAGE / name / "__init__.py") for name in HEADS)]
        Path(depfile).write_text(f"{stamp}: {' '.join(read)}\n")


class Kernels(types.ModuleType):
    """Stands in for the kernels, which declarations look up and do not call."""

    def __getattr__(self, name: str) -> Kernels:
        return self

    def __call__(self) -> None: ...


if __name__ == "__main__":
    package = types.ModuleType("pyops")
    package.__path__ = [str(PACKAGE)]
    sys.modules |= {"pyops": package, "pyops._kernels": Kernels("_kernels")}
    del sys.path[0]  # this folder, whose modules have names of others
    sys.meta_path.insert(0, PathFinder)  # before that of an editable installation
    importlib.import_module("pyops._stubs").main(*sys.argv[1:])
