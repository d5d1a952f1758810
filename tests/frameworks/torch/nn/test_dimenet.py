"""Layers of DimeNet++ against those of PyTorch Geometric.

The layers are compared on the same molecules, so this is one file.
"""

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import pyops.torch.nn as pn  # noqa: E402

from ....support.compare import assert_close  # noqa: E402
from .dimenet_original import ROUNDED, dimenet, edges_within, substituted, triplets  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

SMALL = {
    "hidden_channels": 12,
    "out_channels": 2,
    "num_blocks": 2,
    "int_emb_size": 6,
    "basis_emb_size": 4,
    "out_emb_channels": 10,
    "num_spherical": 3,
    "num_radial": 2,
    "output_initializer": "glorot_orthogonal",
}
TABLE = [
    {},
    {"num_spherical": 7, "num_radial": 6},
    {"num_spherical": 2, "num_radial": 1},
    {"cutoff": 3.0, "envelope_exponent": 3},
    {"num_before_skip": 0, "num_after_skip": 0, "num_output_layers": 0},
    {"num_before_skip": 2, "num_after_skip": 1, "num_output_layers": 1},
    {"act": "silu", "num_blocks": 1},
    {"act": "soft-plus", "num_blocks": 1},
    {"act": torch.nn.Tanh(), "num_blocks": 1},
    {"act": "PReLU", "num_blocks": 1},
    {"num_blocks": 0},
    {"hidden_channels": 5, "int_emb_size": 1, "basis_emb_size": 2, "out_channels": 1},
    {"output_initializer": "zeros"},
]


@pytest.fixture(autouse=True)
def alone():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def molecules(seed=0, atoms=(5, 1, 7, 2), dtype=torch.float64):
    """Return atomic numbers, positions with a minimum distance, and the molecule of each atom."""
    rng, points = np.random.default_rng(seed), []
    for count in atoms:
        own = []
        while len(own) < count:
            point = rng.uniform(0, 1.6 * count ** (1 / 3), 3)
            if all(np.linalg.norm(point - other) > 0.8 for other in own):
                own.append(point)
        points += own
    z = torch.from_numpy(rng.integers(1, 95, len(points)))
    batch = torch.arange(len(atoms)).repeat_interleave(torch.tensor(atoms))
    return z, torch.tensor(np.array(points), dtype=dtype), batch


def pair(name, *arguments, dtype=torch.float64, basis=None, **options):
    """Return the original and its drop-in layer, with the same weights."""
    with substituted(**({} if basis is None else {"basis": basis})):
        theirs = getattr(dimenet, name)(*arguments, **options).to(dtype)
    ours = getattr(pn, name)(*arguments, **options).to(dtype)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return theirs, ours


def twice(function, leaves, others):
    """Return a value, its gradients, and the gradients of their squares by the leaves."""
    value = function()
    seed = torch.cos(torch.arange(value.numel(), dtype=value.dtype)).reshape(value.shape)
    everything = [*leaves, *others]
    gradients = torch.autograd.grad((value * seed).sum(), everything, create_graph=True)
    forces = sum((g * g).sum() for g in gradients[: len(leaves)])
    seconds = torch.autograd.grad(forces, everything, materialize_grads=True)
    return [t.detach().numpy() for t in (value, *gradients, *seconds)]


def forces_of(model, z, pos, batch):
    pos = pos.clone().requires_grad_()
    with substituted():
        return twice(lambda: model(z, pos, batch), [pos], [*model.parameters()])


@pytest.mark.parametrize("options", TABLE, ids=str)
def test_model(options):
    theirs, ours = pair("DimeNetPlusPlus", **{**SMALL, **options})
    data = molecules()
    assert_close(forces_of(ours, *data), forces_of(theirs, *data), 1e-10)


def test_model_of_one_molecule():
    theirs, ours = pair("DimeNetPlusPlus", **SMALL)
    z, pos, _ = molecules(atoms=(6,))
    y = ours(z, pos)
    assert y.shape == (2,)
    assert_close(forces_of(ours, z, pos, None), forces_of(theirs, z, pos, None), 1e-10)


def test_model_of_scattered_atoms():
    """Atoms of molecules are in any order, and no two atoms of a molecule are adjacent."""
    theirs, ours = pair("DimeNetPlusPlus", **SMALL)
    z, pos, batch = molecules()
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(z)))
    data = z[order], pos[order], batch[order]
    assert_close(forces_of(ours, *data), forces_of(theirs, *data), 1e-10)
    assert torch.isfinite(ours(z, 100 * pos, batch)).all()


