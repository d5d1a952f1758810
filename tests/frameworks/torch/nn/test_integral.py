"""Layers of neuraloperator against the originals: transforms, neighbourhoods, weights, networks.

All layers are compared in the same two precisions, so this is one file.
"""

import copy
import itertools
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
originals = pytest.importorskip("neuralop.layers.integral_transform")

from neuralop.layers.channel_mlp import LinearChannelMLP  # noqa: E402
from neuralop.layers.embeddings import SinusoidalEmbedding  # noqa: E402
from neuralop.layers.gno_block import GNOBlock  # noqa: E402
from neuralop.layers.gno_weighting_functions import dispatch_weighting_fn  # noqa: E402
from neuralop.layers.neighbor_search import native_neighbor_search  # noqa: E402

import pyops.torch.nn as pn  # noqa: E402
from pyops.torch.nn import neighbor_search  # noqa: E402

from .... import ROOT  # noqa: E402
from .comparison import check_alike, distances, results  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)
TYPES = ["linear_kernelonly", "linear", "nonlinear_kernelonly", "nonlinear"]


def in_precision(kind):
    """Return the original with sums in the type of its arguments instead of float32."""

    class Original(kind):
        def forward(self, y, *arguments, **named):
            before = torch.get_default_dtype()
            torch.set_default_dtype(y.dtype)
            try:
                return super().forward(y, *arguments, **named)
            finally:
                torch.set_default_dtype(before)

    Original.__name__ = kind.__name__
    return Original


IntegralTransform = in_precision(originals.IntegralTransform)
Block = in_precision(GNOBlock)


