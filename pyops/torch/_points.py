"""Operators over points, and reductions over rows, that are distributed over ranks.

Each phase runs as that of NumPy arrays does. Of values that all ranks hold, results depend on those
of the first rank: it has the gradient, as `replicate` in front adds the gradients of all ranks.
Cotangents of a result that all ranks hold are added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import torch

from .._call.reduction import ReductionPhase
from ..distributed._points import is_distributed
from ..distributed._reductions import over_rows
from ._call import Call, MaybeTensor, is_tracing, memory
from ._phases import Value
from ._ranks import is_tracked, replicated_by

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from torch import Tensor

    from .._call.framework import FrameworkFunction
    from .._call.operator import Operator
    from .._call.types import Options
    from ..distributed._communicator import Communicator


def is_communicator(argument: object) -> TypeGuard[Communicator]:
    """Return whether an argument is a communicator, whose package is not imported for it."""
    return hasattr(type(argument), "replicated")


class PointsCall(Call):
    """A call whose points, or rows, are distributed over the ranks of a communicator."""

    __slots__ = ("_comm", "_same", "_sums")
    reads_halves = False  # ranks add in float32

    def __init__(
        self, op: Operator, comm: Communicator, tensors: Sequence[MaybeTensor], options: Options
    ) -> None:
        super().__init__(op, [*op.signature.inputs], None, options)
        self._comm = comm
        phase = op._phases["forward"]
        if isinstance(phase, ReductionPhase):
            ndim = 0 if tensors[0] is None else tensors[0].dim()
            self._same: Collection[str] = ()
            self._sums = over_rows(options.get("axis"), ndim)
        else:
            inputs = op.signature.inputs.values()
            self._same = [i.name for i in inputs if not is_distributed(i.shape)]
            self._sums = not any(map(is_distributed, phase.outputs.values()))

    @property
    def replicated(self) -> list[int]:
        """Places of the inputs that all ranks hold."""
        return [i for i, name in enumerate(self.names) if name in self._same]

    def _run(
        self,
        phase: str,
        tensors: Sequence[MaybeTensor],
        wanted: Collection[str] | None,
        half: str = "",
    ) -> tuple[Tensor, ...]:
        comm = self._comm
        arrays = [None if t is None else memory(t) for t in tensors]
        place = len(self.names)
        if self._sums and phase.endswith("backward"):
            gy = arrays[place]
            if gy is not None:
                comm._agree(f"{phase} of {self.op.name}", (gy.dtype.char, gy.shape))
                arrays[place] = comm._engine.sum(gy)
        found = self.op.run(phase, [comm, *arrays], self.options, wanted)
        names = self.names if phase.endswith("backward") else ()
        for name, result in zip(names, found, strict=False):
            if name in self._same and result is not None and comm.rank > 0:
                result[...] = 0
        return tuple([torch.from_numpy(r) for r in found if r is not None])


def over_points(
    op: Operator,
    front_end: FrameworkFunction,
    given: tuple[object, ...],
    options: Options,
    check: Callable[[str, object], Tensor],
) -> Tensor:
    """Return y of own points, or of all."""
    label, (comm, *inputs) = front_end.label, given
    assert is_communicator(comm)
    if is_tracing(*[a for a in inputs if isinstance(a, torch.Tensor)]):
        raise NotImplementedError(
            f"{label}: expected a call outside of what torch traces, got {comm!r}"
        )

    def arguments() -> list[MaybeTensor]:
        return front_end.arguments(tuple(inputs), options, lambda _, graph: graph, check)[1]

    tensors = comm._together(
        label, arguments, lambda found: (*(t is not None and is_tracked(t) for t in found),)
    )
    call = PointsCall(op, comm, tensors, options)
    held = {i: t for i in call.replicated if (t := tensors[i]) is not None}
    if held and not comm._inside:
        copies = replicated_by(comm, label, [*held.values()])
        for i, copy in zip(held, copies, strict=True):
            tensors[i] = copy
    return Value.of(call, *tensors)
