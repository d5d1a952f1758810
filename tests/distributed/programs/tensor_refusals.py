"""Errors of one rank, which all ranks of a process group raise."""

import contextlib

import numpy as np
import pytest
import torch
import torch.distributed as dist

import pyops
import pyops.torch as pt
from pyops.distributed import Communicator
from pyops.torch import nn


@contextlib.contextmanager
def refused(kind, text):
    """Check that all ranks raise the same error; they can go on after it."""
    with pytest.raises(kind) as caught:
        yield
    message = str(caught.value)
    assert text in message, message
    messages = [None] * dist.get_world_size()
    dist.all_gather_object(messages, message)
    assert len(set(messages)) == 1, messages


def refusals(comm):
    """An error of one rank is raised on all, naming rank, argument, expectation and value."""
    last = comm.size - 1
    mine = comm.rank == last
    at = f"rank {last}: "
    src, dst = comm.rank * 10 + np.arange(20).reshape(2, 10) // 2
    own = comm.rank * 10, comm.rank * 10 + 10
    graph = comm.graph(src, dst, owned=own)
    op, x, e = pt.aggregate, torch.ones(10, 4), torch.ones(10, 2)
    with refused(ValueError, f"{at}aggregate: x: expected shape (num_src=10, x_width), got (9, 4)"):
        op(graph, x[1:] if mine else x)
    with refused(ValueError, f"{at}aggregate: reduce: expected one of"):
        op(graph, x, reduce="maximum" if mine else "sum")
    with refused(TypeError, f"{at}pyops.torch.aggregate: x: expected a torch.Tensor, got ndarray"):
        op(graph, x.numpy() if mine else x)
    with refused(TypeError, f"{at}aggregate: unexpected option 'heads'"):
        op(graph, x, **({"heads": 2} if mine else {}))
    with refused(ValueError, f"{at}pyops.torch.aggregate: x: expected a tensor on a CUDA device"):
        op(graph, x.to("meta") if mine else x)
    different = f"{at}pyops.torch.aggregate: expected the call of rank 0, pyops.torch.aggregate ("
    with refused(ValueError, different):
        op(graph, x.double() if mine else x)
    with refused(ValueError, different):
        op(graph, x, e if mine else None)
    with refused(ValueError, different):
        op(graph, x[:, :3] if mine else x)
    with refused(ValueError, different):
        op(graph, x.clone().requires_grad_() if mine else x)
    with refused(ValueError, f"{at}pyops.torch.degree_normalised: expected the call of rank 0"):
        (pt.degree_normalised if mine else op)(graph, x)
    with refused(ValueError, f"{at}aggregate: expected the call of rank 0, pyops.torch.aggregate"):
        pyops.aggregate(graph, x.numpy()) if mine else op(graph, x)
    with refused(ValueError, f"{at}Communicator.sum: expected the call of rank 0"):
        comm.sum(x if mine else 1.0)
    with refused(ValueError, f"{at}Communicator.sum: expected the call of rank 0"):
        comm.sum(x.half() if mine else x)
    with refused(TypeError, f"{at}Communicator.sum: value: expected"):
        comm.sum(x > 0 if mine else x)
    with refused(ValueError, f"{at}DistributedGraph.exchange: x: expected num_src=10 rows, got 9"):
        graph.exchange(x[1:] if mine else x)
    with refused(IndexError, f"{at}Communicator.take: numbers: expected"):
        comm.take(x, [10 * comm.size if mine else 0])
    # Ranks that differentiate different calls, and in different ways.
    leaf = x.clone().requires_grad_()
    ys = [op(graph, leaf).sum() for _ in range(2)]
    with refused(ValueError, "backward of pyops.torch.aggregate: expected the call of rank 0"):
        torch.autograd.grad(ys[mine], leaf, retain_graph=True)
    tangents = torch.autograd.forward_ad
    with tangents.dual_level():
        dual = tangents.make_dual(x, x)
        with refused(ValueError, "expected the call of rank 0"):
            op(graph, dual if mine else x) if mine else [op(graph, x), comm.sum(1.0)]
    parts = comm.graph(src, dst, owned=own, reproducible=comm.size)
    with refused(ValueError, f"{at}pyops.torch.nn.SAGEConv: x: expected num_src=10 rows, got"):
        nn.SAGEConv(4, 2)(x[1:] if mine else x, parts)
    with refused(ValueError, f"{at}InParts: argument 0: expected num_edges=10 rows, got"):
        nn.InParts(torch.nn.Identity(), parts, "edges")(e[1:] if mine else e)
    with refused(ValueError, f"{at}InParts: expected the call of rank 0"):
        nn.InParts(torch.nn.Identity(), parts)(x.double() if mine else x)
    with pytest.raises(TypeError, match="InParts: graph: expected a distributed graph made with"):
        nn.InParts(torch.nn.Identity(), graph)
    with pytest.raises(ValueError, match="InParts: rows: expected one of nodes, edges, got 'all'"):
        nn.InParts(torch.nn.Identity(), parts, "all")
    module = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(module.weight, float(mine))
    torch.nn.init.zeros_(module.bias)
    with refused(ValueError, f"{at}Replicated: expected the call of rank 0"):
        nn.Replicated(module, comm)
    loops = nn.GATConv(4, 2)
    torch.nn.init.zeros_(loops.lin.weight)
    with pytest.raises(ValueError, match="expected add_self_loops=False"):
        loops(x, graph)
    inside = nn.Replicated(torch.nn.Identity(), comm)
    inside.module.forward = comm.replicated
    with refused(RuntimeError, "Communicator.replicated: value: expected a call outside of"):
        inside(x)
    assert not comm._inside
    with pytest.raises(TypeError, match=r"Communicator: comm: expected mpi4py.MPI.Intracomm or a"):
        Communicator("world")
    with pytest.raises(TypeError, match="Communicator: comm: expected a process group, got"):
        Communicator(torch.device("cpu"))
    assert (op(graph, x)[5:] == 2).all()
