"""Layers and functions, compiled or exported once, run on graphs of any size."""

import pytest

torch = pytest.importorskip("torch")

from pyops.torch import nn  # noqa: E402

AGGREGATING = "GCNConv", "SAGEConv", "GraphConv", "GINConv"
SMALL, OTHERS = (5, 9), [(8, 20), (9, 33), (3, 5000)]


def given(nodes, edges):
    generator = torch.Generator().manual_seed(nodes)
    x = torch.rand(nodes, 4, generator=generator, dtype=torch.float64)
    features = torch.rand(edges, 3, generator=generator, dtype=torch.float64)
    return x, torch.randint(nodes, (2, edges), generator=generator), features


class Call(torch.nn.Module):
    """Module that calls a layer or function; torch exports modules only."""

    def __init__(self, call, **options):
        super().__init__()
        self.call, self.options = call, options

    def forward(self, x, index, features):
        return self.call(x, index, features, **self.options)


def layer(name, **options):
    torch.manual_seed(0)
    if name == "GINConv":
        return nn.GINConv(torch.nn.Linear(4, 3), **options).double()
    if name == "CFConv":
        return nn.CFConv(4, 3, 5, torch.nn.Linear(3, 5), 2.0).double()
    if name == "RGCNConv":
        return nn.RGCNConv(4, 3, 3, **options).double()
    if name in AGGREGATING:
        return getattr(nn, name)(4, 3, **options).double()
    if name == "NNConv":
        return nn.NNConv(4, 3, torch.nn.Linear(3, 12), **options).double()
    return getattr(nn, name)(4, 3, 2, edge_dim=3, **options).double()


def weights(features):
    return (features[:, 0].exp(),)


def relations(features):
    return ((3 * features[:, 0]).long(),)


class Plainly(torch.nn.Module):
    """Module that calls a layer with what a function makes of the features of edges."""

    def __init__(self, name, of_edges=lambda features: (), **options):
        super().__init__()
        self.layer, self.of_edges = layer(name, **options), of_edges

    def forward(self, x, index, features):
        return self.layer(x, index, *self.of_edges(features))


CASES = {
    **{name: Plainly(name) for name in AGGREGATING},
    "GCNConv, weights": Plainly("GCNConv", weights),
    "GraphConv of a maximum": Plainly("GraphConv", weights, aggr="max"),
    "CFConv": Plainly("CFConv", lambda features: (features[:, 0], features)),
    "RGCNConv": Plainly("RGCNConv", relations),
    "RGCNConv of a maximum": Plainly("RGCNConv", relations, aggr="max"),
    **{name: layer(name) for name in ("GATConv", "GATv2Conv", "TransformerConv", "NNConv")},
    "GATConv of a maximum": layer("GATConv", aggr="max"),
    "NNConv of a mean": layer("NNConv", aggr="mean"),
    "GATConv, weights": Call(layer("GATConv", add_self_loops=False), return_attention_weights=True),
    "TransformerConv, weights": Call(layer("TransformerConv"), return_attention_weights=True),
    **{
        f"scatter {reduce}, {columns} columns": Call(
            lambda x, index, features, reduce=reduce, columns=columns: nn.scatter(
                features.repeat(1, 3)[:, :columns].squeeze(1), index[0], 0, x.shape[0], reduce
            )
        )
        for reduce in ("mean", "max")
        for columns in (1, 9)
    },
    "softmax": Call(
        lambda x, index, features: nn.softmax(features, index[0], num_nodes=x.shape[0])
    ),
}


def exported(module, strict):
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    shapes = {0: nodes}, {1: edges}, {0: edges}
    program = torch.export.export(module, given(*SMALL), dynamic_shapes=shapes, strict=strict)
    return program.module()


def compiled(module, **options):
    return torch.compile(module, backend="aot_eager", fullgraph=True, **options)


WAYS = {
    "compiled": compiled,
    "compiled for any size": lambda module: compiled(module, dynamic=True),
    "exported": lambda module: exported(module, False),
    "exported, strict": lambda module: exported(module, True),
}
SLOW = "exported, strict"


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.slow] * (way == SLOW)) for way in WAYS]
)
@pytest.mark.parametrize("name", CASES)
def test_any_size(name, way):
    torch._dynamo.reset()
    module = CASES[name] if isinstance(CASES[name], Call) else Call(CASES[name])
    made = WAYS[way](module)
    for sizes in (SMALL, *OTHERS):
        arguments = given(*sizes)
        torch.testing.assert_close(made(*arguments), module(*arguments), rtol=1e-12, atol=1e-12)