def points(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def pair(layers, **options):
    """Return the original and the drop-in, with the same weights."""
    torch.manual_seed(1)
    original = IntegralTransform(channel_mlp_layers=layers, use_torch_scatter=False, **options)
    torch.manual_seed(1)
    mine = pn.IntegralTransform(channel_mlp_layers=layers, use_torch_scatter=False, **options)
    for one, other in zip(original.parameters(), mine.parameters(), strict=True):
        assert torch.equal(one, other)
    return original, mine


def check(original, mine, arguments, order=2):
    """Assert equality in float64, and at most twice the original's error in float32."""
    mine.load_state_dict(original.state_dict())
    errors = [0.0, 0.0]
    for scale in (1, 0.98, 1.02):
        y, found, *rest = arguments
        given = [y * scale, found if isinstance(found, dict) else found * scale, *rest]
        if rest and isinstance(rest[0], torch.Tensor) and isinstance(found, dict):
            given[2] = rest[0] * scale
        truth = results(original, given, torch.float64, order)
        assert distances(results(mine, given, torch.float64, order), truth)[0] < 1e-12
        for i, layer in enumerate((mine, original)):
            errors[i] += distances(results(layer, given, torch.float32, order), truth)[1]
    assert errors[0] <= 4 * errors[1] + 1e-14


def neighbours(y, x, radius=0.4, weights=False):
    """Return neighbours; some points of x have none."""
    return native_neighbor_search(y, x, radius, weights)


@pytest.mark.parametrize("transform_type", TYPES)
@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("hidden", [[], [6], [6, 7]])
def test_transforms(transform_type, batch, reduction, hidden):
    y, x = points(12, 2), points(9, 2, seed=1)
    f = points(*([batch] if batch else []), 12, 3, seed=2) - 0.5
    given = 4 + 3 * transform_type.startswith("non")
    options = {"transform_type": transform_type, "reduction": reduction}
    original, mine = pair([given, *hidden, 3], **options)
    check_alike(original, mine)
    check(original, mine, [y, neighbours(y, x, 0.2), x, f])


@pytest.mark.parametrize("transform_type", TYPES)
def test_without_function(transform_type):
    y = points(12, 2)
    original, mine = pair([4, 6, 3], transform_type=transform_type)
    check(original, mine, [y, neighbours(y, y, 0.2)])


@pytest.mark.parametrize("transform_type", TYPES)
@pytest.mark.parametrize("how", ["found", "given", "function"])
def test_weights(transform_type, how):
    """Weights have a batch axis, as in the original; those of the neighbourhood take precedence."""
    y, x, f = points(12, 2), points(9, 2, seed=1), points(2, 12, 3, seed=2)
    given = 4 + 3 * transform_type.startswith("non")
    function = dispatch_weighting_fn("half_cos", 0.16, 1.0) if how == "function" else None
    options = {"transform_type": transform_type, "reduction": "mean", "weighting_fn": function}
    original, mine = pair([given, 6, 3], **options)
    found = neighbours(y, x, weights=how != "given")
    weights = [points(len(found["neighbors_index"]), seed=4)] if how == "given" else []
    check(original, mine, [y, found, x, f, *weights])


def test_weights_without_batch():
    """Weights without a batch axis, refused by the original, act as in a batch of one."""
    y, f = points(12, 2), points(12, 3, seed=2)
    _, mine = pair([4, 6, 3])
    found = neighbours(y, y)
    weights = points(12, seed=4)
    single = mine(y, found, f_y=f, weights=weights)
    by_neighbours = weights[found["neighbors_index"]]
    torch.testing.assert_close(single, mine(y, found, f_y=f[None], weights=by_neighbours)[0])
    kernel = mine(y, found, weights=weights)
    ones = mine(y, found, f_y=torch.ones(12, 3), weights=weights)
    torch.testing.assert_close(kernel, ones)


@pytest.mark.parametrize("transform_type", TYPES)
@pytest.mark.parametrize("batch", [None, 2])
def test_other_networks(transform_type, batch):
    """Networks evaluated on pairs of points, and layers of the original itself."""
    y, x = points(12, 2), points(9, 2, seed=1)
    f = points(*([batch] if batch else []), 12, 3, seed=2)
    given = 4 + 3 * transform_type.startswith("non")
    found = neighbours(y, x, 0.3)
    networks = [
        torch.nn.Sequential(torch.nn.Linear(given, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)),
        LinearChannelMLP([given, 5, 3], non_linearity=torch.tanh),
    ]
    for network in networks:
        options = {"transform_type": transform_type, "use_torch_scatter": False}
        original = IntegralTransform(channel_mlp=network, **options)
        mine = pn.IntegralTransform(channel_mlp=copy.deepcopy(network), **options)
        check_alike(original, mine)
        check(original, mine, [y, found, x, f])


def test_forward_mode():
    y, f = points(12, 2).double(), points(2, 12, 3, seed=2).double()
    _, mine = pair([4, 6, 3])
    mine, found = mine.double(), neighbours(y, y)

    def layer(f):
        return mine(y, found, f_y=f)

    _, along = torch.func.jvp(layer, (f,), (f,))
    torch.testing.assert_close(along, layer(f))
    by_f = torch.func.grad(lambda f: layer(f).square().sum())(f)
    leaf = f.clone().requires_grad_()
    (expected,) = torch.autograd.grad(layer(leaf).square().sum(), leaf)
    torch.testing.assert_close(by_f, expected)


def test_block_in_transformations():
    y, f = points(12, 2).double(), points(2, 12, 3, seed=2).double()
    block = pn.GNOBlock(3, 3, 2, 0.3, channel_mlp_layers=[4, 3], use_open3d_neighbor_search=False)
    block = block.double()

    def energy(y, f):
        return block(y, y, f).square().sum()

    found = torch.func.grad(energy, (0, 1))(y, f)
    leaves = [t.clone().requires_grad_() for t in (y, f)]
    for one, other in zip(found, torch.autograd.grad(energy(*leaves), leaves), strict=True):
        torch.testing.assert_close(one, other)
    by_y = torch.func.jvp(lambda y: energy(y, f), (y,), (y,))[1]
    torch.testing.assert_close(by_y, (found[0] * y).sum())


def test_one_channel_for_all():
    y, f = points(12, 2), points(12, 1, seed=2)
    original, mine = pair([4, 6, 3])
    check(original, mine, [y, neighbours(y, y), None, f])


def test_watched_layers_are_called():
    y, f = points(12, 2), points(12, 3, seed=2)
    _, mine = pair([4, 6, 3])
    seen = []
    expected = mine(y, neighbours(y, y), f_y=f)
    mine.channel_mlp.fcs[0].register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(mine(y, neighbours(y, y), f_y=f), expected)
    assert seen


def test_dropout_draws_as_the_original():
    y, f = points(12, 2), points(12, 3, seed=2)
    results = []
    for kind, network in (
        (IntegralTransform, LinearChannelMLP),
        (pn.IntegralTransform, pn.LinearChannelMLP),
    ):
        torch.manual_seed(0)
        layer = kind(channel_mlp=network([4, 6, 3], dropout=0.5), use_torch_scatter=False)
        results.append(layer(y, neighbours(y, y), f_y=f))
    torch.testing.assert_close(*results)


def test_no_neighbours():
    y, x, f = points(5, 2), points(3, 2) + 5, points(5, 3)
    original, mine = pair([4, 6, 3])
    found = neighbours(y, x)
    with torch.no_grad():
        assert torch.equal(mine(y, found, x, f), original(y, found, x, f))
    empty = {"neighbors_index": torch.zeros(0, dtype=torch.int64)}
    empty["neighbors_row_splits"] = torch.zeros(1, dtype=torch.int64)
    assert mine(y, empty, x[:0], f).shape == (0, 3)


def test_changed_neighbours_are_seen():
    y, f = points(12, 2), points(12, 3, seed=2)
    original, mine = pair([4, 6, 3])
    found = neighbours(y, y)
    mine(y, found, f_y=f)
    found["neighbors_index"].numpy()[:] = 11 - found["neighbors_index"].numpy()
    mine.load_state_dict(original.state_dict())
    torch.testing.assert_close(mine(y, found, f_y=f), original(y, found, f_y=f))


def test_float64_stays():
    y, f = points(12, 2).double(), points(12, 3).double()
    original, mine = pair([4, 6, 3])
    found = neighbours(y, y)
    exact = originals.IntegralTransform(channel_mlp_layers=[4, 6, 3], use_torch_scatter=False)
    assert exact.double()(y, found, f_y=f).dtype == torch.float32
    assert mine.double()(y, found, f_y=f).dtype == torch.float64
    original.double()


@pytest.mark.parametrize("transform_type", ["linear", "nonlinear_kernelonly"])
def test_compiled(transform_type):
    y, x, f = points(12, 2), points(9, 2, seed=1), points(2, 12, 3, seed=2)
    _, mine = pair([4 + 3 * transform_type.startswith("non"), 6, 3], transform_type=transform_type)
    found = neighbours(y, x)
    expected = mine(y, found, x, f)
    torch.testing.assert_close(torch.compile(mine, fullgraph=True)(y, found, x, f), expected)


def lattice(count, dim):
    return torch.cartesian_prod(*[torch.linspace(0, 1, count)] * dim).reshape(-1, dim)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 2, 3, 4])
