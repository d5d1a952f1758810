"""GNOBlock of neuraloperator: embedding, search and integral, with the default network."""

from functools import partial

from benchmarks.layers.case import Case

POINTS, RADIUS, CHANNELS = 1024, 0.2, 32
"""Random points in the unit cube, each with about thirty neighbours."""


def both(transform_type="linear", batch=0):
    """Return the original and the drop-in with the same weights."""
    import torch
    from neuralop.layers.gno_block import GNOBlock

    import pyops.torch.nn as pn

    torch.manual_seed(0)
    y, x = torch.rand(POINTS, 3), torch.rand(POINTS, 3)
    f = torch.randn(*([batch] if batch else []), POINTS, CHANNELS)
    layers = []
    for kind in (GNOBlock, pn.GNOBlock):
        layers.append(
            kind(
                CHANNELS,
                CHANNELS,
                3,
                RADIUS,
                transform_type=transform_type,
                channel_mlp_layers=[128, 256, 128],
                use_torch_scatter_reduce=False,
            )
        )
    layers[1].load_state_dict(layers[0].state_dict())
    return tuple(partial(step, layer, y, x, f) for layer in layers)


def step(layer, y, x, f):
    """Run forward and backward; return outputs, and gradients by f and by the parameters."""
    import torch

    f = f.clone().requires_grad_()
    result = layer(y, x, f)
    leaves = [f, *layer.parameters()]
    return [result.detach(), *torch.autograd.grad(result.square().sum(), leaves)]


CASES = [
    Case(
        "GNOBlock",
        f"{name}, {f'batch {batch}, ' if batch else ''}{POINTS} points, kernel 128-256-128",
        partial(both, name, batch),
    )
    for name, batch in (("linear", 0), ("linear", 2), ("nonlinear", 0))
]
