"""CUDA code of the elementwise functions: translates the table's Fortran expressions.

Python's parser reads the expressions, which differ in C++ only in relations and `merge`.
"""

from __future__ import annotations

import ast
import functools
import re

from .._functions import FORMS, FUNCTIONS, Function

_WORDS = {".and.": " and ", ".or.": " or ", "/=": "!="}
_CALLS = {"abs": "fabs", "sign": "copysign", "max": "fmax", "min": "fmin"}
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
    """Return a formula of the table in C++, with constants of the working precision."""
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
        case ast.Call(ast.Name("merge"), [one, other, condition]):
            return f"({_text(condition)} ? {_text(one)} : {_text(other)})"
        case ast.Call(ast.Name(name), values):
            return f"{_CALLS.get(name, name)}({', '.join(map(_text, values))})"
    raise AssertionError(f"no CUDA for {ast.dump(node)}")


def _function(code: int, function: Function) -> str:
    """Return the code of all forms of a function in order of their numbers; other forms are 0."""
    lines = [f"#if CODE == {code}  // {function.name}"]
    for form, of in enumerate(FORMS, start=1):
        formula = of(function)
        if formula == "0":
            continue
        lines.append(f"  if (form == {form}) {{")
        for name, text in function.steps(formula):
            lines.append(f"    const real {name} = {cuda(text)};")
        lines.append(f"    return {cuda(formula)};\n  }}")
    return "\n".join([*lines, "#endif"])


@functools.cache
def functions() -> str:
    """Return the kernels' function `evaluate`, for the function with number CODE."""
    head = (
        "__device__ inline real evaluate(whole form, real p, real x, real y, real g, real h, "
        "real k) {"
    )
    bodies = [_function(code, function) for code, function in enumerate(FUNCTIONS, start=1)]
    return "\n".join([head, *bodies, "  return 0;\n}", ""])


def codes() -> str:
    """Return the source line that lists the codes of the functions."""
    return f"//! CODE {' '.join(str(code) for code in range(1, len(FUNCTIONS) + 1))}\n"
