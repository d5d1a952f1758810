"""Graphs for compiled functions keep their type when copied, pickled and reversed."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402
from pyops.compat.pylibcugraphops.pytorch import CSC, HeteroCSC  # noqa: E402

from ...graph.test_indices import ARGUMENTS, GOOD, INDEXED, LOSSY, with_rows  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

OFFSETS, INDICES = torch.tensor([0, 2, 3, 4]), torch.tensor([0, 1, 1, 2])
GRAPH = pt.Graph([0, 1, 1, 2], [0, 0, 1, 2])
SHARED = pt.Graph.from_csc(OFFSETS, INDICES, 3, edge_ids=[0, 1, 0, 1])


def pickled(graph):
    return pickle.loads(pickle.dumps(graph))


class Sent(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, place):
        return (GRAPH, SHARED)[place]


def sent(graph):
    place = 0 if graph is GRAPH else 1
    loader = torch.utils.data.DataLoader(
        Sent(), batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=60
    )
    return list(loader)[place]


WAYS = {
    "pickle": pickled,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "a worker": sent,
    "twice turned": lambda graph: graph.reverse().reverse(),
    "edge ids": lambda graph: graph.with_edge_ids(graph.edge_ids, graph.num_edges),
}


def compiled(function, *arguments):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")(*arguments)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("graph", [GRAPH, SHARED], ids=["plain", "shared rows"])
def test_graphs_stay_readable_for_torch(way, graph):
    again = WAYS[way](graph)
    assert type(again) is pt.Graph
    x, e = torch.randn(3, 8), torch.randn(graph.num_edges, 8)
    truth = pt.aggregate(graph, x, e)
    assert torch.equal(compiled(lambda x, e: pt.aggregate(again, x, e), x, e), truth)


@pytest.mark.parametrize("mode", ["a transformation", "inference mode"])
def test_graphs_may_be_made_anywhere(mode):
    made = []

    def energy(x):
        made.append(GRAPH.reverse())
        return pt.aggregate(made[-1], x).square().sum()

    x = torch.randn(3, 8)
    if mode == "inference mode":
        with torch.inference_mode():
            energy(x)
    else:
        torch.func.grad(energy)(x)
    leaf = x.clone().requires_grad_()
    graph = made[-1]
    compiled(lambda x: pt.aggregate(graph, x), leaf).sum().backward()
    degrees = torch.tensor([2.0, 1.0, 1.0])
    torch.testing.assert_close(leaf.grad, degrees[:, None].expand(3, 8))


@pytest.mark.parametrize("way", ["pickle", "copy", "deepcopy"])
@pytest.mark.parametrize("kind", [CSC, HeteroCSC])
def test_graphs_of_other_packages_too(way, kind):
    types = [torch.tensor([0, 1, 1, 0])] if kind is HeteroCSC else []
    counts = [3, 2] if kind is HeteroCSC else [3]
    graph = kind(OFFSETS, INDICES, *types, *counts)
    if types:
        graph.typed, graph.pairs  # noqa: B018
    again = WAYS[way](graph)
    assert repr(again) == repr(graph)
    for name in ["graph", "reversed", *(["typed", "pairs", "entries"] if types else [])]:
        assert type(getattr(again, name)) is pt.Graph
        assert getattr(again, name).src.tolist() == getattr(graph, name).src.tolist()


TENSORS = {
    "flags": torch.tensor([True, False, True, True]),
    "list with a flag": [torch.tensor(k) for k in (0, True, 2, 1)],
    "list with floats": [torch.tensor(k) for k in (0, 1.5, 2, 1)],
    "gradients": torch.tensor([0.0, 1.0, 2.0, 1.0], requires_grad=True),
    "sparse": torch.tensor([0, 1, 2, 1]).to_sparse(),
    "without memory": torch.empty(4, dtype=torch.int64, device="meta"),
}
TAKERS = {f"{name}: reverse": with_rows(name, pt, torch.from_numpy) for name in INDEXED}
TAKERS["Graph: src"] = lambda values: pt.Graph(values, GOOD)


@pytest.mark.parametrize(("argument", "take"), [*ARGUMENTS.items(), *TAKERS.items()])
@pytest.mark.parametrize("values", TENSORS.values(), ids=TENSORS)
def test_tensors_that_are_no_indices(values, argument, take):
    with pytest.raises(TypeError, match=f"^{argument}: expected int32 or int64, got"):
        take(values)


@pytest.mark.parametrize("values", LOSSY.values(), ids=LOSSY)
def test_no_index_is_truncated(values):
    for argument, take in TAKERS.items():
        with pytest.raises(TypeError, match=f"{argument}: expected int32 or int64, got"):
            take(values)
