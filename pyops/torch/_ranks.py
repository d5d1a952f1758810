"""Operators on distributed graphs, composed of differentiable maps between ranks.

Rows of ghosts are fetched (`exchange`) and added to those of their owners (`accumulate`); values
that all ranks hold are copied (`replicate`) and summed over ranks (`sum`). These maps are linear,
and the transpose of each is another, so derivatives of every order follow. Between them operators
run on the own edges of a rank.

Calls of operators, over points and of reductions are composed of the same maps, so this is
one module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor

from .._call.indices import check_indices
from ..distributed import _dispatch
from ..distributed._communicator import by_name, check_rows
from ._call import (
    HALVES,
    AnyGraph,
    MaybeTensor,
    host_rows,
    is_exporting,
    is_jit_tracing,
    memory,
    without_tracing,
)
from ._graph import traceable
from ._host import is_tracing, without_subclass
from ._in_parts import NodeParts, PairParts, scaled_rows
from ._maps import calls_of, mapped
from ._transfers import GhostRows, PartRows, Replicas, TakenRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from .._call.framework import FrameworkFunction
    from .._call.operator import Operator
    from .._call.types import Array, Options
    from ..distributed._communicator import Communicator
    from ..distributed._graph import DistributedGraph, PairedEdges
    from ..distributed._mpi import Counts, Values
    from ._graph import Graph
    from ._in_parts import Blocks
    from ._transfers import Messages

Given = ParamSpec("Given")
Run: TypeAlias = "Callable[[str, Any, Sequence[MaybeTensor], Options], Tensor]"
"""Runs a phase of an operator on a local graph."""
LocalCall: TypeAlias = "tuple[AnyGraph, Sequence[MaybeTensor], Options]"
"""Graph, tensors and options of a call on edges of the rank."""


class Paired:
    """Own edges and those out of own nodes, for operators on pairs of edges."""

    def __init__(self, comm: Communicator, pairs: PairedEdges) -> None:
        self.rows = GhostRows(comm, pairs.halo)
        self.graph = traceable(pairs.graph)
        self.others = torch.from_numpy(pairs.others)


class Parts:
    """State of a distributed graph for calls with tensors."""

    def __init__(self, graph: DistributedGraph) -> None:
        self.rows = GhostRows(graph.comm, graph._halo)
        self.axes = {name: halo is not None for name, halo in graph._axes.items()}
        """Whether the rows of a distributed axis have ghosts."""
        self.local: Graph | None = None
        self.paired: Paired | None = None
        self.shares: Tensor | None = None
        """Factors of local sources from the normalisation by local degrees to that by all."""
        self.dealt: PartRows | None = None
        """Maps between parts, of a reproducible graph."""
        self.blocks: dict[tuple[bool, bool], Blocks] = {}
        """Its parts for operators on pairs of edges or not, which read out-degrees or not."""


def _called_while_traced(function: Callable[Given, bool]) -> Callable[Given, bool]:
    """Have torch.compile call a function in place of tracing it.

    As `torch.compiler.assume_constant_result`, which would import the compiler.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@_called_while_traced
def _prepare(name: str, traces: bool, paired: bool, scaled: bool) -> bool:
    """Make what calls on a distributed graph read; collective at first."""
    graph: DistributedGraph = by_name[name]
    with without_tracing():
        if graph._torch is None:
            graph._torch = Parts(graph)
        parts: Parts = graph._torch
        if traces and parts.local is None:
            parts.local = traceable(graph.local)
        if graph._parts is not None:
            _prepare_parts(graph, parts, paired, scaled)
            return True
        if paired and parts.paired is None:
            parts.paired = Paired(graph.comm, graph._pairs())
        if scaled and parts.shares is None:
            parts.shares = torch.from_numpy(graph._out_shares())
    return True


def _prepare_parts(graph: DistributedGraph, parts: Parts, paired: bool, scaled: bool) -> None:
    if parts.dealt is None:
        assert graph._parts is not None
        parts.dealt = PartRows(graph.comm, graph._halo, graph._parts)
    if (paired, scaled) not in parts.blocks:
        made = PairParts(graph) if paired else NodeParts(graph, parts.dealt, scaled)
        parts.blocks[paired, scaled] = made


@_called_while_traced
def _prepare_calls(name: str) -> bool:
    calls_of(by_name[name])
    return True


def _replicas(comm: Communicator) -> Replicas:
    _prepare_calls(comm._name)
    replicas: Replicas = comm._torch.replicas
    return replicas


def is_distributed(graph: object) -> TypeGuard[DistributedGraph]:
    """Return whether an argument is a distributed graph, whose package is not imported for it."""
    return hasattr(type(graph), "accumulate")


