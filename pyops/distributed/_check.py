"""Numerical checks of derivatives over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._call.arrays import kind_of
from .._call.operator import Operator
from .._call.reduction import ReductionPhase
from ..testing import Check
from ._communicator import Communicator
from ._dispatch import inputs_of
from ._graph import DistributedGraph
from ._points import is_distributed
from ._reductions import over_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._call.types import Array


class DistributedCheck(Check):
    """Check whose inner products are sums over ranks, and whose replicated arrays are equal."""

    def arrays(self, inputs: Sequence[object]) -> list[Array | None]:
        """Return the inputs as arrays of float64, and agree on what is drawn on all ranks."""
        if not isinstance(self.op, Operator):
            raise TypeError(
                "check_gradients: op: expected an operator of pyops with a distributed graph or a "
                f"communicator, got {kind_of(self.op)}"
            )
        (first,) = self.graph
        comm = first.comm if isinstance(first, DistributedGraph) else first
        assert isinstance(comm, Communicator)
        self._comm = comm
        arrays = self._comm._together("check_gradients", lambda: Check.arrays(self, inputs))
        phase = self.op._phases["backward"]
        if isinstance(first, DistributedGraph):
            self._distributed = [name in first._axes for name in inputs_of(phase)]
        elif isinstance(phase, ReductionPhase):
            ndim = 0 if arrays[0] is None else arrays[0].ndim
            self._distributed = [True, not over_rows(self.options.get("axis"), ndim)]
        else:
            self._distributed = [is_distributed(slot.shape) for slot in phase.slots]
        seed = self._comm._engine.gather(self.rng.integers(2**31, size=2))[0]
        self.rng, self._own = (np.random.default_rng([n, *seed]) for n in (0, 1 + self._comm.rank))
        return arrays

    def random(self, like: Array, place: int) -> Array:
        rng = self._own if self._distributed[place] else self.rng
        return np.asarray(rng.standard_normal(like.shape))

    def largest(self, array: Array) -> float:
        most = np.array([-super().largest(array)])
        return -float(self._comm._engine.min(most)[0])

    def dot(self, a: Array | None, b: Array | None, place: int) -> tuple[float, float]:
        """Return the sums over ranks; of replicated arrays the means, so that ranks agree."""
        found = super().dot(a, b, place)
        if a is None or b is None:
            return found
        share = 1 if self._distributed[place] else self._comm.size
        first, second = (self._comm._engine.sum(np.array(found)) / share).tolist()
        return first, second
