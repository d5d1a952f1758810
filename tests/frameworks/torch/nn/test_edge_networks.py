"""NNConv against that of PyTorch Geometric."""

import copy
import functools

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from pyops.torch import nn  # noqa: E402

from .comparison import check_alike, check_same, distances, draw, results  # noqa: E402

NODES, EDGES = 25, 90


def edges(num_src=NODES, num_dst=NODES, count=EDGES):
    return torch.stack([torch.randint(0, max(n - 2, 1), (count,)) for n in (num_src, num_dst)])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


class Shifted(torch.nn.Module):
    """Network that hides its last layer."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 20)

    def forward(self, f):
        return self.inner(f).tanh()


def network(*layers):
    return lambda: torch.nn.Sequential(*(make() for make in layers))


def linear(*sizes, **options):
    return lambda: torch.nn.Linear(*sizes, **options)


NETWORKS = {
    "relu": network(linear(3, 8), torch.nn.ReLU, linear(8, 20)),
    "no bias": network(linear(3, 8), torch.nn.Tanh, linear(8, 20, bias=False)),
    "deep": network(linear(3, 8), torch.nn.SiLU, linear(8, 6), torch.nn.GELU, linear(6, 20)),
    "one layer": network(linear(3, 20)),
    "bounded": network(linear(3, 8), torch.nn.SiLU, linear(8, 20), torch.nn.Tanh),
    "module": Shifted,
}
OPTIONS = [
    {},
    {"aggr": "mean"},
    {"aggr": "max"},
    {"aggr": "median"},
    {"aggr": "softmax", "aggr_kwargs": {"t": 0.7}},
    {"aggr": ["mean", "std"], "root_weight": False, "bias": False},
    {"root_weight": False, "bias": False},
    {"flow": "target_to_source"},
]


def pair(channels, make, **options):
    layers = []
    for package in (pyg, nn):
        torch.manual_seed(1)
        layers.append(package.NNConv(channels, 4, make(), **options))
    return layers


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("given", OPTIONS, ids=str)
def test_options(name, given):
    original, drop_in = pair(5, NETWORKS[name], **given)
    check_alike(original, drop_in)
    check_same(original, drop_in, [draw(NODES, 5), edges(), draw(EDGES, 3)])


@pytest.mark.parametrize("name", ["relu", "module"])
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
def test_two_kinds_of_nodes(name, aggr):
    original, drop_in = pair((5, 7), NETWORKS[name], aggr=aggr)
    x = draw(20, 5), draw(30, 7)
    check_same(original, drop_in, [x, edges(20, 30), draw(EDGES, 3)])
    check_same(original, drop_in, [(x[0], None), edges(20, 30), draw(EDGES, 3), (20, 30)])


@pytest.mark.parametrize("channels", [5, (5, 7)])
@pytest.mark.parametrize("aggr", ["add", "max"])
def test_back_from_fewer_nodes(channels, aggr):
    given = {"aggr": aggr, "root_weight": False, "flow": "target_to_source"}
    original, drop_in = pair(channels, NETWORKS["relu"], **given)
    x = draw(30, 5), draw(20, 5 if channels == 5 else 7)
    drop_in.load_state_dict(original.state_dict())
    arguments = [(x[0].float(), x[1].float()), edges(30, 20), draw(EDGES, 3).float()]
    torch.testing.assert_close(drop_in(*arguments), original(*arguments))


@pytest.mark.parametrize("name", ["relu", "module"])
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize(("nodes", "count"), [(NODES, 0), (0, 0), (1, 1)])
def test_empty(name, aggr, nodes, count):
    original, drop_in = pair(5, NETWORKS[name], aggr=aggr)
    index = torch.zeros(2, count, dtype=torch.long)
    arguments = [draw(nodes, 5), index, draw(count, 3)]
    check_same(original, drop_in, arguments, single=False)


def test_layers_of_other_packages():
    original, drop_in = pair(5, network(linear(3, 8), torch.nn.ReLU, lambda: pyg.Linear(8, 20)))
    check_same(original, drop_in, [draw(NODES, 5), edges(), draw(EDGES, 3)])


def test_hooks_are_called():
    seen = []
    _, drop_in = pair(5, NETWORKS["relu"])
    arguments = [draw(NODES, 5).float(), edges(), draw(EDGES, 3).float()]
    plain = drop_in(*arguments)
    drop_in.nn[-1].register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(drop_in(*arguments), plain)
    assert seen == [1]


def twice(module):
    old = module.forward
    module.forward = lambda z: 2 * old(z)


def patched_class(module):
    kind = type(module)
    old = kind.forward
    kind.forward = lambda self, z: 2 * old(self, z)
    return lambda: setattr(kind, "forward", old)


def wrapped_class(module):
    kind = type(module)
    old = kind.forward
    kind.forward = functools.wraps(old)(lambda self, z: 2 * old(self, z))
    return lambda: setattr(kind, "forward", old)


def everywhere(module):
    hooks = torch.nn.modules.module
    hook = hooks.register_module_forward_hook(
        lambda m, _, y: 2 * y if type(m).__name__ == "Linear" else None
    )
    return hook.remove


@pytest.mark.parametrize("change", [twice, patched_class, wrapped_class, everywhere])
@pytest.mark.parametrize("place", [None, 0, 1, 2])
def test_changed_calls_are_made(change, place):
    """Replaced calls of the network's layers are not bypassed."""
    original, drop_in = pair(5, NETWORKS["relu"], root_weight=False)
    drop_in.load_state_dict(original.state_dict())
    arguments = [draw(NODES, 5).float(), edges(), draw(EDGES, 3).float()]
    plain = drop_in(*arguments)
    network = original.nn if place is None else original.nn[place]
    undo = change(network)
    if change is twice:
        change(drop_in.nn if place is None else drop_in.nn[place])
    try:
        found, truth = drop_in(*arguments), original(*arguments)
    finally:
        if undo is not None:
            undo()
    torch.testing.assert_close(found, truth)
    assert not torch.allclose(found, plain)


