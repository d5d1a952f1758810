"""DimeNetPlusPlus and SchNet in periodic cells: supercells, batches, forces and stress."""

import pytest

torch = pytest.importorskip("torch")

from pyops.torch.atoms import energy_forces_stress  # noqa: E402

from .models import CUTOFF, MODELS, batched, crystal, model, repeated  # noqa: E402

PBC = torch.tensor([True, True, True])
EACH = pytest.mark.parametrize("name", MODELS)


def assert_close(one, other, tolerance=1e-12):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@EACH
@pytest.mark.parametrize("along", range(3))
def test_supercell(name, along):
    """Energy per atom, forces and stress do not depend on the size of the cell."""
    potential, one = model(name), crystal()
    small = energy_forces_stress(potential, *batched(one))
    large = energy_forces_stress(potential, *batched(repeated(*one, along)))
    assert_close(large.energy / 2, small.energy)
    assert_close(large.forces, small.forces.repeat(2, 1))
    assert_close(large.stress, small.stress)


@EACH
def test_positions_that_depend_on_the_cell(name):
    """The derivative by the cell is that at fixed positions, so no part of the stress is twice."""
    potential = model(name)
    z, pos, batch, cell = batched(crystal())[:4]
    wanted = energy_forces_stress(potential, z, pos, batch, cell)
    fractions, cell = pos @ torch.linalg.inv(cell[0]), cell.clone().requires_grad_()
    found = energy_forces_stress(potential, z, fractions @ cell[0], batch, cell)
    assert_close(found.stress, wanted.stress)
    assert_close(found.forces, wanted.forces)


@EACH
def test_supercell_in_single_precision(name):
    potential = model(name).float()
    z, pos, cell = crystal()
    one = z, pos.float(), cell.float()
    (small,), (large,) = (potential(*batched(c))[0] for c in (one, repeated(*one, 0)))
    assert_close(large / 2, small, 1e-6)


@EACH
def test_batch(name):
    """Different cells, slabs and molecules in one batch are what they are one by one."""
    potential = model(name)
    examples = [crystal(seed, atoms) for seed, atoms in ((0, 3), (1, 1), (2, 4), (3, 2), (4, 2))]
    pbc = torch.ones(5, 3, dtype=torch.bool)
    pbc[2, 1] = False
    pbc[3:] = False
    z, pos, cell = examples[3]
    examples[3] = z, pos, torch.zeros_like(cell)  # free space
    z, pos, batch, cells = batched(*examples)
    found = energy_forces_stress(potential, z, pos, batch, cells, pbc)
    for k, (z, pos, cell) in enumerate(examples):
        alone = energy_forces_stress(potential, z, pos, None, cell, pbc[k])
        assert_close(found.energy[k : k + 1], alone.energy)
        assert_close(found.forces[batch == k], alone.forces)
        torch.testing.assert_close(found.stress[k : k + 1], alone.stress, equal_nan=True)
    assert torch.isfinite(found.stress).all(dim=(1, 2)).tolist() == [True, True, True, False, True]
    for k in 3, 4:  # molecules, with a cell or without
        z, pos, _ = examples[k]
        free = energy_forces_stress(potential, z, pos)
        assert free.stress is None
        assert_close(found.energy[k : k + 1], free.energy)
        assert_close(found.forces[batch == k], free.forces)


@EACH
def test_empty_graphs(name):
    """Cells determine the number of graphs, as the last ones may have no atoms."""
    z, pos, batch, cells = batched(crystal())
    energy, *_ = energy_forces_stress(model(name), z, pos, batch, cells.repeat(3, 1, 1), PBC)
    assert energy.shape == (3,)
    assert energy[1:].tolist() == [0, 0]


@EACH
def test_forces_and_stress_are_slopes(name):
    """Beside central differences of the energy by positions and by strain."""
    potential = model(name)
    z, pos, batch, cells = batched(crystal(), crystal(1, 2))
    found = energy_forces_stress(potential, z, pos, batch, cells, PBC)
    energy = lambda p, c: potential(z, p, batch, c, PBC)[:, 0]  # noqa: E731
    step = 1e-5
    for atom, axis in (0, 0), (1, 2), (4, 1):
        shift = torch.zeros_like(pos)
        shift[atom, axis] = step
        slope = (energy(pos + shift, cells) - energy(pos - shift, cells)).sum() / (2 * step)
        assert_close(found.forces[atom, axis], -slope, 1e-8)
    volume = torch.linalg.det(cells).abs()
    for a, b in (0, 0), (1, 1), (0, 2), (1, 2):
        strain = torch.zeros(3, 3).double()
        strain[a, b] += step / 2
        strain[b, a] += step / 2
        ends = [energy(pos @ s, cells @ s) for s in (torch.eye(3) + strain, torch.eye(3) - strain)]
        slope = (ends[0] - ends[1]) / (2 * step)
        assert_close(found.stress[:, a, b], slope / volume, 1e-8)
    assert_close(found.stress, found.stress.transpose(1, 2))


