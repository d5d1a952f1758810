"""Program of a rank of a process group: runs functions of `pyops.torch` that its arguments name."""

import datetime
import functools
import os
import signal
import sys
import time

import numpy as np
import torch
import torch.distributed as dist

import pyops
import pyops.torch as pt
from pyops.distributed import Communicator, partition

from ...support import cases
from ...support.graphs import drawn
from . import parts
from .operators import compare
from .shares import cuts, shared_problem
from .tensor_checks import checks
from .tensor_halves import halves
from .tensor_layers import balanced, ensembles, layers, layers_in_parts
from .tensor_points import inside, over_points, over_rows
from .tensor_problems import NAMES, Example, phases, random_graph
from .tensor_refusals import refusals
from .tensor_transformations import (
    compiled,
    compositions,
    in_parts,
    inductor,
    jacobians,
    transformations,
)

__all__ = ["balanced", "checks", "compiled", "compositions", "ensembles", "halves", "in_parts"]
__all__ += ["inductor", "inside", "jacobians", "layers", "layers_in_parts", "over_points"]
__all__ += ["over_rows", "refusals", "transformations"]


def compare_tensors(comm, case, seed, dtype=np.float64):
    """Forward, backward, double backward and jvp against one rank."""
    example = Example(comm, case, seed, dtype)
    inputs = example.tensors(requires_grad=True)
    gy = example.gy.clone().requires_grad_()
    y = example(*inputs)
    example.agrees("forward", [y])
    gradients = torch.autograd.grad(y, inputs, gy, create_graph=True)
    example.agrees("backward", gradients)
    shares = [example.share(n) for n in example.names]
    parts = zip(gradients, example.tangents, shares, strict=True)
    total = sum((g * h).sum() * share for g, h, share in parts)
    second = torch.autograd.grad(total, [*inputs, gy], allow_unused=True)
    example.agrees("double_backward", second)
    constants = example.tensors()
    y, dy = torch.func.jvp(example, tuple(constants), tuple(example.tangents))
    example.agrees("forward", [y])
    example.agrees("jvp", [dy])


def plain(some):
    """Return the cases that a distributed graph takes."""
    shared = "shared edges", "edges without entries"
    some = [c for c in some if cases.OPERATORS[c.op].signature.has_graph]
    return [c for c in some if c.op not in cases.PAIRED or c.graph not in shared]


def operators(comm):
    """Every plain operator with all options, in forward, backward, double backward and jvp."""
    for number, case in enumerate(plain(cases.VARIANTS)):
        compare_tensors(comm, case, number)
    for name in NAMES:
        compare_tensors(comm, cases.representative(name), 1, np.float32)


def graphs(comm):
    """The same on graphs without nodes or edges, with long rows, loops and shared edges."""
    large = "random", "hubs", "many rows", "thousands of rows"
    some = [c for c in cases.CASES if c.widths == "small" and c.graph not in large]
    for number, case in enumerate(plain(some)[::3]):
        compare_tensors(comm, case, number)


def arrays(comm):
    """NumPy operators, checks of gradients, partitions and rows that are taken."""
    for number, name in enumerate(NAMES):
        case = cases.representative(name)
        compare(comm, case, number)
        if name in ("gat", "kernel_conv", "dimenet_aggregate"):
            problem, shares = shared_problem(comm, case, 2)
            part = shares.of_problem(problem)
            pyops.testing.check_gradients(problem.op, *part.arguments("forward"), **part.options)
    rng = np.random.default_rng(0)
    whole, points = drawn(40, 40, 150), rng.standard_normal((40, 2))
    first, last = cuts(rng, 40, comm.size)[comm.rank : comm.rank + 2].tolist()
    start, stop = cuts(rng, 150, comm.size)[comm.rank : comm.rank + 2]
    ends = whole.src[start:stop], whole.dst[start:stop]
    own = (whole.dst >= first) & (whole.dst < last)
    graph = comm.graph(whole.src[own], whole.dst[own], owned=(first, last))
    part = partition(graph, method="coordinates", coordinates=points[first:last])
    one = Communicator(dist.new_group([comm.rank], use_local_synchronization=True))
    alone = one.graph(whole.src, whole.dst, owned=(0, 40))
    same = partition(alone, comm.size, method="coordinates", coordinates=points)
    assert (part == same[first:last]).all()
    one.close()
    graph = comm.graph(*ends, owned=(first, last), part=part)
    y = pyops.aggregate(graph, comm.take(points[first:last], graph.nodes))
    assert (comm.take(y, graph.places) == pyops.aggregate(whole, points)[first:last]).all()
    total = comm.size * (comm.size + 1) // 2
    for dtype in "u4", "i8", "f4":
        assert (comm.sum(np.full((2, 0, 1), 1, dtype))).shape == (2, 0, 1)
        found = comm.sum(np.full(3, comm.rank + 1, dtype))
        assert (found.dtype, found.tolist()) == (np.dtype(dtype), [total] * 3)
    assert comm.sum(comm.rank + 1) == total
    assert comm.sum(0.5) == comm.size / 2


