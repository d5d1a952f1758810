"""Numerical checks of derivatives over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._call.arrays import check_array, kind_of
from .._call.operator import Operator
from ..testing import Check
from ._dispatch import inputs_of
from ._graph import DistributedGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._call.types import Array, Options
    from ..testing import Differentiable


class DistributedCheck(Check):
    """Check whose inner products are sums over ranks, and whose replicated arrays are equal."""

    def __init__(
        self,
        op: Differentiable,
        inputs: Sequence[object],
        options: Options,
        step: float,
        rng: np.random.Generator,
    ) -> None:
        if not isinstance(op, Operator):
            raise TypeError(
                "check_gradients: op: expected an operator of pyops with a distributed graph, "
                f"got {kind_of(op)}"
            )
        inputs = [*op.arguments(tuple(inputs), options)]
        graph, *arrays = inputs
        assert isinstance(graph, DistributedGraph)
        self._comm = graph.comm

        def check() -> None:
            for i, array in enumerate(arrays):
                if array is not None:
                    check_array(f"check_gradients: input {i}", array)

        self._comm._together("check_gradients", check)
        named = inputs_of(op._phases["backward"])
        self._distributed = [name in graph._axes for name in named]
        seed = self._comm._engine.gather(rng.integers(2**31, size=2))[0]
        rng, self._own = (np.random.default_rng([n, *seed]) for n in (0, 1 + graph.comm.rank))
        super().__init__(op, inputs, options, step, rng)

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
