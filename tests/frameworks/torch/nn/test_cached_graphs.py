"""Cached graphs of layers and functions are valid for the current elements of their tensors."""

import sys
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pyops.torch import nn  # noqa: E402

NODES = 6
FIRST = [[0, 1, 2, 3], [1, 2, 3, 4]]
THEN = [[5, 5, 5, 5], [0, 1, 2, 3]]


def layer(name, **given):
    torch.manual_seed(0)
    made = getattr(nn, name)(4, 3, **given)
    return lambda x, index: made(x[:NODES], index)


def network():
    torch.manual_seed(0)
    made = nn.NNConv(4, 3, torch.nn.Linear(2, 12), aggr="max")
    return lambda x, index: made(x[:NODES], index, x[: index.shape[1], :2])


def triplets():
    torch.manual_seed(0)
    made = nn.InteractionPPBlock(16, 4, 4, 2, 3, 1, 1, nn._dimenet.swish)
    rows = slice(0, NODES)
    return lambda x, index: made(x[rows], x[rows, :3], x[: index.shape[1], :6], *index)


OF_INDICES = {
    "GATConv": layer("GATConv"),
    "GATConv without self loops": layer("GATConv", add_self_loops=False),
    "TransformerConv": layer("TransformerConv"),
    "GCNConv": layer("GCNConv"),
    "SAGEConv": layer("SAGEConv"),
    "NNConv of a maximum": network(),
}
USERS = {
    **{name: (call, FIRST, THEN) for name, call in OF_INDICES.items()},
    "sources by destination": (
        lambda x, index: layer("TransformerConv")(x[:NODES], (index[0], index[1, :3])),
        [[0, 1, 1, 2, 3, 3, 3], [0, 1, 2, 0, 0, 0, 0]],
        [[0, 0, 1, 2, 3, 3, 3], [5, 4, 2, 0, 0, 0, 0]],
    ),
    "scatter": (lambda x, index: nn.scatter(x[:4], index[0], dim_size=NODES), FIRST, THEN),
    "softmax": (lambda x, index: nn.softmax(x[:4], index[0], num_nodes=NODES), FIRST, THEN),
    "segment": (
        lambda x, index: nn.segment(x[:4], index[0]),
        [[0, 1, 2, 4], [0, 0, 0, 0]],
        [[0, 0, 3, 4], [0, 0, 0, 0]],
    ),
    "triplets": (triplets(), FIRST, THEN),
}


def by_numpy(index, then):
    index.numpy()[:] = then


def by_data(index, then):
    index.data[:] = torch.tensor(then)


def in_place(index, then):
    index[:] = torch.tensor(then)


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize("write", [by_numpy, by_data, in_place])
@pytest.mark.parametrize("inference", [False, True])
def test_written_indices_are_seen(name, write, inference):
    call, first, then = USERS[name]
    widths = {"triplets": 16}
    x = torch.randn(7, widths.get(name, 4 if name in OF_INDICES or "sources" in name else 9))
    with torch.inference_mode(inference):
        index = torch.tensor(first)
        before = call(x, index)
        write(index, then)
        after = call(x, index)
        truth = call(x, torch.tensor(then))
    assert torch.equal(after, truth)
    assert not torch.equal(before, after)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_returned_edges_are_the_callers(name):
    made = getattr(nn, name)(4, 3, aggr="max")
    x, index = torch.randn(NODES, 4), (torch.tensor([0, 1, 1, 2, 3, 3, 3]), torch.tensor([0, 1, 2]))
    if name != "TransformerConv":
        index = torch.tensor(FIRST)
    truth, (edges, _) = made(x, index, return_attention_weights=True)
    edges.zero_()
    assert torch.equal(made(x, index), truth)


def test_threads_share_what_is_remembered():
    made, x, found = layer("GATConv"), torch.randn(NODES, 4), []
    start = threading.Barrier(16)

    def work(seed):
        rng = np.random.default_rng(seed)
        start.wait()
        try:
            with torch.no_grad():
                for _ in range(60):
                    made(x, torch.from_numpy(rng.integers(0, NODES, (2, 8))))
        except Exception as error:
            found.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert not found
