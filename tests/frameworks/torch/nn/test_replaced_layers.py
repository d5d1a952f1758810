"""Inner layers that a user replaces are called, as in the originals."""

import functools

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch_geometric.nn.models import dimenet  # noqa: E402

from pyops.torch import nn  # noqa: E402
from pyops.torch.nn._edges import routes  # noqa: E402

NODES, EDGES = 6, 20
GENERATOR = torch.Generator().manual_seed(0)
INDEX = torch.randint(NODES, (2, EDGES), generator=GENERATOR)
TRIPLETS = torch.randint(EDGES, (2, 30), generator=GENERATOR)


def draw(*shape):
    return torch.rand(shape, generator=GENERATOR, dtype=torch.float64)


X, FEATURES, MESSAGES, BASIS = draw(NODES, 4), draw(EDGES, 3), draw(EDGES, 8), draw(30, 6)
NETWORK = functools.partial(torch.nn.Sequential, torch.nn.Linear(3, 5), torch.nn.ReLU())
ATTENTION = {"heads": 2, "edge_dim": 3}
CASES = {
    **{
        name: (pyg, lambda kind: kind(4, 3, **ATTENTION), [X, INDEX, FEATURES])
        for name in ("GATConv", "GATv2Conv", "TransformerConv")
    },
    "NNConv": (
        pyg,
        lambda kind: kind(4, 3, NETWORK(torch.nn.Linear(5, 12))),
        [X, INDEX, FEATURES],
    ),
    "InteractionPPBlock": (
        dimenet,
        lambda kind: kind(8, 4, 4, 2, 3, 1, 1, torch.tanh),
        [MESSAGES, FEATURES, BASIS, *TRIPLETS],
    ),
    "OutputPPBlock": (
        dimenet,
        lambda kind: kind(3, 8, 4, 2, 1, torch.tanh, "glorot_orthogonal"),
        [MESSAGES, FEATURES, INDEX[1], NODES],
    ),
    "EmbeddingBlock": (
        dimenet,
        lambda kind: kind(3, 8, torch.tanh),
        [torch.arange(NODES), FEATURES, *INDEX],
    ),
}


class Scaled(torch.nn.Linear):
    """Linear layer with its own forward."""

    def forward(self, x):
        return 3 * super().forward(x)


def patched(*sizes):
    layer = torch.nn.Linear(*sizes, bias=False)
    layer.forward = lambda x: torch.nn.Linear.forward(layer, x).exp()
    return layer


REPLACEMENTS = {
    "bias": torch.nn.Linear,
    "no bias": functools.partial(torch.nn.Linear, bias=False),
    "forward of its own": Scaled,
    "forward of its own, no bias": functools.partial(Scaled, bias=False),
    "patched": patched,
    "several": lambda *sizes: torch.nn.Sequential(torch.nn.Linear(*sizes), torch.nn.Tanh()),
}


def linear(module):
    return type(module).__name__ == "Linear"


def places(name):
    kind = getattr(nn, name)
    return [place for place, part in CASES[name][1](kind).named_modules() if linear(part)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("replacement", REPLACEMENTS)
@pytest.mark.parametrize(("name", "place"), [(n, place) for n in CASES for place in places(n)])
def test_replaced(name, place, replacement, packed, monkeypatch):
    if packed:
        for operator in routes.PACKED:
            monkeypatch.setitem(routes.PACKED, operator, 0)
    package, make, given = CASES[name]
    torch.manual_seed(0)
    original, drop_in = (make(getattr(package, name)).double() for package in (package, nn))
    drop_in.load_state_dict(original.state_dict())
    before = drop_in(*given)
    *path, last = place.split(".")
    weight = drop_in.get_submodule(place).weight
    new = REPLACEMENTS[replacement](*reversed(weight.shape)).double()
    for layer in original, drop_in:
        setattr(layer.get_submodule(".".join(path)), last, new)
    found = drop_in(*given)
    torch.testing.assert_close(found, original(*given), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(found, before)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_patched_layers_of_an_integral(place):
    torch.manual_seed(0)
    layer = nn.IntegralTransform(channel_mlp_layers=[4, 5, 6, 3]).double()
    neighbours = {"neighbors_index": INDEX[0], "neighbors_row_splits": torch.tensor([0, 9, EDGES])}
    points = draw(NODES, 2), neighbours, draw(2, 2)
    inner = layer.channel_mlp.fcs[place]
    inner.forward = lambda x: 2 * torch.nn.Linear.forward(inner, x)
    found = layer(*points)
    del inner.forward
    with torch.no_grad():
        for parameter in inner.parameters():
            parameter *= 2
    torch.testing.assert_close(found, layer(*points), rtol=1e-12, atol=1e-12)


def of_atoms():
    """Return a model without a triplet list, and its arguments."""
    torch.manual_seed(0)
    options = {"num_blocks": 1, "num_spherical": 2, "num_radial": 2, "max_num_neighbors": None}
    sizes = {"int_emb_size": 4, "basis_emb_size": 2, "out_emb_channels": 4}
    model = nn.DimeNetPlusPlus(8, 2, **options, **sizes).double()
    return model, (torch.ones(NODES).long(), draw(NODES, 3))


def test_gradients_by_weights_are_contiguous():
    model, atoms = of_atoms()
    slopes = torch.autograd.grad(model(*atoms).sum(), [*model.parameters()], allow_unused=True)
    assert all(slope is None or slope.is_contiguous() for slope in slopes)


@pytest.mark.parametrize("replacement", [r for r in REPLACEMENTS if r != "no bias"])
@pytest.mark.parametrize("name", ["lin_sbf1", "lin_sbf2"])
def test_replaced_layers_of_triplets_that_are_not_listed(name, replacement):
    model, atoms = of_atoms()
    model(*atoms)
    block = model.interaction_blocks[0]
    new = REPLACEMENTS[replacement](*reversed(getattr(block, name).weight.shape)).double()
    setattr(block, name, new)
    with pytest.raises(NotImplementedError, match=f"InteractionPPBlock: {name}: expected a torch"):
        model(*atoms)
