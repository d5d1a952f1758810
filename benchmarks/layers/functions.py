"""Softmax and reductions over groups, with cached indices and with new ones in each call."""

from functools import partial

from benchmarks.layers.case import Case

GROUPS, DEGREE = 20_000, 25


def make(name, *shape, fresh=False, **options):
    import torch
    import torch_geometric.utils as originals

    from pyops.torch import nn as drop_ins

    torch.manual_seed(0)
    count = GROUPS * DEGREE
    index = torch.randint(GROUPS, (count,))
    index[0] = GROUPS - 1
    place = {"index": index}
    if name == "segment":
        ptr = torch.bincount(index, minlength=GROUPS).cumsum(0)
        place = {"ptr": torch.nn.functional.pad(ptr, (1, 0))}
    src = torch.randn(count, *shape)
    gy = torch.randn(GROUPS if name != "softmax" else count, *shape)
    return tuple(
        partial(step, getattr(package, name), src, place, gy, fresh, options)
        for package in (originals, drop_ins)
    )


def step(function, src, place, gy, fresh, options):
    import torch

    place = {name: index.clone() if fresh else index for name, index in place.items()}
    leaf = src.detach().requires_grad_()
    y = function(leaf, **place, **options)
    return [y.detach(), *torch.autograd.grad(y, leaf, gy)]


CASES = [
    Case("softmax", "500,000 x 8", partial(make, "softmax", 8)),
    Case("softmax", "500,000 x 8, new index", partial(make, "softmax", 8, fresh=True)),
    Case("scatter", "500,000 x 64, sum", partial(make, "scatter", 64)),
    Case("scatter", "500,000 x 64, sum, new index", partial(make, "scatter", 64, fresh=True)),
    Case("scatter", "500,000 x 64, mean", partial(make, "scatter", 64, reduce="mean")),
    Case("scatter", "500,000 x 64, max", partial(make, "scatter", 64, reduce="max")),
    Case("scatter", "500,000, sum, new index", partial(make, "scatter", fresh=True)),
    Case("segment", "500,000 x 64, sum", partial(make, "segment", 64)),
    Case("segment", "500,000 x 64, max", partial(make, "segment", 64, reduce="max")),
]
