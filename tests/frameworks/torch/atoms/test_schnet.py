"""SchNet and its layers against those of PyTorch Geometric."""

from unittest import mock

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric.nn.models import schnet  # noqa: E402

from pyops.torch import nn  # noqa: E402

from ..nn.comparison import check_alike, check_same, pair  # noqa: E402
from ..nn.dimenet_original import edges_within  # noqa: E402
from ..nn.test_dimenet import molecules  # noqa: E402

SMALL = {
    "hidden_channels": 8,
    "num_filters": 6,
    "num_interactions": 2,
    "num_gaussians": 5,
    "cutoff": 2.5,
}
REFERENCES = torch.linspace(-3, 2, 100)[:, None]
REFERRED = {"atomref": REFERENCES, "mean": 1.0, "std": 0.5, "readout": "mean"}
TABLE = {
    "plain": {},
    "mean over atoms": {"readout": "mean"},
    "no interactions": {"readout": "sum", "num_interactions": 0},
    "standardized": {"mean": -1.5, "std": 2.0},
    "mean alone": {"mean": -1.5},
    "atoms": {"atomref": REFERENCES},
    "atoms, standardized": REFERRED,
    "dipole": {"dipole": True},
    "dipole, standardized": {"dipole": True, **REFERRED},
    "narrow": {"hidden_channels": 5, "num_filters": 1, "num_gaussians": 2},
    "other edges": {"interaction_graph": lambda pos, batch: lengths_within(pos, 1.8, batch)},
}
ATOMS = 5, 7, 2  # the dipole moment of one atom has no second derivative


def lengths_within(pos, cutoff, batch):
    index = edges_within(pos, cutoff, batch)
    return index, (pos[index[0]] - pos[index[1]]).norm(dim=1)


@pytest.fixture(autouse=True)
def _search(monkeypatch):
    """Search neighbours for the original, whose package for it has no wheel."""
    monkeypatch.setattr(schnet, "radius_graph", edges_within)


def energy_of(z, batch):
    """Return a function with the weights of a model as those of its layer."""

    class Fixed(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, pos):
            return self.model(z, pos, batch)

    return Fixed


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("name", TABLE)
def test_model(name, scattered):
    """Results, forces and their derivatives, for atoms in any order."""
    original, drop_in = pair(schnet, nn, "SchNet", **{**SMALL, **TABLE[name]})
    check_alike(original, drop_in)
    z, pos, batch = molecules(atoms=ATOMS)
    if scattered:
        order = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))
        z, pos, batch = z[order], pos[order], batch[order]
    fixed = energy_of(z, batch)
    check_same(fixed(original), fixed(drop_in), [pos], single=not scattered)


def test_one_molecule():
    original, drop_in = pair(schnet, nn, "SchNet", **SMALL)
    z, pos, _ = molecules(atoms=(6,))
    y = drop_in.double()(z, pos)
    assert y.shape == (1, 1)
    torch.testing.assert_close(y, original.double()(z, pos), rtol=1e-12, atol=0)


def test_reset():
    original, drop_in = pair(schnet, nn, "SchNet", **SMALL, atomref=REFERENCES)
    for model in original, drop_in:
        for parameter in model.parameters():
            parameter.data.fill_(0.5)
        torch.manual_seed(3)
        model.reset_parameters()
    for one, other in zip(drop_in.parameters(), original.parameters(), strict=True):
        assert torch.equal(one, other)


def test_scale():
    """Of models that the original has loaded with weights for QM9."""
    original, drop_in = pair(schnet, nn, "SchNet", **SMALL)
    original.scale = drop_in.scale = 0.25
    z, pos, batch = molecules()
    fixed = energy_of(z, batch)
    check_same(fixed(original), fixed(drop_in), [pos], single=False)


@pytest.mark.parametrize("mode", ["autocast", "half model"])
def test_sums_over_atoms_in_half_precision(mode):
    """3000 terms, which partial sums in half precision would miss."""
    model = nn.SchNet(**SMALL).to(torch.bfloat16 if mode == "half model" else torch.float32)
    axis = 4 * torch.arange(15.0)
    pos = torch.cartesian_prod(axis, axis, axis)[:3000]  # farther apart than the cutoff
    z, pos = torch.full((3000,), 6), pos.to(next(model.parameters()).dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"):
        one, all_of_them = model(z[:1], pos[:1]), model(z, pos)
    assert all_of_them.dtype == (torch.float32 if mode == "autocast" else torch.bfloat16)
    torch.testing.assert_close(all_of_them.double(), 3000 * one.double(), rtol=2**-8, atol=0)


LAYERS = {
    "InteractionBlock": ((8, 5, 6, 2.5), (9, 8), (30,), (30, 5)),
    "GaussianSmearing": ((0.5, 4.0, 6), (30,)),
    "ShiftedSoftplus": ((), (4, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    sizes, *shapes = LAYERS[name]
    original, drop_in = pair(schnet, nn, name, *sizes)
    check_alike(original, drop_in)
    given = [3 * torch.rand(shape, dtype=torch.float64) for shape in shapes]
    if name == "InteractionBlock":
        given.insert(1, torch.randint(9, (2, 30)))
    check_same(original, drop_in, given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readout": "max"}, r"SchNet: readout: expected one of \('add', 'sum', 'mean'\), got"),
        ({"num_gaussians": 1}, "GaussianSmearing: num_gaussians: expected at least 2, got 1"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        nn.SchNet(**{**SMALL, **options})


@pytest.mark.parametrize("name", ["dipole", "interaction_graph"])
def test_models_without_cells(name):
    model = nn.SchNet(**SMALL, **{name: name == "dipole" or lengths_within}).double()
    z, pos, batch = molecules()
    with pytest.raises(ValueError, match=f"SchNet: cell: expected None .*{name.split('_')[0]}"):
        model(z, pos, batch, torch.eye(3))


def test_too_many_neighbours_are_refused():
    z, pos, batch = molecules(atoms=(7, 2))
    few = nn.SchNet(**SMALL, max_num_neighbors=3).double()
    with pytest.raises(ValueError, match=r"max_num_neighbors: expected at least 6.*got 3"):
        few(z, pos, batch)


def test_masses_without_ase():
    with (
        mock.patch.dict("sys.modules", {"ase.data": None}),
        pytest.raises(ImportError, match=r"SchNet: dipole: .* package ase"),
    ):
        nn.SchNet(**SMALL, dipole=True)
