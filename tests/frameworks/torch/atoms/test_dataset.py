"""Data sets of molecules and crystals: labels, batches, costs."""

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ase")
import ase.build  # noqa: E402
import ase.io  # noqa: E402
from ase.calculators.emt import EMT  # noqa: E402
from ase.calculators.singlepoint import SinglePointCalculator  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from pyops.torch import BalancedBatchSampler  # noqa: E402
from pyops.torch.atoms import AtomsDataset, collate, energy_forces_stress  # noqa: E402

from .models import CUTOFF, model  # noqa: E402


def structures():
    """Return a molecule, two crystals and a slab with energies and forces, crystals with stress."""
    found = [ase.build.molecule("H2O"), ase.build.bulk("Cu", cubic=True), ase.build.bulk("Au")]
    found.append(ase.build.fcc111("Cu", (1, 1, 3), vacuum=4.0))
    for number, atoms in enumerate(found):
        atoms.rattle(0.05, seed=number)
        atoms.calc = EMT()
        atoms.get_forces()
        if atoms.cell.rank == 3:
            atoms.get_stress()
    return found


@pytest.mark.parametrize("form", ["path", "paths", "text", "atoms"])
def test_labels(form, tmp_path):
    """A file returns what ASE has stored in it."""
    given, path = structures(), tmp_path / "some.xyz"
    ase.io.write(path, given)
    source = {"path": path, "paths": [path, path], "text": str(path), "atoms": given}[form]
    data = AtomsDataset(source, dtype=torch.float64)
    assert len(data) == len(given) * (1 + (form == "paths"))
    for atoms, item in zip(given, data, strict=False):
        assert item.z.tolist() == atoms.numbers.tolist()
        assert item.pbc.tolist() == [atoms.pbc.tolist()]
        for values, expected in (
            (item.pos, atoms.positions),
            (item.cell[0], atoms.cell.array),
            (item.energy, [atoms.get_potential_energy()]),
            (item.forces, atoms.get_forces()),
        ):
            np.testing.assert_allclose(values, expected, atol=1e-7)
        if atoms.cell.rank == 3:
            np.testing.assert_allclose(item.stress[0], atoms.get_stress(voigt=False), atol=1e-7)
        else:
            assert item.stress.isnan().all()


def test_collate():
    """A batch of all is what its structures are one by one, also joined from parts."""
    data = AtomsDataset(structures(), dtype=torch.float64)
    items = [*data]
    batch = collate(items)
    assert batch.counts.tolist() == [3, 4, 1, 3]
    parts = [collate(items[:2]), collate(items[2:])]
    for one, other in zip(collate(parts), batch, strict=True):
        assert torch.equal(one.nan_to_num(), other.nan_to_num())
    potential = model("SchNet")
    together = energy_forces_stress(potential, *batch[:5])
    alone = [energy_forces_stress(potential, *item[:5]) for item in items]
    for field, several in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(field, torch.cat(several), equal_nan=True)
    single = batch.to("cpu", torch.float32)
    assert [t.dtype for t in single] == [
        torch.float32 if t.is_floating_point() else t.dtype for t in batch
    ]


def test_loader():
    """In workers, dealt to ranks by cost."""
    data = AtomsDataset(structures() * 3)
    seen = []
    for rank in range(2):
        sampler = BalancedBatchSampler(data.costs(CUTOFF), 2, num_replicas=2, rank=rank)
        loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate, num_workers=rank)
        seen += [energy for batch in loader for energy in batch.energy.tolist()]
    assert sorted(seen) == sorted(item.energy.item() for item in data)
    again = pickle.loads(pickle.dumps(data))
    assert torch.equal(again[1].forces, data[1].forces)


def test_costs():
    data = AtomsDataset([ase.build.bulk("Cu", a=3.6), ase.build.molecule("H2")])
    assert data.costs(2.7).tolist() == [12, 2]
    assert data.costs(2.7, triplets=True).tolist() == [144, 2]


def test_energies_of_atoms():
    """Those of single atoms are found again where energies are sums of them."""
    atoms = [ase.build.molecule(name) for name in ("H2", "H2O", "O2", "CH4", "CO2")]
    energies = {"H": -13.5, "C": -1030.0, "O": -2042.25}
    for one in atoms:
        total = sum(energies[symbol] for symbol in one.symbols)
        one.calc = SinglePointCalculator(one, energy=total)
    data = AtomsDataset([*atoms, ase.build.molecule("H2O2")])
    fitted = data.atom_energies()
    assert fitted == pytest.approx(energies)
    less = data.relative_to(fitted)
    assert [abs(item.energy.item()) < 1e-6 for item in less] == [True] * 5 + [False]
    assert less[5].energy.isnan()
    assert data[0].energy.item() == -27
    with pytest.raises(ValueError, match="relative_to: atom_energies: expected an energy of C, "):
        data.relative_to({"H": 0.0, "O": 0.0})
    with pytest.raises(ValueError, match="atom_energies: expected an energy of a structure with N"):
        AtomsDataset([*atoms, ase.build.molecule("N2")]).atom_energies()


def test_other_keys(tmp_path):
    atoms, path = ase.build.bulk("Cu", cubic=True), tmp_path / "some.xyz"
    forces, stress = np.arange(12.0).reshape(4, 3), np.arange(9.0).reshape(3, 3)
    atoms.info |= {"ref_energy": -3.5, "ref_stress": stress + stress.T}
    atoms.arrays["ref_forces"] = forces
    ase.io.write(path, atoms)
    keys = {key: f"ref_{key}" for key in ("energy", "forces", "stress")}
    (item,) = AtomsDataset(path, keys=keys)
    assert item.energy.item() == -3.5
    np.testing.assert_allclose(item.forces, forces)
    np.testing.assert_allclose(item.stress[0], stress + stress.T)
    assert AtomsDataset(path)[0].forces.isnan().all()


def labelled(**labels):
    atoms = ase.build.molecule("H2O")
    atoms.info |= labels
    return atoms


def moved():
    atoms = structures()[0]
    atoms.rattle(0.1)
    return atoms


@pytest.mark.parametrize(
    ("source", "options", "kind", "message"),
    [
        ([], {}, ValueError, "source: expected at least one structure, got none"),
        (3, {}, TypeError, "source: expected paths or ase.Atoms, got int"),
        ([3], {}, TypeError, "source: expected paths or ase.Atoms, got int"),
        ([moved], {}, ValueError, "source: expected results of the calculator for the atoms"),
        ([labelled], {"dtype": torch.half}, ValueError, "dtype: expected float32 or float64"),
        ([labelled], {"keys": {"dipole": "d"}}, ValueError, "keys: expected names of .*'dipole'"),
        ([lambda: labelled(forces=np.ones(3))], {}, ValueError, r"forces: .*\(3, 3\), got float64"),
        (
            [lambda: labelled(energy="low")],
            {},
            ValueError,
            "energy: expected numbers",
        ),
        ([lambda: labelled(energy=np.inf)], {}, ValueError, "energy: expected finite numbers"),
        ([lambda: labelled(stress=np.ones(6))], {}, ValueError, "stress: expected a cell that has"),
    ],
)
def test_refusals(source, options, kind, message):
    if isinstance(source, list):
        source = [one() if callable(one) else one for one in source]
    with pytest.raises(kind, match=f"^AtomsDataset: {message}"):
        AtomsDataset(source, **options)


def test_refused_batches():
    with pytest.raises(ValueError, match="collate: examples: expected at least one, got none"):
        collate([])
    with pytest.raises(TypeError, match=r"AtomsDataset\.costs: cutoff: expected a number"):
        AtomsDataset([labelled()]).costs("far")
