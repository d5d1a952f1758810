"""Batches of graphs for several ranks, of equal cost."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Sampler

from .._call.arrays import check_size, kind_of
from .._call.indices import MOST_EDGES, check_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt


class BalancedBatchSampler(Sampler[list[int]]):
    """Batches of graphs, such as molecules, whose costs are nearly equal on all ranks of a step.

    In each step all ranks wait for the slowest one. So the graphs of a step, drawn at random, are
    dealt to the ranks by cost: the dearest first, each to the rank with the lowest cost so far.
    All ranks have the same number of steps, and in each of them the same number of graphs, so the
    mean over ranks of means over batches, as of DistributedDataParallel, is the mean over graphs.

    Parameters
    ----------
    costs : array_like of numbers, shape (graphs,)
        Cost of each graph of the data set, such as its number of edges, or of triplets for
        DimeNet. The same on all ranks.
    batch_size : int
        Number of graphs of a rank in a step.
    num_replicas, rank : int, optional
        Number of ranks and this rank; by default those of the default process group, or one.
    shuffle : bool
        Whether graphs are drawn in another order in each epoch.
    seed : int
        The same on all ranks.
    drop_last : bool
        Whether to leave out the graphs that do not fill a last step. Otherwise that step has
        fewer graphs, and if their number is no multiple of that of ranks, some graphs of the first
        step once more.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import pyops.torch
    >>> from torch.utils.data import DataLoader
    >>> costs = [9, 1, 1, 9]  # of the graphs, such as their numbers of edges
    >>> sampler = pyops.torch.BalancedBatchSampler(costs, batch_size=2)
    >>> loader = DataLoader(["a", "b", "c", "d"], batch_sampler=sampler)
    >>> for epoch in range(10):
    ...     sampler.set_epoch(epoch)
    ...     for batch in loader: assert len(batch) == 2
    """

    def __init__(
        self,
        costs: npt.ArrayLike,
        batch_size: int,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        caller = "BalancedBatchSampler"
        self._costs = _checked_costs(f"{caller}: costs", costs)
        self.batch_size = check_size(f"{caller}: batch_size", batch_size)
        among = dist.is_available() and dist.is_initialized()
        ranks = (dist.get_world_size() if among else 1) if num_replicas is None else num_replicas
        self.num_replicas = check_size(f"{caller}: num_replicas", ranks)
        own = (dist.get_rank() if among else 0) if rank is None else rank
        self.rank = check_count(f"{caller}: rank", own, MOST_EDGES)
        if self.rank >= self.num_replicas:
            raise ValueError(
                f"{caller}: rank: expected a number from 0 to {self.num_replicas}-1, got {rank}"
            )
        for name, value in ("shuffle", shuffle), ("drop_last", drop_last):
            if not isinstance(value, bool):
                raise TypeError(f"{caller}: {name}: expected True or False, got {value!r}")
        self.shuffle, self.drop_last = shuffle, drop_last
        self.seed = check_count(f"{caller}: seed", seed, MOST_EDGES)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, which with the seed determines the order.

        Without it each iteration has the same order.

        Parameters
        ----------
        epoch : int
            Number from 0.
        """
        self.epoch = check_count("BalancedBatchSampler.set_epoch: epoch", epoch, MOST_EDGES)

    def __len__(self) -> int:
        """Return the number of batches of each rank."""
        step = self.batch_size * self.num_replicas
        return len(self._costs) // step if self.drop_last else -(-len(self._costs) // step)

    def __iter__(self) -> Iterator[list[int]]:
        order = np.arange(len(self._costs))
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(len(order), generator=generator).numpy()
        step = self.batch_size * self.num_replicas
        for number in range(len(self)):
            some = order[number * step : (number + 1) * step]
            missing = -len(some) % self.num_replicas
            yield self._dealt(np.concatenate([some, np.resize(order, missing)]))

    def _dealt(self, graphs: npt.NDArray[np.int64]) -> list[int]:
        """Return the graphs of a step that this rank gets, in the order in which they came."""
        size = len(graphs) // self.num_replicas
        shares: list[list[int]] = [[] for _ in range(self.num_replicas)]
        open_ranks = [(0.0, rank) for rank in range(self.num_replicas)]
        for place in np.argsort(-self._costs[graphs], kind="stable").tolist():
            cost, rank = heapq.heappop(open_ranks)
            shares[rank].append(place)
            if len(shares[rank]) < size:
                heapq.heappush(open_ranks, (cost + float(self._costs[graphs[place]]), rank))
        found: list[int] = graphs[sorted(shares[self.rank])].tolist()
        return found


def _checked_costs(label: str, costs: npt.ArrayLike) -> npt.NDArray[np.float64]:
    array = np.asarray(costs)
    if array.dtype.kind not in "iuf" or array.ndim != 1:
        found = f"{array.dtype} of shape {array.shape}" if array.ndim else kind_of(costs)
        raise TypeError(f"{label}: expected one number for each graph, got {found}")
    values = array.astype(np.float64)
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        raise ValueError(
            f"{label}: expected finite numbers from 0 on, got {array[wrong][0]} at "
            f"{int(np.argmax(wrong))}"
        )
    return values
