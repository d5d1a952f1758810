"""Parameter blocks."""

import re

import numpy as np
import pytest

from pyops import blocks, gno_kernel

from ..support.cases import Case
from ..support.layouts import LAYOUTS

H, D, F = 5, 2, 12
SHAPES = {"U": (H, D), "b_u": (H,), "V": (F, H), "b_v": (F,)}


@pytest.fixture(params=[np.float32, np.float64])
def parts(request, rng):
    return {name: rng.standard_normal(s).astype(request.param) for name, s in SHAPES.items()}


def test_order(parts):
    block = blocks.pack_gno(**parts)
    columns = [parts["U"].T, parts["b_u"], parts["V"].T, parts["b_v"]]
    assert block.dtype == parts["U"].dtype
    assert block.tolist() == np.concatenate([part.ravel() for part in columns]).tolist()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_there_and_back(parts, layout):
    block = blocks.pack_gno(**{name: layout(part) for name, part in parts.items()})
    assert block.dtype.isnative
    assert block.flags.c_contiguous
    unpacked = blocks.unpack_gno(block, dim=D, hidden=H)
    assert unpacked._fields == tuple(parts)
    for name, part in parts.items():
        assert getattr(unpacked, name).tolist() == part.tolist()


def test_views(parts):
    block = blocks.pack_gno(**parts)
    for view in blocks.unpack_gno(block, dim=D, hidden=H):
        assert np.shares_memory(view, block)
        view[...] = 3
    assert (block == 3).all()


def test_what_the_parts_do(parts):
    """The parts of the block compute V relu(U x + b_u) + b_v."""
    x = np.array([[0.3, -0.7], [2.0, 1.0]]).astype(parts["U"].dtype)
    sizes = {"hidden": H, "in_features": 3, "out_features": 4}
    kappa = gno_kernel(x, blocks.pack_gno(**parts), **sizes)
    hidden = np.maximum(x @ parts["U"].T + parts["b_u"], 0)
    np.testing.assert_allclose(kappa, hidden @ parts["V"].T + parts["b_v"], rtol=1e-5)


def test_gradients_unpack_the_same_way():
    problem = Case("gno_kernel", (("activation", "tanh"),), ()).problem()
    coords, gy = problem.arrays["coords"], problem.arrays["gy"]
    _, gparams = problem.run("backward")
    u, b_u, _, _ = blocks.unpack_gno(problem.arrays["params"], dim=2, hidden=5)
    gradient = blocks.unpack_gno(gparams, dim=2, hidden=5)
    np.testing.assert_allclose(gradient.V, gy.T @ np.tanh(coords @ u.T + b_u), rtol=1e-12)
    np.testing.assert_allclose(gradient.b_v, gy.sum(0), rtol=1e-12)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (np.ndarray.tolist, TypeError, "expected a NumPy array, got list"),
        (lambda a: None, TypeError, "expected a NumPy array, got None"),
        (lambda a: a + 1j, TypeError, "expected float32 or float64, got complex"),
        (lambda a: a.astype(int), TypeError, "expected float32 or float64, got int64"),
        (lambda a: a[None], ValueError, r"expected .*, got \(1, "),
        (lambda a: a[0], (ValueError, TypeError), "expected"),
        (lambda a: a[:-1], ValueError, r"expected shape \(.*\), got \("),
        (lambda a: a.astype({4: "f8", 8: "f4"}[a.itemsize]), TypeError, r"expected float\d\d like"),
    ],
)
def test_refused_parts(parts, name, change, error, message):
    parts[name] = change(parts[name])
    with pytest.raises(error, match=rf"^pack_gno: \w+: {message}"):
        blocks.pack_gno(**parts)


@pytest.mark.parametrize(
    ("change", "sizes", "error", "message"),
    [
        (np.ndarray.tolist, {}, TypeError, "block: expected a NumPy array, got list"),
        (lambda a: a + 1j, {}, TypeError, "block: expected float32 or float64, got complex"),
        (
            lambda a: a[:-1],
            {},
            ValueError,
            "block: expected .* hidden=5 and dim=2, got shape (86,)",
        ),
        (lambda a: a[None], {}, ValueError, "block: expected length .*, got shape (1, 87)"),
        (lambda a: a[:15], {}, ValueError, "block: expected length .*, got shape (15,)"),
        (lambda a: a[:0], {}, ValueError, "block: expected length .*, got shape (0,)"),
        (np.array, {"hidden": 6}, ValueError, "block: expected length .* hidden=6 and dim=2, got"),
        (np.array, {"dim": 3}, ValueError, "block: expected length .* hidden=5 and dim=3, got"),
        (np.array, {"hidden": 5.0}, TypeError, "hidden: expected a positive integer, got 5.0"),
        (np.array, {"dim": None}, TypeError, "dim: expected a positive integer, got None"),
        (np.array, {"hidden": True}, TypeError, "hidden: expected a positive integer, got True"),
        (np.array, {"hidden": -1}, ValueError, "hidden: expected"),
        (np.array, {"dim": 0}, ValueError, "dim: expected"),
    ],
)
def test_refused_blocks(parts, change, sizes, error, message):
    block = change(blocks.pack_gno(**parts))
    message = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(error, match=f"^unpack_gno: {message}"):
        blocks.unpack_gno(block, **{"dim": D, "hidden": H, **sizes})
