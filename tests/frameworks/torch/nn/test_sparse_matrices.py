"""Sparse matrices as edges of aggregating layers, as PyTorch Geometric takes them."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric.nn")


from .comparison import NODES, check_same, draw, edges  # noqa: E402
from .test_aggregating import NAMES, WEIGHTED, pair, weights  # noqa: E402
from .test_aggregating import _route as _route  # noqa: E402
from .test_aggregating import _seed as _seed  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*[Ss]parse (CSR|invariant)", "ignore:Converting sparse"
)


def adjacency(layout, num_dst=NODES, num_src=NODES):
    """Return a sparse matrix with a diagonal, empty rows, and no equal products."""
    dense = torch.rand(num_dst, num_src, dtype=torch.float64)
    dense[dense < 0.8] = 0
    dense[3:5] = 0
    return dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("aggr", ["add", "mean", "max", "median"])
@pytest.mark.parametrize("name", NAMES)
def test_sparse_matrices(name, aggr, layout):
    """Values of a matrix are edge weights, as PyTorch Geometric takes them."""
    original, drop_in = pair(name, aggr=aggr)
    order = 1 if aggr in ("mean", "max") else 2  # the original lacks second derivatives
    matrix = adjacency(layout)
    check_same(original, drop_in, [draw(NODES, 5), matrix], order, single=False)
    if name in WEIGHTED:  # the original ignores other weights, except in messages
        count = matrix.values().shape[0]
        check_same(original, drop_in, [draw(NODES, 5), matrix, weights(count)], order, False)
    if name != "GCNConv":
        matrix = adjacency(layout, 20, 30)
        check_same(original, drop_in, [(draw(30, 5), draw(20, 5)), matrix], order, single=False)
        check_same(original, drop_in, [(draw(30, 5), None), matrix], order, single=False)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("options", [{"improved": True}, {"add_self_loops": False}], ids=str)
def test_sparse_matrices_of_a_gcn(options):
    original, drop_in = pair("GCNConv", **options)
    check_same(original, drop_in, [draw(NODES, 5), adjacency("csr")], single=False)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_by_the_values_of_a_matrix(name):
    original, drop_in = pair(name)
    drop_in.load_state_dict(original.state_dict())
    x, found = draw(NODES, 5), []
    matrix = adjacency("csr")
    for layer in (original, drop_in):
        leaf = matrix.detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer.double()(x, leaf).sin().sum(), leaf)
        found.append(slope.to_dense())
    torch.testing.assert_close(*found)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize("name", NAMES)
def test_duplicates_in_a_matrix_are_summed(name, aggr):
    _, layer = pair(name, aggr=aggr)
    x, values = draw(NODES, 5), weights()
    matrix = torch.sparse_coo_tensor(edges(), values, (NODES, NODES))
    layer.double()
    torch.testing.assert_close(layer(x, matrix), layer(x, matrix.coalesce()))
