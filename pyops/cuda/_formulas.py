"""CUDA code of the tables of functions: translates their Fortran expressions.

Python's parser reads the expressions, which differ in C++ only in relations and `merge`.
"""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING

from .._functions import ACTIVATIONS, FORMS, FUNCTIONS, SCORES, Function
from .._message_statistics import ROWS, Statistic, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WORDS = {".and.": " and ", ".or.": " or ", "/=": "!="}
_CALLS = {"abs": "fabs", "sign": "copysign", "max": "fmax", "min": "fmin", "aint": "trunc"}
_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.And: "&&",
    ast.Or: "||",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def cuda(formula: str) -> str:
    """Return a formula of a table in C++, with constants of the working precision."""
    for fortran, python in _WORDS.items():
        formula = formula.replace(fortran, python)
    return _text(ast.parse(re.sub(r"\s+", " ", formula).strip(), mode="eval").body)


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(int() | float() as number):
            return f"real({number!r})"
        case ast.Name():
            return node.id
        case ast.UnaryOp(ast.USub()):
            return f"(-{_text(node.operand)})"
        case ast.BinOp(left, ast.Pow(), right):
            return f"pow({_text(left)}, {_text(right)})"
        case ast.BinOp(left, sign, right):
            return f"({_text(left)} {_SIGNS[type(sign)]} {_text(right)})"
        case ast.Compare(left, [sign], [right]):
            return f"({_text(left)} {_SIGNS[type(sign)]} {_text(right)})"
        case ast.BoolOp(sign, values):
            return f"({f' {_SIGNS[type(sign)]} '.join(map(_text, values))})"
        case ast.Call(ast.Name("log"), [ast.Call(ast.Name("huge"))]):
            return "LOG_HUGE"  # the compiler would evaluate it at run time in float64
        case ast.Call(ast.Name("merge"), [one, other, condition]):
            return f"({_text(condition)} ? {_text(one)} : {_text(other)})"
        case ast.Call(ast.Name(name), values):
            return f"{_CALLS.get(name, name)}({', '.join(map(_text, values))})"
    raise AssertionError(f"no CUDA for {ast.dump(node)}")


def _steps(function: Function, formula: str) -> list[str]:
    return [f"    const real {name} = {cuda(text)};" for name, text in function.steps(formula)]


def _function(code: int, function: Function) -> str:
    """Return the code of all forms of a function in order of their numbers; other forms are 0."""
    lines = [f"#if CODE == {code}  // {function.name}"]
    for form, of in enumerate(FORMS, start=1):
        formula = of(function)
        if formula == "0":
            continue
        lines += [f"  if (form == {form}) {{", *_steps(function, formula)]
        lines.append(f"    return {cuda(formula)};\n  }}")
    return "\n".join([*lines, "#endif"])


@functools.cache
def functions() -> str:
    """Return the kernels' function `evaluate`, for the function with number CODE."""
    codes = range(1, len(FUNCTIONS) + 1)
    head = (
        f"//! CODE {' '.join(map(str, codes))}\n"
        "__device__ inline real evaluate(whole form, real p, real x, real y, real g, real h, "
        "real k) {"
    )
    bodies = map(_function, codes, FUNCTIONS)
    return "\n".join([head, *bodies, "  return 0;\n}", ""])


def _activations(table: Sequence[Function]) -> str:
    """Return the kernels' function `activate`: value and derivatives of the function `kind`."""
    lines = ["struct Activated {\n  real value, slope, curvature;\n};\n"]
    lines.append("__device__ inline Activated activate(int kind, real x, real p = 0) {")
    for code, function in enumerate(table, start=1):
        test = f"if (kind == {code}) " if code < len(table) else ""
        curvature = function.curvatures[0]
        lines += [f"  {test}{{  // {function.name}", *_steps(function, f"f d {curvature}")]
        lines.append(f"    return {{f, d, {cuda(curvature)}}};\n  }}")
    return "\n".join([*lines, "}", ""])


_KEPT = "a", "b", "c", "da", "db"
_ENTRY = "const Statistics& of, double m, double k, double t"


def _assignments(steps: Sequence[tuple[str, str]]) -> list[str]:
    """Return the code of steps: assignments to statistics, and to quantities of their own."""
    return [
        f"    {'of.' if name in _KEPT else 'const double '}{name} = {_of_statistics(text)};"
        for name, text in steps
    ]


def _of_statistics(formula: str) -> str:
    return re.sub(r"\b(d?[ab]|c)\b", r"of.\1", cuda(formula).replace("real(", "double("))


def _function_of(head: str, steps: Sequence[tuple[str, str]], *last: str) -> list[str]:
    return [f"__device__ inline {head} {{", *_assignments(steps), *last, "}"]


def _statistic(code: int, row: Statistic) -> str:
    """Return the code of a reduction: its passes, and its value and derivatives."""
    passes: dict[str, list[Steps]] = {
        "begin": [one.first for one in row.passes],
        "include": [one.each for one in row.passes],
        "finish": [one.after for one in row.passes],
    }
    lines = [f"#if REDUCE == {code}  // {row.name}", f"constexpr int PASSES = {len(row.passes)};"]
    for name, steps in passes.items():
        message = "" if name == "finish" else "double m, "
        head = (
            f"__device__ inline void {name}(Statistics& of, int pass, {message}double k, double t)"
        )
        lines.append(f"{head} {{")
        for number, some in enumerate(steps):
            lines += [f"  if (pass == {number}) {{", *_assignments(some), "  }"]
        lines.append("}")
    along = _ENTRY.replace("double m,", "double m, double h,")
    terms = [(name, f"{name} + {text}") for name, text in row.tangents]
    needed = row.steps(*(text for _, text in terms))
    value, slope, curvature = map(_of_statistics, (row.value, row.slope, row.curvature))
    lines += [
        *_function_of("double reduction(const Statistics& of)", (), f"    return {value};"),
        *_function_of(f"double slope({_ENTRY})", row.steps(row.slope), f"    return {slope};"),
        *_function_of(
            f"double curvature({along})", row.steps(row.curvature), f"    return {curvature};"
        ),
        *_function_of(f"void add_tangents({along.replace('const ', '')})", [*needed, *terms]),
    ]
    return "\n".join([*lines, "#endif"])


def _statistics() -> str:
    """Return the kernels' functions for the reduction with code REDUCE."""
    head = "struct Statistics {\n  double a, b, c, da, db;\n};\n"
    return "\n".join([head, *(_statistic(code, row) for code, row in ROWS), ""])


GENERATED: dict[str, Callable[[], str]] = {
    "functions": functions,
    "activations": functools.partial(_activations, ACTIVATIONS),
    "scores": functools.partial(_activations, SCORES),
    "statistics": _statistics,
}
"""Text that replaces the lines ``//@ name`` of the sources."""
