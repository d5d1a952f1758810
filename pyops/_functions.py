"""The table of the elementwise functions, from which kernels, operators, help and tests come.

Compilers evaluate both sides of a `merge`, also of a constant inside a function: what must neither
divide by zero nor overflow where it is not selected has an operand that is bounded by min and max,
or by arithmetic.

The kernels are expanded from it (fypp imports this file), so it imports nothing of pyops. Formulas
are Fortran: of `x`, of `x` and `y`, of the number `p` that an option gives; of the value `f`, the
slopes `d` and `b` and the quantities in `shared`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class Function:
    """A function of one number or two, with its first and second derivatives."""

    name: str
    summary: str
    formula: str
    value: str
    slopes: tuple[str, ...]
    """By x, or by x and by y."""
    curvatures: tuple[str, ...]
    """By x twice; or by x twice, by x and y, by y twice."""
    shared: tuple[tuple[str, str], ...] = ()
    choice: str = ""
    """What holds where the function is not smooth."""
    selects: bool = False
    """A slope of 0 lets nothing pass, no NaN either."""

    @property
    def arity(self) -> int:
        return len(self.slopes)

    def steps(self, formula: str) -> list[tuple[str, str]]:
        """The quantities that a formula needs, in the order in which they can be computed."""
        known = [*self.shared, ("f", self.value), *zip("db", self.slopes, strict=False)]
        needed = set(_words([formula]))
        for name, text in reversed(known):
            needed |= set(_words([text])) if name in needed else set()
        return [(name, text) for name, text in known if name in needed]

    def variables(self, formula: str) -> list[str]:
        """The arguments that a formula needs, directly or through its steps."""
        words = _words([formula, *(text for _, text in self.steps(formula))])
        return [name for name in "xyghk" if name in words]

    def gradient(self, which: int) -> str:
        """The gradient by one of the inputs, for the cotangent g."""
        if which >= self.arity:
            return "0"
        return self._times(which, "g")

    def tangent(self, given: int) -> str:
        """The derivative along the tangents h (bit 0 of `given`) and k (bit 1)."""
        return _sum(self._times(i, "hk"[i]) for i in range(self.arity) if given >> i & 1)

    def second(self, which: int, given: int) -> str:
        """The derivative of a gradient along the tangents."""
        if which >= self.arity:
            return "0"
        terms = zip(self.curvatures[which:], "hk", strict=False)
        total = _sum(_product(c, t) for i, (c, t) in enumerate(terms) if given >> i & 1)
        return "0" if total == "0" else f"g*({total})"

    def _times(self, which: int, other: str) -> str:
        slope = self.slopes[which]
        if self.selects and slope not in ("0", "1"):
            return "merge(0.0, {0}*{1}, {0} == 0)".format("db"[which], other)
        return _product(slope, other)


def _product(a: str, b: str) -> str:
    return {"0": "0", "1": b, "-1": f"(-{b})"}.get(a, f"({a})*{b}")


def _sum(terms: Iterable[str]) -> str:
    return " + ".join(term for term in terms if term != "0") or "0"


def _words(texts: Iterable[str]) -> list[str]:
    return re.findall(r"\b[a-z]\w*", " ".join(texts))


# Beyond 800 exp(-x) is 0; functions of vectors raise exceptions far beyond.
_E = (("e", "exp(-merge(800.0, abs(x), abs(x) > 800))"),)
_SIGMOID = "merge(e, 1.0, x < 0)/(1 + e)"
_BUMP = "e/((1 + e)*(1 + e))"
# Both shares of a tie are a half; a NaN makes both NaN.
_SHARE = "merge(merge(0.5, merge(1.0, 0.0, {0}), x == y), x + y, x == x .and. y == y)"
_LARGER, _SMALLER = _SHARE.format("x > y"), _SHARE.format("x < y")


def _power(exponent: str) -> str:
    """A power of x; positive ones of 0 come of 0**0, as functions of vectors raise exceptions."""
    zero = f"x == 0 .and. {exponent} > 0"
    return f"x**merge(0.0, {exponent}, {zero})*merge(0.0, 1.0, {zero})"


_TIES = "Where x1 = x2, both get half of the gradient."

FUNCTIONS = (
    Function("add", "Sum", "x_1 + x_2", "x + y", ("1", "1"), ("0", "0", "0")),
    Function("subtract", "Difference", "x_1 - x_2", "x - y", ("1", "-1"), ("0", "0", "0")),
    Function("multiply", "Product", "x_1 x_2", "x*y", ("y", "x"), ("0", "1", "0")),
    Function(
        "divide",
        "Quotient",
        "x_1 / x_2",
        "x/y",
        ("r", "-f*r"),
        ("0", "-r*r", "2*f*r*r"),
        shared=(("r", "1/y"),),
    ),
    Function(
        "power",
        "Power",
        "x_1^{x_2}",
        _power("y"),
        (f"y*{_power('u')}", "f*l"),
        (f"y*(y - 1)*{_power('w')}", f"{_power('v')}*(1 + y*l)", "f*l*l"),
        shared=(
            ("l", "log(x + merge(1.0, 0.0, x == 0 .and. y >= 0))"),
            ("u", "(y - 1)*merge(0.0, 1.0, y == 0)"),
            ("v", "y - 1"),
            ("w", "(y - 2)*merge(0.0, 1.0, y == 0 .or. y == 1)"),
        ),
        choice="At base 0 the logarithm counts as 0 (for exponents >= 0), and with exponent 0 the\n"
        "slope by the base is 0; of negative bases the derivatives by the exponent are NaN.",
    ),
    Function(
        "maximum",
        "The larger of two, NaN if one of them is",
        r"\max(x_1, x_2)",
        "merge(x, y, x >= y .or. x /= x)",
        (_LARGER, _SMALLER),
        ("0", "0", "0"),
        choice=_TIES,
        selects=True,
    ),
    Function(
        "minimum",
        "The smaller of two, NaN if one of them is",
        r"\min(x_1, x_2)",
        "merge(x, y, x <= y .or. x /= x)",
        (_SMALLER, _LARGER),
        ("0", "0", "0"),
        choice=_TIES,
        selects=True,
    ),
    Function("negative", "Negative", "-x", "-x", ("-1",), ("0",)),
    Function(
        "abs",
        "Magnitude",
        "|x|",
        "abs(x)",
        ("merge(x, sign(1.0, x), x == 0 .or. x /= x)",),
        ("0",),
        choice="The slope at 0 is 0.",
        selects=True,
    ),
    Function("reciprocal", "Reciprocal", "1/x", "1/x", ("-f*f",), ("-2*d*f",)),
    Function(
        "sqrt",
        "Square root",
        r"\sqrt{x}",
        "sqrt(x)",
        ("0.5/f",),
        ("-0.5*d/x",),
        choice="The slope at 0 is infinite.",
    ),
    Function("exp", "Exponential", "e^x", "exp(merge(-800.0, x, x < -800))", ("f",), ("f",)),
    Function("log", "Natural logarithm", r"\log x", "log(x)", ("1/x",), ("-d*d",)),
    Function(
        "relu",
        "Rectifier",
        r"\max(x, 0)",
        "merge(0.0, x, x <= 0)",
        ("merge(x, merge(0.0, 1.0, x <= 0), x /= x)",),
        ("0",),
        choice="The slope at 0 is 0.",
        selects=True,
    ),
    Function(
        "leaky_relu",
        "Leaky rectifier",
        r"\max(x, 0) + s \min(x, 0)",
        "merge(p*x, x, x <= 0)",
        ("merge(x, merge(p, 1.0, x <= 0), x /= x)",),
        ("0",),
        choice="The slope at 0 is s.",
        selects=True,
    ),
    Function(
        "sigmoid",
        "Logistic function",
        r"1 / (1 + e^{-x})",
        _SIGMOID,
        (_BUMP,),
        ("d*(1 - 2*f)",),
        shared=_E,
    ),
    Function(
        "tanh",
        "Hyperbolic tangent",
        r"\tanh x",
        "tanh(x)",
        ("4*e/((1 + e)*(1 + e))",),
        ("-2*f*d",),
        shared=(("e", "exp(-2*merge(400.0, abs(x), abs(x) > 400))"),),
    ),
    Function(
        "softplus",
        "Smooth rectifier",
        r"\log(1 + e^x)",
        # log(1 + e) without losing what is left of e in 1 + e
        "merge(x, 0.0, x > 0) + merge(e, log(u)*(e/max(u - 1, 1.0e-30)), u == 1)",
        (_SIGMOID,),
        (_BUMP,),
        shared=(*_E, ("u", "1 + e")),
    ),
    Function(
        "silu",
        "x times the logistic function",
        r"x / (1 + e^{-x})",
        "merge(x, w, x > 0)*s",
        ("s + w*u",),
        ("u*(2 + w*(1 - 2*s))",),
        # where e is 0, nothing is lost by a smaller x
        shared=(
            *_E,
            ("w", "merge(800.0, merge(-800.0, x, x < -800), x > 800)"),
            ("s", _SIGMOID),
            ("u", _BUMP),
        ),
    ),
    Function("sin", "Sine", r"\sin x", "sin(x)", ("cos(x)",), ("-f",)),
    Function("cos", "Cosine", r"\cos x", "cos(x)", ("-sin(x)",), ("-f",)),
    Function("tan", "Tangent", r"\tan x", "tan(x)", ("1 + f*f",), ("2*f*d",)),
    Function(
        "arcsin",
        "Inverse sine",
        r"\arcsin x",
        "asin(x)",
        ("1/sqrt((1 - x)*(1 + x))",),
        ("x*d*d*d",),
        choice="The slopes at -1 and 1 are infinite.",
    ),
    Function(
        "arctan",
        "Inverse tangent",
        r"\arctan x",
        "atan(x)",
        ("1/(1 + x*x)",),
        ("-2*w*d*d",),
        shared=(("w", "merge(1.0e18, merge(-1.0e18, x, x < -1.0e18), x > 1.0e18)"),),
    ),
    Function("sinh", "Hyperbolic sine", r"\sinh x", "sinh(x)", ("cosh(x)",), ("f",)),
    Function("cosh", "Hyperbolic cosine", r"\cosh x", "cosh(x)", ("sinh(x)",), ("f",)),
    Function(
        "erf",
        "Error function",
        r"\frac{2}{\sqrt\pi} \int_0^x e^{-t^2} dt",
        "erf(x)",
        ("1.12837916709551257390*exp(-w*w)",),
        ("-2*w*d",),
        shared=(("w", "merge(40.0, merge(-40.0, x, x < -40), x > 40)"),),
    ),
    # Not public: what the reductions are made of.
    Function("positive", "Itself", "x", "x", ("1",), ("0",)),
    Function("share", "One of p equal parts", "x/p", "x/p", ("1/p",), ("0",)),
    Function(
        "select",
        "Whether x is the extreme y; NaN where that is one",
        "x = y",
        "merge(merge(1.0, 0.0, x == y), y, y == y)",
        ("merge(merge(1.0, 0.0, x == y), y, y == y)",) * 2,
        ("0", "0", "0"),
        selects=True,
    ),
)
CODES = {function.name: code for code, function in enumerate(FUNCTIONS, start=1)}
PUBLIC = FUNCTIONS[:-3]

FORMS: tuple[Callable[[Function], str], ...] = (
    lambda function: function.value,
    *(partial(Function.gradient, which=w) for w in (0, 1)),
    *(partial(Function.tangent, given=g) for g in (1, 2, 3)),
    *(partial(Function.second, which=w, given=g) for w in (0, 1) for g in (1, 2, 3)),
)
"""What the kernels evaluate: value; gradients; tangents by what is given of h and k; seconds."""


def formulas(form: int) -> Iterable[tuple[int, Function, str]]:
    """Code, function and formula, wherever the formula is not 0."""
    for code, function in enumerate(FUNCTIONS, start=1):
        formula = FORMS[form](function)
        if formula != "0":
            yield code, function, formula


def scalars(form: int) -> list[str]:
    """All quantities that the loops of a form need."""
    names: set[str] = set()
    for _, function, formula in formulas(form):
        names.update(function.variables(formula), dict(function.steps(formula)))
    return sorted(names)


def fortran(formula: str) -> str:
    """The formula with constants of the working precision."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", r"\g<0>_wp", formula)
