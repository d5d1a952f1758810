"""Order in which sizes are solved for."""

import pytest

from pyops._schema import parse_shape, solving_order
from pyops._schema.declaration import Size


def order(*shapes, known=(), **follows):
    """Return what each step finds and from where; nothing where it compares."""
    sizes = tuple((name, Size(text)) for name, text in follows.items())
    steps = solving_order(tuple(map(parse_shape, shapes)), sizes, frozenset(known))
    return [(step.name, step.axis or step.size.text) for step in steps]


def test_axes_in_their_order():
    assert order("n, a", "n, a*b") == [("n", (0, 0)), ("a", (0, 1)), ("", (1, 0)), ("b", (1, 1))]


def test_known_sizes_are_compared():
    assert order("n, a", known=["n"]) == [("", (0, 0)), ("a", (0, 1))]


def test_two_unknown_sizes_wait():
    assert order("a*b, a") == [("a", (0, 1)), ("b", (0, 0))]


def test_derived_sizes_come_first():
    assert order("a, b", b="a+c", c="2") == [("c", "2"), ("a", (0, 0)), ("b", "a+c"), ("", (0, 1))]


def test_derived_sizes_are_compared_with_axes():
    """A derived size replaces one that an axis gave, whose shape is refused in the end."""
    assert order("a, b", a="b") == [("a", (0, 0)), ("b", (0, 1)), ("a", "b")]


@pytest.mark.parametrize("follows", [{}, {"c": "a"}])
def test_sizes_that_do_not_follow(follows):
    with pytest.raises(ValueError, match=r"^sizes that do not follow: a, b$"):
        order("n, a*b", **follows)
