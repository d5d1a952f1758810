"""Layers, functions and graphs refuse invalid arguments by name.

The calls share their tensors and layers, so they are one file.
"""

import pytest

torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402
from pyops.compat.pylibcugraphops.pytorch import CSC, HeteroCSC  # noqa: E402
from pyops.torch import nn  # noqa: E402
from pyops.torch.nn._dimenet import swish  # noqa: E402
from pyops.torch.nn._edges import routes  # noqa: E402

NODES, EDGES = 6, 20
X = torch.zeros(NODES, 4)
INDEX = torch.zeros(2, EDGES, dtype=torch.long)
FEATURES = torch.zeros(EDGES, 3)
ROWS = torch.zeros(EDGES, 16)
NARROW = torch.zeros(EDGES)
PTR = torch.tensor([0, 5, EDGES])
OFFSETS, SOURCES = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 2])


def layer(name):
    if name == "NNConv":
        made = nn.NNConv(4, 3, torch.nn.Linear(3, 12))
        return lambda x, index: made(x, index, FEATURES)
    return nn.GINConv(torch.nn.Linear(4, 3)) if name == "GINConv" else getattr(nn, name)(4, 3)


ATTENTION = "GATConv", "GATv2Conv", "TransformerConv"
AGGREGATING = "SAGEConv", "GraphConv", "GINConv"


@pytest.mark.parametrize("name", [*ATTENTION, "NNConv", *AGGREGATING])
@pytest.mark.parametrize(
    ("x", "index", "kind", "message"),
    [
        (
            X.to("meta"),
            INDEX,
            ValueError,
            "x: expected a tensor on a CUDA device or on the CPU, got one on meta",
        ),
        (
            X,
            INDEX.to("meta"),
            ValueError,
            "edge_index: expected a tensor on a CUDA device or on the CPU, got one on",
        ),
        (X, (PTR.to("meta"), INDEX[0]), ValueError, "edge_index: offsets: expected a tensor on"),
        (X, (PTR.float(), INDEX[0]), TypeError, "edge_index: offsets: expected int32 or int64"),
        (X.numpy(), INDEX, TypeError, "x: expected a tensor or a pair of tensors, got ndarray"),
        (None, INDEX, TypeError, "x: expected a tensor or a pair of tensors, got NoneType"),
        ((X, X, X), INDEX, TypeError, "x: expected a tensor or a pair of tensors, got 3 of them"),
        ((X, X.numpy()), INDEX, TypeError, "x: expected a torch.Tensor, got ndarray"),
        (X[None], INDEX, ValueError, "x: expected two dimensions, got 3"),
        ((X, X[None]), INDEX, ValueError, "x: expected two dimensions, got 3"),
        (X[:, 0], INDEX, ValueError, "x: expected two dimensions, got 1"),
    ],
)
def test_layers(name, x, index, kind, message):
    with pytest.raises(kind, match=f"pyops.torch.nn.{name}: {message}"):
        layer(name)(x, index)


@pytest.mark.parametrize("size", [5, (6,), (6, 6, 6), ("6", 6), (6, 2.0), (True, 6)])
@pytest.mark.parametrize("name", ["GATConv", "NNConv", *AGGREGATING])
def test_sizes(name, size):
    network = (torch.nn.Linear(3, 12),) if name == "NNConv" else ()
    made = layer(name) if name in AGGREGATING else getattr(nn, name)(4, 3, *network)
    given = () if name in AGGREGATING else (FEATURES,)
    with pytest.raises(ValueError, match=f"pyops.torch.nn.{name}: size: expected None or .*, got"):
        made(X, INDEX, *given, size=size)


@pytest.mark.parametrize("size", [(6, None), (None, 6)])
def test_sizes_with_self_loops(size):
    with pytest.raises(ValueError, match="GATConv: size: expected None or with self loops two int"):
        nn.GATConv(4, 3)(X, INDEX, size=size)


