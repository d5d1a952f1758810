"""Calls with arrays on a CUDA device: checked by host plans, run by the functions in `ops`.

The steps of a call share `Call`, so they are one module.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._call.arrays import VARIANTS, check_outputs, check_place, kind_of, on_device
from .._call.broadcast import packed
from .._call.plan import HALF
from ..graph import Graph
from . import ops
from ._arguments import Arguments
from ._array import HALVES
from ._device import platform
from ._graph import DeviceGraph
from ._runtime import PRECISIONS, Runtime

if TYPE_CHECKING:
    from .._call.indices import Indices
    from .._call.phase import Phase
    from .._call.plan import Plan
    from ._array import DeviceArray


def run(
    phase: Phase,
    given: Sequence[object],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
    out: Sequence[object] | None,
    accumulate: bool,
) -> tuple[object, ...]:
    """Check a call, enqueue its kernels on the caller's current stream, return its outputs."""
    call = Call(phase, given)
    kernels = {part: find_kernel(part) for part in phase.parts}
    others, rows = dict(options), dict[str, object]()
    if phase.signature.indexed:
        others, rows = phase._without_rows(others)
    precision = check_precision(phase, others.pop("precision", "highest"))
    plan = phase._plan(call.stand_ins, others, wanted)
    assert plan is not None
    if out is not None or accumulate is not False:
        check_outputs(
            phase.caller,
            phase.labels,
            plan.outputs,
            plan.dtype,
            out,
            accumulate,
            call.check_output,
            call.share,
        )
    try:
        with call.platform.on(call.device):
            inputs = call.inputs(plan)
            buffers, targets = call.buffers(plan, out, accumulate, inputs)
            results = [buffer for buffer in buffers if buffer is not None]
            if plan.fill is not None:
                for result in results:
                    result[...] = result + plan.fill if accumulate else plan.fill
            elif results:
                found = [call.rows(n, rows.get(n), length) for n, length in plan.indexed.items()]
                indices = map(call.graph._index, plan.indices) if call.graph else ()
                arrays = [*indices, *found, *inputs, *results]
                values = {
                    **phase.absent,
                    **plan.values,
                    **dict(zip(plan.array_names, arrays, strict=True)),
                    "accumulate": bool(accumulate),
                    "graph": call.graph,
                    "precision": precision,
                    "table": call.table,
                }
                for part, own in phase.shares(values):
                    kernels[part](call.runtime, Arguments(own))
            for buffer, target in zip(buffers, targets, strict=True):
                if target is not None and buffer is not None:
                    target[...] = buffer
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        raise MemoryError(
            f"{phase.caller}: not enough memory on device {call.device}: {error}"
        ) from error
    except ImportError as error:
        raise ImportError(
            f"{phase.caller}: CuPy does not find a library of CUDA, which `pip install "
            f'"pyops-kernels[cuda]"` brings: {error}'
        ) from error
    return tuple(b if o is None else o for b, o in zip(buffers, out or buffers, strict=True))


