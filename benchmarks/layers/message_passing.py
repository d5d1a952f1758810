"""Other layers of PyTorch Geometric: 20,000 nodes with 25 edges each, 128 channels."""

import itertools
from functools import partial

from benchmarks.layers.attention import DEGREE, NODES, WIDTH
from benchmarks.layers.case import Case, edges_of

RELATIONS, FILTERS = 4, 64
EDGES = NODES * DEGREE
STATISTICS = ["mean", "std", "max", "min"], ["identity", "amplification", "attenuation"]


def network(*widths):
    import torch

    layers = []
    for first, second in itertools.pairwise(widths):
        layers += [torch.nn.Linear(first, second), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def arguments(name):
    """Return the arguments of a layer and its inputs after the edges."""
    import torch

    degrees = torch.zeros(DEGREE + 1, dtype=torch.int64)
    degrees[DEGREE] = NODES
    special = {
        "GINConv": ([network(WIDTH, WIDTH, WIDTH)], []),
        "EdgeConv": ([network(2 * WIDTH, WIDTH, WIDTH)], []),
        "GraphConv": ([WIDTH, WIDTH], [torch.rand(EDGES)]),
        "RGCNConv": ([WIDTH, WIDTH, RELATIONS], [torch.randint(RELATIONS, (EDGES,))]),
        "PNAConv": ([WIDTH, WIDTH, *STATISTICS, degrees], []),
        "CFConv": (
            [WIDTH, WIDTH, FILTERS, network(16, FILTERS, FILTERS), 1.0],
            [torch.rand(EDGES), torch.rand(EDGES, 16)],
        ),
    }
    return special.get(name, ([WIDTH, WIDTH], []))


def make(name, **options):
    import torch
    import torch_geometric.nn as originals
    from torch_geometric.nn.models import schnet

    from pyops.torch import nn as drop_ins

    layers = []
    for package in (schnet if name == "CFConv" else originals, drop_ins):
        torch.manual_seed(0)
        given, more = arguments(name)
        layers.append(getattr(package, name)(*given, **options))
    layers[1].load_state_dict(layers[0].state_dict())
    index = edges_of(NODES, DEGREE)
    x, gy = torch.randn(NODES, WIDTH), torch.randn(NODES, WIDTH)
    return tuple(partial(step, layer, x, index, more, gy) for layer in layers)


def step(layer, x, index, more, gy):
    import torch

    leaf = x.detach().requires_grad_()
    y = layer(leaf, index, *more)
    return [y, *torch.autograd.grad(y, [leaf, *layer.parameters()], gy)]


def case(name, what="", **options):
    # Rounding puts some of the many sums in EdgeConv on the other side of a kink of its ReLU.
    tolerance = 0.1 if name == "EdgeConv" else Case.tolerance
    what = f"20,000 x 25, 128 channels{what}"
    return Case(name, what, partial(make, name, **options), tolerance)


CASES = [
    case("GCNConv"),
    case("SAGEConv"),
    case("SAGEConv", ", maximum", aggr="max"),
    case("GraphConv", ", weights"),
    case("GINConv", ", two layers"),
    case("EdgeConv", ", two layers, maximum"),
    case("EdgeConv", ", two layers, sum", aggr="add"),
    case("RGCNConv", f", {RELATIONS} relations"),
    case("RGCNConv", f", {RELATIONS} relations, 2 bases", num_bases=2),
    case("PNAConv", ", four aggregations, three scalers"),
    case("CFConv", f", {FILTERS} filters"),
]