@pytest.mark.parametrize("name", ["scatter", "softmax"])
@pytest.mark.parametrize("src", [ROWS, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("size", [None, 9])
@pytest.mark.parametrize(
    ("index", "kind", "message"),
    [
        (INDEX[0].float(), TypeError, "index: expected int32 or int64, got torch.float32"),
        (INDEX[0] > 0, TypeError, "index: expected int32 or int64, got torch.bool"),
        (INDEX[0].to("meta"), ValueError, "index: expected a tensor on a CUDA .*, got one on meta"),
        (INDEX[0].numpy(), TypeError, "index: expected a torch.Tensor, got ndarray"),
        (INDEX, ValueError, "index: expected one dimension, got 2"),
    ],
)
def test_indices_of_groups(name, src, size, index, kind, message):
    given = {"dim_size" if name == "scatter" else "num_nodes": size}
    with pytest.raises(kind, match=f"pyops.torch.nn.{name}: {message}"):
        getattr(nn, name)(src, index, **given)


@pytest.mark.parametrize("name", ["scatter", "softmax"])
@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (2.5, TypeError, "expected an integer, got 2.5"),
        ("a", TypeError, "expected an integer, got 'a'"),
        (True, TypeError, "expected an integer, got True"),
        (-1, ValueError, "expected at least 0, got -1"),
    ],
)
def test_numbers_of_groups(name, value, kind, message):
    option = "dim_size" if name == "scatter" else "num_nodes"
    with pytest.raises(kind, match=f"pyops.torch.nn.{name}: {option}: {message}"):
        getattr(nn, name)(ROWS, INDEX[0], **{option: value})


@pytest.mark.parametrize("name", ["scatter", "softmax"])
@pytest.mark.parametrize("dim", [0.0, "0", None])
def test_dimensions_of_groups(name, dim):
    with pytest.raises(TypeError, match=f"pyops.torch.nn.{name}: dim: expected an integer, got"):
        getattr(nn, name)(ROWS, INDEX[0], dim=dim)


@pytest.mark.parametrize("name", ["scatter", "softmax", "segment"])
@pytest.mark.parametrize(
    ("src", "kind", "message"),
    [
        (
            ROWS.to("meta"),
            ValueError,
            "src: expected a tensor on a CUDA device or on the CPU, got one on meta",
        ),
        (ROWS.numpy(), TypeError, "src: expected a torch.Tensor, got ndarray"),
        (ROWS.to_sparse(), TypeError, "src: expected a dense tensor, got layout torch.sparse_coo"),
    ],
)
def test_elements_of_groups(name, src, kind, message):
    with pytest.raises(kind, match=f"pyops.torch.nn.{name}: {message}"):
        getattr(nn, name)(src, PTR if name == "segment" else INDEX[0])


@pytest.mark.parametrize(
    ("ptr", "kind", "message"),
    [
        (PTR.float(), TypeError, "expected int32 or int64, got torch.float32"),
        (PTR.short(), TypeError, "expected int32 or int64, got torch.int16"),
        (
            PTR.to("meta"),
            ValueError,
            "expected a tensor on a CUDA device or on the CPU, got one on meta",
        ),
        (PTR.numpy(), TypeError, "expected a torch.Tensor, got ndarray"),
    ],
)
def test_offsets_of_groups(ptr, kind, message):
    for call in (lambda: nn.segment(ROWS, ptr), lambda: nn.softmax(ROWS, None, ptr)):
        with pytest.raises(kind, match=f"ptr: {message}"):
            call()


def interact(x=9, rbf=9, sbf=30, kj=30, ji=30, change=lambda index: index):
    block = nn.InteractionPPBlock(16, 4, 4, 2, 3, 1, 1, swish)
    indices = change(torch.zeros(kj, dtype=torch.long)), torch.zeros(ji, dtype=torch.long)
    return block(torch.zeros(x, 16), torch.zeros(rbf, 3), torch.zeros(sbf, 6), *indices)