def test_model_in_float32():
    """The float32 error of values and derivatives is at most twice that of the original.

    It is compared by the sum of squares of many cases, as one case with cancellation outweighs a
    few, and by the geometric mean.
    """
    options = {**SMALL, "num_spherical": 5, "num_radial": 3, "hidden_channels": 32}
    theirs, _ = pair("DimeNetPlusPlus", **options)
    released, single = pair("DimeNetPlusPlus", basis=ROUNDED, dtype=torch.float32, **options)
    found_errors = []
    for seed in range(24):
        z, pos, batch = molecules(seed, atoms=(9, 8, 12))
        torch.manual_seed(seed)
        single.reset_parameters()
        for model in theirs, released:
            model.load_state_dict(single.state_dict())
        truth = forces_of(theirs, z, pos.float().double(), batch)
        for model in single, released:
            found = forces_of(model, z, pos.float(), batch)
            errors = [
                (np.abs(a - b).max(initial=0) / np.abs(b).max(initial=1e-30)) ** 2
                for a, b in zip(found, truth, strict=True)
            ]
            middle = 1 + len(errors) // 2
            parts = errors[:1], errors[1:middle], errors[middle:]
            found_errors.append([np.sqrt(sum(part)) for part in parts])
    ours, originals = np.moveaxis(np.reshape(found_errors, (-1, 2, 3)), 1, 0)
    ratios = np.sqrt((ours**2).sum(0) / (originals**2).sum(0))
    assert (ratios <= 2).all(), ratios
    ratios = np.exp(np.log(ours / originals).mean(0))
    assert (ratios <= 2).all(), ratios


@pytest.mark.parametrize("options", TABLE, ids=str)
def test_same_look_and_same_draws(options):
    options = {**SMALL, **options}
    torch.manual_seed(7)
    with substituted():
        theirs = dimenet.DimeNetPlusPlus(**options)
    torch.manual_seed(7)
    ours = pn.DimeNetPlusPlus(**options)
    if "act" not in options or isinstance(options["act"], str):
        assert repr(ours) == repr(theirs)
    theirs_too, ours_too = theirs.state_dict(), ours.state_dict()
    assert [*ours_too] == [*theirs_too]
    assert all(torch.equal(ours_too[name], theirs_too[name]) for name in theirs_too)
    theirs.load_state_dict(ours_too, strict=True)
    torch.manual_seed(3)
    theirs.reset_parameters()
    torch.manual_seed(3)
    ours.reset_parameters()
    assert all(
        torch.equal(a, b) for a, b in zip(theirs.parameters(), ours.parameters(), strict=True)
    )


def layer_case(name, rng):
    """Return the arguments of a layer: differentiable tensors, then the others."""
    z, pos, batch = molecules(atoms=(6, 5))
    index = edges_within(pos, 2.5, batch)
    j, i = index
    *_, idx_kj, idx_ji = triplets(index, len(z))
    edges, count = len(i), len(idx_kj)

    def normal(*shape):
        return torch.from_numpy(rng.standard_normal(shape))

    dist = (pos[i] - pos[j]).norm(dim=1)
    angle = torch.from_numpy(rng.uniform(0.1, 3, count))
    act = torch.nn.functional.silu
    return {
        "BesselBasisLayer": ((3, 2.5, 4), [dist], ()),
        "SphericalBasisLayer": ((4, 3, 2.5, 4), [dist, angle], (idx_kj,)),
        "EmbeddingBlock": ((3, 8, act), [normal(edges, 3)], (i, j)),
        "ResidualLayer": ((8, act), [normal(edges, 8)], ()),
        "InteractionPPBlock": (
            (8, 6, 4, 3, 2, 1, 2, act),
            [normal(edges, 8), normal(edges, 2), normal(count, 6)],
            (idx_kj, idx_ji),
        ),
        "OutputPPBlock": (
            (2, 8, 10, 3, 2, act, "glorot_orthogonal"),
            [normal(edges, 8), normal(edges, 2)],
            (i, len(z) + 2),
        ),
    }[name], z


LAYERS = [
    "BesselBasisLayer",
    "SphericalBasisLayer",
    "EmbeddingBlock",
    "ResidualLayer",
    "InteractionPPBlock",
    "OutputPPBlock",
]


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name, rng):
    (arguments, tensors, rest), z = layer_case(name, rng)
    theirs, ours = pair(name, *arguments)
    assert repr(ours) == repr(theirs)
    results = []
    for layer in ours, theirs:
        leaves = [t.clone().requires_grad_() for t in tensors]
        before = [z] if name == "EmbeddingBlock" else []
        calls = lambda: layer(*before, *leaves, *rest)  # noqa: B023, E731
        results.append(twice(calls, leaves, [*layer.parameters()]))
    assert_close(*results, 1e-12)


def test_interaction_on_a_graph_is_that_of_its_triplets(rng):
    z, pos, batch = molecules(atoms=(6, 5))
    j, i = edges_within(pos, 2.5, batch)
    *_, idx_kj, idx_ji = triplets(torch.stack([j, i]), len(z))
    block = pn.InteractionPPBlock(8, 6, 4, 3, 2, 1, 1, torch.tanh).double()
    basis = pn.SphericalBasisLayer(3, 2, 2.5)
    x, rbf = (torch.from_numpy(rng.standard_normal((len(i), n))) for n in (8, 2))
    vectors = pos[j] - pos[i]
    dist, u = vectors.norm(dim=1), vectors / vectors.norm(dim=1, keepdim=True)
    angle = torch.arccos((u[idx_kj] * u[idx_ji]).sum(1).clamp(-1, 1))
    graph = pn._edges.edge_lists.graph_of_indices("block", {"j": j, "i": i}, len(z), len(z))
    y = block.on_graph(x, rbf, basis.radial(dist), vectors, graph)
    expected = block(x, rbf, basis(dist, angle, idx_kj), idx_kj, idx_ji)
    torch.testing.assert_close(y, expected, atol=1e-12, rtol=1e-12)


