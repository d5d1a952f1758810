"""Uses of layers that PyTorch Geometric supports for its own: refused, or equivalent."""

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from pyops.torch import nn  # noqa: E402

META = ["a", "b"], [("a", "r", "b"), ("b", "q", "b"), ("b", "s", "a")]
NAMES = ["GATConv", "GATv2Conv", "TransformerConv", "SAGEConv", "GraphConv"]
OTHERS = "NNConv", "GCNConv", "GINConv", "EdgeConv", "RGCNConv", "CFConv"
PARTS = ["propagate", "message", "aggregate", "message_and_aggregate", "edge_update"]


class Net(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index):
        return self.layer(x, edge_index).relu()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("turn", [pyg.to_hetero, pyg.to_hetero_with_bases])
def test_no_networks_of_several_types_by_tracing(name, turn):
    more = [] if turn is pyg.to_hetero else [2]
    with pytest.raises(TypeError, match=f"{name}: torch_geometric.nn.to_hetero takes .*HeteroConv"):
        turn(Net(getattr(nn, name)((4, 4), 3)), META, *more)


@pytest.mark.parametrize("name", NAMES)
def test_networks_of_several_types(name):
    torch.manual_seed(0)
    given = {"add_self_loops": False} if name.startswith("GAT") else {}
    edges = {kind: torch.randint(0, 6, (2, 20)) for kind in META[1]}
    x = {kind: torch.randn(6, 4) for kind in META[0]}
    nets = [
        pyg.HeteroConv({kind: getattr(package, name)((4, 4), 3, **given) for kind in META[1]})
        for package in (pyg, nn)
    ]
    nets[1].load_state_dict(nets[0].state_dict())
    truth, found = (net(x, edges) for net in nets)
    for kind in META[0]:
        torch.testing.assert_close(found[kind], truth[kind])


class Leaves(torch.fx.Tracer):
    def is_leaf_module(self, module, name):
        return True


def test_other_tracers_see_a_module():
    net = Net(nn.GATConv(4, 3))
    traced = torch.fx.GraphModule(net, Leaves().trace(net))
    x, index = torch.randn(6, 4), torch.randint(0, 6, (2, 20))
    torch.testing.assert_close(traced(x, index), net(x, index))


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
@pytest.mark.parametrize("part", [*PARTS, "update"])
def test_parts_cannot_be_overridden(name, part):
    def override(self, *arguments):
        return 0

    for bases in (), (type("Mixin", (), {part: override}),):
        own = {} if bases else {part: override}
        with pytest.raises(TypeError, match=f"Mine: {part}: cannot be overridden"):
            type("Mine", (*bases, getattr(nn, name)), own)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("when", ["hook", "pre_hook"])
def test_parts_cannot_be_seen(name, part, when):
    register = f"register_{part}_forward_{when}"
    assert hasattr(getattr(pyg, name)(4, 3), register)
    with pytest.raises(NotImplementedError, match=f"{name}: {register}: there is no {part} to see"):
        getattr(getattr(nn, name)(4, 3), register)(print)


def test_layers_may_still_be_subclasses():
    class Mine(nn.GATConv):
        def forward(self, *arguments, **given):
            return 2 * super().forward(*arguments, **given)

    x, index = torch.randn(6, 4), torch.randint(0, 6, (2, 20))
    torch.manual_seed(0)
    layer = nn.GATConv(4, 3)
    torch.manual_seed(0)
    torch.testing.assert_close(Mine(4, 3)(x, index), 2 * layer(x, index))
