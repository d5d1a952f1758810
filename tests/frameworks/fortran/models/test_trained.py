"""Networks of PyTorch, saved by pyops.models and run by a Fortran program: values and gradients."""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
models = pytest.importorskip("pyops.models")

from pyops.models._calls import CALLS  # noqa: E402
from pyops.torch import nn, radius_graph  # noqa: E402

from .... import ROOT  # noqa: E402
from ....mutants.fault_sites import OPERATORS  # noqa: E402
from ....support.model_files import write  # noqa: E402
from ..compilers import FORTRAN, Installed, command  # noqa: E402

pytestmark = pytest.mark.bare
HERE = Path(__file__).parent
DTYPES = {"r8": (torch.float64, 1e-12), "r4": (torch.float32, 1e-5)}
CUTOFF = 3.0


@pytest.fixture(scope="session", params=["installed", "flang-22"])
def build(request, compiled, tmp_path_factory):
    """Programs against the installed library, which has modules of gfortran, and by flang."""
    if request.param == "installed":
        return Installed(tmp_path_factory.mktemp("installed"))
    return compiled(request.param)


class Darcy(torch.nn.Module):
    """A graph neural operator: the coefficient of Darcy flow to its pressure."""

    def __init__(self):
        super().__init__()
        kernel = [
            torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 36))
            for _ in range(2)
        ]
        self.lift, self.out = torch.nn.Linear(3, 6), torch.nn.Linear(6, 1)
        self.layers = torch.nn.ModuleList([nn.NNConv(6, 6, k, aggr="mean") for k in kernel])

    def forward(self, x, edge_index, edge_attr):
        h = self.lift(x)
        for layer in self.layers:
            h = torch.nn.functional.gelu(layer(h, edge_index, edge_attr))
        return self.out(h)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.GATConv(4, 3, heads=2), torch.nn.LayerNorm(6)
        self.second = nn.GATConv(6, 5, heads=2, concat=False, edge_dim=3)

    def forward(self, x, edge_index, edge_attr):
        h = torch.nn.functional.elu(self.norm(self.first(x, edge_index)))
        return torch.log_softmax(self.second(h, edge_index, edge_attr), dim=-1)


def mlp(dtype):
    layers = torch.nn.Linear(3, 8), torch.nn.SiLU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)
    return torch.nn.Sequential(*layers), {"input": torch.rand(11, 3, dtype=dtype)}


def darcy(dtype):
    edges = torch.randint(0, 20, (2, 80))
    inputs = {"x": torch.rand(20, 3, dtype=dtype), "edge_index": edges}
    return Darcy(), inputs | {"edge_attr": torch.rand(80, 6, dtype=dtype)}


def attention(dtype):
    edges = torch.randint(0, 10, (2, 40))
    inputs = {"x": torch.rand(10, 4, dtype=dtype), "edge_index": edges}
    return Attention(), inputs | {"edge_attr": torch.rand(40, 3, dtype=dtype)}


def molecules(dtype):
    """Return atomic numbers, positions and molecules of atoms."""
    inputs = {"z": torch.randint(1, 9, (12,)), "pos": 4 * torch.rand(12, 3, dtype=dtype)}
    return inputs | {"batch": torch.tensor([0] * 7 + [1] * 5)}


def dimenet(dtype):
    net = nn.DimeNetPlusPlus(
        16,
        1,
        2,
        int_emb_size=8,
        basis_emb_size=4,
        out_emb_channels=12,
        num_spherical=3,
        num_radial=4,
        cutoff=CUTOFF,
        output_initializer="glorot_orthogonal",
    )
    return net, molecules(dtype)


def schnet(dtype):
    return nn.SchNet(16, 8, 2, 6, cutoff=CUTOFF), molecules(dtype)


def trained(make, dtype):
    """Return a network with drawn parameters, and its inputs."""
    torch.manual_seed(0)
    net, inputs = make(dtype)
    net = net.to(dtype).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.05 * torch.rand_like(parameter)
        if isinstance(net, nn.SchNet):
            net.embedding.weight[net.embedding.padding_idx] = 0
    for tensor in inputs.values():
        tensor.requires_grad_(tensor.is_floating_point())
    return net, inputs


def gradients(net, inputs, graph):
    """Return the gradients of inputs and parameters by name."""
    found = {n: t for n, t in inputs.items() if n != graph and t.requires_grad}
    found |= dict(net.named_parameters())
    return {f"grad:{n}": t.grad.numpy() for n, t in found.items() if t.grad is not None}


def test_calls():
    """Fortran knows the calls of Python, with the same inputs and options."""
    code = (
        "import sys, json; sys.path[:0] = sys.argv[1:3]; import model_calls;"
        "calls = model_calls.Table(sys.argv[3]).calls;"
        "print(json.dumps({c.name: [[a.name for a in c.arguments], [o.name for o in c.options],"
        " c.graph, c.result] for c in calls}))"
    )
    tables = FORTRAN, ROOT / "pyops"
    known = json.loads(command(sys.executable, "-c", code, *tables, ",".join(OPERATORS)))
    for name, (inputs, options, graph, result) in known.items():
        call = CALLS[name]
        assert call.several or {*inputs} == {*call.inputs}, name
        assert {*options} == {*call.options}, name
        assert (graph, result) == (call.graph, call.result), name
    assert known.keys() == CALLS.keys()


