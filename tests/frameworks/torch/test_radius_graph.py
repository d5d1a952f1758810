"""Neighbours of tensors: edges as of NumPy arrays, derivatives of vectors and offsets."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyops  # noqa: E402
import pyops.torch  # noqa: E402

from ...support import points as shared  # noqa: E402

CELL = torch.from_numpy(shared.CELL)
CASES = {
    name: {key: torch.from_numpy(given) for key, given in options.items()}
    for name, options in shared.CASES.items()
}


def points(rng, dtype=torch.float64):
    return torch.tensor(rng.uniform(-1, 3, (12, 3)), dtype=dtype)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_of_arrays(name, compiled, rng):
    options, x = CASES[name], points(rng)
    search = pyops.torch.radius_graph

    def features(x):
        graph, vectors, offsets, reverse = search(x, 1.5, **options)
        ends = pyops.torch.aggregate(graph, x, reduce="sum")
        return ends, vectors, offsets, reverse

    found = (torch.compile(features, fullgraph=True, dynamic=False) if compiled else features)(x)
    graph, *expected = pyops.radius_graph(x.numpy(), 1.5, **shared.CASES[name])
    np.testing.assert_allclose(
        found[0], pyops.aggregate(graph, x.numpy(), reduce="sum"), atol=1e-12
    )
    for got, array in zip(found[1:], expected, strict=True):
        np.testing.assert_allclose(got, array, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name, rng):
    """By positions and cell, to second order: the edges do not change within the difference."""
    options, x = dict(CASES[name]), points(rng).requires_grad_()
    cell = options.pop("cell", None)
    given = (x,) if cell is None else (x, cell.clone().requires_grad_())

    def lengths(x, cell=None):
        _, vectors, offsets, _ = pyops.torch.radius_graph(x, 1.5, cell=cell, **options)
        return vectors.square().sum(1), offsets

    assert torch.autograd.gradcheck(lengths, given)
    assert torch.autograd.gradgradcheck(lengths, given)
    forward = torch.func.jacfwd(lambda x: lengths(x, *given[1:])[0])(x.detach())
    backward = torch.func.jacrev(lambda x: lengths(x, *given[1:])[0])(x.detach())
    torch.testing.assert_close(forward, backward)


def test_stress(rng):
    """The energy is the same in a cell twice as long, and so is its derivative by a strain."""
    x = points(rng)[:4]
    strain = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)

    def energy(x, cell):
        deformed = torch.eye(3, dtype=torch.float64) + strain
        _, vectors, *_ = pyops.torch.radius_graph(x @ deformed, 2.5, cell=cell @ deformed)
        return torch.exp(-vectors.norm(dim=1)).sum()

    longer = CELL * torch.tensor([[2.0], [1], [1]], dtype=torch.float64)
    one, two = energy(x, CELL), energy(torch.cat([x, x + CELL[0]]), longer)
    torch.testing.assert_close(2 * one, two)
    torch.testing.assert_close(*(torch.autograd.grad(e, strain)[0] for e in (2 * one, two)))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_nearest(name, compiled, rng):
    def search(x):
        return pyops.torch.knn_graph(x, 3, **CASES[name])[1:]

    x = points(rng)
    found = (torch.compile(search, fullgraph=True, dynamic=False) if compiled else search)(x)
    _, *expected = pyops.knn_graph(x.numpy(), 3, **shared.CASES[name])
    for got, array in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, array, atol=1e-12)


def test_offsets_are_exact(rng):
    """In the precision of positions, under autocast too, whatever that of the cell."""
    x = points(rng, torch.float32)
    _, _, expected, _ = pyops.radius_graph(x.numpy(), 1.5, cell=CELL.numpy())
    with torch.autocast("cpu", torch.bfloat16):
        _, _, offsets, _ = pyops.torch.radius_graph(x, 1.5, cell=CELL)
    assert offsets.dtype == torch.float32
    np.testing.assert_allclose(offsets, expected, atol=1e-6)


def test_reduced_precision(rng):
    x = points(rng, torch.bfloat16)
    graph, vectors, *_ = pyops.torch.radius_graph(x, 1.5)
    assert vectors.dtype == torch.bfloat16
    assert graph.num_edges == pyops.radius_graph(x.float().numpy(), 1.5)[0].num_edges


@pytest.mark.parametrize(
    ("given", "options", "error", "message"),
    [
        (np.zeros((3, 3)), {}, TypeError, "positions: expected a torch.Tensor, got ndarray"),
        (torch.zeros(3, 3), {"cell": np.eye(3)}, TypeError, "cell: expected a torch.Tensor"),
        (torch.zeros(3, 4), {}, ValueError, "positions: expected shape"),
        (torch.zeros(3), {}, ValueError, "positions: expected shape"),
        (torch.zeros(3, 3), {"batch": torch.zeros(2, dtype=int)}, ValueError, "batch: expected"),
        (torch.zeros(3, 3), {"cell": torch.zeros(3, 3)}, ValueError, "cell: expected finite"),
    ],
)
def test_refused(given, options, error, message):
    with pytest.raises(error, match=f"radius_graph: {message}"):
        pyops.torch.radius_graph(given, 1.0, **options)


def test_vmap_is_refused():
    with pytest.raises(NotImplementedError, match="vmap over positions or batch"):
        torch.func.vmap(lambda x: pyops.torch.radius_graph(x, 1.0)[1])(torch.zeros(2, 3, 3))
