"""PNAConv against that of PyTorch Geometric."""

import re

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import pyops  # noqa: E402
from pyops.torch import nn  # noqa: E402

from .comparison import NODES, check_alike, check_same, draw, edges, results  # noqa: E402
from .test_aggregating import _route as _route  # noqa: E402
from .test_aggregating import _seed as _seed  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*[Ss]parse invariant")

AGGREGATORS = ["mean", "std", "max", "min", "var", "sum"]
SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]
DEGREES = torch.tensor([2, 3, 5, 4, 1])
FEATURES = {"edge_dim": 3}


def pair(aggregators=AGGREGATORS, scalers=SCALERS, channels=(6, 4), **options):
    made = []
    for package in (pyg, nn):
        torch.manual_seed(1)
        made.append(package.PNAConv(*channels, aggregators, scalers, DEGREES, **options))
    return made


def given(layer, count=NODES):
    index = edges(count, count)
    features = [] if layer.edge_dim is None else [draw(index.shape[1], layer.edge_dim)]
    return [draw(count, layer.in_channels), index, *features]


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize(
    "options",
    [
        {},
        FEATURES,
        {"towers": 2},
        {"towers": 2, "divide_input": True, **FEATURES},
        {"pre_layers": 3, "post_layers": 2, "towers": 2},
        {"pre_layers": 2, "act": "leaky_relu", "act_kwargs": {"negative_slope": 0.3}, **FEATURES},
        {"train_norm": True},
        {"flow": "target_to_source", **FEATURES},
        {"aggregators": ["median", "softmax"]},
        {"aggregators": ["max"], "scalers": ["linear"]},
    ],
    ids=str,
)
def test_options(options):
    original, drop_in = pair(**options)
    check_alike(original, drop_in)
    check_same(original, drop_in, given(original))


@pytest.mark.usefixtures("_route")
def test_all_equal_messages():
    """Ties share gradients, and deviations of nothing have none."""
    original, drop_in = pair(**FEATURES)
    x, index, features = given(original)
    equal = [x[:1].expand(NODES, -1).clone(), index, features[:1].expand(len(features), -1).clone()]
    check_same(original, drop_in, equal, single=False)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("count", [0, 1])
def test_no_edges(count):
    original, drop_in = pair(**FEATURES)
    index = torch.zeros(2, 0, dtype=torch.int64)
    check_same(original, drop_in, [draw(count, 6), index, draw(0, 3)], single=False)


def test_large_constants_of_a_destination():
    """Variances are those of the products with the sources alone, so that no digits are lost."""
    original, drop_in = pair(["std"], ["identity"])
    x, index = given(original)
    with torch.no_grad():
        original.pre_nns[0][0].bias.fill_(1e4)
    drop_in.load_state_dict(original.state_dict())
    exact = results(original, [x, index], torch.float64, order=1)
    errors = []
    graph = pyops.Graph(*index.numpy(), NODES, NODES)
    for layer, form in ((original, index), (drop_in, graph)):
        found = results(layer, [x, form], torch.float32, order=1)
        errors.append(float((found[0][0] - exact[0][0]).abs().max()))
    assert errors[1] < 1e-2 * errors[0]


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("form", ["graph", "sparse", "hook", "semi_grad"])
def test_forms(form):
    """A packed graph, a sparse matrix, hooks and other options of the aggregations."""
    original, drop_in = pair(["mean", "std"])
    x, index = given(original)
    index = torch.unique(index, dim=1)
    other = index
    if form == "graph":
        other = pyops.Graph(*index.numpy(), NODES, NODES)
    if form == "sparse":
        ones = torch.ones(index.shape[1], dtype=torch.float64)
        other = torch.sparse_coo_tensor(index.flip(0), ones, (NODES, NODES)).coalesce()
    if form == "hook":
        for layer in original, drop_in:
            layer.pre_nns[0][0].register_forward_hook(lambda *given: given[-1].tanh())
    if form == "semi_grad":
        for layer in original, drop_in:
            layer.aggr_module.aggr.aggrs[1].var_aggr.semi_grad = True
    drop_in.load_state_dict(original.state_dict())
    truth = results(original, [x, index], torch.float64)
    found = results(drop_in, [x, other], torch.float64)
    for some, others in zip(found, truth, strict=True):
        for one, another in zip(some, others, strict=True):
            torch.testing.assert_close(one, another, rtol=1e-11, atol=1e-11)


LAYER = nn.PNAConv(6, 4, ["mean"], ["identity"], DEGREES)
X, INDEX = torch.zeros(3, 6), torch.zeros(2, 4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: nn.PNAConv(6, 4, ["mean"], ["double"], DEGREES),
            ValueError,
            "scalers: expected some of identity, .*, got 'double'",
        ),
        (lambda: nn.PNAConv(6, 4, ["mode"], SCALERS, DEGREES), ValueError, "aggregators: .*'mode'"),
        (
            lambda: nn.PNAConv(6, 5, ["mean"], SCALERS, DEGREES, towers=2),
            ValueError,
            "out_channels: expected a multiple of 2, got 5",
        ),
        (lambda: LAYER((X, X), INDEX), TypeError, "x: expected a tensor, got a tuple"),
        (lambda: LAYER(X[:, :5], INDEX), ValueError, r"x: expected 6 columns, got shape \(3, 5\)"),
        (
            lambda: LAYER(X, INDEX, torch.zeros(4, 3)),
            ValueError,
            r"edge_attr: expected None, got shape \(4, 3\)",
        ),
        (
            lambda: nn.PNAConv(6, 4, ["mean"], SCALERS, DEGREES, **FEATURES)(X, INDEX),
            ValueError,
            "edge_attr: expected 3 columns, got None",
        ),
        (lambda: LAYER(X, INDEX + 3), IndexError, "edge_index"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=re.escape("pyops.torch.nn.PNAConv: ") + message):
        call()
