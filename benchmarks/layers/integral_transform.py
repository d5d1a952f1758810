"""IntegralTransform of neuraloperator: transform types, batches, weights."""

from functools import partial

from benchmarks.layers.case import Case

POINTS, RADIUS, CHANNELS = 1024, 0.2, 64
"""Random points in the unit cube, each with about thirty neighbours."""
LAYERS = 128, 128


def both(transform_type="linear", batch=0, weighted=False):
    """Return the original and the drop-in with the same weights, on the same neighbours."""
    import torch
    from neuralop.layers import integral_transform as originals
    from neuralop.layers.neighbor_search import native_neighbor_search

    import pyops.torch.nn as pn

    torch.manual_seed(0)
    y = torch.rand(POINTS, 3)
    f = torch.randn(*([batch] if batch else []), POINTS, CHANNELS)
    given = 6 + CHANNELS * transform_type.startswith("nonlinear")
    found = native_neighbor_search(y, y, RADIUS, weighted)
    options = {"channel_mlp_layers": [given, *LAYERS, CHANNELS], "transform_type": transform_type}
    original = originals.IntegralTransform(use_torch_scatter=False, **options)
    drop_in = pn.IntegralTransform(use_torch_scatter=False, **options)
    drop_in.load_state_dict(original.state_dict())
    return tuple(partial(step, layer, y, found, f) for layer in (original, drop_in))


def step(layer, y, found, f):
    """Run forward and backward; return outputs, and gradients by f and by the parameters."""
    import torch

    f = f.clone().requires_grad_()
    result = layer(y, found, f_y=f)
    leaves = [f, *layer.parameters()]
    return [result.detach(), *torch.autograd.grad(result.square().sum(), leaves)]


def what(name, batch=0):
    batched = f"batch {batch}, " if batch else ""
    widths = "-".join(map(str, [*LAYERS, CHANNELS]))
    return f"{name}, {batched}{POINTS} points, kernel {widths}"


CASES = [
    Case("IntegralTransform", what(name, batch), partial(both, name, batch))
    for name, batch in (
        ("linear", 0),
        ("linear", 4),
        ("nonlinear", 0),
        ("nonlinear", 2),
        ("nonlinear_kernelonly", 0),
    )
]
CASES.append(
    Case("IntegralTransform", what("weighted linear", 2), partial(both, batch=2, weighted=True))
)