@pytest.mark.parametrize("few", [0, 2**24])
def test_neighbours(monkeypatch, dtype, dim, few):
    """The neighbours are the same, also at the radius, by either search algorithm."""
    monkeypatch.setattr(neighbor_search, "FEW", few)
    monkeypatch.setattr(neighbor_search, "AT_ONCE", 400)
    random = points(90, dim).to(dtype), points(60, dim, seed=1).to(dtype)
    grid = lattice({1: 40, 2: 11, 3: 6, 4: 4}[dim], dim).to(dtype)
    search = pn.NeighborSearch(return_norm=True)
    for (y, x), radius in itertools.product([random, (grid, grid), (grid, random[1])], [0.2, 0.4]):
        found = search(data=y, queries=x, radius=radius)
        expected = native_neighbor_search(y, x, radius, True)
        assert [*found] == ["neighbors_index", "neighbors_row_splits", "weights"]
        for name in ("neighbors_index", "neighbors_row_splits"):
            assert torch.equal(found[name], expected[name])
        torch.testing.assert_close(found["weights"], expected["weights"], rtol=1e-5, atol=1e-6)


def test_neighbours_are_remembered_by_what_points_are():
    search, y = pn.NeighborSearch(), points(20, 2)
    first = search(y, y, 0.3)
    first["neighbors_index"].zero_()
    again = search(y.clone(), y, 0.3)["neighbors_index"]
    assert torch.equal(again, native_neighbor_search(y, y, 0.3)["neighbors_index"])
    y.numpy()[:] *= 0.5
    moved = search(y, y, 0.3)["neighbors_index"]
    assert torch.equal(moved, native_neighbor_search(y, y, 0.3)["neighbors_index"])
    assert pickle.loads(pickle.dumps(search))._last is None


def test_odd_radii():
    y = points(6, 2)
    search = pn.NeighborSearch()
    assert len(search(y, y, 0.0)["neighbors_index"]) == 0
    assert len(search(y, y, float("inf"))["neighbors_index"]) == 36


