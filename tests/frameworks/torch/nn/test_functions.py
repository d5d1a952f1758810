"""softmax, scatter and segment against those of PyTorch Geometric.

The functions are tested with the same groups of elements, so this is one file.
"""

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.utils")

from pyops.torch import nn  # noqa: E402
from pyops.torch.nn._edges import routes  # noqa: E402

from .comparison import distances, draw, results  # noqa: E402

INDEX = torch.tensor([3, 0, 3, 5, 0, 3, 1])
PTR = torch.tensor([0, 2, 2, 5, 7])
NOTHING = torch.nn.Identity()
REDUCTIONS = ["sum", "add", "mean", "max", "min", "amax", "amin", "mul"]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def check(mine, theirs, *arguments, order=2, close=1e-14):
    found, truth = (
        results(function, [*arguments], torch.float64, order, module=NOTHING)
        for function in (mine, theirs)
    )
    assert [t.shape for t in found[0]] == [t.shape for t in truth[0]]
    assert distances(found, truth)[0] <= close


@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 3, 4)])
@pytest.mark.parametrize("size", [None, 9])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatter(shape, size, reduce):
    check(nn.scatter, pyg.scatter, draw(*shape), INDEX, 0, size, reduce)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("dim", [1, -1, -2])
def test_scatter_along_other_dimensions(reduce, dim):
    shape = (4, 7, 3) if dim != -1 else (4, 3, 7)
    check(nn.scatter, pyg.scatter, draw(*shape), INDEX, dim, None, reduce)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_equal_elements_share_the_gradient(reduce):
    src = torch.tensor([1.0, 2.0, 1.0, 2.0, 2.0, 1.0, 0.5]).double()  # torch errs at 0
    check(nn.scatter, pyg.scatter, src[:, None] + torch.arange(9), INDEX, 0, None, reduce)
    check(nn.scatter, pyg.scatter, src, INDEX, 0, None, reduce)
    shares = []
    for function in (nn.segment, pyg.segment):  # torch splits positive gradients only among ties
        leaf = src.clone().requires_grad_()
        shares += torch.autograd.grad(function(leaf, PTR, reduce).sum(), leaf)
    assert torch.equal(*shares)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("columns", [(), (3,), (9,)])
def test_extremes_that_are_zero_have_whole_gradients(sign, columns):
    rows = torch.tensor([0.0, -1.0, 2.0, 2.0, 0.0, -3.0, 0.0], dtype=torch.float64)
    shares = torch.tensor([1.0, 0.0, 0.5, 0.5, 0.0, 0.0, 1.0], dtype=torch.float64)
    rows, shares = (t.view(-1, *[1] * len(columns)).expand(7, *columns) for t in (rows, shares))
    index, groups = torch.tensor([0, 0, 2, 2, 2, 3, 3]), 4
    functions = (
        lambda src: nn.scatter(src, index, 0, groups, "max"),
        lambda src: -nn.scatter(-src, index, 0, groups, "min"),
        lambda src: nn.segment(src, PTR, "max"),
        lambda src: -nn.segment(-src, PTR, "min"),
    )
    for function in functions:
        leaf = rows.clone().requires_grad_()
        found = function(leaf)
        assert torch.equal(found[1], torch.zeros_like(found[1]))
        (gradient,) = torch.autograd.grad(found, leaf, torch.full_like(found, sign))
        assert torch.equal(gradient, sign * shares)


@pytest.mark.parametrize("columns", [(), (9,)])
def test_second_derivatives_of_extremes(columns):
    src = draw(7, *columns).double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: nn.segment(x, PTR, "max") ** 2, src)
    assert torch.autograd.gradgradcheck(lambda x: nn.scatter(x, INDEX, 0, None, "max") ** 2, src)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_segment_of_integers(reduce):
    src, index = torch.arange(7), torch.tensor([0, 0, 2, 2, 2, 3, 3])
    assert torch.equal(nn.segment(src, PTR, reduce), nn.scatter(src, index, 0, 4, reduce))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (7, 0)])
def test_scatter_of_nothing(reduce, shape):
    index = INDEX[: shape[0]]
    for size in None, 4 if shape[0] == 0 else 9:
        src = torch.zeros(shape)
        assert torch.equal(
            nn.scatter(src, index, 0, size, reduce), pyg.scatter(src, index, 0, size, reduce)
        )


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "mul", "any"])
def test_scatter_of_integers(reduce):
    src = torch.arange(7) + 2 if reduce != "mean" else torch.arange(7.0).half()
    if reduce == "any":
        src = torch.ones(7, dtype=torch.long)
    assert torch.equal(
        nn.scatter(src, INDEX, reduce=reduce), pyg.scatter(src, INDEX, reduce=reduce)
    )


