"""Table of the reductions that are determined by statistics of the messages into a destination.

The kernels are expanded from the table (fypp imports this file), so it imports nothing of pyops.
Formulas are Fortran expressions, evaluated in float64 for each column: of a message `m` and its
tangent `h`; of the number `k` of messages and the option `t`; of the statistics `a`, `b`, `c` of
the destination and the derivatives `da`, `db` along the tangents; and of the quantities in
`shared`.

Compilers evaluate both sides of a `merge`, so an operand on the side that is not selected may
neither divide by zero nor overflow, see `_functions`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Steps = tuple[tuple[str, str], ...]
"""Assignments in order: a name and its formula."""


@dataclass(frozen=True)
class Pass:
    """One pass over the messages: steps with the first one, with each of them, and after all."""

    first: Steps
    each: Steps
    after: Steps = ()

    def __iter__(self) -> Iterator[Steps]:
        return iter((self.first, self.each, self.after))


@dataclass(frozen=True)
class Statistic:
    """A reduction y of messages, with its first and second derivatives."""

    name: str
    passes: tuple[Pass, ...]
    value: str
    """The result, from the statistics."""
    slope: str
    """Derivative `d` of the result by a message."""
    curvature: str
    """Derivative of `d` along the tangents."""
    tangents: Steps
    """Terms of `da` and `db`, which are their sums over the messages."""
    shared: Steps = ()
    option: str = ""
    """Option that gives t."""

    def steps(self, *formulas: str) -> list[tuple[str, str]]:
        """Return the quantities that formulas need, in order of evaluation."""
        known = [*self.shared, ("d", self.slope)]
        needed = set(words(" ".join(formulas)))
        for name, text in reversed(known):
            needed |= set(words(text)) if name in needed else set()
        return [(name, text) for name, text in known if name in needed]


def words(text: str) -> list[str]:
    """Return the names in a formula."""
    return re.findall(r"\b[a-z]\w*", text)


def fortran(formula: str) -> str:
    """Return the formula with constants of float64."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", r"\g<0>_c_double", formula)


def quantities() -> list[str]:
    """Return the names of all shared quantities, and of the slope."""
    return sorted({name for row in STATISTICS for name, _ in row.shared} | {"d"})


# Deviations from the first message: equal messages have a variance of exactly 0.
_MEAN = Pass((("c", "m"), ("a", "0.0")), (("a", "a + (m - c)"),), (("a", "c + a/k"),))
_SQUARES = (("b", "0.0"),), (("b", "b + (m - a)*(m - a)"),)

# 0 below about -700, as exp of a large negative argument raises exceptions in its vectorised forms;
# the factor is arithmetic for the reason that `_is_zero` gives.
_EXP = "exp(merge(-700.0, t*(m - a), t*(m - a) < -700))*(1 - aint(min(-t*(m - a), 700.0)*1.43e-3))"


def _is_zero(x: str) -> str:
    """Return 1 for a number smaller than 2**-1000 in magnitude, else 0, without a condition.

    Compilers propagate conditions: they would replace a divisor ``merge(1.0, x, x == 0)`` by x
    where the quotient is selected for x /= 0, and divide by 0 before they select.
    """
    return f"1 - aint(min(abs({x}), 9.332636185032189e-302)*1.0715086071862673e301)"


# Messages in units of the one of largest magnitude, or of smallest for t <= 0, so that no power
# overflows.
_LARGER = "(t > 0 .and. abs(m) > a) .or. (t <= 0 .and. abs(m) < a) .or. m /= m"
_TERM = "merge(log(abs(q)), merge(q**t, 0.0, z == 0), t == 0)"
_SCALED = ("r", "m/c"), ("z", _is_zero("r")), ("q", "r + z")
_MEAN_OF_POWERS = (
    ("z", _is_zero("b")),
    ("r", _is_zero("t")),
    ("q", "merge(((b + z)/k)**(1/(t + r)), 0.0, z == 0)"),
    ("a", "merge(0.0, c*merge(exp(b/k), q, t == 0), a == 0)"),
)


def _extreme(name: str, less: str) -> Statistic:
    """Return a maximum or minimum, shared equally by the messages that attain it.

    If a message is not a number, neither is the result, and all messages share it.
    """
    first = Pass((("a", "m"),), (("a", f"merge(merge(a, m, m {less}= a), a, a == a)"),))
    count = Pass((("b", "0.0"),), (("b", f"b + merge(0.0, 1.0, m {less} a)"),), (("b", "1/b"),))
    slope = f"merge(0.0, b, m {less} a)"
    return Statistic(name, (first, count), "a", slope, curvature="0.0", tangents=())