@EACH
def test_gradient_of_a_loss_on_forces_and_stress(name):
    """By every parameter, beside central differences along a random direction."""
    potential = model(name)
    given = *batched(crystal(), crystal(1, 2)), PBC
    parameters = [p for p in potential.parameters() if p.requires_grad]

    def loss():
        energy, forces, stress = energy_forces_stress(potential, *given)
        return energy.square().sum() + (forces - 1).square().sum() + (stress - 1).square().sum()

    gradients = torch.autograd.grad(loss(), parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        along, step, values = torch.randn_like(parameter), 1e-6, parameter.detach().clone()
        ends = []
        for sign in 1, -1:
            with torch.no_grad():
                parameter.copy_(values + sign * step * along)
            ends.append(loss().detach())
        with torch.no_grad():
            parameter.copy_(values)
        slope = (ends[0] - ends[1]) / (2 * step)
        got = torch.zeros(()).double() if gradient is None else (gradient * along).sum()
        torch.testing.assert_close(got, slope, rtol=1e-5, atol=1e-6)


@EACH
def test_cutoff_in_a_cell(name):
    """Atoms farther apart than the cutoff, images included, do not interact."""
    potential = model(name)
    cell = (CUTOFF + 1) * torch.eye(3).double()
    z, pos = torch.tensor([6]), torch.zeros(1, 3).double()
    assert_close(potential(z, pos, 0 * z, cell), potential(z, pos, 0 * z))


@EACH
def test_constants_without_gradients(name):
    given = *batched(crystal()), PBC
    with torch.no_grad():
        found = energy_forces_stress(model(name), *given)
    assert not any(t.requires_grad for t in found)
    assert found.stress.abs().max() > 0
    assert all(t.requires_grad for t in energy_forces_stress(model(name), *given))


@pytest.mark.parametrize(
    "name", ["SchNet", pytest.param("DimeNetPlusPlus", marks=pytest.mark.slow)]
)
def test_compiled(name):
    """One graph for batches of different sizes, forces and stress included."""
    torch._dynamo.reset()
    torch._dynamo.config.trace_autograd_ops = True
    potential = model(name)

    def loss(z, pos, batch, cells, pbc):
        energy, forces, stress = energy_forces_stress(potential, z, pos, batch, cells, pbc)
        return energy.square().sum() + forces.square().sum() + stress.square().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for examples in [crystal(), crystal(1, 2)], [crystal(2, 4), crystal(3), crystal(4, 2)]:
        z, pos, batch, cells = batched(*examples)
        pbc = PBC.repeat(len(cells), 1)
        leaves = pos.requires_grad_(), cells.requires_grad_()
        one, other = (f(z, pos, batch, cells, pbc) for f in (compiled, loss))
        assert_close(one, other, 1e-10)
        parameters = [*leaves, *potential.parameters()]
        gradients = (torch.autograd.grad(v, parameters, allow_unused=True) for v in (one, other))
        for a, b in zip(*gradients, strict=True):
            if b is not None:
                assert_close(a, b, 1e-8)


@EACH
@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"cell": None}, ValueError, "pbc: expected a cell beside it, got none"),
        ({"cell": torch.zeros(2, 3, 3)}, ValueError, "cell: expected finite vectors that span a"),
        ({"cell": torch.eye(3).long()}, TypeError, "cell: expected floating-point numbers"),
        ({"cell": [[1.0]]}, TypeError, "cell: expected a torch.Tensor, got list"),
        ({"cell": torch.eye(3)[None]}, ValueError, r"cell: expected shape \(3, 3\) or"),
        ({"pbc": [True]}, TypeError, "pbc: expected a torch.Tensor, got list"),
        ({"pbc": torch.ones(3)}, ValueError, "pbc: expected three bool"),
        ({"z": torch.ones(4).long()}, ValueError, "z: expected 5 atomic numbers, .* got shape"),
    ],
)
def test_refusals(name, change, kind, message):
    z, pos, batch, cell = batched(crystal(), crystal(1, 2))
    given = {"z": z, "pos": pos, "batch": batch, "cell": cell, "pbc": PBC, **change}
    with pytest.raises(kind, match=message):
        model(name)(**given)


def of_positions(z, pos, batch, cell=None, pbc=None):
    return pos.square().sum(1, keepdim=True)[:2]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda *_, **__: 1.0, TypeError, "expected a torch.Tensor, got float"),
        (lambda *_, **__: torch.ones(2, 3), ValueError, "one energy for each graph, got shape"),
        (lambda _, pos, *__, **___: pos[:1, 0], ValueError, "expected 2 energies, one for each"),
        (lambda *_, **__: torch.ones(2), ValueError, "depend on the positions"),
        (of_positions, ValueError, "depend on the cell"),
    ],
)
def test_refused_models(call, kind, message):
    with pytest.raises(kind, match=f"^energy_forces_stress: model: .*{message}"):
        energy_forces_stress(call, *batched(crystal(), crystal(1, 2)), PBC)
