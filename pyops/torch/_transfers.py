"""Array operations of the linear maps between ranks: ghost rows, replicas, parts, rows by index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..distributed._communicator import named
from ..distributed._halo import flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._call.types import Array
    from ..distributed._communicator import Communicator
    from ..distributed._halo import Halo, Transfer
    from ..distributed._mpi import Counts
    from ..distributed._parts import Parts


class Messages:
    """Linear maps between the arrays of all ranks, by name."""

    batch_axis = 1
    """Axis at which a batch of arrays passes through a map as one array."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.name = named(self)

    def shape(self, kind: str, given: Sequence[int]) -> Sequence[int]:
        """Return the shape of a result."""
        raise NotImplementedError

    def run(self, kind: str, arrays: Sequence[Array]) -> Sequence[Array]:
        """Return the results of a map."""
        raise NotImplementedError


class GhostRows(Messages):
    """Rows of ghosts: `exchange` fetches them, `accumulate` adds them to those of their owners."""

    def __init__(self, comm: Communicator, halo: Halo) -> None:
        super().__init__(comm)
        self._halo = halo

    def shape(self, kind: str, given: Sequence[int]) -> Sequence[int]:
        return self._halo.size if kind == "exchange" else self._halo.owned, *given[1:]

    def run(self, kind: str, arrays: Sequence[Array]) -> Sequence[Array]:
        if kind == "exchange":
            return self._halo.exchange(arrays)
        return self._halo.accumulate([array.copy() for array in arrays])


class Replicas(Messages):
    """Values that all ranks hold: `replicate` copies them, `sum` adds those of all ranks."""

    batch_axis = 0

    def shape(self, kind: str, given: Sequence[int]) -> Sequence[int]:
        return given

    def run(self, kind: str, arrays: Sequence[Array]) -> Sequence[Array]:
        if kind == "replicate":
            return [array.copy() for array in arrays]
        return _summed(self.comm, arrays)


class PartRows(Messages):
    """Rows of the parts of a rank, one part after another, and copies of a value for them.

    `spread` fetches the rows of the sources of each part, `collect` adds them to those of their
    owners in the order of parts. `deal` copies a value, of one row, for each part; `total` gives
    the first rank the sum over all parts, in their order, and the others zero, so that a sum over
    ranks keeps its bits; `share` deals the value of the first rank. A rank without parts has one
    copy, which counts nothing.
    """

    def __init__(self, comm: Communicator, halo: Halo, parts: Parts) -> None:
        super().__init__(comm)
        self._halo, self._parts = halo, parts
        self.copies = max(len(parts.parts), 1)
        sources = [part.sources for part in parts.parts]
        self._sources = np.concatenate([np.empty(0, np.int64), *sources])

    def shape(self, kind: str, given: Sequence[int]) -> Sequence[int]:
        rows = {"spread": len(self._sources), "collect": self._halo.owned, "total": 1}
        return rows.get(kind, self.copies), *given[1:]

    def run(self, kind: str, arrays: Sequence[Array]) -> Sequence[Array]:
        if kind == "spread":
            return [full[self._sources] for full in self._halo.exchange(arrays)]
        if kind == "collect":
            return [self._collected(array) for array in arrays]
        first = self.comm.rank == 0
        if kind == "total":
            own = len(self._parts.parts)
            sums = [self._parts.total([*array[:own]], array[:1]) for array in arrays]
            return sums if first else [np.zeros_like(total) for total in sums]
        if kind == "share":
            arrays = _summed(self.comm, [a if first else np.zeros_like(a) for a in arrays])
        return [array.repeat(self.copies, axis=0) for array in arrays]

    def _collected(self, rows: Array) -> Array:
        found = np.zeros((self._halo.owned, *rows.shape[1:]), rows.dtype)
        self._parts.collect(found, rows)
        return found


class TakenRows(Messages):
    """Chosen rows of an array: `take` fetches them, `give` adds to each what belongs to it."""

    def __init__(self, comm: Communicator, transfer: Transfer, where: Counts, owned: int) -> None:
        super().__init__(comm)
        self._transfer, self._where, self._owned = transfer, where, owned

    def shape(self, kind: str, given: Sequence[int]) -> Sequence[int]:
        return len(self._where) if kind == "take" else self._owned, *given[1:]

    def run(self, kind: str, arrays: Sequence[Array]) -> Sequence[Array]:
        (array,) = arrays
        transfer = self._transfer
        if kind == "take":
            found = transfer.fetch(flat(array))[self._where]
        else:
            rows = np.zeros((transfer.size, flat(array).shape[1]), array.dtype)
            np.add.at(rows, self._where, flat(array))
            found = np.zeros((self._owned, rows.shape[1]), array.dtype)
            found[transfer.targets] += transfer.collect(rows)
        return [found.reshape(len(found), *array.shape[1:])]


def _summed(comm: Communicator, arrays: Sequence[Array]) -> list[Array]:
    """Return the sums of arrays over ranks, in one reduction."""
    whole = np.concatenate([array.reshape(-1) for array in arrays])
    ends = np.cumsum([array.size for array in arrays])[:-1]
    parts = np.split(comm._engine.sum(whole), ends)
    return [part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True)]