STATISTICS = (
    Statistic(
        "mul",
        (
            Pass(
                (("a", "1.0"), ("b", "0.0")),  # product of the others than 0, number of zeros
                (("z", _is_zero("m")), ("a", "a*(m + z)"), ("b", "b + z")),
            ),
        ),
        value="merge(a, a - a, b == 0)",  # not a number where another one is not finite
        slope="merge(a/q, 0.0, o == 0)",
        curvature=(
            "merge((da - merge(h, 0.0, z == 0)/q)*a/q, "
            "merge((db - merge(0.0, h, z == 0))*a/q, 0.0, o == 1), o == 0)"
        ),
        tangents=(("da", "merge(h, 0.0, z == 0)/q"), ("db", "merge(0.0, h, z == 0)")),
        shared=(("z", _is_zero("m")), ("q", "m + z"), ("o", "b - z")),
    ),
    Statistic(
        "powermean",
        (
            Pass(
                (("a", "abs(m)"),),
                (("a", f"merge(abs(m), a, {_LARGER})"),),
                (("c", "merge(1.0, a, a == 0 .or. a - a /= 0)"),),
            ),
            Pass(
                (("b", "0.0"),),
                (*_SCALED, ("b", f"b + {_TERM}")),
                _MEAN_OF_POWERS,
            ),
        ),
        value="a",
        slope="merge(q**(t - 1), merge(1.0, 0.0, t == 1), z == 0)/k",
        curvature=(
            "merge((t - 1)*merge(q**(t - 2), merge(1.0, 0.0, t == 2), z == 0)"
            "*(h - r*da)/(k*s), 0.0, o == 0)"
        ),
        tangents=(("da", "d*h"),),
        shared=(
            ("o", _is_zero("a")),
            ("s", "a + o"),
            ("r", "merge(m/s, 0.0, o == 0)"),
            ("z", _is_zero("r")),
            ("q", "r + z"),
        ),
        option="power",
    ),
    Statistic(
        "softmax",
        (
            # The message of largest weight; the result is c from it.
            Pass((("a", "m"),), (("a", "merge(m, a, t*(m - a) > 0)"),)),
            Pass(
                (("b", "0.0"), ("c", "0.0")),
                (("q", _EXP), ("b", "b + q"), ("c", "c + q*(m - a)")),
                (("b", "1/b"), ("c", "c*b")),
            ),
        ),
        value="a + c",
        slope="q*z",
        curvature="q*t*((h - da)*z + h - db)",
        tangents=(("da", "q*h"), ("db", "d*h")),
        shared=(("q", f"{_EXP}*b"), ("z", "1 + t*((m - a) - c)")),
        option="temperature",
    ),
    Statistic(
        "std",
        (
            _MEAN,
            Pass(
                *_SQUARES,
                (("b", "sqrt(b/k)"), ("z", _is_zero("b")), ("c", "(1 - z)/(k*(b + z))")),
            ),
        ),
        value="b",
        slope="(m - a)*c",
        curvature="(h - da - d*k*db)*c",
        tangents=(("da", "h/k"), ("db", "d*h")),
    ),
    Statistic(
        "var",
        (_MEAN, Pass(*_SQUARES, (("b", "b/k"),))),
        value="b",
        slope="2*(m - a)/k",
        curvature="2*(h - da)/k",
        tangents=(("da", "h/k"),),
    ),
    _extreme("amax", "<"),
    _extreme("amin", ">"),
)
FIRST = 6
"""Code of the first of them among the reductions of `aggregate`."""
ROWS = tuple(enumerate(STATISTICS, start=FIRST))
"""The rows of the table with their codes."""

PLACES = {
    "a": "stats(l, 1)",
    "b": "stats(l, 2)",
    "c": "stats(l, 3)",
    "da": "moved(l, 1)",
    "db": "moved(l, 2)",
    "m": "messages(l)",
    "h": "along(l)",
}
"""Where loops over the columns l find their quantities."""


def _quantities_in(texts: Iterable[str]) -> list[str]:
    return sorted({*words(" ".join(texts))} & {*PLACES, *quantities()})


def declaration(*formulas: Steps) -> str:
    """Return the declaration in Fortran of the quantities in some steps, and of l."""
    names = _quantities_in(f"{name} {text}" for steps in formulas for name, text in steps)
    return f"    real(c_double) :: {', '.join(names)}\n    integer(c_int64_t) :: l"


def assignments(steps: Steps) -> str:
    """Return steps in Fortran."""
    return "\n".join(f"{name} = &\n  {fortran(text)}" for name, text in steps)


def by_columns(steps: Steps, more: Steps = ()) -> str:
    """Return a loop in Fortran over the columns, which runs steps.

    Statistics are read from their places and stored there if they are assigned; `more` assigns to
    other places.
    """
    texts = [f"{name} {text}" for name, text in steps] + [text for _, text in more]
    names, assigned = _quantities_in(texts), dict.fromkeys(name for name, _ in steps)
    private = f" private({', '.join(names)})" if names else ""
    lines = [f"!$omp simd{private}", "do l = 1, width"]
    lines += [f"{name} = {place}" for name, place in PLACES.items() if name in names]
    lines.append(assignments(steps))
    lines += [f"{PLACES[name]} = {name}" for name in assigned if name in PLACES]
    return "\n".join([*lines, assignments(more), "end do"])
