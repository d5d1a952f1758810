"""Layers and samplers of `pyops.torch` on the ranks of a process group."""

import copy
import functools
import hashlib
import pickle

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import pyops.torch as pt
from pyops.torch import nn

from ...frameworks.torch.layer_cases import PNA
from ...support.graphs import drawn
from .parts import joined
from .tensor_problems import random_graph

WITHOUT_LOOPS = {"add_self_loops": False}
LAYERS = {
    "GATConv": lambda **k: nn.GATConv(
        4, 3, 2, add_self_loops=False, edge_dim=2, residual=True, **k
    ),
    "GATv2Conv": lambda **k: nn.GATv2Conv(4, 3, 2, add_self_loops=False, edge_dim=2, **k),
    "TransformerConv": lambda **k: nn.TransformerConv(4, 3, 2, edge_dim=2, beta=True, **k),
    "NNConv": lambda **k: nn.NNConv(4, 3, network(2, 5, 12), **k),
    "NNConv of any network": lambda **k: nn.NNConv(
        4, 3, torch.nn.Sequential(network(2, 5, 12), torch.nn.Tanh()), **k
    ),
}
OF_WEIGHTS = {
    "GCNConv": lambda **k: nn.GCNConv(4, 3, add_self_loops=False, **k),
    "SAGEConv": lambda **k: nn.SAGEConv(4, 3, project=True, **k),
    "GraphConv": lambda **k: nn.GraphConv(4, 3, **k),
    "CFConv": lambda **_: nn.CFConv(4, 3, 5, network(2, 4, 5), 2.0),
    "RGCNConv": lambda **k: nn.RGCNConv(4, 3, 2, **k),
    "GINConv": lambda **k: nn.GINConv(network(4, 5, 3), train_eps=True, **k),
    "PNAConv": lambda **_: nn.PNAConv(4, 3, *PNA),
    "EdgeConv": lambda **k: nn.EdgeConv(network(8, 5, 3), **k),
}
"""Layers without features of edges; some have weights or relations."""
PAIRS = {n: OF_WEIGHTS[n] for n in ("SAGEConv", "GraphConv", "RGCNConv", "GINConv", "EdgeConv")}
"""Those that run on parts."""


def network(*widths):
    first, hidden, last = widths
    layers = torch.nn.Linear(first, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, last)
    return torch.nn.Sequential(*layers)


