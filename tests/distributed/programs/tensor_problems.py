"""Problems and graphs of tensors, of which each rank has a share."""

import numpy as np
import torch

import pyops.torch as pt

from ...support import cases
from ...support.graphs import drawn
from .operators import TOLERANCES, first_axes
from .shares import Shares, shared_problem

NAMES = [name for name, op in cases.OPERATORS.items() if op.signature.has_graph]


class Example:
    """A problem, the rank's shares of it, and its operator on tensors."""

    def __init__(self, comm, case, seed=0, dtype=np.float64, **options):
        problem, self.shares = shared_problem(comm, case, seed, **options)
        self.comm, self.case = comm, case
        self.whole = problem.map(lambda a: a.astype(dtype))
        self.own = self.shares.of_problem(self.whole)
        self.names = [n for n in problem.op.signature.inputs if problem.arrays[n] is not None]
        self.gy = torch.tensor(self.own.arrays["gy"])
        self.tangents = [torch.tensor(self.own.arrays["h" + n]) for n in self.names]

    def tensors(self, **keywords):
        return [torch.tensor(self.own.arrays[n], **keywords) for n in self.names]

    def __call__(self, *tensors):
        given = dict(zip(self.names, tensors, strict=True))
        inputs = [given.get(n) for n in self.own.op.signature.inputs]
        options = self.own.options
        return getattr(pt, self.own.op.name)(self.own.graph, *inputs, **options)

    def share(self, name):
        """Return what each rank adds of a value that all ranks hold, to count it once."""
        return 1 if self.own.rows(name) in self.shares.rows else 1 / self.comm.size

    def agrees(self, phase, found):
        """Compare the results of a phase with those of one rank on the whole graph."""
        several = phase.endswith("backward")
        every = [*self.own.op.signature.inputs, "gy"] if several else ["y"]
        given = [*self.names, "gy"] if several else ["y"]
        held = dict(zip(given, found, strict=False))
        expected = self.whole.run(phase)
        largest = max(np.abs(e).max(initial=0) for e in expected if e is not None)
        axes = first_axes(self.own.op, phase)
        for name, axis, value in zip(every, axes, expected, strict=False):
            if value is None:
                assert name not in held
                continue
            value = self.shares.of(axis, value)
            got = np.zeros_like(value) if held[name] is None else held[name].detach().numpy()
            assert (got.dtype, got.shape) == (value.dtype, value.shape), (self.case, phase, name)
            error = np.abs(got - value).max(initial=0)
            tolerance = TOLERANCES[value.dtype.type]
            assert error <= tolerance * largest, (str(self.case), phase, name, error, largest)


def random_graph(comm, nodes=20, entries=70, seed=0, **options):
    """Return a whole graph, the ranges of own nodes, and the distributed graph."""
    whole, rng = drawn(nodes, nodes, entries, seed), np.random.default_rng(seed)
    return whole, Shares(comm, whole, rng, square=True, **options)


def phases(problem, phase):
    """Return the results of a phase by derivatives of torch."""
    every = [*problem.op.signature.inputs]
    names = [n for n in every if problem.arrays[n] is not None]
    leaves = [torch.tensor(problem.arrays[n], requires_grad=True) for n in names]
    tangents = [torch.tensor(problem.arrays["h" + n]) for n in names]
    gy = torch.tensor(problem.arrays["gy"], requires_grad=True)

    def call(*tensors):
        given = dict(zip(names, tensors, strict=True))
        inputs = [given.get(n) for n in every]
        return getattr(pt, problem.op.name)(problem.graph, *inputs, **problem.options)

    if phase == "forward":
        return [call(*leaves).detach().numpy()]
    if phase == "jvp":
        constants = tuple(t.detach() for t in leaves)
        return [torch.func.jvp(call, constants, tuple(tangents))[1].numpy()]
    gradients = torch.autograd.grad(call(*leaves), leaves, gy, create_graph=True)
    if phase == "backward":
        return _in_order(every, names, leaves, gradients)
    own, first = problem.graph._axes, problem.graph.comm.rank == 0
    pairs = [
        (g * h).sum() * (problem.rows(n) in own or first)  # what all ranks hold counts once
        for n, g, h in zip(names, gradients, tangents, strict=True)
    ]
    second = torch.autograd.grad(sum(pairs), [*leaves, gy], allow_unused=True)
    return _in_order([*every, "gy"], [*names, "gy"], [*leaves, gy], second)


def _in_order(every, names, leaves, gradients):
    """Return the gradients by all inputs as arrays, None for those not given."""
    pairs = zip(gradients, leaves, strict=True)
    filled = [torch.zeros_like(x) if g is None else g.detach() for g, x in pairs]
    held = dict(zip(names, filled, strict=True))
    return [held[n].numpy() if n in held else None for n in every]
