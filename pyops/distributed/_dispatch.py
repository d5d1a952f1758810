"""Calls on distributed graphs: rows of ghosts before, sums over ranks after a call on own edges.

Calls with a communicator in place of a graph are those of `_points` and `_reductions`. What is sent
follows from the declaration: an axis of an input or output that the graph names is
distributed, any other array is replicated. Operators on pairs of edges, which take the reverse of
each, run where the sources of edges belong.

The ways of a call share its checks and messages, so they are one module.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from .._call import half
from .._call.arrays import check_outputs, kind_of, plain
from .._call.indices import check_rows, check_wanted
from .._call.reduction import ReductionPhase
from . import _points, _reductions
from ._communicator import Communicator
from ._graph import DistributedGraph
from ._half_rows import copied
from ._halo import Halo

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from .._call.phase import Phase
    from .._call.plan import Plan
    from .._call.types import Array
    from ._graph import PairedEdges
    from ._mpi import Counts, Values

Slotted = TypeVar("Slotted")


def run(
    phase: Phase,
    given: Sequence[object],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
    out: Sequence[Values | None] | None,
    accumulate: bool,
) -> tuple[Values | None, ...]:
    """Check a call on all ranks, run it, and return the outputs of own rows.

    Arrays of half precision are widened after their ghosts were fetched, and outputs rounded once.
    """
    kinds = DistributedGraph, Communicator
    if not any(map(half.is_half, given)) or not isinstance(given[0], kinds):
        return _run(phase, given, options, wanted, out, accumulate)
    comm = given[0] if isinstance(given[0], Communicator) else given[0].comm
    types, _ = comm._together(
        phase.caller,
        lambda: half.output_types(phase, half.types_of(given[1:])),
        lambda _: tuple(str(a.dtype) if half.is_half(a) else "" for a in given[1:]),  # type: ignore[attr-defined]
    )
    wide = [half.widened(a) for a in given]
    found = _run(phase, wide, options, wanted, None, False, given)
    rounded = comm._together(
        phase.caller, lambda: half.rounded_outputs(phase, types, found, out, accumulate)
    )
    return cast("tuple[Values | None, ...]", rounded)


def _run(
    phase: Phase,
    given: Sequence[object],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
    out: Sequence[Values | None] | None,
    accumulate: bool,
    narrow: Sequence[object] = (),
) -> tuple[Values | None, ...]:
    """Return the outputs of a call; `narrow` has the arguments before any were widened."""
    graph = given[0]
    if isinstance(graph, Communicator):
        call = given[1:], options, wanted, out, accumulate
        if isinstance(phase, ReductionPhase):
            return _reductions.run(phase, graph, *call)
        return _points.run(phase, graph, *call)
    if not phase.signature.has_graph or not isinstance(graph, DistributedGraph):
        kinds = DistributedGraph, Communicator
        where, other = next((i, a) for i, a in enumerate(given) if isinstance(a, kinds))
        raise TypeError(f"{phase.caller}: argument {where}: expected an array, got {other!r}")
    comm = graph.comm
    own = [graph._own, *given[1:]]
    others, rows = phase._without_rows(dict(options))
    plan, arrays, numbers = comm._together(
        phase.caller,
        lambda: _check(phase, graph, own, others, rows, wanted, out, accumulate),
        lambda found: _equal(phase, graph, found[1], others, wanted),
    )
    pairs = graph._pairs() if phase.signature.indexed else None
    axes = graph._axes if pairs is None else {"num_edges": pairs.halo}
    names, results = inputs_of(phase), outputs_of(phase)
    halos, targets = ([axes.get(name) for name in some] for some in (names, results))
    local = [None if a is None else plain(a) for a in arrays]
    _exchange(local, halos, phase._split([graph._own, *narrow[1:]])[1] if narrow else local)
    if pairs is not None or graph._parts is not None:
        if pairs is not None:
            combined = _run_pairs(phase, graph, pairs, local, others, numbers, wanted, plan)
        else:
            combined = _run_parts(phase, graph, local, others, wanted, plan)
        _points.store(combined, out, accumulate)
        return tuple(combined)
    here, scaled = graph.local, _reads_degrees(phase)
    if scaled and phase.kernel == "forward":
        here, scaled = graph._normalising(), False
    if scaled:
        _scale(graph, halos, local)
    sums = [name not in axes for name in results]
    kept = [s or t is not None for s, t in zip(sums, targets, strict=True)]
    outs = None if out is None else [None if k else o for k, o in zip(kept, out, strict=True)]

    def compute() -> tuple[Array | None, ...]:
        return phase.run([here, *_without_seeds(phase, local)], others, wanted, outs, accumulate)

    late = any(k and shape is not None for k, shape in zip(kept, plan.outputs, strict=True))
    found: list[Values | None] = [*(comm._together(phase.caller, compute) if late else compute())]
    if scaled:
        _scale(graph, targets, found)
    _replace(found, targets, Halo.accumulate)
    _sum(graph, found, sums)
    if out is not None:
        late_out = [o if k else None for k, o in zip(kept, out, strict=True)]
        _points.store(found, late_out, accumulate)
    return tuple(found)


def _run_parts(
    phase: Phase,
    graph: DistributedGraph,
    arrays: Sequence[Values | None],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
    plan: Plan,
) -> list[Values | None]:
    """Return the outputs of a call on a graph in parts, given the rows of all local sources."""
    parts, axes = graph._parts, graph._axes
    assert parts is not None
    run, degrees = parts.run, graph._out_degrees() if _reads_degrees(phase) else None
    slots = _without_seeds(phase, inputs_of(phase))
    given = _without_seeds(phase, arrays)
    made = graph.comm._together(
        phase.caller, lambda: run(phase, slots, given, options, wanted, axes, degrees)
    )
    return parts.combine(phase, made, plan.outputs, plan.dtype, axes)


def _run_pairs(
    phase: Phase,
    graph: DistributedGraph,
    pairs: PairedEdges,
    arrays: Sequence[Values | None],
    options: Mapping[str, object],
    numbers: Mapping[str, Counts],
    wanted: Collection[str] | None,
    plan: Plan,
) -> list[Values | None]:
    """Return the outputs of a call on pairs of edges, given the rows of all local edges."""
    exchanged = {name: pairs.exchange(rows) for name, rows in numbers.items()}
    slots = _without_seeds(phase, inputs_of(phase))
    given = _without_seeds(phase, arrays)

    def compute() -> list[list[Values | None]]:
        rows = {n: pairs.local(f"{phase.caller}: {n}", r) for n, r in exchanged.items()}
        return [part.run(phase, slots, given, options, rows, wanted) for part in pairs.parts]

    made, names = graph.comm._together(phase.caller, compute), outputs_of(phase)
    if graph._parts is None:
        (found,) = made
        _sum(graph, found, [name != "num_edges" for name in names])
    else:
        shapes, edges = plan.outputs, pairs.halo.size
        found = graph._parts.combine_pairs(phase, pairs.parts, made, shapes, plan.dtype, edges)
    halos = [pairs.halo if name == "num_edges" else None for name in names]
    _replace(found, halos, Halo.accumulate)
    return found


@functools.cache
def inputs_of(phase: Phase) -> tuple[str, ...]:
    """Return the name of the first axis of each input and cotangent."""
    return tuple(slot.forms[0][0].text for slot in phase.slots)


@functools.cache
def outputs_of(phase: Phase) -> tuple[str, ...]:
    """Return the name of the first axis of each output."""
    return tuple(shape[0].text for shape in phase.outputs.values())


def _check(
    phase: Phase,
    graph: DistributedGraph,
    own: Sequence[object],
    options: Mapping[str, object],
    rows: Mapping[str, object],
    wanted: Collection[str] | None,
    out: Sequence[object] | None,
    accumulate: bool,
) -> tuple[Plan, list[Values | None], dict[str, Counts]]:
    """Check the arguments of this rank; return the plan, an array a slot, and row numbers."""
    signature, caller = phase.signature, phase.caller
    if signature.indexed and graph._sources is not graph._destinations:
        raise ValueError(
            f"{caller}: graph: expected the same nodes as sources and destinations, got a graph "
            "with owned_src"
        )
    if signature.indexed and graph.local._ids is not None:
        raise ValueError(f"{caller}: graph: expected a row for each edge, got one with edge ids")
    plan = phase._plan(own, {**options}, wanted)
    if plan is None:
        kinds = ", ".join(kind_of(a) for a in own[1:] if a is not None)
        raise TypeError(f"{caller}: expected NumPy arrays with this graph, got {kinds}")
    if out is not None or accumulate is not False:
        check_outputs(caller, phase.labels, plan.outputs, plan.dtype, out, accumulate)
    numbers = {}
    for name, length in plan.indexed.items():
        label, option = f"{caller}: {name}", signature.indexed[name]
        check_wanted(label, option, rows.get(name), length is not None)
        if length is not None:
            bound = int(graph._edges.ranges[-1]), "number of edges"
            found = check_rows(label, option, rows[name], length, None, bound)
            numbers[name] = found.astype(np.int64)
    arrays = [a if isinstance(a, np.ndarray) else None for a in phase._split(own)[1]]
    return plan, arrays, numbers


def _equal(
    phase: Phase,
    graph: DistributedGraph,
    arrays: Sequence[Array | None],
    options: Mapping[str, object],
    wanted: Collection[str] | None,
) -> tuple[object, ...]:
    """Return what has to be equal on all ranks: of replicated arrays the shape, else the width."""
    shapes = [
        None if a is None else (a.dtype.char, a.shape[1:] if name in graph._axes else a.shape)
        for name, a in zip(inputs_of(phase), arrays, strict=True)
    ]
    names = None if wanted is None else sorted({*wanted})
    same = sorted(phase.checked(options).items())
    return phase.kernel, f"graph {graph._number}", shapes, same, names


def _replace(
    arrays: list[Values | None],
    halos: Sequence[Halo | None],
    function: Callable[[Halo, Sequence[Values]], list[Values]],
) -> None:
    """Replace the arrays of each halo by what a function of all of them returns.

    So the arrays of a halo share a message for each neighbour.
    """
    for halo in dict.fromkeys(h for h in halos if h is not None):
        pairs = enumerate(zip(halos, arrays, strict=True))
        places = {i: a for i, (h, a) in pairs if h is halo and a is not None}
        if places:
            found = function(halo, [*places.values()])
            for i, array in zip(places, found, strict=True):
                arrays[i] = array


def _exchange(
    arrays: list[Values | None], halos: Sequence[Halo | None], narrow: Sequence[object]
) -> None:
    """Extend arrays by the rows of ghosts, which are sent in the types that were given."""
    for i, (halo, array) in enumerate(zip(halos, narrow, strict=True)):
        if halo is not None and isinstance(array, np.ndarray) and half.is_half(array):
            arrays[i] = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    _replace(arrays, halos, lambda halo, some: copied(halo.exchange, some))
    arrays[:] = [half.widened(a) for a in arrays]


def _sum(graph: DistributedGraph, found: list[Values | None], sums: Sequence[bool]) -> None:
    """Sum the gradients of replicated inputs over ranks, all in one reduction."""
    places = {i: a for i, a in enumerate(found) if sums[i] and a is not None}
    if not places:
        return
    total = graph.comm._engine.sum(np.concatenate([a.reshape(-1) for a in places.values()]))
    start = 0
    for i, array in places.items():
        stop = start + array.size
        found[i] = total[start:stop].reshape(array.shape)
        start = stop


def _reads_degrees(phase: Phase) -> bool:
    """Return whether the kernels of an operator read the out-degrees of sources."""
    return "out_offsets" in phase.signature.reads.get("forward", "").split()


def _scale(
    graph: DistributedGraph, halos: Sequence[Halo | None], arrays: Sequence[Values | None]
) -> None:
    """Scale the rows of sources from the normalisation by local out-degrees to that by all."""
    shares = graph._out_shares()
    for halo, array in zip(halos, arrays, strict=True):
        if halo is graph._halo and array is not None:
            array *= shares.astype(array.dtype).reshape(-1, *[1] * (array.ndim - 1))


def _without_seeds(phase: Phase, arrays: Sequence[Slotted]) -> list[Slotted]:
    """Return the arrays that a phase takes; jvp takes no gy, for which its kernel has a slot."""
    pairs = zip(phase.slots, arrays, strict=True)
    return [a for slot, a in pairs if phase.seeds or slot.role != "gy"]
