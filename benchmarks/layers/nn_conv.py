"""NNConv of PyTorch Geometric, with a network that ends with a linear layer, and another."""

from functools import partial

from benchmarks.layers.case import Case, edges_of

DIM, HIDDEN = 6, 64


def make(nodes, degree, width, last=False, more=False, **options):
    import torch
    import torch_geometric.nn as originals

    from pyops.torch import nn as drop_ins

    torch.manual_seed(0)

    def network():
        layers = [torch.nn.Linear(DIM, HIDDEN), torch.nn.ReLU()]
        layers += [torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU()] if more else []
        layers += [torch.nn.Linear(HIDDEN, width**2)] + ([torch.nn.Tanh()] if last else [])
        return torch.nn.Sequential(*layers)

    layers = [
        package.NNConv(width, width, network(), **options) for package in (originals, drop_ins)
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    index = edges_of(nodes, degree)
    features = torch.randn(nodes * degree, DIM)
    x, gy = torch.randn(2, nodes, width)
    return tuple(partial(step, layer, x, index, features, gy) for layer in layers)


def step(layer, x, index, features, gy):
    import torch

    leaves = [t.detach().requires_grad_() for t in (x, features)]
    y = layer(leaves[0], index, leaves[1])
    return [y, *torch.autograd.grad(y, [*leaves, *layer.parameters()], gy)]


SIZES = 2000, 32, 64
CASES = [
    Case("NNConv", "2,000 x 32, 64 channels, 64 units", partial(make, *SIZES)),
    Case("NNConv", "as above, mean", partial(make, *SIZES, aggr="mean")),
    Case("NNConv", "as above, three layers", partial(make, *SIZES, more=True)),
    Case("NNConv", "2,000 x 8, maximum", partial(make, 2000, 8, 64, aggr="max")),
    Case("NNConv", "2,000 x 8, tanh at the end", partial(make, 2000, 8, 64, last=True)),
]