def meta(index):
    return index.to("meta")


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: interact(sbf=3, ji=3), ValueError, "idx_ji: expected 30 rows"),
        (lambda: interact(kj=3), ValueError, "idx_ji: expected 3 rows"),
        (lambda: interact(sbf=3), ValueError, "sbf: expected 30 rows"),
        (lambda: interact(rbf=1), ValueError, "rbf: expected 9 rows"),
        (lambda: interact(change=torch.Tensor.float), TypeError, "idx_kj: expected int32 or int64"),
        (
            lambda: interact(change=meta),
            ValueError,
            "idx_kj: expected a tensor on a CUDA device or on the CPU",
        ),
        (lambda: interact(change=lambda i: i + 9), IndexError, "idx_kj and idx_ji: .*expected ind"),
        (
            lambda: nn.OutputPPBlock(3, 4, 4, 1, 1, swish)(ROWS[:, :4], FEATURES, INDEX[0, 1:], 2),
            ValueError,
            "OutputPPBlock: x: expected 19 rows",
        ),
        (lambda: CSC(meta(OFFSETS), SOURCES, 3), ValueError, "CSC: offsets: expected a tensor on"),
        (lambda: CSC(OFFSETS, meta(SOURCES), 3), ValueError, "CSC: indices: expected a tensor on"),
        (
            lambda: CSC(OFFSETS, SOURCES, 3, ef_indices=meta(SOURCES)),
            ValueError,
            "CSC: ef_indices: expected a tensor on the CPU, got one on meta",
        ),
        (
            lambda: HeteroCSC(OFFSETS, SOURCES, meta(SOURCES), 3, 3),
            ValueError,
            "HeteroCSC: edge_types: expected a tensor on the CPU",
        ),
        (lambda: pt.Graph(meta(SOURCES), SOURCES), TypeError, "src: .* got Tensor on meta"),
        (lambda: pt.Graph.from_csc(meta(OFFSETS), SOURCES, 3), TypeError, "offsets: .* on meta"),
    ],
)
def test_others(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def network():
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 12))


def with_features(name, **options):
    """Return a layer that takes edge features."""
    if name == "NNConv":
        return nn.NNConv(4, 3, network())
    return getattr(nn, name)(4, 3, **{"edge_dim": 3, **options})


@pytest.fixture(params=[False, True], ids=["by torch", "packed"])
def _route(request, monkeypatch):
    if request.param:
        for operator in routes.PACKED:
            monkeypatch.setitem(routes.PACKED, operator, 0)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv", "NNConv"])
@pytest.mark.parametrize(
    ("x", "index", "features", "message"),
    [
        (X[:, :3], INDEX, FEATURES, "x: expected .*4.*, got .*6, 3"),
        (X.double(), INDEX, FEATURES, "x: expected torch.float32.*, got torch.float64"),
        (X, INDEX, FEATURES[:, :2], "edge_attr: expected 3 columns.*, got .*2"),
        (X, INDEX, FEATURES[:, 0], "edge_attr: expected (3 columns|two dimensions), got .*1"),
        (X, INDEX, FEATURES[0, 0], "edge_attr: expected a row for each edge, got a number"),
        (X, INDEX, FEATURES.double(), "edge_attr: expected torch.float32.*, got torch.float64"),
        (X, INDEX, "a", "edge_attr: expected a torch.Tensor, got str"),
        (X, INDEX + 9, FEATURES, "edge_index: (src|dst): expected indices from 0"),
        (X, INDEX - 2, FEATURES, "edge_index: (src|dst): expected indices from 0 .*, got -2"),
    ],
)
def test_features(name, x, index, features, message):
    with pytest.raises((TypeError, ValueError, IndexError), match=f"nn.{name}: {message}"):
        with_features(name, **OF_LOOPS.get(name, {}))(x, index, features)