@pytest.mark.parametrize("kind", ["transformer", "nerf"])
@pytest.mark.parametrize("shape", [(7, 2), (3, 7, 2)])
def test_embedding(kind, shape):
    x = points(*shape) * 3
    original, mine = (k(2, 4, kind, 100) for k in (SinusoidalEmbedding, pn.SinusoidalEmbedding))
    assert mine.out_channels == original.out_channels
    assert repr(mine) == repr(original)
    torch.testing.assert_close(mine(x), original(x), rtol=0, atol=2e-6)
    assert mine(x.double()).dtype == torch.float64


BLOCKS = [
    {},
    {"transform_type": "nonlinear"},
    {"transform_type": "nonlinear_kernelonly", "reduction": "mean"},
    {"transform_type": "linear_kernelonly", "pos_embedding_type": "nerf"},
    {"pos_embedding_type": None},
    {"pos_embedding_type": None, "transform_type": "nonlinear", "channel_mlp_layers": [7, 4, 3]},
    {"channel_mlp_layers": [5], "channel_mlp_non_linearity": torch.tanh},
    {"weighting_fn": dispatch_weighting_fn("half_cos", 0.09, 1.0)},
    {"weighting_fn": dispatch_weighting_fn("bump", 0.09, 2.0), "transform_type": "nonlinear"},
]


@pytest.mark.parametrize("options", BLOCKS)
def test_block(options):
    options = {
        "channel_mlp_layers": [8, 6],
        "pos_embedding_channels": 2,
        "use_torch_scatter_reduce": False,
        "use_open3d_neighbor_search": False,
        **options,
    }
    y, x, f = points(14, 2), points(9, 2, seed=1), points(2, 14, 3, seed=2)
    made = []
    for kind in (Block, pn.GNOBlock):
        torch.manual_seed(0)
        made.append(kind(3, 3, 2, 0.3, **copy.deepcopy(options)))
    check_alike(*made)
    given = [y, x, f]
    if options.get("transform_type") is None and "weighting_fn" not in options:
        given[2] = f[0]
    check(*made, given, order=1 if "weighting_fn" in options else 2)


def test_default_block():
    made = []
    for kind in (Block, pn.GNOBlock):
        torch.manual_seed(0)
        made.append(kind(3, 5, 3, 0.3))
    check_alike(*made)
    layers = [4, 8]
    pn.GNOBlock(3, 5, 2, 0.3, pos_embedding_type=None, channel_mlp_layers=layers,
                use_open3d_neighbor_search=False)  # fmt: skip
    assert layers == [4, 8]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pn.IntegralTransform(), ValueError, "channel_mlp_layers"),
        (lambda: pn.IntegralTransform(None, [2, 2], transform_type="x"), ValueError, "transform"),
        (lambda: pn.IntegralTransform(None, [2, 2], reduction="max"), ValueError, "reduction"),
        (lambda: pn.LinearChannelMLP([3]), ValueError, "layers"),
        (lambda: pn.SinusoidalEmbedding(2, 3, "fourier"), ValueError, "embedding_type"),
        (lambda: pn.SinusoidalEmbedding(2, 3, max_positions=None), ValueError, "max_positions"),
        (lambda: pn.SinusoidalEmbedding(2, 3)(points(2)), ValueError, r"\(n, in_channels\)"),
        (lambda: pn.GNOBlock(3, 3, 2, 0.1), ValueError, "open3d"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_refused_calls():
    y = points(12, 2)
    _, mine = pair([4, 6, 3], weighting_fn=torch.sqrt)
    with pytest.raises(KeyError, match="weights"):
        mine(y, neighbours(y, y))
    _, mine = pair([4, 6, 3])
    with pytest.raises(ValueError, match="3 channels"):
        mine(y, neighbours(y, y), f_y=points(2, 12, 2))
    with pytest.raises(ValueError, match=r"2 \+ 1 \+ 0"):
        mine(y, neighbours(y, y), y[:, :1])


@pytest.mark.slow
def test_example():
    """The model of the example, at a small size, agrees with the original."""
    script = ROOT / "examples" / "neuralop_model.py"
    sizes = "--points=200", "--grid=6", "--steps=1"
    done = subprocess.run([sys.executable, script, *sizes], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 1e-4