@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 3, 4)])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_segment(shape, reduce):
    check(nn.segment, pyg.segment, draw(*shape), PTR, reduce, order=1)
    if reduce in ("max", "min"):
        return
    ours = lambda src, ptr: nn.scatter(src, torch.tensor([0, 0, 2, 2, 2, 3, 3]), 0, 4, reduce)  # noqa: E731
    check(lambda src, ptr: nn.segment(src, ptr, reduce), ours, draw(*shape), PTR)


@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 3, 4)])
@pytest.mark.parametrize("size", [None, 9])
def test_softmax(shape, size):
    check(nn.softmax, pyg.softmax, draw(*shape), INDEX, None, size, close=1e-12)


@pytest.mark.parametrize("shape", [(7,), (7, 5)])
def test_softmax_of_segments(shape):
    check(nn.softmax, pyg.softmax, draw(*shape), None, PTR, order=1, close=1e-12)


@pytest.mark.parametrize("dim", [1, -1])
def test_softmax_along_other_dimensions(dim):
    check(nn.softmax, pyg.softmax, draw(5, 7), INDEX, None, None, dim, close=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (7, 0)])
def test_softmax_of_nothing(shape, dtype):
    src, index = torch.zeros(shape, dtype=dtype), INDEX[: shape[0]]
    found, expected = nn.softmax(src, index), pyg.softmax(src, index)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


def test_large_numbers():
    src = torch.tensor([1e4, -1e4, 1e4 - 1, 3.0, 2.0, -5.0, 0.0], dtype=torch.float64)
    check(nn.softmax, pyg.softmax, src, INDEX, order=1, close=1e-12)


def test_compiled():
    torch._dynamo.reset()

    def both(src, index, ptr):
        y = nn.scatter(src, index, dim_size=6, reduce="mean")
        return y, nn.softmax(src, index, num_nodes=6), nn.segment(src, ptr, "sum")

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    check(compiled, both, draw(7, 9), INDEX, PTR, order=1)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.scatter(draw(7), INDEX[None]), ValueError, "index: expected one dimension"),
        (lambda: nn.scatter(draw(7), INDEX, dim=1), ValueError, "dim: expected one of 1"),
        (lambda: nn.scatter(draw(7), INDEX, reduce="std"), ValueError, "reduce: expected one of"),
        (
            lambda: nn.scatter(draw(7, 9), INDEX, dim_size=4),
            IndexError,
            "index: .*expected indices",
        ),
        (lambda: nn.scatter(draw(6), INDEX), ValueError, r"index: expected shape \(6,\)"),
        (lambda: nn.segment(draw(7), PTR, "mul"), ValueError, "reduce: expected one of"),
        (lambda: nn.segment(draw(6), PTR), ValueError, "ptr: expected numbers from 0 to 6"),
        (lambda: nn.segment(draw(7), PTR[None]), ValueError, "ptr: expected one dimension"),
        (lambda: nn.softmax(draw(7)), NotImplementedError, "index: expected one, or ptr"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.fixture(params=[False, True], ids=["by torch", "packed"])
def _route(request, monkeypatch):
    if request.param:
        for operator in routes.PACKED:
            monkeypatch.setitem(routes.PACKED, operator, 0)


INDICES = torch.stack([INDEX, INDEX.flip(0), INDEX * 0])
MAPPED = {
    **{
        reduce: lambda src, index, reduce=reduce: nn.scatter(src, index, 0, 9, reduce)
        for reduce in REDUCTIONS
        if reduce != "mul"  # torch cannot vmap its gradient
    },
    "softmax": lambda src, index: nn.softmax(src, index, num_nodes=9),
    "softmax along columns": lambda src, index: nn.softmax(src.T, index, num_nodes=9, dim=1),
}


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("dims", [(None, 0), (0, 0)], ids=["indices", "both"])
@pytest.mark.parametrize("name", MAPPED)
def test_vmap_over_indices(name, dims):
    """The function and its gradient, with vmap over indices inside and outside of grad."""
    call = MAPPED[name]
    src = draw(7, 9) if dims[0] is None else draw(3, 7, 9)

    def slope(src, index):
        return torch.func.grad(lambda src: call(src, index).sin().sum())(src)

    for function in call, slope:
        found = torch.func.vmap(function, dims)(src, INDICES)
        given = [src] * 3 if dims[0] is None else src
        expected = torch.stack([function(*some) for some in zip(given, INDICES, strict=True)])
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)

    def total(src):
        return torch.func.vmap(call, dims)(src, INDICES).sin().sum()

    found = torch.func.grad(total)(src)
    parts = torch.func.vmap(slope, dims)(src, INDICES)
    expected = parts.sum(0) if dims[0] is None else parts
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def network():
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 12))


