"""Softmax along an axis, and its logarithm."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from .arrays import VARIANTS
from .elementwise import DECLARATION, INTERFACES, BroadcastPhase
from .operator import Operator
from .phase import compiled
from .plan import HALF, Plan, check_arrays

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .._schema import Procedure
    from .broadcast import Lengths
    from .phase import Phase
    from .plan import Kernel
    from .types import Array, Options, Shaped

READS = {"gx": {"gy"}, "dx": {"gy", "hx"}, "dgy": {"hx"}}
"""Cotangents without which a derivative is 0."""


class SoftmaxPhase(BroadcastPhase):
    """Phase of softmax or of its logarithm, for arrays [outer, length, inner]."""

    def __init__(self, operator: Operator, name: str, half: str = "") -> None:
        self._procedure = "softmax_forward" if name == "forward" else "softmax_vjps"
        super().__init__(operator, name, half)
        self.kernel = self._procedure

    def _compiled(self) -> dict[str, Kernel]:
        return compiled(DECLARATION, self._procedure, self.half)

    def _interface(self) -> Procedure:
        return INTERFACES[self._procedure]

    def checked(self, options: Mapping[str, object]) -> Options:
        axis = self._complete(options)["axis"]
        if isinstance(axis, (bool, np.bool_)) or not isinstance(axis, (int, np.integer)):
            raise TypeError(f"{self.caller}: axis: expected an integer, got {axis!r}")
        return {"axis": int(axis)}

    def _sizes(self, shape: Lengths, options: Mapping[str, object]) -> tuple[int, int, int]:
        """Return the numbers of elements before, along and after the axis."""
        axis, rank = self.checked(options)["axis"], len(shape)
        assert isinstance(axis, int)
        if not -rank <= axis < rank:
            known = f"an axis from {-rank} to {rank - 1} of x" if rank else "x with axes"
            raise ValueError(f"{self.caller}: axis: expected {known}, got {axis}")
        axis %= rank
        return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])

    def output_shape(
        self,
        sizes: Mapping[str, int],
        arrays: Sequence[Shaped | None],
        options: Mapping[str, object],
    ) -> Lengths:
        x = arrays[0]
        assert x is not None
        self._sizes(x.shape, options)
        return x.shape

    def _inputs(self, given: Sequence[object]) -> list[Array]:
        return [np.ascontiguousarray(a).reshape(-1) for a in given if isinstance(a, np.ndarray)]

    def _make_plan(
        self, given: Sequence[object], options: Options, wanted: Collection[str] | None
    ) -> Plan:
        _, split = self._split(given)
        requested = self._wants(wanted, split)
        dtype, arrays = check_arrays(self.caller, self.slots, split)
        named = zip((slot.name for slot in self.slots), arrays, strict=True)
        held = {name: array for name, array in named if array is not None}
        shape = held["x"].shape
        sizes = self._sizes(shape, options)
        self._expect(arrays, {"x": shape, "gy": shape})
        made = [name for name in self.outputs if name in requested]
        zero = {name for name in made if not READS.get(name, set()) <= held.keys()}
        stored = HALF if self.half else dtype
        constants: dict[str, object] = {
            **dict(zip(("outer", "length", "inner"), sizes, strict=True)),
            "logarithm": int(self.function == "log_softmax"),
            "wanted": sum(1 << i for i, n in enumerate(READS) if n in made and n not in zero),
            "nothing": np.zeros(1, stored),
        }
        if self.name == "forward":
            constants["wanted"] = 1
        results = [f"zero_{name}" if name in zero else name for name in made]
        names = [*constants, "threads", "accumulate", *held, *results]
        slots = [name if name in names else "nothing" for name in self.interface.parameters]
        return Plan(
            self._variants[VARIANTS[dtype.char]],
            stored,
            tuple(constants.values()),
            (),
            (),
            tuple(shape if name in made else None for name in self.outputs),
            itemgetter(*map(names.index, slots)),
            tuple(names),
            None if math.prod(shape) else 0.0,
        )


class Softmax(Operator):
    """Operator along one axis."""

    declaration = DECLARATION

    def _make_phase(self, name: str) -> Phase:
        return SoftmaxPhase(self, name)
