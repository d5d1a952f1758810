"""The examples, at a small size."""

import sys
from pathlib import Path

import numpy as np
import pytest
from autograd.misc import flatten

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def darcy(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    import darcy

    return darcy


@pytest.fixture
def burgers(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    import burgers

    return burgers


def test_darcy(darcy, tmp_path):
    """A little training beats the mean solution and the linear map, on both meshes."""
    picture = tmp_path / "darcy.png"
    sizes = "--steps=90", "--samples=48", "--spacing=0.1", "--layers=3"
    errors = darcy.main([*sizes, f"--output={picture}"])
    best = errors.pop("graph neural operator")
    for others in errors.values():
        assert all(own < 0.8 * other for own, other in zip(best, others, strict=True))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_darcy_gradient(darcy, monkeypatch):
    """The whole network in float64, against central differences in a random direction."""
    monkeypatch.setattr(darcy, "PRECISION", np.float64)
    fields = darcy.draw_fields(darcy.BATCH, seed=0)
    flows = darcy.solve_flows(darcy.make_mesh(0.2, seed=0), fields)
    mesh, rng = darcy.Discretisation(flows), np.random.default_rng(0)
    start, unflatten = flatten(darcy.draw_network(rng, layers=2))
    direction = rng.standard_normal(start.size)

    def loss(vector):
        return darcy.loss(unflatten(vector), mesh, flows)

    step = 1e-6 * direction
    difference = (loss(start + step) - loss(start - step)) / 2e-6
    gradient, _ = flatten(darcy.slope(unflatten(start), mesh, flows)[1])
    assert gradient @ direction == pytest.approx(difference, rel=1e-6)


def test_burgers(burgers, tmp_path):
    """A little training beats the linear map."""
    picture = tmp_path / "burgers.png"
    sizes = "--steps=120", "--samples=128", "--points=32"
    errors = burgers.main([*sizes, f"--output={picture}"])
    linear = errors["ridge regression"]
    assert linear < errors["mean solution"]
    assert max(errors["ONO"], errors["LNO"]) < 0.9 * linear
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_burgers_data(burgers):
    """Against half the step, and the decay of a wave too small to steepen."""
    waves = burgers.draw_waves(3, seed=0)
    _, coarse = burgers.solve_waves(waves, 33)
    _, fine = burgers.solve_waves(waves, 33, steps=600)
    assert abs(coarse - fine).max() < 1e-4 * abs(fine).max()
    first, last = burgers.solve_waves(np.array([[0, 1e-6]]), 33)
    np.testing.assert_allclose(last, first * np.exp(-0.02 * (2 * np.pi) ** 2 * 0.3), atol=1e-12)


@pytest.mark.parametrize("kind", ["ONO", "LNO"])
def test_burgers_gradient(burgers, monkeypatch, kind):
    """The whole network in float64, against central differences in a random direction."""
    monkeypatch.setattr(burgers, "PRECISION", np.float64)
    rng = np.random.default_rng(0)
    network = burgers.Network(kind, 24)
    u, v = rng.standard_normal((2, 4, 24))
    start, unflatten = flatten(network.draw(rng))
    direction = rng.standard_normal(start.size)

    def loss(vector):
        return burgers.error(network(unflatten(vector), u), v)

    step = 1e-6 * direction
    difference = (loss(start + step) - loss(start - step)) / 2e-6
    gradient = burgers.value_and_grad(loss)(start)[1]
    assert gradient @ direction == pytest.approx(difference, rel=1e-6)