SHAPES = {0: (7, 3, 4), 1: (3, 7, 4), 2: (3, 4, 7)}


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("dim", SHAPES)
@pytest.mark.parametrize("name", ["scatter", "softmax"])
def test_gradients_are_contiguous(name, dim):
    src = draw(*SHAPES[dim]).requires_grad_()
    y = getattr(nn, name)(src, INDEX, dim=dim)
    (slope,) = torch.autograd.grad((y * y.cos()).sum(), src, create_graph=True)
    (second,) = torch.autograd.grad(slope.square().sum(), src, retain_graph=True)
    (several,) = torch.autograd.grad(y, src, torch.stack([y, y]), is_grads_batched=True)
    assert y.is_contiguous()
    assert slope.is_contiguous()
    assert second.is_contiguous()
    assert torch.equal(several[0], several[1])


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv", "NNConv"])
def test_gradients_by_weights_are_contiguous(name, aggr, heads):
    if name == "NNConv":
        layer = nn.NNConv(4, 3, network(), aggr=aggr).double()
    else:
        layer = getattr(nn, name)(4, 3, heads=heads, edge_dim=3, aggr=aggr).double()
    x, features = draw(6, 4).requires_grad_(), draw(7, 3).requires_grad_()
    y = layer(x, torch.stack([INDEX, INDEX.flip(0)]), features)
    slopes = torch.autograd.grad(y.sin().sum(), [x, features, *layer.parameters()])
    assert all(slope.is_contiguous() for slope in slopes)


X, EDGE_INDICES, PTRS = draw(6, 4), torch.stack([torch.stack([INDEX, INDEX % 4])] * 2), [PTR] * 2
REFUSED = {
    "segment: ptr: vmap over graphs": (lambda i: nn.segment(draw(7, 9), i), torch.stack(PTRS)),
    "softmax: ptr: vmap over graphs": (
        lambda i: nn.softmax(draw(7, 9), None, i),
        torch.stack(PTRS),
    ),
    "scatter: dim_size: expected an integer where vmap maps": (
        lambda i: nn.scatter(draw(7, 9), i),
        INDICES,
    ),
    "softmax: num_nodes: expected an integer where vmap maps": (
        lambda i: nn.softmax(draw(7, 9), i),
        INDICES,
    ),
    **{
        f"{name}: edge_index: vmap over graphs": (
            lambda i, name=name: getattr(nn, name)(4, 3).double()(X, i),
            EDGE_INDICES,
        )
        for name in ("GATConv", "GATv2Conv", "TransformerConv", "GCNConv", "SAGEConv", "GraphConv")
    },
    "NNConv: edge_index: vmap over graphs": (
        lambda i: nn.NNConv(4, 3, torch.nn.Linear(3, 12)).double()(X, i, draw(7, 3)),
        EDGE_INDICES,
    ),
    "InteractionPPBlock: idx_kj: vmap over graphs": (
        lambda i: nn.InteractionPPBlock(8, 4, 4, 2, 3, 1, 1, torch.tanh).double()(
            draw(6, 8), draw(6, 3), draw(7, 6), i, INDEX
        ),
        INDICES,
    ),
}


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("message", REFUSED)
def test_refused_vmap_over_indices(message):
    call, batch = REFUSED[message]
    with pytest.raises(NotImplementedError, match=message):
        torch.func.vmap(call, randomness="same")(batch)


def by_group(src, index, groups, reduce):
    """Return the reduction or softmax of each group separately; empty groups get 0."""
    result = src.clone() if reduce == "softmax" else src.new_zeros(groups, *src.shape[1:])
    for group in index.unique():
        rows = src[index == group]
        if reduce == "softmax":
            result[index == group] = rows.softmax(0)
        else:
            result[group] = rows.mean(0) if reduce == "mean" else getattr(rows, reduce)(0)
    return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 9)])
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "softmax"])
def test_infinities(reduce, shape, dtype):
    """Groups of infinities alone, of one sign or both, and beside finite values."""
    src = torch.randn(shape, dtype=dtype)
    index = torch.tensor([0, 0, 2, 2, 2, 3, 3])
    inf = torch.inf
    for values in [-inf] * 7, [inf] * 7, [1, -inf, -inf, -inf, -inf, inf, -inf], [inf, 0] * 3 + [0]:
        mixed = torch.tensor(values, dtype=dtype).view(-1, *[1] * (src.dim() - 1)).expand(shape)
        for x in mixed.contiguous(), torch.where(torch.rand(shape) < 0.5, mixed, src):
            expected = by_group(x, index, 4, reduce)
            name = reduce.removeprefix("a")
            for found in (
                [nn.softmax(x, index), nn.softmax(x, ptr=PTR)]
                if reduce == "softmax"
                else [nn.scatter(x, index, 0, 4, name), nn.segment(x, PTR, name)]
            ):
                torch.testing.assert_close(found, expected, equal_nan=True)
