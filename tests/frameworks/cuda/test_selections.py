"""`where`, `clip`, softmax and its logarithm on the device, against the host."""

import numpy as np
import pytest

import pyops
from pyops.cuda import _device

from ...families.test_selections import BOUNDS, PLACES, SHAPES, draw
from ...support.compare import assert_close, assert_same
from .host import COMPILER
from .platform import Platform, to_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    monkeypatch.setattr(_device, "found", Platform)


def both(function, *arrays, **options):
    """Return the results of a call on the device, and on the host."""
    given = [[None if a is None else move(a) for a in arrays] for move in (to_device, np.array)]
    found = [function(*some, **options) for some in given]
    return [f if isinstance(f, tuple) else (f,) for f in found]


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "in parts"])
def test_where(name):
    condition, x1, x2 = (draw(shape, seed) for seed, shape in enumerate(SHAPES[name]))
    condition = condition > 0
    gy = draw(np.broadcast_shapes(*SHAPES[name]), 3)
    h = draw(x1.shape, 4), draw(x2.shape, 5)
    assert_same(*both(pyops.where, condition, x1, x2))
    assert_close(*both(pyops.where.backward, condition, x1, x2, gy), 1e-14)
    assert_same(*both(pyops.where.jvp, condition, x1, x2, None, *h))
    assert_same(*both(pyops.where.double_backward, condition, x1, x2, gy, None, *h))


def test_clip():
    x, gy, h = (draw((4, 5), seed) for seed in range(3))
    x[0, :3] = np.nan, *BOUNDS.values()
    assert_same(*both(pyops.clip, x, **BOUNDS))
    assert_same(*both(pyops.clip.backward, x, gy, **BOUNDS))
    assert_same(*both(pyops.clip.double_backward, x, gy, h, **BOUNDS))
    assert_same(*both(pyops.clip.jvp, x, h, **BOUNDS))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, place):
    (shape, axis), op = PLACES[place], getattr(pyops, name)
    x, g, h = (draw(shape, seed) for seed in range(3))
    assert_close(*both(op, x, axis=axis), 1e-13)
    assert_close(*both(op.backward, x, g, axis=axis), 1e-13)
    assert_close(*both(op.double_backward, x, g, h, axis=axis), 1e-13)
    assert_close(*both(op.double_backward, x, None, h, axis=axis, wanted=("x", "gy")), 1e-13)
    assert_close(*both(op.jvp, x, h, axis=axis), 1e-13)