def local_of(graph: DistributedGraph) -> Graph:
    """Return the graph of own edges, with indices that torch can trace."""
    _prepare(graph._name, True, False, False)
    found: Graph = graph._torch.local
    return found


def blocks_of(graph: DistributedGraph) -> Blocks:
    """Return the parts of a reproducible graph for modules on rows."""
    _prepare(graph._name, False, False, False)
    found: Blocks = graph._torch.blocks[False, False]
    return found


def fetched(graph: DistributedGraph, label: str, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the rows of the sources of all parts."""
    blocks = blocks_of(graph)
    return mapped(blocks.messages, blocks.fetch, label, tensors)


def dealt(
    graph: DistributedGraph, label: str, tensors: Sequence[Tensor]
) -> Sequence[Sequence[Tensor]]:
    """Return for each part copies, whose gradients are summed over the parts of all ranks."""
    _prepare(graph._name, False, False, False)
    parts: Parts = graph._torch
    assert parts.dealt is not None
    if not tensors:
        return [()] * parts.dealt.copies
    if not graph.comm._inside:
        tensors = replicated_by(graph.comm, label, tensors)
    return [*zip(*(torch.unbind(t) for t in _dealt(parts, label, tensors)), strict=True)]


def same_edges(graph: DistributedGraph) -> bool:
    """Return whether each edge of a rank has a row of its own."""
    return graph.local._ids is None


class Distributed:
    """An operator on distributed graphs."""

    def __init__(self, op: Operator, front_end: FrameworkFunction, run: Run) -> None:
        self._op, self._front_end, self._run = op, front_end, run
        phase = op._phases["forward"]
        self._inputs = _dispatch.inputs_of(phase)
        (self._output,) = _dispatch.outputs_of(phase)
        self._scaled = _dispatch._reads_degrees(phase)
        self._paired = bool(op.signature.indexed)

    def __call__(
        self,
        graph: DistributedGraph,
        inputs: tuple[object, ...],
        options: Options,
        check: Callable[[str, object], Tensor],
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return y, and the attention weights if requested."""
        label = self._front_end.label
        if is_exporting() or is_jit_tracing():
            raise NotImplementedError(
                f"{label}: graph: expected pyops.torch.Graph where torch exports, got {graph!r}"
            )

        def arguments() -> Any:
            given = {**options}
            _, tensors = self._front_end.arguments(inputs, given, lambda _, g: g, check)
            return tensors, self._op.pop_attention(given), given

        if is_tracing(*[a for a in inputs if isinstance(a, Tensor)]):
            tensors, weighted, options = arguments()
            for name in self._op.signature.indexed:
                if options.pop(name, None) is not None:
                    raise NotImplementedError(
                        f"{label}: {name}: expected None where torch traces a call on a "
                        "distributed graph, got row numbers"
                    )
            numbers = {}
        else:
            tensors, weighted, options, numbers = graph.comm._together(
                label,
                lambda: self._checked(graph, *arguments()),
                lambda found: self._equal(graph, *found),
            )
        return self._composed(graph, tensors, options, numbers, weighted)

    def _checked(
        self,
        graph: DistributedGraph,
        tensors: Sequence[MaybeTensor],
        weighted: bool,
        options: Options,
    ) -> Any:
        """Check the arguments of this rank as NumPy arrays of the same shapes are."""
        phase = self._op._phases["forward"]
        names = self._op.signature.inputs
        arrays = [
            None if t is None else stand_in(f"{self._front_end.label}: {n}", t)
            for n, t in zip(names, tensors, strict=True)
        ]
        others, rows = phase._without_rows(options)
        rows = {n: host_rows(without_subclass(r)) for n, r in rows.items()}
        own = [graph._own, *arrays]
        *_, numbers = _dispatch._check(phase, graph, own, others, rows, None, None, False)
        return tensors, weighted, others, numbers

    def _equal(
        self,
        graph: DistributedGraph,
        tensors: Sequence[MaybeTensor],
        weighted: bool,
        options: Options,
        numbers: dict[str, Counts],
    ) -> tuple[object, ...]:
        """Return what has to be equal on all ranks."""
        phase = self._op._phases["forward"]
        arrays = [None if t is None else stand_in("", t) for t in tensors]
        tracked = [t is not None and is_tracked(t) for t in tensors]
        same = _dispatch._equal(phase, graph, arrays, options, None)
        types = [str(t.dtype) for t in tensors if t is not None and t.dtype in HALVES]
        return *same[:-1], weighted, graph.comm._inside, ("requires_grad", tracked), *types

    def _composed(
        self,
        graph: DistributedGraph,
        tensors: Sequence[MaybeTensor],
        options: Options,
        numbers: dict[str, Counts],
        weighted: bool,
    ) -> Tensor | tuple[Tensor, Tensor]:
        label, traces = self._front_end.label, is_tracing(*tensors)
        _prepare(graph._name, traces, self._paired, self._scaled)
        parts: Parts = graph._torch
        blocks = parts.blocks.get((self._paired, self._scaled))
        axes = {"num_edges": True} if self._paired else parts.axes
        messages: Messages = parts.paired.rows if parts.paired and self._paired else parts.rows
        fetch = "exchange"
        if blocks is not None:
            messages, fetch = blocks.messages, blocks.fetch
        given = [*tensors]
        held = [i for i, t in enumerate(tensors) if t is not None]
        ghosts = [i for i in held if axes.get(self._inputs[i], False)]
        same = [i for i in held if self._inputs[i] not in axes]
        _replace(given, ghosts, lambda some: mapped(messages, fetch, label, some))
        if not graph.comm._inside:
            _replace(given, same, lambda some: replicated_by(graph.comm, label, some))
        if numbers:
            numbers = self._among_pairs(graph, numbers)
        if blocks is not None:
            _replace(given, same, lambda some: _dealt(parts, label, some))
            calls = self._on_parts(blocks, given, options, numbers)
        else:
            calls = [self._on_rank(graph, parts, traces, given, options, numbers)]

        def compute() -> list[Tensor]:
            return [self._run("forward", *call) for call in calls]

        # an exception is raised on all ranks where others would wait for the rows
        ys = graph.comm._together(label, compute) if self._paired and not traces else compute()
        y = self._joined(parts, blocks, ys)
        if axes.get(self._output, False):
            (y,) = mapped(messages, "accumulate", label, [y])
        if not weighted:
            return y
        alphas = [self._run("attention", g, _detached(some), o) for g, some, o in calls]
        return y, alphas[0] if blocks is None else blocks.joined("num_entries", alphas)

    def _among_pairs(
        self, graph: DistributedGraph, numbers: Mapping[str, Counts]
    ) -> dict[str, Counts]:
        """Return row numbers of own edges as numbers among the edges of the rank's pairs."""
        label, pairs = self._front_end.label, graph._pairs()
        rows = {f"{label}: {n}": (n, pairs.exchange(r)) for n, r in numbers.items()}

        def local() -> dict[str, Counts]:
            return {n: pairs.local(text, r) for text, (n, r) in rows.items()}

        found: dict[str, Counts] = graph.comm._together(label, local)
        return found

    def _on_rank(
        self,
        graph: DistributedGraph,
        parts: Parts,
        traces: bool,
        given: Sequence[MaybeTensor],
        options: Options,
        numbers: dict[str, Counts],
    ) -> LocalCall:
        """Return the call on all edges of the rank."""
        if self._paired:
            assert parts.paired is not None
            return parts.paired.graph, given, {**options, **numbers}
        if self._scaled:
            assert parts.shares is not None
            shares = parts.shares
            pairs = zip(self._inputs, given, strict=True)
            given = [
                scaled_rows(t, shares) if t is not None and a == "num_src" else t for a, t in pairs
            ]
        local = parts.local if traces else graph.local
        assert local is not None
        return local, given, options

    def _on_parts(
        self,
        blocks: Blocks,
        given: Sequence[MaybeTensor],
        options: Options,
        numbers: dict[str, Counts],
    ) -> list[LocalCall]:
        """Return the calls on the parts of the rank."""
        count = len(blocks.graphs)
        rows = [
            [None] * count if t is None else blocks.split(axis, t)
            for axis, t in zip(self._inputs, given, strict=True)
        ]
        places = blocks.positions(numbers)
        return [
            (local, [some[k] for some in rows], {**options, **places[k]})
            for k, local in enumerate(blocks.graphs)
        ]

    def _joined(self, parts: Parts, blocks: Blocks | None, ys: Sequence[Tensor]) -> Tensor:
        """Return the results of a rank, without rows that other ranks compute."""
        if blocks is not None:
            return blocks.joined(self._output, ys)
        (y,) = ys
        return y.index_fill(0, parts.paired.others, 0) if self._paired and parts.paired else y


def _dealt(parts: Parts, label: str, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return copies for each part of the rank, whose gradients are added in the order of parts."""
    assert parts.dealt is not None
    return mapped(parts.dealt, "deal", label, [t.unsqueeze(0) for t in tensors])


def _detached(tensors: Sequence[MaybeTensor]) -> list[MaybeTensor]:
    return [None if t is None else t.detach() for t in tensors]


def _replace(
    given: list[MaybeTensor],
    places: Sequence[int],
    function: Callable[[list[Any]], Sequence[Tensor]],
) -> None:
    """Replace some tensors by what a function of all of them returns."""
    if places:
        for i, found in zip(places, function([given[i] for i in places]), strict=True):
            given[i] = found


def stand_in(label: str, tensor: Tensor) -> Array:
    """Return an array of the shape and type of a tensor, for checks; its elements are undefined.

    That of a tensor of half precision is float32.
    """
    if not isinstance(tensor, Tensor) or not tensor.is_cpu or tensor.layout is not torch.strided:
        found = f"a tensor on {tensor.device}" if isinstance(tensor, Tensor) else type(tensor)
        raise ValueError(f"{label}: expected a dense tensor on the CPU with ranks, got {found}")
    if tensor.dtype in HALVES:
        return np.empty(tuple(tensor.shape), np.float32)
    if tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise TypeError(f"{label}: expected a tensor of numbers, got {tensor.dtype}")
    return np.empty(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def replicated_by(comm: Communicator, origin: str, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return copies whose gradients are summed over ranks."""
    return mapped(_replicas(comm), "replicate", origin, tensors)


def replicated(comm: Communicator, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """See `Communicator.replicated`."""
    caller = "Communicator.replicated"
    if not is_tracing(*tensors):

        def check() -> list[object]:
            if comm._inside:
                raise RuntimeError(
                    f"{caller}: value: expected a call outside of pyops.torch.nn.Replicated, whose "
                    "parameters are replicated already"
                )
            arrays = [stand_in(f"{caller}: value", t) for t in tensors]
            pairs = zip(arrays, tensors, strict=True)
            return [(a.dtype.char, a.shape, is_tracked(t)) for a, t in pairs]

        comm._together(caller, check, tuple)
    return replicated_by(comm, caller, tensors)


def summed(comm: Communicator, value: Tensor) -> Tensor:
    """See `Communicator.sum`."""
    caller = "Communicator.sum"
    if not is_tracing(value):

        def check() -> tuple[object, ...]:
            array = stand_in(f"{caller}: value", value)
            if array.dtype.itemsize not in (4, 8):
                raise TypeError(
                    f"{caller}: value: expected numbers of 32 or 64 bits, got {value.dtype}"
                )
            return "tensor", array.dtype.char, array.shape, is_tracked(value)

        comm._together(caller, check, tuple)
    return mapped(_replicas(comm), "sum", caller, [value])[0]


def exchanged(graph: DistributedGraph, x: Tensor) -> Tensor:
    """See `DistributedGraph.exchange`."""
    return _rows(graph, "exchange", "x", x, graph.num_src, "num_src")


def accumulated(graph: DistributedGraph, full: Tensor) -> Tensor:
    """See `DistributedGraph.accumulate`."""
    length = graph._halo.size
    return _rows(graph, "accumulate", "full", full, length, "local.num_src")


def _rows(
    graph: DistributedGraph, kind: str, name: str, given: Tensor, length: int, rows: str
) -> Tensor:
    caller = f"DistributedGraph.{kind}"
    if not is_tracing(given):

        def check() -> tuple[object, ...]:
            array = check_rows(f"{caller}: {name}", stand_in(f"{caller}: {name}", given))
            if len(array) != length:
                raise ValueError(
                    f"{caller}: {name}: expected {rows}={length} rows, got {len(array)}"
                )
            same = "tensor", f"graph {graph._number}", array.dtype.char, array.shape[1:]
            return *same, is_tracked(given)

        graph.comm._together(caller, check, tuple)
    _prepare(graph._name, False, False, False)
    return mapped(graph._torch.rows, kind, caller, [given])[0]


def taken(comm: Communicator, rows: Tensor, numbers: npt.ArrayLike) -> Tensor:
    """See `Communicator.take`."""
    caller = "Communicator.take"
    if is_tracing(rows):
        raise NotImplementedError(f"{caller}: rows: expected a call outside of what torch traces")

    def check() -> tuple[Values, Counts, bool]:
        array = check_rows(f"{caller}: rows", stand_in(f"{caller}: rows", rows))
        given = memory(numbers) if isinstance(numbers, Tensor) else numbers
        wanted = check_indices(f"{caller}: numbers", given).astype(np.int64)
        return array, wanted, is_tracked(rows)

    array, wanted, _ = comm._together(
        caller, check, lambda f: ("tensor", f[0].dtype.char, f[0].shape[1:], f[2])
    )
    transfer, where = comm._transfer(caller, len(array), wanted)
    return mapped(TakenRows(comm, transfer, where, len(array)), "take", caller, [rows])[0]


def is_tracked(tensor: Tensor) -> bool:
    """Return whether operations on a tensor are recorded for its gradient."""
    return bool(torch.is_grad_enabled() and tensor.requires_grad)
