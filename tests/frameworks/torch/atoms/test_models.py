"""Models of molecules and crystals that are saved equal PyTorch when they are loaded without."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyops  # noqa: E402
from pyops.models import load, save  # noqa: E402
from pyops.torch import nn  # noqa: E402

from ..layer_cases import LARGER, SMALLER, crystals, dimenet, molecule  # noqa: E402

ATOMREF = torch.linspace(-1, 1, 100).view(100, 1)
SIZES = 8, 6, 2, 5
CUTOFF = 2.5
MODELS = {
    "SchNet": {},
    "mean": {"readout": "mean", "mean": 0.5, "std": 2.0},
    "atomref": {"atomref": ATOMREF},
    "dipole": {"dipole": True, "max_num_neighbors": None},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batched", [False, True])
def test_schnet(name, batched, tmp_path):
    if name == "dipole":
        pytest.importorskip("ase")
    torch.manual_seed(0)
    model = nn.SchNet(*SIZES, cutoff=CUTOFF, **MODELS[name]).double().eval()
    path = tmp_path / "model.safetensors"
    save(model, path, molecule(LARGER)[: 2 + batched])
    found = load(path)
    for sizes in LARGER, SMALLER:
        z, pos, batch = molecule(sizes)
        pos.requires_grad_()
        y = model(z, pos, batch if batched else None)
        (force,) = torch.autograd.grad(y.sum(), pos)
        x, owner = pos.detach().numpy(), batch.numpy() if batched else None
        graph = pyops.radius_graph(x, found.hyperparameters["cutoff"], batch=owner)[0]
        given = (graph, z.numpy(), x, *([owner] if batched else []))
        np.testing.assert_allclose(found(*given), y.detach().numpy(), rtol=1e-12)
        own = found.backward(*given, np.ones(y.shape), wanted=["pos"])["pos"]
        np.testing.assert_allclose(own, force.numpy(), atol=1e-12)


def test_interaction_graphs_are_refused(tmp_path):
    def edges(pos, batch):
        return torch.tensor([[0], [1]]), torch.ones(1).double()

    model = nn.SchNet(*SIZES, interaction_graph=edges).double().eval()
    with pytest.raises(NotImplementedError, match=r"SchNet\): interaction_graph: expected None"):
        save(model, tmp_path / "model", molecule(LARGER))


@pytest.mark.parametrize("make", [dimenet, lambda: nn.SchNet(*SIZES, cutoff=CUTOFF)])
def test_crystals(make, tmp_path):
    """Gradients by positions and by the offsets of periodic images, which give those by cells."""
    torch.manual_seed(0)
    model = make().double().eval()
    path = tmp_path / "model.safetensors"
    save(model, path, crystals(LARGER))
    found = load(path)
    z, pos, batch, cell = crystals(SMALLER)
    pos.requires_grad_()
    cell.requires_grad_()
    y = model(z, pos, batch, cell)
    expected = torch.autograd.grad(y.sum(), [pos, cell])
    x, cells, owner = pos.detach().numpy(), cell.detach().numpy(), batch.numpy()
    graph, _, offsets, reverse = pyops.radius_graph(x, CUTOFF, cell=cells, batch=owner)
    given = {"graph": graph, "offsets": offsets, "z": z.numpy(), "pos": x, "batch": owner}
    if "reverse" in [one.name for one in found.inputs]:
        given["reverse"] = reverse
    np.testing.assert_allclose(found(**given), y.detach().numpy(), rtol=1e-12)
    gradients = found.backward(**given, gy=np.ones(y.shape))
    np.testing.assert_allclose(gradients["pos"], expected[0].numpy(), atol=1e-11)
    of_edge = owner[graph.dst]
    images = np.rint(np.einsum("ei,eij->ej", offsets, np.linalg.inv(cells)[of_edge]))
    for place, by_cell in enumerate(expected[1].numpy()):
        own = of_edge == place
        np.testing.assert_allclose(images[own].T @ gradients["offsets"][own], by_cell, atol=1e-10)