OF_LOOPS = {name: {"add_self_loops": False} for name in ("GATConv", "GATv2Conv")}


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_features_of_a_layer_without(name):
    with pytest.raises(TypeError, match=f"nn.{name}: edge_attr: expected a torch.Tensor, got str"):
        getattr(nn, name)(4, 3)(X, INDEX, "a")


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
@pytest.mark.parametrize("value", ["avg", [0.1, 0.2, 0.3], torch.ones(2), {}])
def test_values_of_self_loops(name, value):
    with pytest.raises(ValueError, match=f"nn.{name}: fill_value: expected .*, got"):
        with_features(name, fill_value=value)(X, INDEX, FEATURES)


@pytest.mark.parametrize("name", ["scatter", "softmax"])
def test_negative_indices(name):
    with pytest.raises(IndexError, match=f"nn.{name}: index: expected indices from 0 on, got -3"):
        getattr(nn, name)(ROWS, INDEX[0] - 3)


POINTS, QUERIES, VALUES = torch.rand(7, 2), torch.rand(5, 2), torch.rand(7, 3)
NEIGHBOURS = {"neighbors_index": INDEX[0, :5], "neighbors_row_splits": torch.arange(6)}
OPTIONS = {
    "use_open3d_neighbor_search": False,
    "pos_embedding_type": None,
    "channel_mlp_layers": [4, 3],
}


def block(**changed):
    given = {"y": POINTS, "x": QUERIES, "f_y": VALUES} | changed
    return nn.GNOBlock(3, 3, 2, 0.5, **OPTIONS)(**given)


def integral(**changed):
    given = {"y": POINTS, "x": QUERIES, "f_y": VALUES}
    neighbours = NEIGHBOURS | {k: v for k, v in changed.items() if k in NEIGHBOURS}
    given |= {k: v for k, v in changed.items() if k not in NEIGHBOURS}
    return nn.IntegralTransform(channel_mlp_layers=[4, 3])(neighbors=neighbours, **given)


def search(**changed):
    given = {"data": POINTS, "queries": QUERIES} | changed
    return nn.NeighborSearch(False)(**given, radius=0.5)


NAMES_OF_POINTS = [(block, "y"), (block, "x"), (integral, "y"), (integral, "x")]
NAMES_OF_POINTS += [(search, "data"), (search, "queries")]
CALLERS = {block: "GNOBlock", integral: "IntegralTransform", search: "NeighborSearch"}


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (POINTS[None], ValueError, r"expected shape \(n, .\), .*got \(1, 7, 2\)"),
        (POINTS.expand(2, 7, 2), ValueError, r"expected shape \(n, .\), .*got \(2, 7, 2\)"),
        (POINTS[:, 0], ValueError, r"expected shape \(n, .\), .*got \(7,\)"),
        (POINTS.long(), TypeError, r"expected floating-point coordinates, got torch\.int64"),
        (POINTS.numpy(), TypeError, r"expected a torch\.Tensor, got ndarray"),
        (POINTS.to("meta"), ValueError, "expected a tensor on a CUDA .*, got one on meta"),
        (POINTS.to_sparse(), TypeError, r"expected a dense tensor, got layout torch\.sparse_coo"),
    ],
)
@pytest.mark.parametrize(("call", "name"), NAMES_OF_POINTS)
def test_points(call, name, wrong, kind, message):
    call()
    with pytest.raises(kind, match=f"^{CALLERS[call]}: {name}: {message}"):
        call(**{name: wrong})


@pytest.mark.parametrize(("call", "name"), NAMES_OF_POINTS)
def test_precisions_of_points(call, name):
    first, second = (n for c, n in NAMES_OF_POINTS if c is call)
    wide, narrow = ("64", "32") if name == first else ("32", "64")
    text = rf"{second}: expected torch\.float{wide} like {first}, got torch\.float{narrow}"
    with pytest.raises(TypeError, match=f"^{CALLERS[call]}: {text}"):
        call(**{name: (POINTS if name == first else QUERIES).double()})