def layers(comm, **options):
    """Layers on a distributed graph against the same layers on the whole graph."""
    whole, shares = random_graph(comm, **options)
    rng = np.random.default_rng(1)
    x, edge = rng.standard_normal((20, 4)), rng.standard_normal((70, 2))
    rows = {"x": shares.rows["num_dst"], "edge": shares.rows["num_edges"]}

    def derivatives(layer, graph, some, every, mine):
        """Return y, gradients by the features, sums over ranks, and second derivatives."""
        leaves = [torch.tensor(a, requires_grad=True) for a in some]
        parameters = [*layer.parameters()]
        if isinstance(layer, nn.CFConv):
            y = layer(leaves[0], graph, leaves[1][:, 0], leaves[1])
        elif type(layer).__name__ in OF_WEIGHTS:
            more = [leaves[1][:, 0].exp()] if getattr(layer, "_weighted", False) else []
            more = [(leaves[1][:, 0] > 0).long()] if isinstance(layer, nn.RGCNConv) else more
            y = layer(leaves[0], graph, *more) + 0 * leaves[1].sum()
        else:
            y = layer(leaves[0], graph, leaves[1])
        gradients = torch.autograd.grad(y.square().sum(), [*leaves, *parameters], create_graph=True)
        ranks = 1 if mine is None else comm.size
        total = sum((g * g).sum() for g in gradients[:2])
        total = total + sum((g * g).sum() for g in gradients[2:]) / ranks
        second = torch.autograd.grad(total, [*leaves, *parameters])
        found = [y, *gradients, *second]
        if mine is None:
            places = [rows["x"]] + 2 * ([rows["x"], rows["edge"]] + [None] * len(parameters))
            found = [f if p is None else f[p] for f, p in zip(found, places, strict=True)]
        return found

    def same(one, other, name):
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            assert torch.allclose(a, b, 1e-9, 1e-9), (name, place)

    own = x[rows["x"]], edge[rows["edge"]]
    for name, make in (LAYERS | OF_WEIGHTS | {"Replicated": stacked}).items():
        for aggr in ("sum", "mean", "max") if name != "Replicated" else (None,):
            torch.manual_seed(0)
            layer = (make() if aggr is None else make(aggr=aggr)).double()
            expected = derivatives(layer, whole, (x, edge), rows, None)
            if aggr is None:
                layer = nn.Replicated(layer, comm)
            same(derivatives(layer, shares.graph, own, rows, rows), expected, (name, aggr))
        if "NNConv" not in name and name in LAYERS:
            given = torch.tensor(x), whole, torch.tensor(edge)
            _, (_, alpha) = layer(*given, return_attention_weights=True)
            given = torch.tensor(own[0]), shares.graph, torch.tensor(own[1])
            _, (_, part) = layer(*given, return_attention_weights=True)
            assert torch.allclose(part, alpha[rows["edge"]], 1e-12)
    torch.manual_seed(0)
    module = stacked()
    layer = nn.Replicated(module, comm)
    given = torch.tensor(own[0]), shares.graph, torch.tensor(own[1])
    layer(*given).square().sum().backward()
    sums = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    # The mean of equal sums over ranks is that sum.
    parallel = DistributedDataParallel(layer)
    parallel(*given).square().sum().backward()
    assert all(
        torch.allclose(p.grad, g, 1e-14) for p, g in zip(module.parameters(), sums, strict=True)
    )
    copy.deepcopy(layer)(*given)
    with pytest.raises(TypeError, match="Communicator: cannot be pickled"):
        pickle.dumps(layer)
    inner = module.between.forward
    module.between.forward = functools.partial(checkpoint, inner, use_reentrant=False)
    found = torch.autograd.grad(layer(*given).square().sum(), [*module.parameters()])
    assert all(map(torch.equal, found, sums))
    module.between.forward = inner


def layers_in_parts(comm):
    """Layers on a reproducible graph, and digests of values, gradients and second derivatives."""
    layers(comm, reproducible=4)
    _, shares = random_graph(comm, 200, 2000, reproducible=4)
    graph, rng = shares.graph, np.random.default_rng(1)
    x, edge = rng.standard_normal((200, 4)), rng.standard_normal((2000, 2))
    axes = ["num_dst", "num_src", "num_edges"]
    own = [torch.tensor(shares.of(axis, a)) for axis, a in zip(axes[1:], (x, edge), strict=True)]
    made = LAYERS | PAIRS | {"Replicated": lambda: model_in_parts(comm, graph)}
    for name, kind in [*((name, torch.float64) for name in made), ("GATConv", torch.bfloat16)]:
        torch.manual_seed(0)
        layer = made[name]().to(kind)
        leaves = [t.to(kind, copy=True).requires_grad_() for t in own]
        parameters = [*layer.parameters()]
        given = leaves if name in LAYERS or name == "Replicated" else leaves[:1]
        if name == "RGCNConv":
            given = [leaves[0], (leaves[1][:, 0] > 0).long()]
        y = layer(given[0], graph, *given[1:])
        derivative = {"create_graph": True, "materialize_grads": True}
        found = torch.autograd.grad(y.square().sum(), [*leaves, *parameters], **derivative)
        counted = [found[0], found[1], *((comm.rank == 0) * g for g in found[2:])]
        total = sum(g.square().sum() for g in counted)
        second = torch.autograd.grad(total, [*leaves, *parameters], materialize_grads=True)
        places = [*axes, *[None] * len(parameters), *axes[1:], *[None] * len(parameters)]
        for place, a in zip(places, (y, *found, *second), strict=True):
            whole = np.array(a.detach().double())
            if place is not None:
                whole = joined(comm, shares.rows[place], whole)
            if comm.rank == 0:
                print(name, kind, place, hashlib.sha256((whole + 0.0).tobytes()).hexdigest()[:12])


def model_in_parts(comm, graph):
    model = stacked()
    model.before, model.after = (nn.InParts(m, graph) for m in (model.before, model.after))
    return nn.Replicated(model, comm)