def maps(comm):
    """The maps between ranks: transposes, derivatives and batches."""
    whole, shares = random_graph(comm)
    graph = shares.graph
    rng = np.random.default_rng(comm.rank)
    numbers = rng.integers(0, 20, 9)

    def draw(*shape):
        return torch.tensor(rng.standard_normal(shape), requires_grad=True)

    linear = {
        "exchange": (graph.exchange, draw(graph.num_src, 3)),
        "accumulate": (graph.accumulate, draw(graph.local.num_src, 2, 2)),
        "one column": (graph.exchange, draw(graph.num_src)),
        "no columns": (graph.accumulate, draw(graph.local.num_src, 0)),
        "sum": (comm.sum, draw(2, 3)),
        "sum of numbers": (comm.sum, draw()),
        "take": (functools.partial(comm.take, numbers=numbers), draw(graph.num_dst, 2)),
    }
    for name, (function, x) in linear.items():
        y = function(x)
        z, h = torch.tensor(rng.standard_normal(y.shape), requires_grad=True), draw(*x.shape)
        (back,) = torch.autograd.grad(y, x, z, create_graph=True)
        left = comm.sum(float((y * z).sum().detach()))
        right = comm.sum(float((x * back).sum().detach()))
        assert abs(left - right) < 1e-12, name
        (again,) = torch.autograd.grad((back * h).sum(), z)
        assert torch.equal(again, function(h.detach())), name
        assert torch.equal(torch.func.jvp(function, (x,), (h,))[1], again)
        batch = torch.stack([x, h, x - h]).detach()
        for dim in range(batch.dim()):
            found = torch.func.vmap(function, dim)(batch.movedim(0, dim))
            assert torch.allclose(found, torch.stack([function(one) for one in batch]), 1e-14), name
        cotangents = torch.stack([z, 2 * z]).detach()
        (batched,) = torch.autograd.grad(function(x), x, cotangents, is_grads_batched=True)
        assert torch.allclose(batched, torch.stack([back, 2 * back]), 1e-14), name
        _, pull = torch.func.vjp(function, x.detach())
        assert torch.allclose(torch.func.vmap(pull)(cotangents)[0], batched, 1e-14), name
    sums = [comm.sum(value.detach()) for value in (linear["sum"][1], linear["sum of numbers"][1])]
    gathered = [None] * comm.size
    dist.all_gather_object(gathered, [linear[n][1].detach() for n in ("sum", "sum of numbers")])
    for total, every in zip(sums, zip(*gathered, strict=True), strict=True):
        assert torch.allclose(total, sum(every), 1e-14)
    integers = torch.arange(graph.num_src)
    assert graph.exchange(integers).dtype is torch.int64
    rows = comm.take(torch.tensor(whole.dst[shares.rows["num_edges"]]), torch.tensor(numbers))
    assert (rows.dtype, len(rows)) == (torch.int32, len(numbers))
    shared = torch.tensor(2.0, requires_grad=True)
    (total,) = torch.autograd.grad((comm.rank + 1) * comm.replicated(shared), shared)
    assert total == comm.size * (comm.size + 1) / 2
    assert comm.replicated(3) == 3


def digests(comm):
    """The digests of forward, backward, double backward and jvp."""
    parts.digests(comm, phases)


def same_bits(one, other):
    """Return whether results have the same bits; None is equal to None alone."""
    pairs = zip(one, other, strict=True)
    return all(b is None if a is None else np.array_equal(a, b) for a, b in pairs)


def few(comm):
    """Fewer parts than ranks, and attention weights, as NumPy has them."""
    whole, rng = drawn(20, 20, 90, 2), np.random.default_rng(comm.size)
    alone, many = (parts.shared(comm, whole, rng, parts=n) for n in (1, parts.PARTS))
    for name in parts.NAMES:
        own = parts.owned(alone, cases.representative(name).problem(whole, seed=4))
        for phase in cases.PHASES:
            assert same_bits(phases(own, phase), own.run(phase)), (name, phase)
    for graph in alone, many:
        for name in "gat", "gat_v2", "transformer_conv":
            own = parts.owned(graph, cases.representative(name).problem(whole, seed=4))
            inputs = own.map(torch.tensor).arguments("forward")
            found = getattr(pt, name)(*inputs, **own.options, return_attention=True)
            assert same_bits(found, own.run("forward", return_attention=True)), name
    typed = many.with_edge_ids(np.arange(90)[many.edges] % 4, 4, replicated=True)
    problem = cases.representative("hetero_basis").problem(whole, seed=4)
    weight = np.random.default_rng(1).standard_normal((4, problem.arrays["weight"].shape[1]))
    own = cases.replace(
        parts.owned(many, problem).having(weight=weight, hweight=weight), graph=typed
    )
    for phase in cases.PHASES:
        assert same_bits(phases(own, phase), own.run(phase)), phase


def ends(comm):
    """Rank 1 ends in the way that the environment names, while others wait for it."""
    how = os.environ["HOW"]
    graph = comm.graph([comm.rank], [comm.rank], owned=(comm.rank, comm.rank + 1))
    x = torch.ones(1, 2, requires_grad=True)
    y = pt.aggregate(graph, x)
    if comm.rank == 1:
        if how == "exit":
            sys.exit(3)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "sleep":
            time.sleep(60)
    y.sum().backward()
    print("not reached")


def main(rank, size, store, names):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=float(os.environ.get("SECONDS", "60"))),
    )
    comm = Communicator(dist.group.WORLD)
    for name in names:
        globals()[name](comm)
    comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), *sys.argv[1:2], sys.argv[2:])
