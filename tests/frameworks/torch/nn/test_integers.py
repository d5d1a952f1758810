"""int32 and int64 indices give equal results and derivatives; other integers are refused."""

import contextlib
import functools

import pytest

torch = pytest.importorskip("torch")

from pyops.torch import nn  # noqa: E402
from pyops.torch.nn._edges import routes  # noqa: E402

NODES, EDGES = 6, 20
GENERATOR = torch.Generator().manual_seed(0)
INDEX = torch.randint(NODES, (2, EDGES), generator=GENERATOR)
PTR = torch.tensor([0, 4, 4, 9, 12, 19, EDGES])
FEATURES = torch.rand(EDGES, 8, generator=GENERATOR, dtype=torch.float64) + 0.5
AGGREGATIONS = "add", "mean", "max", "mul", "softmax", "std", "var", "powermean", "median"
ATTENTION = "GATConv", "GATv2Conv", "TransformerConv"
FUNCTIONS = {
    **{
        f"scatter {reduce}": lambda x, index, reduce=reduce: nn.scatter(
            x, index[1], 0, NODES, reduce
        )
        for reduce in ("sum", "mean", "max", "min", "mul", "any")
    },
    "softmax": lambda x, index: nn.softmax(x, index[1], num_nodes=NODES),
}
BY_OFFSETS = {
    "softmax by offsets": lambda x, ptr: nn.softmax(x, None, ptr),
    **{
        f"segment {reduce}": lambda x, ptr, reduce=reduce: nn.segment(x, ptr, reduce)
        for reduce in ("sum", "mean", "max", "min")
    },
}


@functools.cache
def layer(name, aggr):
    if aggr not in ("add", "mean", "max"):
        pytest.importorskip("torch_geometric")
    torch.manual_seed(0)
    arguments = {"NNConv": (4, 3, torch.nn.Linear(8, 12)), "GINConv": (torch.nn.Linear(4, 3),)}
    arguments["EdgeConv"] = (torch.nn.Linear(8, 3),)
    arguments["RGCNConv"] = 4, 3, 2
    made = getattr(nn, name)(*arguments.get(name, (4, 3)), aggr=aggr).double()
    if name == "RGCNConv":
        return lambda x, index: made(x[:NODES, :4], index, index[0] % 2)
    features = {"NNConv": (FEATURES,), "GraphConv": (FEATURES[:, 0],)}.get(name, ())
    return lambda x, index: made(x[:NODES, :4], index, *features)


LAYERS = {
    f"{name} {aggr}": lambda x, index, name=name, aggr=aggr: layer(name, aggr)(x, index)
    for name in (*ATTENTION, "NNConv", "GCNConv", "SAGEConv", "GraphConv", "GINConv", "EdgeConv")
    for aggr in AGGREGATIONS
} | {
    f"RGCNConv {aggr}": lambda x, index, aggr=aggr: layer("RGCNConv", aggr)(x, index)
    for aggr in ("add", "mean", "max")
}
CALLS = FUNCTIONS | BY_OFFSETS | LAYERS


def results(call, index):
    """Return the value and its derivatives, as far as torch has them."""
    x = FEATURES.clone().requires_grad_()
    y = call(x, index)
    (slope,) = torch.autograd.grad((y * y.cos()).sum(), x, create_graph=True)
    found = [y, slope]
    with contextlib.suppress(RuntimeError):  # torch lacks some second derivatives
        found += torch.autograd.grad(slope.square().sum(), x)
    return [f.detach() for f in found]


@pytest.fixture(params=[False, True], ids=["by torch", "packed"])
def _route(request, monkeypatch):
    if request.param:
        for operator in routes.PACKED:
            monkeypatch.setitem(routes.PACKED, operator, 0)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", CALLS)
def test_int32(name):
    index = PTR if name in BY_OFFSETS else INDEX
    found, expected = (results(CALLS[name], i) for i in (index.int(), index))
    assert len(found) == len(expected) > 1
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize("name", [name for name in CALLS if name not in LAYERS or "add" in name])
def test_others(name, dtype):
    index = PTR if name in BY_OFFSETS else INDEX
    message = rf"^pyops\.torch\.nn\.{name.split()[0]}: .*: expected int32 or int64.*, got {dtype}"
    with pytest.raises((TypeError, ValueError), match=message):
        CALLS[name](FEATURES, index.to(dtype))
