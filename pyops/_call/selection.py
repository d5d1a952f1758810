"""Functions of three operands, one of which they return: `where` and `clip`.

Their phases are forms of the kernel of second derivatives, which takes five operands.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .elementwise import DECLARATION, INTERFACES, ElementwisePhase
from .half import is_half, nearest, round_bits
from .operator import Operator
from .phase import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from .._schema import Procedure
    from .phase import Phase
    from .plan import Kernel
    from .types import Array, Dtype, Options

KERNEL = "double_backward"
Names = tuple[str, ...]


class SelectionPhase(ElementwisePhase):
    """Phase of a function of the table that selects."""

    row: ClassVar[str]
    """Name in the table."""
    operands: ClassVar[dict[str, Names]]
    """Names in the kernel of the inputs, gy and cotangents, for each phase; unread ones have others
    that begin with "un"."""
    results: ClassVar[dict[str, Names]]
    """Names in the kernel of the outputs; those that are 0 have others that begin with "zero"."""

    def __init__(self, op: Operator, name: str, half: str = "") -> None:
        super().__init__(op, name, half)
        self.kernel, self.function = KERNEL, self.row

    def _compiled(self) -> dict[str, Kernel]:
        return compiled(DECLARATION, KERNEL, self.half)

    def _interface(self) -> Procedure:
        return INTERFACES[KERNEL]

    def _kernel_names(self) -> tuple[Names, Names]:
        return self.operands[self.name], self.results[self.name]


class WherePhase(SelectionPhase):
    """Phase of `where`; the condition, an array of numbers to the kernel, has no derivative."""

    row = "choose"
    operands: ClassVar[dict[str, Names]] = {
        "forward": ("x1", "hx1", "hx2"),
        "backward": ("x1", "hx1", "hx2", "gy"),
        "double_backward": ("x1", "un1", "un2", "gy", "un3", "hx1", "hx2"),
        "jvp": ("x1", "un1", "un2", "un4", "un3", "hx1", "hx2"),
    }
    results: ClassVar[dict[str, Names]] = {
        "forward": ("dgy",),
        "backward": ("zero1", "dx1", "dx2"),
        "double_backward": ("zero1", "zero2", "zero3", "dgy"),
        "jvp": ("zero1", "zero2", "zero3", "dgy"),
    }

    def run(
        self,
        given: Sequence[object],
        options: Options,
        wanted: Collection[str] | None = None,
        out: Sequence[Array | None] | None = None,
        accumulate: bool = False,
    ) -> tuple[Array | None, ...]:
        if len(given) > 1 and not self.half:
            given = [as_numbers(given[0], given[1]), *given[1:]]
        return super().run(given, options, wanted, out, accumulate)

    def _wants(self, wanted: Collection[str] | None, arrays: Sequence[object]) -> tuple[str, ...]:
        condition, *others = self.signature.inputs
        if wanted is None and self.name in ("backward", "double_backward"):
            seeds = ["gy"] if self.name == "double_backward" else []
            wanted = [*others, *seeds]
        found = super()._wants(wanted, arrays)
        if wanted is not None and condition in wanted:
            raise ValueError(
                f"{self.caller}: wanted: expected names of inputs that have a derivative, "
                f"got {condition!r}"
            )
        return found


class ClipPhase(SelectionPhase):
    """Phase of `clip`; the bounds are operands of one element."""

    row = "bound"
    operands: ClassVar[dict[str, Names]] = {
        "forward": ("x1",),
        "backward": ("x1", "gy"),
        "double_backward": ("x1", "un1", "gy"),
        "jvp": ("x1", "un1", "gy"),
    }
    results: ClassVar[dict[str, Names]] = {
        "forward": ("dgy",),
        "backward": ("dx1",),
        "double_backward": ("zero1", "dx1"),
        "jvp": ("zero1", "dx1"),
    }

    def run(
        self,
        given: Sequence[object],
        options: Options,
        wanted: Collection[str] | None = None,
        out: Sequence[Array | None] | None = None,
        accumulate: bool = False,
    ) -> tuple[Array | None, ...]:
        if given and isinstance(given[0], np.ndarray) and is_half(given[0]):
            options = in_type(self.checked(options), given[0].dtype.name)
        return super().run(given, options, wanted, out, accumulate)

    def checked(self, options: Mapping[str, object]) -> Options:
        found = super().checked(options)
        least, most = found["min"], found["max"]
        assert isinstance(least, float)
        assert isinstance(most, float)
        if least > most:
            raise ValueError(f"{self.caller}: min: expected at most max={most}, got {least}")
        return found

    def _from_options(
        self, options: Mapping[str, object], dtype: Dtype
    ) -> tuple[float, dict[str, Array]]:
        with np.errstate(over="ignore"):  # a bound beyond all numbers of the type
            bounds = [np.full(1, number, dtype) for number in options.values()]
        if self.half:
            bounds = [round_bits(bound, self.half) for bound in bounds]
        return 0.0, dict(zip(("hx1", "hx2"), bounds, strict=True))


class Selection(Operator):
    """Operator that returns one of its operands, element by element."""

    declaration = DECLARATION

    def __init__(self, phase: type[SelectionPhase], declaration: Callable[..., object]) -> None:
        self._phase = phase
        super().__init__(declaration)

    def _make_phase(self, name: str) -> Phase:
        return self._phase(self, name)


def in_type(bounds: Options, kind: str) -> Options:
    """Return bounds rounded to a type of half precision, so that elements may equal them."""
    return {name: nearest(b, kind) if isinstance(b, float) else b for name, b in bounds.items()}


def as_numbers(condition: object, like: object) -> object:
    """Return a condition as an array of numbers like others; what is no condition as it is."""
    kind, dtype = getattr(condition, "dtype", None), getattr(like, "dtype", None)
    if isinstance(kind, np.dtype) and kind.kind in "biu":
        if not isinstance(dtype, np.dtype) or dtype.kind in "biu":
            dtype = np.dtype(np.float64)
        found: object = operator.ne(condition, 0).astype(dtype)
        return found
    return condition
