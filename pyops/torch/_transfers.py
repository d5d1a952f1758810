"""Array operations of the linear maps between ranks: ghost rows, replicas, rows by index."""

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
        whole = np.concatenate([array.reshape(-1) for array in arrays])
        ends = np.cumsum([array.size for array in arrays])[:-1]
        parts = np.split(self.comm._engine.sum(whole), ends)
        return [part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True)]


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
