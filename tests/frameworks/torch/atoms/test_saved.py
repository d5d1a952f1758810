"""SchNet as a program for Fortran, C and Python without PyTorch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pyops.models import load, save  # noqa: E402
from pyops.torch import nn  # noqa: E402

from ..layer_cases import LARGER, SMALLER, crystals, molecule  # noqa: E402
from ..test_models import assert_equal  # noqa: E402

SIZES = 8, 6, 2, 5, 2.5
REFERENCES = torch.linspace(-3, 2, 100)[:, None]
TABLE = {
    "mean over atoms": {"readout": "mean"},
    "standardized": {"mean": -1.5, "std": 2.0},
    "atoms": {"atomref": REFERENCES, "readout": "mean", "mean": 1.0, "std": 0.5},
    "no interactions": {"num_interactions": 0},
}


def made(options):
    torch.manual_seed(0)
    names = "hidden_channels", "num_filters", "num_interactions", "num_gaussians", "cutoff"
    return nn.SchNet(**{**dict(zip(names, SIZES, strict=True)), **options}).double().eval()


@pytest.mark.parametrize("given", [molecule, crystals])
@pytest.mark.parametrize("name", TABLE)
def test_options(name, given, tmp_path):
    """A file that is written for atoms of one number is right for others."""
    model, path = made(TABLE[name]), tmp_path / "model.safetensors"
    save(model, path, given(LARGER))
    for sizes in LARGER, SMALLER:
        assert_equal(path, model, given(sizes))
    assert load(path).hyperparameters["cutoff"] == 2.5


@pytest.mark.parametrize("readout", ["add", "mean"])
def test_one_molecule(readout, tmp_path):
    model, path = made({"readout": readout}), tmp_path / "model.safetensors"
    given = molecule(LARGER)[:2]
    save(model, path, given)
    assert_equal(path, model, given)
    assert np.shape(model(*given).detach()) == (1, 1)


def test_dipole(tmp_path):
    model, path = made({"dipole": True}), tmp_path / "model.safetensors"
    save(model, path, molecule(LARGER))
    assert_equal(path, model, molecule(SMALLER))


def test_other_searches_are_refused(tmp_path):
    def edges(pos, batch):
        index = torch.stack([torch.arange(len(pos)), torch.arange(len(pos)).flip(0)])
        return index, torch.ones(len(pos)).double()

    with pytest.raises(NotImplementedError, match=r"SchNet.*: interaction_graph: expected None"):
        save(made({"interaction_graph": edges}), tmp_path / "file", molecule(LARGER))
