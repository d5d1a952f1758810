"""Messages between ranks by a process group of torch.distributed, through gloo on the CPU."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from .._call.arrays import kind_of
from ._mpi import Engine, segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._mpi import Counts, Segments, Values

_CPU = torch.device("cpu")


class ProcessGroupEngine(Engine):
    """Collective operations of the ranks of a process group, in a group of the same ranks.

    Arrays are sent from their memory. A rank that ends closes its connections, so the others raise
    an error where they wait for it; for a rank that does not call, they wait as long as the timeout
    of the group.
    """

    def __init__(self, group: object) -> None:
        label = "Communicator: comm"
        if not dist.is_available() or not isinstance(group, dist.ProcessGroup):
            raise TypeError(f"{label}: expected a process group, got {kind_of(group)}")
        backends = str(dist.get_backend_config(group))
        if "cpu:gloo" not in backends.split(","):
            raise ValueError(
                f"{label}: expected a process group with gloo for tensors on the CPU, such as of "
                f"init_process_group('gloo') or new_group(backend='gloo'), got {backends}"
            )
        options = getattr(group._get_backend(_CPU), "options", None)
        self._group: Any = dist.new_group(
            dist.get_process_group_ranks(group),
            timeout=getattr(options, "_timeout", None),
            backend="gloo",
            use_local_synchronization=True,
        )
        self.rank, self.size = dist.get_rank(self._group), dist.get_world_size(self._group)
        self._ranks = dist.get_process_group_ranks(self._group)
        atexit.register(_close, weakref.ref(self))

    def close(self) -> None:
        """Close the connections of the group; collective."""
        group, self._group = self._group, None
        dist.destroy_process_group(group)

    def agree(self, values: Counts) -> Counts:
        """Return the elementwise maxima over ranks."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def texts(self, text: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Return the texts of all ranks."""
        found: list[Any] = [None] * self.size
        with _explained():
            dist.all_gather_object(found, text, group=self._group)
        return found

    def gather(self, values: Counts) -> Counts:
        """Return the values of all ranks, [size, len(values)]."""
        found = np.empty((self.size, len(values)), np.int64)
        with _explained():
            dist.all_gather([*_tensor(found)], _tensor(values), group=self._group)
        return found

    def transpose(self, counts: Counts) -> Counts:
        """Return what each rank has counted for this one."""
        found = np.empty_like(counts)
        with _explained():
            dist.all_to_all_single(_tensor(found), _tensor(counts), group=self._group)
        return found

    def sum(self, values: Values) -> Values:
        """Return the sum over ranks."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def min(self, values: Values) -> Values:
        """Return the minimum over ranks."""
        return self._reduced(values, dist.ReduceOp.MIN)

    def _reduced(self, values: Values, operation: Any) -> Values:
        found = np.array(values, order="C")
        if found.dtype.kind == "u":  # gloo has sums of signed integers, which have the same bits
            return self._reduced(found.view(found.dtype.str.replace("u", "i")), operation).view(
                found.dtype
            )
        with _explained():
            dist.all_reduce(torch.from_numpy(found), operation, group=self._group)
        return found

    def exchange(
        self, outgoing: Values, to: Segments, incoming: Values, source: Segments
    ) -> Values:
        """Send segments of rows, receive others into `incoming`, and return it."""
        if outgoing.shape[1] == 0:
            return incoming
        given, found = _tensor(outgoing), torch.from_numpy(incoming)
        away = [[one for one in some if one[0] != self.rank] for some in (source, to)]
        own = [[slice(a, b) for rank, a, b in some if rank == self.rank] for some in (source, to)]
        with _explained():
            work: list[Any] = [
                transfer(rows[a:b], self._ranks[rank], group=self._group)
                for transfer, rows, some in zip(
                    (dist.irecv, dist.isend), (found, given), away, strict=True
                )
                for rank, a, b in some
            ]
            for here, there in zip(*own, strict=True):
                incoming[here] = outgoing[there]
            for one in work:
                one.wait()
        return incoming

    def rows(self, rows: Values) -> tuple[Values, Counts]:
        """Return the rows of all ranks, one rank after another, and their numbers."""
        counts = self.gather(np.array([len(rows)]))[:, 0]
        found = np.empty((int(counts.sum()), rows.shape[1]), rows.dtype)
        own = [(rank, 0, len(rows)) for rank in range(self.size if len(rows) else 0)]
        return self.exchange(np.ascontiguousarray(rows), own, found, segments(counts)), counts


def _close(engine: weakref.ref[ProcessGroupEngine]) -> None:
    """Close the connections at the end of the program, before the threads of gloo are ended."""
    found = engine()
    if found is not None and found._group is not None and dist.is_initialized():
        found.close()


def _tensor(array: Values) -> torch.Tensor:
    """Return a tensor of the same memory if torch may write to it, else of a copy."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Add to errors of gloo why they occur."""
    try:
        yield
    except RecursionError:
        raise
    except RuntimeError as error:
        raise RuntimeError(
            "pyops.distributed: expected messages of the other ranks: one of them has ended, or "
            f"made another call for as long as the timeout of the process group: {error}"
        ) from error
