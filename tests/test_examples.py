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