class Call:
    """Arguments of a call: device arrays, and host stand-ins of their shapes for the checks."""

    def __init__(self, phase: Phase, given: Sequence[object]) -> None:
        self.phase, self.given = phase, given
        self.platform = platform(phase.caller)
        self.runtime = self.platform.runtime
        self.graph: DeviceGraph | None = None
        self.stand_ins: list[Graph | npt.NDArray[np.generic] | None] = []
        """Host arrays of the same shapes and dtypes, whose elements are never read."""
        self._arrays: list[DeviceArray] = []
        self.device, self._first = -1, 0
        for place, argument in enumerate(given):
            if argument is None:
                self.stand_ins.append(None)
            elif isinstance(argument, DeviceGraph):
                self.graph = argument
                self._check_device(place, argument.device)
                self.stand_ins.append(argument.to_host())
            elif on_device(argument):
                array, number = self.platform.adopt(argument)
                self._check_device(place, number)
                self.stand_ins.append(stand_in(array.shape, array.dtype))
                bits = phase.half and array.dtype == HALF
                self._arrays.append(array.view(HALVES[phase.half]) if bits else array)
            elif isinstance(argument, Graph):
                raise TypeError(
                    f"{self._label(place)}: expected a graph on the device like the arrays, "
                    "graph.to_device(), got one on the host"
                )
            else:
                raise TypeError(
                    f"{self._label(place)}: expected an array on the device like the other "
                    f"arguments, got {kind_of(argument)}"
                )

    def _check_device(self, place: int, device: int) -> None:
        """Refuse arguments on different devices."""
        if self.device < 0:
            self.device, self._first = device, place
        elif device != self.device:
            raise ValueError(
                f"{self._label(place)}: expected device {self.device} like "
                f"{self._label(self._first).rpartition(' ')[2]}, got device {device}"
            )

    def _label(self, place: int) -> str:
        """Return the name of an argument in messages."""
        graph = [_NO_GRAPH] if self.phase.signature.has_graph else []
        if graph and place == 0:
            return f"{self.phase.caller}: graph"
        _, places = self.phase._split([*graph, *range(len(graph), len(self.given))])
        return f"{self.phase.caller}: {self.phase.slots[places.index(place)].label}"

    def inputs(self, plan: Plan) -> list[DeviceArray]:
        """Return the arrays as the kernels take them."""
        arrays = [self.runtime.xp.ascontiguousarray(array) for array in self._arrays]
        kind = HALVES[self.phase.half] if self.phase.half else plan.dtype
        return arrays + [self.runtime.zeros(shape, kind) for shape in plan.zeros]

    def buffers(
        self,
        plan: Plan,
        out: Sequence[object] | None,
        accumulate: bool,
        inputs: Sequence[DeviceArray],
    ) -> tuple[list[DeviceArray | None], list[DeviceArray | None]]:
        """Return the arrays that kernels write, and for each the array to copy it to, or None."""
        buffers: list[DeviceArray | None] = []
        targets: list[DeviceArray | None] = []
        make = self.runtime.zeros if accumulate else self.runtime.empty
        for given, shape in zip(out or [None] * len(plan.outputs), plan.outputs, strict=True):
            if given is None:
                buffers.append(None if shape is None else make(shape, plan.dtype))
                targets.append(None)
                continue
            target, _ = self.platform.adopt(given)
            buffer = self.runtime.xp.ascontiguousarray(target)
            if any(self._overlap(target, array) for array in inputs):
                buffer = target.copy()
            buffers.append(buffer)
            targets.append(None if target is buffer else target)
        return buffers, targets

    def rows(self, name: str, rows: object, length: int | None) -> DeviceArray | None:
        """Return the row numbers of an option, 1-based; 0 for none."""
        if on_device(rows):
            raise TypeError(
                f"{self.phase.caller}: {name}: expected row numbers in host memory, where they "
                f"are checked, got {kind_of(rows)}"
            )
        graph = self.graph
        assert graph is not None

        def check() -> Indices:
            return self.phase._rows(name, rows, length, graph.to_host())

        if length is None or type(rows) is not np.ndarray:
            checked = check()
            return None if length is None else self.platform.copy(checked)
        return graph._option_rows((self.phase.declaration, name, length), rows, check)

    def table(self, array: npt.NDArray[np.generic]) -> DeviceArray:
        """Return a small array on the device, copied on first use."""
        key = self.platform, self.device, array.shape, array.dtype.char, array.tobytes()
        found = _TABLES.get(key)
        if found is None:
            if len(_TABLES) >= _MOST_TABLES:
                _TABLES.clear()
            found = _TABLES[key] = self.platform.copy(array)
        return found

    def check_output(
        self, label: str, array: object, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> DeviceArray:
        """Return an array for `out` if it is on the device, of the given shape and dtype."""
        if not on_device(array):
            raise TypeError(
                f"{label}: expected an array on the device like the arguments, got {kind_of(array)}"
            )
        buffer, number = self.platform.adopt(array)
        if number != self.device:
            raise ValueError(
                f"{label}: expected device {self.device} like the arguments, got device {number}"
            )
        if buffer.dtype != dtype:
            raise TypeError(f"{label}: expected {dtype} like the inputs, got {buffer.dtype}")
        check_place(label, buffer, shape)
        return buffer

    def share(self, one: object, other: object) -> bool:
        """Return whether two arrays overlap in memory."""
        return self._overlap(self.platform.adopt(one)[0], self.platform.adopt(other)[0])

    def _overlap(self, one: DeviceArray, other: DeviceArray) -> bool:
        (start, stop), (first, last) = map(self._ends, (one, other))
        return start < last and first < stop

    def _ends(self, array: DeviceArray) -> tuple[int, int]:
        """Return the addresses of the lowest element and of the end of the highest."""
        start = self.platform.address(array)
        if 0 in array.shape:
            return start, start
        steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
        low, high = (sum(s for s in steps if s * sign > 0) for sign in (-1, 1))
        return start + low, start + high + array.dtype.itemsize


Kernel = Callable[[Runtime, Arguments], None]
"""Function that runs a phase."""
_NO_MEMORY = re.compile("out of memory|OUT_OF_MEMORY|ALLOC_FAILED|MemoryAllocation")
"""Out-of-memory errors of the CUDA libraries and of torch."""
_MOST_TABLES = 10_000
_TABLES: dict[tuple[object, ...], DeviceArray] = {}
_NO_GRAPH = Graph([], [])


@functools.lru_cache(maxsize=10_000)
def stand_in(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Return a host array like one in C order, without memory: its elements are never read."""
    strides = [dtype.itemsize * n for n in packed(shape)]
    return np.lib.stride_tricks.as_strided(np.zeros((), dtype), shape, strides)


def check_part(label: str, array: object) -> DeviceArray:
    """Return the argument if it is a device array of a supported precision."""
    if not on_device(array):
        raise TypeError(f"{label}: expected an array on a device, got {kind_of(array)}")
    found, _ = platform(label.partition(":")[0]).adopt(array)
    if found.dtype.char not in VARIANTS:
        raise TypeError(f"{label}: expected float32 or float64, got {found.dtype}")
    return found


PRECISE = (
    "gno_conv", "gno_kernel", "kernel_conv", "edge_mlp", "edge_network", "ono_", "lno_",
    "orthonormalize", "dimenet", "segment_matmul",
)  # fmt: skip
"""Prefixes of the operators that multiply matrices by cuBLAS."""


def check_precision(phase: Phase, precision: object) -> str:
    where = f"{phase.caller}: precision"
    if precision not in PRECISIONS:
        raise ValueError(f"{where}: expected one of {PRECISIONS}, got {precision!r}")
    if precision != "highest" and not phase.declaration.startswith(PRECISE):
        raise ValueError(
            f"{where}: expected 'highest', as no matrices are multiplied, got {precision!r}"
        )
    return str(precision)


def supported() -> list[str]:
    """Return the operators that run on a device."""
    return sorted(module.name for module in pkgutil.iter_modules(ops.__path__))


@functools.cache
def find_kernel(phase: Phase) -> Kernel:
    """Return the function that runs a phase."""
    names = supported()
    found: Kernel | None = None
    if phase.declaration in names:
        module = importlib.import_module(f"{ops.__name__}.{phase.declaration}")
        found = getattr(module, phase.kernel, None)
    if found is None:
        raise NotImplementedError(
            f"{phase.caller}: no kernel for arrays on a device; there are some for "
            f"{', '.join(names)}; take copies in host memory, such as cupy.asnumpy makes"
        )
    return found
