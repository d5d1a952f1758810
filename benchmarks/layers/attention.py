"""Attention layers of PyTorch Geometric: 20,000 nodes with 25 edges each."""

from functools import partial

from benchmarks.layers.case import Case, edges_of

NODES, DEGREE, WIDTH = 20_000, 25, 128


def make(name, edge_dim=None, loops=True, **options):
    import torch
    import torch_geometric.nn as originals

    from pyops.torch import nn as drop_ins

    if edge_dim is not None:
        options["edge_dim"] = edge_dim
    if not loops:
        options["add_self_loops"] = False
    torch.manual_seed(0)
    layers = [getattr(package, name)(WIDTH, **options) for package in (originals, drop_ins)]
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(NODES, WIDTH)
    index = edges_of(NODES, DEGREE)
    features = [] if edge_dim is None else [torch.randn(NODES * DEGREE, edge_dim)]
    width = options["heads"] * options["out_channels"]
    gy = torch.randn(NODES, width)
    return tuple(partial(step, layer, x, index, features, gy) for layer in layers)


def step(layer, x, index, features, gy):
    import torch

    leaves = [t.detach().requires_grad_() for t in (x, *features)]
    y = layer(leaves[0], index, *leaves[1:])
    return [y, *torch.autograd.grad(y, [*leaves, *layer.parameters()], gy)]


def case(name, what, **options):
    options = {"heads": 8, "out_channels": 32} | options
    return Case(name, f"20,000 x 25, 8 x 32{what}", partial(make, name, **options))


CASES = [
    case("GATConv", ""),
    case("GATConv", ", edge features 16", edge_dim=16),
    case("GATv2Conv", ""),
    case("GATv2Conv", ", edge features 16", edge_dim=16),
    case("TransformerConv", ""),
    case("TransformerConv", ", edge features 16", edge_dim=16),
]
