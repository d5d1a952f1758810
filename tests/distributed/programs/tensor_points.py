"""Operators over points, and reductions over rows, on tensors of the ranks of a process group."""

import itertools

import numpy as np
import pytest
import torch

import pyops.torch as pt
from pyops.torch import nn

from ...support import cases
from ...support.bases import bases
from .shares import OVER_POINTS, REDUCTIONS, TOLERANCES, Points, points_of, problems, rows_of


def compare(points, problem, tolerance, one=lambda _: None):
    """Forward, backward, double backward and jvp against one rank."""
    op, comm = problem.op, points.comm
    names = [n for n in op.signature.inputs if problem.arrays[n] is not None]
    axes = dict(zip([*names, "gy"], rows_of(op._phases["backward"]), strict=False))
    (axes["y"],) = rows_of(op._phases["forward"])
    axes["gy"] = axes["y"]
    if op.name in ("sum", "mean", "max", "min"):
        rows = 0 if problem.options["axis"] == 1 else None
        axes = {"x": 0, "y": rows, "gy": rows}
    options = dict(problem.options)
    if "points" in options:
        options["points"] = points.count

    def tensor(name, axis):
        return torch.from_numpy(np.array(points.of(problem.arrays[name], axes[axis])))

    def function(*tensors):
        return getattr(pt, op.name)(comm, *tensors, **options)

    def agrees(name, got, expected):
        size = np.abs(expected).max(initial=0)
        expected = points.of(expected, axes[name])
        got = np.zeros_like(expected) if got is None else got.detach().numpy()
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (op.name, name)
        error = np.abs(got - expected).max(initial=0)
        assert error <= tolerance * max(size, 1), (op.name, name, options, error, size)

    def share(name):
        """Return what a rank adds of a value that all ranks hold, to count it once."""
        return 1 if axes[name] is not None else 1 / comm.size

    inputs = [tensor(n, n).requires_grad_() for n in names]
    gy = (tensor("gy", "y") * share("y")).requires_grad_()
    tangents = [tensor("h" + n, n) for n in names]
    y = function(*inputs)
    agrees("y", y, problem.run("forward")[0])
    gradients = torch.autograd.grad(y, inputs, gy, create_graph=True)
    for name, got, expected in zip(names, gradients, problem.run("backward"), strict=True):
        agrees(name, got, expected)
    total = sum(
        (g * h).sum() * share(n) for n, g, h in zip(names, gradients, tangents, strict=True)
    )
    second = torch.autograd.grad(total, [*inputs, gy], allow_unused=True)
    expected = problem.run("double_backward")
    for name, got, value in zip([*names, "gy"], second, expected, strict=True):
        agrees(name, got, value)
    y, dy = torch.func.jvp(function, tuple(t.detach() for t in inputs), tuple(tangents))
    agrees("y", y, problem.run("forward")[0])
    agrees("y", dy, problem.run("jvp")[0])


def over_points(comm):
    """Every operator over points, and dependent columns of a basis."""
    for name, seed in itertools.product(OVER_POINTS, range(3)):
        rng = np.random.default_rng(seed)
        for problem in problems(name, seed):
            condition = 1.0
            if "basis" in problem.arrays:
                condition = np.linalg.cond(problem.arrays["basis"])
            points = Points(comm, rng, points_of(problem))
            for dtype, tolerance in TOLERANCES.items():
                given = problem.map(lambda a, dtype=dtype: a.astype(dtype))
                compare(points, given, tolerance * condition**2)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        points = Points(comm, rng, 60)
        for basis, condition in bases(rng, 60, 6):
            for name in "orthonormalize", "ono_encode", "ono_decode":
                problem = cases.representative(name).problem(seed=seed, points=60, modes=6)
                if condition <= 10 and (np.abs(basis).max(0) < 1e3).all():
                    compare(points, problem.having(basis=basis), 1e-11)


def over_rows(comm):
    """Sums, means and extremes, with ties on several ranks, over rows and other axes."""
    rng = np.random.default_rng(1)
    for dtype, tolerance in TOLERANCES.items():
        points = Points(comm, rng, 30)
        x = rng.integers(0, 5, (30, 3, 2)).astype(dtype)
        h = rng.standard_normal(x.shape).astype(dtype)
        for op, axis, keepdims in itertools.product(
            REDUCTIONS, (0, None, (0, 2), 1), (False, True)
        ):
            options = {"axis": axis, "keepdims": keepdims}
            g = rng.standard_normal(op(x, **options).shape).astype(dtype)
            problem = cases.Problem(op, None, options, {"x": x, "gy": g, "hx": h})
            compare(points, problem, 5 * tolerance)


def inside(comm):
    """Parameters of a replicated module, transformations, and what is refused."""
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(comm.rank)).double()
    basis = torch.randn(5, 3, generator=torch.Generator().manual_seed(comm.rank)).double()
    weights = torch.arange(6.0).reshape(2, 3).double() + 1

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.Parameter(weights.clone())

        def forward(self, basis):
            return pt.ono_decode(comm, self.weights, basis)

    def loss(weights):
        return pt.ono_decode(comm, weights, basis).sin().sum()

    module = nn.Replicated(Decoder(), comm)
    module(basis).sin().sum().backward()
    (gradient,) = (p.grad for p in module.parameters())
    assert torch.equal(gradient, torch.func.grad(loss)(weights))
    assert np.array_equal(comm.sum(gradient.numpy()), comm.size * gradient.numpy())
    several = torch.func.vmap(loss)(torch.stack([weights, 2 * weights]))
    assert torch.allclose(several, torch.stack([loss(weights), loss(2 * weights)]))
    jacobian = torch.func.jacrev(lambda x: pt.ono_encode(comm, x, basis))(x)
    expected = torch.einsum("pk,bc->bkcp", pt.orthonormalize(comm, basis), torch.eye(2).double())
    assert torch.allclose(jacobian, comm.size * expected)  # that of the sum of all ranks
    with pytest.raises(ValueError, match=r"ono_encode: basis: expected shape \(points=4"):
        pt.ono_encode(comm, x[:, 1:], basis)
    with pytest.raises(TypeError, match=r"expected a torch\.Tensor, got ndarray"):
        pt.ono_encode(comm, x, basis.numpy())
    with pytest.raises(TypeError, match=r"graph: expected pyops\.Graph, got Communicator"):
        pt.aggregate(comm, x)
    with pytest.raises(TypeError, match="elem_scale: argument 0: expected an array, as the"):
        pt.elem_scale(comm, x, x[0])
    with pytest.raises(Exception, match="expected a call outside of what torch traces"):
        torch.compile(lambda x: pt.mean(comm, x, axis=0), fullgraph=True)(x)
    if comm.size > 1:
        mine = comm.rank == 1
        with pytest.raises(ValueError, match=r"rank 1: pyops.torch.mean: expected the call of"):
            pt.mean(comm, x.clone().requires_grad_(mine), axis=0)
