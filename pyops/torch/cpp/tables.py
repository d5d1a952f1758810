"""Writes the tables of `library.cpp` from the declarations of the operators."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

from ..._call.half import ROWS
from ..._schema import INDEX_ARRAYS, Signature, procedures
from ..._schema.calls import called_kernels
from ..._schema.declaration import COUNTS, GRAPH_SIZES
from ..._schema.dispatch import function_name, function_schemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ..._schema import Input, Option, Shape, Size

CALLED = "forward", "backward", "double_backward", "attention"
"""Phases whose kernels the library calls."""
KINDS = {int: "SIZE", bool: "FLAG", str: "CHOICE", float: "NUMBER"}
INTRODUCTION = """\
/* Tables of the operators, generated from their declarations. */
#pragma once
#include "operator.h"

namespace pyops_torch {
"""
MASKS = "packed", "threads", "accumulate", "present", "wanted", "given", "shared_edges"


def operators(declarations: Path) -> dict[str, Signature]:
    """Return the declared operators by name."""
    names = sorted(file.stem for file in declarations.glob("*.py"))
    return {
        name: Signature.read(declarations / f"{name}.py")
        for name in names
        if name not in ("__init__", "elementwise")
    }


def write_tables(declarations: Path) -> str:
    """Return the tables as C++, in the types that `library.cpp` declares."""
    known = operators(declarations)
    kernels = [*called_kernels(known, declarations, CALLED)]
    parts = [_Tables(signature, kernels) for signature in known.values()]
    texts = [
        INTRODUCTION,
        _array("const char *const", "index_names", map(_text, INDEX_ARRAYS)),
        *(part.text for part in parts),
        _array("const Operator", "operators", [part.row for part in parts]),
        _array("const Phase", "phases", [row for part in parts for row in part.phases(parts)]),
    ]
    return "\n".join([*texts, "}  // namespace pyops_torch\n"])


def _text(text: str) -> str:
    return json.dumps(text)


def _flag(value: object) -> str:
    return str(bool(value)).lower()


def _array(kind: str, name: str, rows: Iterable[str]) -> str:
    lines = "".join(f"    {row},\n" for row in rows)
    return f"static {kind} {name}[] = {{\n{lines}}};" if lines else ""


class _Tables:
    """Tables of one operator."""

    def __init__(self, signature: Signature, kernels: Sequence[str]) -> None:
        self.signature, self._kernels = signature, kernels
        self._inputs = [*signature.inputs]
        self._options = [*signature.options]
        self._texts: list[str] = []
        self._shapes: dict[tuple[str, ...], str] = {}
        self._functions: dict[str, str] = {}
        self._sizes = [*(GRAPH_SIZES if signature.has_graph else ()), *self._size_names()]
        self.row = self._operator()
        self._write_arguments()

    @property
    def text(self) -> str:
        return "\n".join(self._texts)

    def _size_names(self) -> list[str]:
        """Return all sizes that are not those of the graph."""
        signature = self.signature
        shapes = [form for i in signature.inputs.values() for form in i.forms]
        shapes += [s for s in (*signature.results.values(), signature.attention) if s]
        found = [name for shape in shapes for size in shape for name in size.ordered]
        for sizes in signature.where.values():
            found += [n for name, size in sizes.items() for n in (name, *size.ordered)]
        found += [o.name for o in signature.options.values() if o.kind is int]
        graph = GRAPH_SIZES if signature.has_graph else ()
        return [n for n in dict.fromkeys((*signature.sizes, *found)) if n not in graph]

    def _name(self, stem: str) -> str:
        return f"{self.signature.name}_{stem}"

    def _table(self, kind: str, stem: str, rows: Sequence[str]) -> str:
        """Write an array and return it as a range."""
        if not rows:
            return "{nullptr, 0}"
        name = self._name(stem)
        self._texts.append(_array(f"const {kind}", name, rows))
        return f"{{{name}, {len(rows)}}}"

    def _size(self, size: Size) -> str:
        """Return the row of an expression, with a function of the known sizes."""
        name = self._functions.get(size.text)
        if name is None:
            name = self._functions[size.text] = self._name(f"size_{len(self._functions)}")
            expression = ast.unparse(_Translation(self._sizes).visit(ast.parse(size.text)))
            parameter = f"const Wide *{'known' if size.names else ''}"
            self._texts.append(f"static Wide {name}({parameter}) {{ return {expression}; }}")
        names = sum(1 << self._sizes.index(n) for n in size.names)
        return f"{{{_text(size.text)}, {names}u, {name}}}"

    def _shape(self, shape: Shape | None) -> str:
        if shape is None:
            return "{nullptr, 0}"
        key = tuple(size.text for size in shape)
        if key not in self._shapes:
            rows = [self._size(size) for size in shape]
            self._shapes[key] = self._table("Size", f"shape_{len(self._shapes)}", rows)
        return self._shapes[key]

    def _operator(self) -> str:
        signature = self.signature
        sizes = [f"{{{_text(n)}, {0 if n in COUNTS else 1}}}" for n in self._sizes]
        indexed = [
            f"{{{_text(i.name)}, {_text(i.length)}, {self._sizes.index(i.length)}, "
            f"{self._options.index(i.option)}, {self._code(i.option, i.choice)}, "
            f"{_text(f'{i.option}={i.choice!r}')}, {_flag(i.reverses)}}}"
            for i in signature.indexed.values()
        ]
        equal = [
            f"{{{self._options.index(flag)}, {', '.join(str(self._sizes.index(n)) for n in both)}}}"
            for flag, both in signature.equal.items()
        ]
        at_most = [
            f"{{{self._sizes.index(n)}, {self._sizes.index(m)}}}"
            for n, m in signature.at_most.items()
        ]
        one_of = [str(self._inputs.index(name)) for name in signature.one_of]
        fields = [
            _text(signature.name),
            _flag(signature.has_graph),
            self._table("SizeName", "sizes", sizes),
            self._table("Input", "inputs", [self._input(i) for i in signature.inputs.values()]),
            self._table("Option", "options", [self._option(o) for o in signature.options.values()]),
            self._table("Indexed", "indexed", indexed),
            self._table("Following", "following", [*self._following()]),
            self._table("Equal", "equal", equal),
            self._table("UpTo", "at_most", at_most),
            self._table("int", "one_of", one_of),
            self._table("Unread", "unread", [*self._unread()]),
            self._shape(signature.output),
            self._shape(signature.attention),
        ]
        return f"{{{', '.join(fields)}}}"

    def _input(self, given: Input) -> str:
        forms = [self._shape(form) for form in given.forms]
        forms += ["{nullptr, 0}"] * (2 - len(forms))
        rows = given.shape[0].text in ROWS
        optional, text = _flag(given.optional), _text(given.name)
        return f"{{{text}, {{{', '.join(forms)}}}, {len(given.forms)}, {optional}, {_flag(rows)}}}"

    def _option(self, option: Option) -> str:
        choices = "{nullptr, 0}"
        if option.kind is str:
            words = [_text(str(word)) for word in option.choices]
            choices = self._table("char *const", f"{option.name}_choices", words)
        size = self._sizes.index(option.name) if option.kind is int else -1
        bounds = f"{option.bounds.least}, {option.bounds.most}"
        assert isinstance(option.kind, type)
        return f"{{{_text(option.name)}, Kind::{KINDS[option.kind]}, {size}, {choices}, {bounds}}}"

    def _code(self, option: str, choice: str) -> int:
        return 1 + self.signature.options[option].choices.index(choice)

    def _following(self) -> Iterable[str]:
        """Yield the sizes that follow from options, then those from absent inputs."""
        where = self.signature.where
        for number, option in enumerate(self.signature.options.values()):
            keys: dict[str, int] = {}
            if option.kind is str:
                keys = {str(word): code for code, word in enumerate(option.choices, start=1)}
            elif option.kind is bool:
                keys = {option.name: 1, f"no {option.name}": 0}
            for key, code in keys.items():
                yield from self._follows(f"{number}, {code}", where.get(key, {}))
        for number, name in enumerate(self._inputs):
            yield from self._follows(f"-1, {number}", where.get(f"no {name}", {}))

    def _follows(self, condition: str, sizes: Mapping[str, Size]) -> Iterable[str]:
        for name, size in sizes.items():
            yield f"{{{condition}, {self._sizes.index(name)}, {self._size(size)}}}"

    def _unread(self) -> Iterable[str]:
        for case, prefixes in self.signature.unread.items():
            arrays = [i for i, name in enumerate(INDEX_ARRAYS) if name.startswith(prefixes)]
            name = case.removeprefix("no ")
            condition = {"": "ALWAYS", "shared": "NO_SHARED"}.get(name)
            yield f"{{{condition or self._inputs.index(name)}, {sum(1 << i for i in arrays)}u}}"

    def phases(self, parts: Sequence[_Tables]) -> Iterable[str]:
        """Yield the rows of the phases of this operator."""
        for phase, schema in function_schemas(self.signature).items():
            kernel = "double_backward" if phase == "jvp" else phase
            name = function_name(self.signature.name, phase)
            caller = self.signature.name
            if phase not in ("forward", "attention"):
                caller += f".{phase}"
            traced = phase in ("forward", "attention")
            stem = f"{self.signature.name}_{kernel}"
            numbers = [self._kernels.index(f"{stem}_{v}") for v in ("r4", "r8")]
            fields = [
                f"&operators[{parts.index(self)}]",
                f"Step::{phase.upper()}",
                _text(caller),
                _text(f"pyops::{name}"),
                _text(schema.text(name)),
                _text(schema.traced.text(f"{name}_traced")) if traced else "nullptr",
                f"{{{', '.join(map(str, numbers))}}}",
                f"{{{self._name(f'{kernel}_arguments')}, {self._count(kernel)}}}",
            ]
            yield f"{{{', '.join(fields)}}}"

    def _count(self, kernel: str) -> int:
        return len(procedures(self.signature)[kernel].parameters)

    def _write_arguments(self) -> None:
        """Write the source of each argument of the kernels."""
        for kernel in CALLED:
            if kernel == "attention" and not self.signature.attention:
                continue
            sources = self._sources(kernel)
            names = procedures(self.signature)[kernel].parameters
            self._table("Source", f"{kernel}_arguments", [sources[name] for name in names])

    def _sources(self, kernel: str) -> dict[str, str]:
        """Return the source of a kernel's argument by its name."""
        inputs, count = self._inputs, len(self._inputs)
        groups = {
            "SIZE": {n: i for i, n in enumerate(self._sizes)},
            "OPTION": {n: i for i, n in enumerate(self._options) if n not in self._sizes},
            "ROWS": {n: i for i, n in enumerate(self.signature.indexed)},
            "INDEX": {n: i for i, n in enumerate(INDEX_ARRAYS)},
            "TENSOR": {n: i for i, n in enumerate(inputs)},
            "OUTPUT": {"alpha": 0} if kernel == "attention" else {"y": 0},
        }
        found = {name: f"{{From::{name.upper()}, 0}}" for name in MASKS}
        if kernel in ("backward", "double_backward"):
            second = kernel == "double_backward"
            groups["TENSOR"]["gy"] = count
            groups["OUTPUT"] = {("d" if second else "g") + n: i for i, n in enumerate(inputs)}
            if second:
                groups["TENSOR"] |= {f"h{n}": count + 1 + i for i, n in enumerate(inputs)}
                groups["OUTPUT"]["dgy"] = count
        for kind, numbers in groups.items():
            for name, number in numbers.items():
                if name in found:
                    raise ValueError(f"{self.signature.name}: two arguments are called {name}")
                found[name] = f"{{From::{kind}, {number}}}"
        return found


class _Translation(ast.NodeTransformer):
    """Rewrites an expression of sizes to one of `known`, refusing what C would not compute."""

    def __init__(self, sizes: Sequence[str]) -> None:
        self._sizes = sizes

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(f"known[{self._sizes.index(node.id)}]")

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if not isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            raise TypeError(f"expected sums and products of sizes, got {ast.unparse(node)}")
        self.generic_visit(node)
        return node
