"""Matrix products by precision, with the rounding of tensor cores emulated on the host."""

import numpy as np
import pytest

from pyops.cuda._runtime import PRECISIONS

from .host import Host

# In units of the sum of magnitudes: 10 bits of each factor, or the remainder of both.
BOUNDS = {"highest": 2**-21, "tf32x3": 2**-20, "tf32": 2**-10}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_errors(precision):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 40, 30), np.float32), rng.standard_normal((30, 20), np.float32)
    exact, size = a.astype(float) @ b.astype(float), abs(a).astype(float) @ abs(b).astype(float)
    error = (abs(Host().matmul(a, b, precision=precision) - exact) / size).max()
    assert error <= BOUNDS[precision]
    if precision == "tf32":
        assert error > 2**-15


def test_highest_is_one_product(monkeypatch):
    """Nothing is split or rounded unless requested, and float64 never is."""
    monkeypatch.setattr(Host, "_split", None)
    rng = np.random.default_rng(0)
    for dtype, precisions in ((np.float32, ["highest"]), (np.float64, PRECISIONS)):
        a, b = (rng.standard_normal((9, 9)).astype(dtype) for _ in range(2))
        for precision in precisions:
            assert (Host().matmul(a, b, precision=precision) == a @ b).all()
        assert (Host().matmul(a, b) == a @ b).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_infinity_and_nan(precision):
    a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    a[0, 0], b[1, 1] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        got = Host().matmul(a, b, precision=precision)
    assert got[0, 0] == np.inf
    assert np.isnan(got[:, 1]).all()
    assert got[1, 0] == 3