def ensembles(comm):
    """Derivatives by parameters that `vmap` batches, or that have tangents, are sums over ranks."""
    whole, shares = random_graph(comm)
    rng = np.random.default_rng(1)
    x, edge = (torch.tensor(rng.standard_normal(shape)) for shape in ((20, 4), (70, 2)))
    own = x[shares.rows["num_dst"]], edge[shares.rows["num_edges"]]
    torch.manual_seed(0)
    models = [stacked(), LAYERS["NNConv"]().double()]
    for model in models:
        others = [copy.deepcopy(model) for _ in range(3)]
        for number, other in enumerate(others):
            for parameter in other.parameters():
                parameter.data *= 1 + number / 4
        several, _ = torch.func.stack_module_state(others)
        one = {name: p.detach() for name, p in model.named_parameters()}

        def derivatives(call, graph, given, one=one, several=several):
            def loss(parameters):
                return call(parameters, given[0], graph, given[1]).square().sum()

            gradient = torch.func.grad(loss)
            direction = {name: torch.cos(p) for name, p in one.items()}
            each = torch.func.grad(lambda some: torch.func.vmap(loss)(some).sum())(several)
            found = [torch.func.vmap(gradient)(several), each, gradient(one)]
            found.append(torch.func.jvp(gradient, (one,), (direction,))[1])
            return [part for some in found for part in some.values()]

        def called(parameters, *given, model=model):
            return torch.func.functional_call(model, parameters, given)

        held = nn.Replicated(model, comm)

        def replicated(parameters, *given, held=held):
            named = {f"module.{name}": p for name, p in parameters.items()}
            return torch.func.functional_call(held, named, given)

        expected = derivatives(called, whole, (x, edge))
        calls = [replicated] if isinstance(model, Stack) else [replicated, called]
        for call in calls:
            found = derivatives(call, shares.graph, own)
            for one_part, other_part in zip(found, expected, strict=True):
                assert torch.allclose(one_part, other_part, 1e-9, 1e-9)


class Stack(torch.nn.Module):
    """Layers on the rows of nodes before and after one on a graph."""

    def __init__(self, before, between, after):
        super().__init__()
        self.before, self.between, self.after = before, between, after

    def forward(self, x, graph, edge):
        return self.after(self.between(self.before(x), graph, edge))


def stacked():
    return Stack(network(4, 5, 4), LAYERS["GATConv"](), network(6, 5, 2)).double()


def balanced(comm):
    """A step of DistributedDataParallel on dealt graphs is one on the graphs of all ranks."""
    rng = np.random.default_rng(0)
    molecules = [drawn(n, n, 3 * n, n) for n in rng.integers(2, 30, 23).tolist()]
    values = [torch.tensor(rng.standard_normal((g.num_src, 4))) for g in molecules]
    costs = [g.num_edges for g in molecules]
    samplers = [
        pt.BalancedBatchSampler(costs, 3, num_replicas=comm.size, rank=rank, seed=5)
        for rank in range(comm.size)
    ]
    own = pt.BalancedBatchSampler(costs, 3, seed=5)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1).double()
    parallel = DistributedDataParallel(torch.nn.Linear(4, 1).double())
    parallel.module.load_state_dict(model.state_dict())

    def loss(model, batch):
        graphs, some = [molecules[i] for i in batch], [values[i] for i in batch]
        energies = [
            model(pt.aggregate(g, v)).tanh().sum() for g, v in zip(graphs, some, strict=True)
        ]
        return torch.stack(energies).mean()

    for epoch in range(2):
        for sampler in (own, *samplers):
            sampler.set_epoch(epoch)
        loader = torch.utils.data.DataLoader(range(23), batch_sampler=own, collate_fn=list)
        for batch, *every in zip(loader, *samplers, strict=True):
            assert batch == every[comm.rank]
            parallel.zero_grad()
            loss(parallel, batch).backward()
            expected = torch.autograd.grad(
                loss(model, [i for b in every for i in b]), [*model.parameters()]
            )
            for one, other in zip(parallel.parameters(), expected, strict=True):
                assert torch.allclose(one.grad, other, 1e-12)
