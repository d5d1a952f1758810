"""Replacement for neuraloperator's `NeighborSearch`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from ..._neighbour_search import pairs_within
from .._call import is_exporting, is_tracing, widened
from .._host import plain
from .._library import LIBRARY
from ._edges.edge_index import rows_of
from ._edges.neighbour_lists import check_alike, check_points, check_radius

AT_ONCE = 2**22
"""Maximum number of distances in memory at a time."""
ROWS = 32
"""Minimum number of rows of distances per block: products of fewer rows round differently."""
FEW = 2**24
"""Maximum number of distances for which the search evaluates all pairs."""
LEAST = 1e-7
"""Distance assigned to coincident points."""


class NeighborSearch(nn.Module):
    """Search for neighbours within a radius, in CSR form.

    Equivalent to ``neuralop.layers.neighbor_search.NeighborSearch`` without open3d, with less
    memory: not all distances are in memory at once, and many points are searched by cell lists. The
    last result is cached and reused if the points are equal. If there are many points on a device,
    they are copied to the host for the search; each call synchronizes to compare the points. A call
    takes one set of points and one of queries, no batch. `Graph.from_csc` makes a graph of the
    result.

    Parameters
    ----------
    use_open3d : bool
        Accepted and ignored.
    return_norm : bool
        Whether to return squared distances, as weights.

    Examples
    --------
    >>> import torch, pyops.torch
    >>> from pyops.torch.nn import NeighborSearch
    >>> points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> queries = torch.tensor([[0.2, 0.0]])
    >>> r = NeighborSearch(use_open3d=False)(points, queries, 0.9)
    >>> pyops.torch.Graph.from_csc(r["neighbors_row_splits"], r["neighbors_index"], len(points))
    Graph(num_src=3, num_dst=1, num_edges=2)
    """

    def __init__(self, use_open3d: bool = True, return_norm: bool = False) -> None:
        super().__init__()
        self.use_open3d = False
        self.return_norm = return_norm
        self._last: tuple[Tensor, Tensor, float, tuple[Tensor, Tensor]] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the cached result."""
        return {**super().__getstate__(), "_last": None}

    def forward(self, data: Tensor, queries: Tensor, radius: float) -> dict[str, Tensor]:
        """Return the neighbours in `data` [n, d] of `queries` [m, d], at most `radius` away.

        Returns
        -------
        dict
            "neighbors_index", int64 [num_neighbors], ascending for each query;
            "neighbors_row_splits", int64 [m + 1]; with `return_norm` also "weights".
        """
        check_points("NeighborSearch: data", data)
        check_points("NeighborSearch: queries", queries, data.shape[1])
        check_alike("NeighborSearch: queries", queries, "data", data)
        radius = check_radius("NeighborSearch: radius", radius)
        splits, index = self._search(data, queries, radius)
        found = {"neighbors_index": index, "neighbors_row_splits": splits}
        if self.return_norm:
            owners = rows_of(splits, index.shape[0])
            square = (queries[owners] - data[index]).square().sum(1)
            found["weights"] = torch.where(square == 0, LEAST**2, square)
        return found

    @torch.no_grad()
    def _search(self, data: Tensor, queries: Tensor, radius: float) -> tuple[Tensor, Tensor]:
        if is_tracing(data, queries):
            if is_exporting():
                square = (queries.unsqueeze(1) - data).square().sum(2)
                near = _near(square.sqrt(), radius)
                return nn.functional.pad(near.sum(1).cumsum(0), (1, 0)), near.nonzero()[:, 1]
            traced: tuple[Tensor, Tensor] = torch.ops.pyops.search(data, queries, radius)
            return traced
        data, queries = plain(data).detach(), plain(queries).detach()
        with temporarily_clear_interpreter_stack():
            if self._last is not None:
                others, other_queries, other_radius, found = self._last
                if radius == other_radius and same(data, others) and same(queries, other_queries):
                    return found[0].clone(), found[1].clone()
            found = search(data, queries, radius)
            self._last = data.clone(), queries.clone(), radius, found
            return found[0].clone(), found[1].clone()


def same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same type, device, shape and elements."""
    alike = one.dtype == other.dtype and one.device == other.device
    return bool(alike and torch.equal(one, other))


def search(data: Tensor, queries: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return row splits and neighbours.

    Pairs within the rounding error of the radius are decided by ``torch.cdist``, as all pairs are
    in the original: its float32 distances have an error far above float32 precision.
    """
    data, queries = widened(data), widened(queries)
    few = len(data) * len(queries) <= FEW
    finite = bool(data.isfinite().all() and queries.isfinite().all())
    if few or not finite or data.shape[1] > 3 or not 0 < radius < float("inf"):
        counts, index = _all(data, queries, radius)
    else:
        counts, index = _by_cells(data, queries, radius)
    return nn.functional.pad(counts.cumsum(0), (1, 0)), index


def _fake(data: Tensor, queries: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    pairs = torch.library.get_ctx().new_dynamic_size()
    shapes = (queries.shape[0] + 1,), (pairs,)
    splits, index = (queries.new_empty(shape, dtype=torch.int64) for shape in shapes)
    return splits, index


LIBRARY.define("search(Tensor data, Tensor queries, float radius) -> (Tensor, Tensor)")
for _device in "CPU", "CUDA":
    LIBRARY.impl("search", search, _device)
torch.library.register_fake("pyops::search", _fake, lib=LIBRARY)


def _all(data: Tensor, queries: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return the number of neighbours of each query and the neighbours, from all distances."""
    counts, index = [queries.new_zeros(0, dtype=torch.int64)], []
    step = max(ROWS, AT_ONCE // max(1, len(data)))
    for start in range(0, len(queries), step):
        first = max(0, min(start, len(queries) - step))
        distances = torch.cdist(queries[first : start + step], data)[start - first :]
        near = _near(distances, radius)
        counts.append(near.sum(1))
        index.append(near.nonzero()[:, 1])
    return torch.cat(counts), torch.cat([counts[0], *index])


def _near(distances: Tensor, radius: float) -> Tensor:
    return distances.masked_fill(distances == 0, LEAST) <= radius


def _by_cells(data: Tensor, queries: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return the same as `_all`, by cell lists of copies in host memory."""
    x, y = (nn.functional.pad(t.double().cpu(), (0, 3 - t.shape[1])) for t in (queries, data))
    largest = max(float(t.abs().max()) for t in (x, y))
    error = 64 * torch.finfo(data.dtype).eps * (largest + radius) ** 2
    reach = (radius**2 + error) ** 0.5
    rows, columns = map(
        torch.from_numpy, pairs_within("NeighborSearch", x.numpy(), y.numpy(), reach)
    )
    square = (x[rows] - y[columns]).square().sum(1)
    unsure = torch.zeros(len(x), dtype=torch.bool)
    unsure[rows[(square - radius**2).abs() <= error]] = True
    if unsure.any():
        unsure[:ROWS] = True
    kept = (square <= radius**2) & ~unsure[rows]
    rows, columns = rows[kept], columns[kept]
    if unsure.any():
        found = _all(data, queries[unsure.to(queries.device)], radius)
        counts, more = (t.cpu() for t in found)
        owners = unsure.nonzero()[:, 0].repeat_interleave(counts)
        rows, columns = torch.cat([rows, owners]), torch.cat([columns, more])
    order = torch.argsort(rows * len(y) + columns)
    counts = torch.bincount(rows, minlength=len(x))
    return counts.to(data.device), columns[order].to(data.device)
