"""Finite differences of functions of the rows of all ranks."""

import torch
import torch.distributed as dist

from ...support import cases
from .tensor_problems import Example


class Entered(torch.autograd.Function):
    """A value that all ranks hold and that counts once, for functions of the ranks."""

    @staticmethod
    def forward(x, group):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.group = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return Left.apply(g, ctx.group), None

    @staticmethod
    def jvp(ctx, t, _):
        return t.clone()


class Left(torch.autograd.Function):
    """The sum of values of the ranks, which counts once: the transpose of `Entered`."""

    @staticmethod
    def forward(x, group):
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.group = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return Entered.apply(g, ctx.group), None

    @staticmethod
    def jvp(ctx, t, _):
        return Left.apply(t, ctx.group)


class Counted(torch.autograd.Function):
    """A parameter whose gradient, which all ranks hold, counts once in second derivatives."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return CountedGradient.apply(g)

    @staticmethod
    def jvp(ctx, t):
        return t.clone()


class CountedGradient(Counted):
    """The gradient of such a parameter."""

    @staticmethod
    def backward(ctx, w):
        return w / dist.get_world_size()


CHECKED = "gat", "transformer_conv", "gno_conv", "degree_normalised", "dimenet_aggregate"


def checks(comm):
    """Finite differences of functions of the rows of all ranks, which all ranks evaluate."""
    group = dist.group.WORLD
    for name in CHECKED:
        case = cases.replace(cases.representative(name), graph="duplicate edges", widths="one")
        example = Example(comm, case)
        rows = [example.shares.rows.get(example.own.rows(n)) for n in example.names]
        own = example.shares.rows[example.own.rows("y")]
        shape = example.whole.arrays["gy"].shape

        def whole(*tensors, example=example, rows=rows, own=own, shape=shape):
            given = [
                Counted.apply(t) if some is None else Entered.apply(t, group)[torch.tensor(some)]
                for t, some in zip(tensors, rows, strict=True)
            ]
            y = torch.zeros(shape, dtype=torch.float64)
            return Left.apply(y.index_put((torch.tensor(own),), example(*given)), group)

        leaves = [torch.tensor(example.whole.arrays[n], requires_grad=True) for n in example.names]
        torch.manual_seed(0)  # the same directions on all ranks
        assert torch.autograd.gradcheck(whole, leaves, check_forward_ad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(whole, leaves, fast_mode=True)
