"""Tables of functions of one element: the source of kernels, operators, help and tests.

`FUNCTIONS` are the elementwise operators, `ACTIVATIONS` those of hidden layers, and `SCORES` those
of attention scores. The later tables derive functions from the first, so all are one module.

Compilers evaluate both sides of a `merge`, also for constants inside a function. An operand on
the side that is not selected may neither divide by zero nor overflow, so it is bounded by min and
max, or by arithmetic.

The kernels are expanded from the tables (fypp imports this file), so it imports nothing of pyops.
Formulas are Fortran expressions of `x`, or of `x` and `y`; of the number `p` that an option gives;
of the value `f`, the first derivatives `d` and `b`, and the quantities in `shared`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True)
class Function:
    """A function of one or two variables, with its first and second derivatives."""

    name: str
    summary: str
    formula: str
    value: str
    slopes: tuple[str, ...]
    """First derivatives: by x, or by x and by y."""
    curvatures: tuple[str, ...]
    """Second derivatives: by xx; or by xx, xy and yy."""
    shared: tuple[tuple[str, str], ...] = ()
    choice: str = ""
    """Convention at points where the function is not differentiable."""
    selects: bool = False
    """If set, a derivative of 0 blocks the cotangent, NaN included."""
    positive: bool = False
    """Whether it is defined, with its derivatives, for positive arguments alone."""
    option: tuple[str, float, str] = ("", 0.0, "")
    """Name of the option that gives p, its default and its meaning."""

    @property
    def arity(self) -> int:
        return len(self.slopes)

    @property
    def orders(self) -> tuple[str, str, str]:
        """Value, first and second derivative of a function of one variable."""
        return self.value, self.slopes[0], self.curvatures[0]

    def steps(self, formula: str) -> list[tuple[str, str]]:
        """Return the quantities that a formula needs, in order of evaluation."""
        known = [*self.shared, ("f", self.value), *zip("db", self.slopes, strict=False)]
        needed = set(_words([formula]))
        for name, text in reversed(known):
            needed |= set(_words([text])) if name in needed else set()
        return [(name, text) for name, text in known if name in needed]

    def variables(self, formula: str) -> list[str]:
        """Return the arguments that a formula needs, directly or through its steps."""
        words = _words([formula, *(text for _, text in self.steps(formula))])
        return [name for name in "xyghk" if name in words]

    def result(self) -> str:
        """Return the value, for the form of it."""
        return self.value

    def gradient(self, which: int) -> str:
        """Return the gradient by one of the inputs, for the cotangent g."""
        if which >= self.arity:
            return "0"
        return self._times(which, "g")

    def tangent(self, given: int) -> str:
        """Return the derivative along the tangents h (bit 0 of `given`) and k (bit 1)."""
        return _sum(self._times(i, "hk"[i]) for i in range(self.arity) if given >> i & 1)

    def second(self, which: int, given: int) -> str:
        """Return the derivative of a gradient along the tangents."""
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


@dataclass(frozen=True)
class Selection(Function):
    """A function of three operands, x, h and k, of which it returns one.

    Its value is the form of a tangent along h and k, or 0 for one of these, and its gradients are
    second derivatives.
    """

    def result(self) -> str:
        return "0"

    def gradient(self, which: int) -> str:
        return "0"

    def tangent(self, given: int) -> str:
        absent = [name for bit, name in enumerate("hk") if not given >> bit & 1]
        return re.sub(rf"\b[{''.join(absent)}]\b", "0.0", self.value) if absent else self.value

    def second(self, which: int, given: int) -> str:
        return self.slopes[which] if given == 3 else "0"


def _product(a: str, b: str) -> str:
    return {"0": "0", "1": b, "-1": f"(-{b})"}.get(a, f"({a})*{b}")


def _sum(terms: Iterable[str]) -> str:
    return " + ".join(term for term in terms if term != "0") or "0"


def _words(texts: Iterable[str]) -> list[str]:
    return re.findall(r"\b[a-z]\w*", " ".join(texts))


# Beyond 800 exp(-x) is 0; vectorised math functions raise exceptions for far larger arguments.
_E = (("e", "exp(-merge(800.0, abs(x), abs(x) > 800))"),)
_SIGMOID = "merge(e, 1.0, x < 0)/(1 + e)"
_BUMP = "e/((1 + e)*(1 + e))"
# Each operand of a tie gets half the gradient; a NaN makes both NaN.
_SHARE = "merge(merge(0.5, merge(1.0, 0.0, {0}), x == y), x + y, x == x .and. y == y)"
_LARGER, _SMALLER = _SHARE.format("x > y"), _SHARE.format("x < y")


def _power(exponent: str) -> str:
    """Return a power of x.

    Positive powers of 0 are 0**0 * 0, because vectorised functions raise exceptions.
    """
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
        positive=True,
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
        positive=True,
    ),
    Function("exp", "Exponential", "e^x", "exp(merge(-800.0, x, x < -800))", ("f",), ("f",)),
    Function("log", "Natural logarithm", r"\log x", "log(x)", ("1/x",), ("-d*d",), positive=True),
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
        "x*merge(p, 1.0, x <= 0)",
        ("merge(x, merge(p, 1.0, x <= 0), x /= x)",),
        ("0",),
        choice="The slope at 0 is s.",
        selects=True,
        option=("negative_slope", 0.01, "Slope s of the negative side."),
    ),
    Function(
        "elu",
        "Exponential rectifier",
        r"\max(x, 0) + \alpha (e^{\min(x, 0)} - 1)",
        "merge(x, 2*p*t/(1 - t), x > 0)",  # e^v - 1 by the hyperbolic tangent, without cancellation
        ("merge(1.0, p*exp(v), x > 0)",),
        ("merge(0.0, p*exp(v), x > 0)",),
        shared=(
            ("u", "merge(0.0, x, x > 0)"),
            ("v", "merge(-800.0, u, u < -800)"),
            ("t", "tanh(0.5*v)"),
        ),
        choice="The slope at 0 is alpha.",
        option=("alpha", 1.0, "Magnitude of the limit of the negative side."),
    ),
    Function(
        "hardsigmoid",
        "Logistic function, piecewise linear",
        r"\min(\max((x + 3) / 6, 0), 1)",
        "merge(0.0, merge(1.0, (x + 3)/6, x >= 3), x <= -3)",
        ("merge(x, merge(0.0, 0.16666666666666666667, abs(x) >= 3), x /= x)",),
        ("0",),
        choice="The slopes at -3 and 3 are 0.",
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
        # log(1 + e), corrected for the rounding of 1 + e
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
        # clamping x loses nothing where e is 0
        shared=(
            *_E,
            ("w", "merge(800.0, merge(-800.0, x, x < -800), x > 800)"),
            ("s", _SIGMOID),
            ("u", _BUMP),
        ),
    ),
    Function(
        "gelu",
        "x times the normal distribution function",
        r"x \Phi(x)",
        "merge(x, w, x > 0)*c",
        ("c + w*q",),
        ("q*(2 - w*w)",),
        # clamping x loses nothing where the density is 0
        shared=(
            ("w", "merge(40.0, merge(-40.0, x, x < -40), x > 40)"),
            ("q", "0.39894228040143267794*exp(-0.5*w*w)"),
            ("c", "0.5*erfc(-0.70710678118654752440*w)"),
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
    # Not public: building blocks of the reductions, of `where` and of `clip`.
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
    Selection(
        "choose",
        "h where x is not 0, else k",
        "x ? h : k",
        "merge(h, k, x /= 0)",
        ("merge(g, 0.0, x /= 0)", "merge(0.0, g, x /= 0)"),
        ("0", "0", "0"),
        selects=True,
    ),
    Selection(
        "bound",
        "x within h and k",
        r"\min(\max(x, h), k)",
        "merge(h, merge(k, x, x > k), x < h)",
        ("merge(x, merge(0.0, g, x < h .or. x > k), x /= x)", "0"),
        ("0", "0", "0"),
    ),
)
CODES = {function.name: code for code, function in enumerate(FUNCTIONS, start=1)}
PUBLIC = FUNCTIONS[:-5]


def _or_nan(formula: str) -> str:
    return f"merge(x, {formula}, x /= x)"


def _within(bound: float) -> str:
    # This drops NaN, but a merge would let compilers evaluate exp beyond the bounds.
    return f"min(max(x, -{bound}), {bound})"


def _like(name: str, /, **changes: Any) -> Function:
    return replace(FUNCTIONS[CODES[name] - 1], **changes)


FLAT = _or_nan("0.0")
"""Second derivative that is 0 wherever x is a number."""
_RELU = _like("relu", curvatures=(FLAT,))
_TANH = _like("tanh", slopes=("1 - f*f",), shared=())
_MOST = "0.999*log(huge(w))"

# Codes are positions, as in the choices of the declarations. w is x clamped to where exp is finite
# or negligible, so that infinities yield the limits.
ACTIVATIONS = (
    _RELU,
    _like(
        "silu",
        value="merge(w, x, x < 0)*s",
        slopes=(_or_nan("s*(1 + w*(1 - s))"),),
        curvatures=(_or_nan("s*(1 - s)*(2 + w*(1 - 2*s))"),),
        shared=(
            ("w", _within(800.0)),
            ("s", f"merge(0.0, 1/(1 + exp(min(-w, {_MOST}))), -w > {_MOST})"),
        ),
    ),
    _like(
        "gelu",
        value="merge(w, x, x < 0)*cdf",
        slopes=(_or_nan("cdf + w*phi"),),
        curvatures=(_or_nan("phi*(2 - w*w)"),),
        shared=(
            ("w", _within(40.0)),
            ("phi", "0.39894228040143267794*exp(-0.5*w*w)"),
            ("cdf", "0.5*erfc(-0.70710678118654752440*w)"),
        ),
    ),
    _TANH,
)
SCORES = (
    _like(
        "leaky_relu",
        value="merge(x, p*x, x > 0)",
        slopes=(_or_nan("merge(1.0, p, x > 0)"),),
        curvatures=(FLAT,),
    ),
    _like("positive", name="identity", slopes=(_or_nan("1.0"),), curvatures=(FLAT,)),
    _RELU,
    _like(
        "sigmoid",
        value=_or_nan("s"),
        slopes=(_or_nan("s*(1 - s)"),),
        curvatures=(_or_nan("s*(1 - s)*(1 - 2*s)"),),
        shared=(("w", _within(80.0)), ("s", "1/(1 + exp(-w))")),
    ),
    _TANH,
    _like(
        "elu",
        formula=r"\max(x, 0) + e^{\min(x, 0)} - 1",
        value="merge(x, s - 1, x > 0 .or. x /= x)",
        slopes=(_or_nan("s"),),
        curvatures=(_or_nan("merge(0.0, s, x >= 0)"),),
        shared=(("s", "exp(max(min(x, 0.0), -800.0))"),),
        choice="The slope at 0 is 1, the second derivative 0.",
    ),
)

FORMS: tuple[Callable[[Function], str], ...] = (
    methodcaller("result"),
    *(methodcaller("gradient", which=w) for w in (0, 1)),
    *(methodcaller("tangent", given=g) for g in (1, 2, 3)),
    *(methodcaller("second", which=w, given=g) for w in (0, 1) for g in (1, 2, 3)),
)
"""Forms that kernels evaluate: value, gradients, tangents by given h and k, second derivatives."""


def formulas(form: int) -> Iterable[tuple[int, Function, str]]:
    """Yield code, function and formula wherever the formula is not 0."""
    for code, function in enumerate(FUNCTIONS, start=1):
        formula = FORMS[form](function)
        if formula != "0":
            yield code, function, formula


def scalars(form: int) -> list[str]:
    """Return all quantities that the loops of a form need."""
    names: set[str] = set()
    for _, function, formula in formulas(form):
        names.update(function.variables(formula), dict(function.steps(formula)))
    return sorted(names)


def cases(table: Sequence[Function], order: int) -> Iterable[tuple[str, Function, str]]:
    """Yield the label in Fortran, function and formula of a derivative of this order."""
    for code, function in enumerate(table, start=1):
        label = f"({code})" if code < len(table) else "default"
        yield label, function, function.orders[order]


def quantities(table: Sequence[Function], order: int) -> list[str]:
    """Return all quantities that the derivatives of this order need beside x."""
    found = (function.steps(formula) for _, function, formula in cases(table, order))
    return sorted({name for steps in found for name, _ in steps})


def fortran(formula: str) -> str:
    """Return the formula with constants of the working precision."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", r"\g<0>_wp", formula)