@pytest.mark.parametrize("variant", ["r8", "r4"])
@pytest.mark.parametrize("make", [mlp, darcy, attention, dimenet, schnet])
def test_network(build, sources, tmp_path, make, variant):
    dtype, tolerance = DTYPES[variant]
    net, inputs = trained(make, dtype)
    models.save(net, tmp_path / "model", tuple(inputs.values()))
    y = net(*inputs.values())
    gy = torch.rand_like(y)
    y.backward(gy)
    graph = "edge_index" if "edge_index" in inputs else None
    nodes = len(next(iter(inputs.values())))
    tensors = {
        f"{'input' if t.is_floating_point() else 'index'}:{n}": t.detach().numpy()
        for n, t in inputs.items()
        if n != graph
    }
    if graph:
        tensors |= {"graph:edge_index": inputs[graph].numpy()}
        tensors |= {"sizes:edge_index": np.array([nodes, nodes])}
    if "pos" in inputs:
        pairs, *_ = radius_graph(inputs["pos"].detach(), CUTOFF, batch=inputs["batch"])
        tensors |= {"graph:graph": np.stack([pairs.src, pairs.dst]).astype(np.int64)}
        tensors |= {"sizes:graph": np.array([nodes, nodes])}
    expected = gradients(net, inputs, graph)
    write(tmp_path / "inputs", {**tensors, "y": y.detach().numpy(), "gy": gy.numpy(), **expected})
    target = sources.folder / f"models_{variant}.f90"
    sources.expand(HERE / "run.fypp", target, VARIANT=variant)
    output = command(build.link(target), tmp_path / "model", tmp_path / "inputs")
    found = {line.split()[1]: float(line.split()[2]) for line in output.splitlines()}
    assert found.keys() == {"y", *expected}
    assert max(found.values()) <= tolerance, found


def test_forces(build, tmp_path):
    """Forces of DimeNet over a graph that Fortran finds, and training on them."""
    net, inputs = trained(dimenet, torch.float64)
    models.save(net, tmp_path / "model", tuple(inputs.values()))
    energy = net(*inputs.values())
    (slope,) = torch.autograd.grad(energy.sum(), inputs["pos"], create_graph=True)
    slope.square().sum().backward()
    tensors = {n: t.detach().numpy() for n, t in inputs.items()}
    expected = {
        f"grad:{n}": np.zeros(p.shape) if p.grad is None else p.grad.numpy()
        for n, p in net.named_parameters()
    }
    tensors |= {"energy": energy.detach().numpy(), "force": -slope.detach().numpy(), **expected}
    write(tmp_path / "inputs", tensors)
    compiled = build.link(HERE / "forces.f90")
    output = command(compiled, tmp_path / "model", tmp_path / "inputs")
    found = dict(line.split() for line in output.splitlines())
    used = {n for n, g in expected.items() if g.any()}
    assert {"energy", "force", *used} <= found.keys()
    assert max(map(float, found.values())) <= 1e-11, found


def test_dynamics(build, tmp_path, monkeypatch):
    """The example moves a crystal as ASE does."""
    pytest.importorskip("ase")
    pytest.importorskip("safetensors")
    folder = ROOT / "examples" / "fortran"
    monkeypatch.syspath_prepend(folder)
    import dynamics

    torch.manual_seed(0)
    net, atoms = nn.SchNet(8, 8, 2, 8, 4.0, max_num_neighbors=None), dynamics.crystal()
    net = net.double().eval()
    files = dynamics.write(tmp_path, net, atoms)
    output = command(build.link(folder / "dynamics.f90"), *files, "40")
    found = np.array([line.split() for line in output.splitlines()], float)
    expected = dynamics.in_python(net, atoms, 40)
    np.testing.assert_allclose(found[:, :2], expected[:, :2], rtol=0, atol=0.06)  # as printed
    np.testing.assert_allclose(found[:, 2:], expected[:, 2:], rtol=0, atol=1e-8)


def test_closure(tmp_path):
    """The network of the tutorial improves the solver after a few steps of training."""
    pytest.importorskip("matplotlib")
    tutorials = ROOT / "docs" / "tutorials"
    text = (tutorials / "plot_7_closure.py").read_text()
    script, constants = tmp_path / "closure.py", "STEPS, BATCH, WINDOW = 400, 8, 4"
    assert constants in text
    script.write_text(text.replace(constants, "STEPS, BATCH, WINDOW = 60, 4, 3"))
    (tmp_path / "closure.f90").symlink_to(tutorials / "closure.f90")
    environment = os.environ | {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    output = command(sys.executable, script, "picture.png", cwd=tmp_path, env=environment)
    found = {k.strip(): v.strip() for k, v in re.findall(r"^(.*):(.*)$", output, re.MULTILINE)}
    plain = float(found["relative error of the coarse solver"])
    assert float(found["with the network"]) < 0.8 * plain
    assert float(found["largest difference from Python"]) < 1e-5
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