@pytest.mark.parametrize("kind", ["nonlinear", "nonlinear_kernelonly"])
def test_precisions_of_values_that_the_kernel_sees(kind):
    layer = nn.IntegralTransform(channel_mlp_layers=[7, 3], transform_type=kind)
    text = r"^IntegralTransform: f_y: expected torch\.float32 like y, got torch\.float64"
    with pytest.raises(TypeError, match=text):
        layer(POINTS, NEIGHBOURS, QUERIES, VALUES.double())


NO_RADII = [("a", TypeError), ("0.5", TypeError), (None, TypeError), (True, TypeError)]
NO_RADII += [(float("nan"), ValueError), (-1.0, ValueError), ([0.5], TypeError)]


@pytest.mark.parametrize(("radius", "kind"), NO_RADII)
def test_radii(radius, kind):
    text = "radius: expected a number from 0 on, got"
    with pytest.raises(kind, match=f"^GNOBlock: {text}"):
        nn.GNOBlock(3, 3, 2, radius, **OPTIONS)
    with pytest.raises(kind, match=f"^NeighborSearch: {text}"):
        nn.NeighborSearch()(POINTS, QUERIES, radius)


@pytest.mark.parametrize("radius", [0, 0.5, torch.tensor(0.5), float("inf")])
def test_radii_that_are_numbers(radius):
    found = nn.NeighborSearch()(POINTS, QUERIES, radius)["neighbors_index"]
    assert len(found) == (torch.cdist(QUERIES, POINTS) <= max(float(radius), 1e-9)).sum()
    nn.GNOBlock(3, 3, 2, radius, **OPTIONS)(POINTS, QUERIES, VALUES)


@pytest.mark.parametrize("value", ["2", 2.5, None, True, -1])
@pytest.mark.parametrize("name", ["in_channels", "out_channels", "coord_dim"])
def test_sizes_of_blocks(name, value):
    given = {"in_channels": 3, "out_channels": 3, "coord_dim": 2, "radius": 0.5, name: value}
    with pytest.raises((TypeError, ValueError), match=f"^GNOBlock: {name}: expected an? "):
        nn.GNOBlock(**given, **OPTIONS)


@pytest.mark.parametrize("call", [block, integral])
@pytest.mark.parametrize(
    ("wrong", "kind", "got"),
    [
        (VALUES[:5], ValueError, r"\(5, 3\)"),
        (VALUES[:, 0], ValueError, r"\(7,\)"),
        (VALUES[None, None], ValueError, r"\(1, 1, 7, 3\)"),
        (VALUES[None][:0], ValueError, r"\(0, 7, 3\)"),
        (VALUES.numpy(), TypeError, "ndarray"),
        (VALUES.long(), TypeError, r"torch\.int64"),
        (VALUES > 0, TypeError, r"torch\.bool"),
        (VALUES + 0j, TypeError, r"torch\.complex64"),
        (VALUES.to("meta"), ValueError, "one on meta"),
    ],
)
def test_values_of_points(call, wrong, kind, got):
    with pytest.raises(kind, match=f"^{CALLERS[call]}: f_y: expected .*got {got}"):
        call(f_y=wrong)


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"neighbors_index": INDEX[0, :5] + 7}, IndexError, "expected indices from 0 to .*got 7"),
        ({"neighbors_index": INDEX[:, :5]}, ValueError, "expected one dimension, got 2"),
        ({"neighbors_index": NARROW[:5]}, TypeError, "expected int32 .*, got torch.float32"),
        ({"neighbors_row_splits": torch.arange(5)}, ValueError, "expected numbers from 0 to 5"),
        ({"neighbors_row_splits": NARROW[:6]}, TypeError, "expected int32 or int64"),
        ({"neighbors_row_splits": PTR[None]}, ValueError, "expected one dimension, got 2"),
    ],
)
def test_neighbours(changed, kind, message):
    (name,) = changed
    with pytest.raises(kind, match=f"^IntegralTransform: neighbors: {name}: .*{message}"):
        integral(**changed)
