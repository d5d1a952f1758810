"""Indices of subclasses of Tensor: layers and functions see plain tensors of the same memory."""

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402
from pyops._operator import OPERATORS  # noqa: E402
from pyops.compat.pylibcugraphops.pytorch import CSC  # noqa: E402
from pyops.torch import nn  # noqa: E402
from pyops.torch.nn import _routes  # noqa: E402
from pyops.torch.nn._dimenet import swish  # noqa: E402

from .torch_operators import Example  # noqa: E402


class Plain(torch.Tensor):
    """A subclass as `as_subclass` makes one."""


class Refusing(torch.Tensor):
    """One that no operation of torch gets to see."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        raise AssertionError(f"{function} was called with a subclass")


def of_geometric(name):
    def make(index):
        return getattr(pytest.importorskip("torch_geometric"), name)(index)

    return make


KINDS = {
    "Parameter": lambda index: torch.nn.Parameter(index, requires_grad=False),
    "as_subclass": lambda index: index.as_subclass(Plain),
    "torch_function": lambda index: index.as_subclass(Refusing),
    "Index": of_geometric("Index"),
    "EdgeIndex": of_geometric("EdgeIndex"),
}
NODES, EDGES = 6, 8
INDEX = torch.tensor([[0, 5, 2, 3, 3, 1, 4, 0], [1, 1, 0, 5, 2, 2, 5, 4]])
PTR = torch.tensor([0, 2, 2, 3, 5, 7, EDGES])
FEATURES = torch.linspace(-1, 1, EDGES * 3, dtype=torch.float64).view(EDGES, 3)


def layer(name, *sizes, **options):
    torch.manual_seed(0)
    return getattr(nn, name)(*sizes, **options).double()


def of_edges(name, **options):
    made = layer(name, 4, 3, **options)
    return lambda x, index: made(x[:NODES, :4], index)


def by_network(**options):
    made = layer("NNConv", 4, 3, torch.nn.Linear(3, 12), **options)
    return lambda x, index: made(x[:NODES, :4], index, FEATURES)


def interaction(x, kj, ji):
    return layer("InteractionPPBlock", 16, 4, 4, 2, 3, 1, 1, swish)(
        x.repeat(1, 2), x[:, :3], x[:, :6], kj, ji
    )


def embedding(x, numbers, i, j):
    return layer("EmbeddingBlock", 3, 4, swish)(numbers, x[:, :3], i, j)


def molecules(x, numbers, batch):
    options = {"num_blocks": 1, "num_spherical": 2, "num_radial": 2, "int_emb_size": 4}
    options |= {"basis_emb_size": 2, "out_emb_channels": 4, "max_num_neighbors": None}
    options["output_initializer"] = "glorot_orthogonal"
    return layer("DimeNetPlusPlus", 8, 2, **options)(numbers, 2 * x[:, :3], batch)


def integral(x, index, splits):
    made = layer("IntegralTransform", channel_mlp_layers=[4, 5, 3])
    neighbours = {"neighbors_index": index, "neighbors_row_splits": splits}
    return made(x[:, :2], neighbours, x[:NODES, 2:4], x[:, 4:7])


PAIR = INDEX[0], PTR[:-1].clamp(max=7)
CALLS = {
    **{
        f"scatter {reduce}": (
            lambda x, index, reduce=reduce: nn.scatter(x, index, 0, NODES, reduce),
            [INDEX[1]],
        )
        for reduce in ("sum", "mean", "max", "mul")
    },
    "scatter, groups counted": (lambda x, index: nn.scatter(x, index), [INDEX[1]]),
    "softmax": (lambda x, index: nn.softmax(x, index, num_nodes=NODES), [INDEX[1]]),
    "softmax ptr": (lambda x, ptr: nn.softmax(x, None, ptr), [PTR]),
    **{
        f"segment {reduce}": (lambda x, ptr, reduce=reduce: nn.segment(x, ptr, reduce), [PTR])
        for reduce in ("sum", "mean", "max")
    },
    **{name: (of_edges(name), [INDEX]) for name in ("GATConv", "GATv2Conv", "TransformerConv")},
    "GATConv, no loops": (of_edges("GATConv", add_self_loops=False), [INDEX]),
    "TransformerConv of a maximum": (of_edges("TransformerConv", aggr="max"), [INDEX]),
    "offsets and sources": (
        lambda x, offsets, sources: of_edges("TransformerConv")(x, (offsets, sources)),
        [PTR, INDEX[0]],
    ),
    "NNConv": (by_network(), [INDEX]),
    "NNConv of a maximum": (by_network(aggr="max"), [INDEX]),
    "InteractionPPBlock": (interaction, [INDEX[0], INDEX[1]]),
    "OutputPPBlock": (
        lambda x, i: layer(
            "OutputPPBlock", 3, 4, 4, 2, 1, swish, output_initializer="glorot_orthogonal"
        )(x[:, :4], x[:, :3], i),
        [INDEX[1]],
    ),
    "EmbeddingBlock": (embedding, [torch.arange(NODES) + 1, INDEX[0], INDEX[1]]),
    "SphericalBasisLayer": (
        lambda x, kj: layer("SphericalBasisLayer", 3, 2)(x[:NODES, 0].abs() + 1, x[:, 1], kj),
        [INDEX[0]],
    ),
    "DimeNetPlusPlus": (molecules, [torch.ones(EDGES).long(), torch.arange(EDGES) // 4]),
    "IntegralTransform": (integral, [INDEX[0], PTR]),
    "Graph": (
        lambda x, src, dst: pt.aggregate(pt.Graph(src, dst, NODES), x[:NODES]),
        [INDEX[0], INDEX[1]],
    ),
    "Graph.from_csc": (
        lambda x, offsets, src, ids: pt.aggregate(
            pt.Graph.from_csc(offsets, src, NODES, ids), x[:NODES], x
        ),
        [PTR, INDEX[0], torch.arange(EDGES).flip(0)],
    ),
    "CSC": (
        lambda x, offsets, src, ids: pt.aggregate(
            CSC(offsets, src, NODES, ef_indices=ids).graph, x[:NODES], x
        ),
        [PTR, INDEX[0], torch.arange(EDGES).flip(0)],
    ),
}
BY_NUMPY = "Graph", "Graph.from_csc", "CSC"
INDEXED = {"edge_index", "index", "ptr", "i", "idx_kj", "idx_ji", "batch", "neighbors"}


def test_every_layer_with_indices_has_a_call():
    for name, found in vars(nn).items():
        called = getattr(found, "forward", found) if inspect.isclass(found) else found
        public = callable(called) and not name.startswith("_")
        if public and INDEXED & {*inspect.signature(called).parameters}:
            assert any(name in call for call in CALLS), name


def results(call, indices):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(EDGES, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    y = call(x, *indices)
    assert type(y) is torch.Tensor
    return y.detach(), *torch.autograd.grad((y * y.cos()).sum(), x)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_plain_tensors(name, kind, packed, monkeypatch):
    if packed:
        for operator in _routes.PACKED:
            monkeypatch.setitem(_routes.PACKED, operator, 0)
    call, indices = CALLS[name]
    if kind == "EdgeIndex":
        if indices[0].dim() != 2:
            pytest.skip("has two dimensions")
    elif kind == "Index" and indices[0].dim() == 2:
        pytest.skip("has one dimension")
    elif kind == "torch_function" and name in BY_NUMPY:
        pytest.skip("reads tensors as NumPy does")
    given = [KINDS[kind](index.clone()) for index in indices]
    for found, expected in zip(results(call, given), results(call, indices), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "EdgeIndex"])
@pytest.mark.parametrize("name", [n for n, op in OPERATORS.items() if op.signature.indexed])
def test_row_numbers(name, kind):
    case = Example(name)
    (option,) = case.op.signature.indexed
    rows = torch.from_numpy(np.array(case.options[option]))
    expected = case(*case.tensors)
    case.options[option] = KINDS[kind](rows)
    assert torch.equal(case(*case.tensors), expected)
    subclass = [case.tensors[0].as_subclass(Plain), *case.tensors[1:]]
    assert torch.equal(case(*subclass), expected)