def test_gradcheck_of_the_energy_and_of_the_forces():
    model = pn.DimeNetPlusPlus(**{**SMALL, "num_blocks": 1}).double()
    z, pos, batch = molecules(atoms=(4, 3))
    pos.requires_grad_()
    energy = lambda p: model(z, p, batch)  # noqa: E731
    assert torch.autograd.gradcheck(energy, pos, fast_mode=True)
    assert torch.autograd.gradgradcheck(energy, pos, fast_mode=True)


def test_released_original_differs_by_the_rounding_of_its_zeros():
    theirs, ours = pair("DimeNetPlusPlus", basis=ROUNDED, **SMALL)
    z, pos, batch = molecules()
    with substituted():
        expected = theirs(z, pos, batch)
    assert (ours(z, pos, batch) - expected).abs().max() < 1e-5 * expected.abs().max()


def test_three_atoms_in_a_line():
    """At collinear atoms the angle has no derivative, but its cosine has."""
    model = pn.DimeNetPlusPlus(**SMALL).double()
    pos = torch.tensor([[0.0, 0, 0], [1, 0, 0], [2.1, 0, 0]], dtype=torch.float64)
    results = forces_of(model, torch.tensor([8, 6, 8]), pos, None)
    assert all(np.isfinite(r).all() for r in results)


def test_pickle_and_threads():
    model = pn.DimeNetPlusPlus(**SMALL)
    z, pos, batch = molecules(dtype=torch.float32)
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(z, pos, batch), model(z, pos, batch))


def force_step(model):
    def step(z, pos, batch, wanted):
        energy = model(z, pos, batch)
        (slope,) = torch.autograd.grad(energy.sum(), pos, create_graph=True)
        return (slope + wanted).pow(2).mean() + energy.pow(2).mean()

    return step


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_force_training(backend):
    """Two batches of different sizes run in one compiled graph."""
    torch._dynamo.reset()
    torch._dynamo.config.trace_autograd_ops = True
    model = pn.DimeNetPlusPlus(**{**SMALL, "num_blocks": 1}).double()
    eager = force_step(model)
    compiled = torch.compile(eager, fullgraph=True, dynamic=True, backend=backend)
    for seed, atoms in enumerate([(5, 4, 3), (6, 7)]):
        z, pos, batch = molecules(seed, atoms)
        leaves = [pos.requires_grad_(), *model.parameters()]
        wanted = torch.ones_like(pos)
        one, other = compiled(z, pos, batch, wanted), eager(z, pos, batch, wanted)
        torch.testing.assert_close(one, other)
        gradients = (torch.autograd.grad(v, leaves, allow_unused=True) for v in (one, other))
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"num_spherical": 1}, ValueError, "'num_spherical' should be greater than 1"),
        ({"num_spherical": 17}, ValueError, "num_spherical: expected 1 to 16, got 17"),
        ({"num_radial": 0}, ValueError, "num_radial: expected 1 to 64, got 0"),
        ({"envelope_exponent": 0}, ValueError, "envelope_exponent: expected 1 to 32, got 0"),
        ({"act": "nothing"}, ValueError, "act: expected .*, got 'nothing'"),
        ({"output_initializer": "ones"}, ValueError, "output_initializer: .*, got 'ones'"),
    ],
)
def test_refusals(options, kind, message):
    with pytest.raises(kind, match=message):
        pn.DimeNetPlusPlus(**{**SMALL, **options})


def test_refused_inputs():
    z, pos, batch = molecules(atoms=(4,))
    model = pn.DimeNetPlusPlus(**SMALL)
    for inputs, message in (
        ((z, pos.numpy()), "pos: expected a torch.Tensor, got ndarray"),
        ((z.numpy(), pos.float()), "z: expected a torch.Tensor, got ndarray"),
        ((z, pos.float(), batch.numpy()), "batch: expected a torch.Tensor, got ndarray"),
        ((z, pos.double()), "pos: expected float32 like the parameters, got float64"),
    ):
        with pytest.raises(TypeError, match=f"^DimeNetPlusPlus: {message}$"):
            model(*inputs)


def test_too_many_neighbours_are_refused():
    z, pos, batch = molecules(atoms=(7, 2))
    few, all_of_them = (pn.DimeNetPlusPlus(**SMALL, max_num_neighbors=n) for n in (3, None))
    with pytest.raises(ValueError, match=r"max_num_neighbors: expected at least 6.*got 3"):
        few(z, pos.float(), batch)
    all_of_them(z, pos.float(), batch)
