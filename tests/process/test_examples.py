"""Examples at a small size."""

import sys

import numpy as np
import pytest
from autograd.misc import flatten

from .. import ROOT

EXAMPLES = ROOT / "examples"


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
    """A few training steps beat the mean solution and the linear map, on both meshes."""
    picture = tmp_path / "darcy.png"
    sizes = "--steps=90", "--samples=48", "--spacing=0.1", "--layers=3"
    errors = darcy.main([*sizes, f"--output={picture}"])
    best = errors.pop("graph neural operator")
    for others in errors.values():
        assert all(own < 0.8 * other for own, other in zip(best, others, strict=True))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_darcy_gradient(darcy, monkeypatch):
    """The gradient of the whole network in float64 agrees with central differences."""
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
    """A few training steps beat the linear map."""
    picture = tmp_path / "burgers.png"
    sizes = "--steps=120", "--samples=128", "--points=32"
    errors = burgers.main([*sizes, f"--output={picture}"])
    linear = errors["ridge regression"]
    assert linear < errors["mean solution"]
    assert max(errors["ONO"], errors["LNO"]) < 0.9 * linear
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_burgers_data(burgers):
    """Data agree with half the time step, and with the decay of a wave too small to steepen."""
    waves = burgers.draw_waves(3, seed=0)
    _, coarse = burgers.solve_waves(waves, 33)
    _, fine = burgers.solve_waves(waves, 33, steps=600)
    assert abs(coarse - fine).max() < 1e-4 * abs(fine).max()
    first, last = burgers.solve_waves(np.array([[0, 1e-6]]), 33)
    np.testing.assert_allclose(last, first * np.exp(-0.02 * (2 * np.pi) ** 2 * 0.3), atol=1e-12)


@pytest.mark.parametrize("kind", ["ONO", "LNO"])
def test_burgers_gradient(burgers, monkeypatch, kind):
    """The gradient of the whole network in float64 agrees with central differences."""
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


@pytest.fixture
def forces(monkeypatch):
    for name in "ase", "tblite":
        pytest.importorskip(name)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    import forces

    return forces


def test_forces(forces, tmp_path):
    """A few training steps beat zero forces on unseen molecules; so does the pair potential."""
    picture = tmp_path / "forces.png"
    sizes = "--frames=2", "--steps=30", "--seconds=40"
    errors = forces.main([*sizes, f"--output={picture}"])
    assert errors["DimeNet++"][0] < 0.8 * errors["zero"][0]
    by_pairs, zero = errors["pair potential"], errors["zero"]
    assert all(own < 0.8 * other for own, other in zip(by_pairs, zero, strict=True))
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_forces_of_other_molecules(forces, tmp_path):
    """The error is a fifth of that of zero forces, and less than that of the pair potential."""
    sizes = "--steps=400", "--seconds=1000"
    errors = forces.main([*sizes, f"--output={tmp_path / 'forces.png'}"])
    best, pairs, zero = (errors[name][0] for name in ("DimeNet++", "pair potential", "zero"))
    assert 5 * best < zero
    assert best < pairs < zero


def networks(forces, kinds, positions, **keywords):
    network = forces.draw_network(np.random.default_rng(1), width=8, blocks=1)
    batch = forces.Batch(kinds, positions, **keywords)
    return forces.energy_and_forces(network, batch, batch.positions)


def test_forces_are_slopes_and_turn_along(forces, rng):
    kinds, positions = [np.array([3, 0, 0, 1, 2])], rng.uniform(0, 3, (5, 3))
    energy, push = networks(forces, kinds, [positions])
    along = rng.standard_normal((5, 3))
    ends = [networks(forces, kinds, [positions + step * along])[0] for step in (1e-5, -1e-5)]
    assert (push * along).sum() == pytest.approx(-(ends[0] - ends[1])[0] / 2e-5, rel=1e-6)
    turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    again, turned = networks(forces, kinds, [positions @ turn + 7])
    np.testing.assert_allclose(again, energy, rtol=1e-10)
    np.testing.assert_allclose(turned, push @ turn, atol=1e-10 * abs(push).max())


def test_forces_in_a_crystal(forces, rng):
    """A supercell has the energy of its unit cell, once per cell."""
    cell = np.diag([3.0, 3.5, 4.0]) + 0.2 * rng.standard_normal((3, 3))
    kinds, positions = np.array([1, 0, 3]), rng.uniform(0, 3, (3, 3))
    (energy,), push = networks(forces, [kinds], [positions], cells=cell)
    double, twice = cell * np.array([[1.0], [2], [1]]), [positions, positions + cell[1]]
    (both,), pushes = networks(forces, [np.tile(kinds, 2)], [np.concatenate(twice)], cells=double)
    assert both == pytest.approx(2 * energy, rel=1e-10)
    np.testing.assert_allclose(pushes, np.tile(push, (2, 1)), atol=1e-10 * abs(push).max())


def test_gradient_of_a_force_loss(forces, rng):
    """The gradient, by second derivatives of every operator, agrees with central differences."""
    positions = rng.uniform(0, 3, (5, 3))
    batch = forces.Batch([np.array([3, 0, 0, 1, 2])], [positions])
    start, unflatten = flatten(forces.draw_network(rng, width=8, blocks=1))
    wanted = rng.standard_normal(1), rng.standard_normal((5, 3))
    along = rng.standard_normal(start.size) / 10

    def loss(vector):
        return forces.loss(unflatten(vector), batch, *wanted)

    gradient = forces.value_and_grad(loss)(start)[1]
    difference = (loss(start + 1e-5 * along) - loss(start - 1e-5 * along)) / 2e-5
    assert gradient @ along == pytest.approx(difference, rel=1e-6)


@pytest.fixture
def power_grid(monkeypatch):
    pytest.importorskip("pandapower")
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    import power_grid

    return power_grid


def test_power_grid(power_grid, tmp_path):
    """A few training steps beat the linear maps, on unseen loads."""
    picture = tmp_path / "power_grid.png"
    sizes = "--case=case118", "--scenarios=48", "--steps=60"
    errors = power_grid.main([*sizes, f"--output={picture}"])
    best = errors.pop("graph attention")
    assert best < 0.9 * min(errors.values())
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_power_grid_gradient(power_grid, monkeypatch):
    """The gradient of the whole network in float64 agrees with central differences."""
    monkeypatch.setattr(power_grid, "PRECISION", np.float64)
    scenarios = power_grid.solve_scenarios("case57", power_grid.BATCH, seed=0)
    features, rng = power_grid.Features(scenarios), np.random.default_rng(0)
    start, unflatten = flatten(power_grid.draw_network(rng, 57))
    start = start + 0.1 * rng.standard_normal(start.size)
    direction = rng.standard_normal(start.size)

    def loss(vector):
        return power_grid.loss(unflatten(vector), features, scenarios)

    step = 1e-6 * direction
    difference = (loss(start + step) - loss(start - step)) / 2e-6
    gradient, _ = flatten(power_grid.slope(unflatten(start), features, scenarios)[1])
    assert gradient @ direction == pytest.approx(difference, rel=1e-5)