def test_network_that_is_no_module():
    layer = nn.NNConv(5, 4, lambda f: f, bias=False, root_weight=False).double()
    x, index, matrix = draw(NODES, 5), edges(), draw(EDGES, 20)
    expected = torch.zeros(NODES, 4, dtype=torch.float64).index_add(
        0, index[1], torch.einsum("ei,eio->eo", x[index[0]], matrix.view(-1, 5, 4))
    )
    torch.testing.assert_close(layer(x, index, matrix), expected)


@pytest.mark.parametrize("name", ["relu", "module"])
def test_compiled(name):
    torch._dynamo.reset()
    _, layer = pair(5, NETWORKS[name])
    layer = layer.double()
    arguments = [draw(NODES, 5), edges(), draw(EDGES, 3)]
    truth = results(copy.deepcopy(layer), arguments, torch.float64, order=1)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found = results(lambda *a: compiled(*a), arguments, torch.float64, order=1, module=layer)
    assert distances(found, truth)[0] < 1e-12


def fused():
    return nn.NNConv(5, 4, NETWORKS["relu"](), root_weight=False, bias=False)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.NNConv(5, 4, Shifted(), aggr="middle"), ValueError, "NNConv: aggr: expected"),
        (lambda: nn.NNConv(5, 4, Shifted(), aggr=[]), ValueError, "NNConv: aggr: expected"),
        (
            lambda: nn.NNConv(5, 4, Shifted())(torch.zeros(3, 5), edges(3, 3)),
            ValueError,
            "edge_attr: expected features of the edges, got None",
        ),
        (
            lambda: nn.NNConv(5, 4, Shifted())(
                torch.zeros(2, 3, 5), edges(3, 3), torch.zeros(90, 3)
            ),
            ValueError,
            r"x: expected two dimensions, got 3",
        ),
        (
            lambda: fused()(torch.zeros(3, 10), edges(3, 3), torch.zeros(90, 3)),
            ValueError,
            r"x: expected shape \(nodes, 5\)",
        ),
        (
            lambda: fused()(torch.zeros(3, 5), edges(3, 3), torch.zeros(90, 4)),
            ValueError,
            "edge_attr: expected 3 columns",
        ),
        (
            lambda: nn.NNConv(5, 2, NETWORKS["relu"]())(
                torch.zeros(3, 5), edges(3, 3), torch.zeros(90, 3)
            ),
            ValueError,
            "nn: expected in_channels . out_channels = 10 numbers, got 20",
        ),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
