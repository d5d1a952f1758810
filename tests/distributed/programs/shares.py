"""Shares of the ranks in a whole graph, which every rank has for comparison alone."""

from dataclasses import replace

import numpy as np

import pyops
from pyops import Graph
from pyops.distributed import Communicator

from ...support import cases

OVER_POINTS = [n for n, op in cases.OPERATORS.items() if "points" in op.signature.sizes]
REDUCTIONS = pyops.sum, pyops.mean, pyops.max, pyops.min
TOLERANCES = {"d": 5e-15, "f": 3e-6}


def cuts(rng, length, size):
    """Return the first row of each rank and the number of rows; some ranks have none."""
    inner = np.sort(rng.integers(0, length + 1, size - 1))
    if size > 2 and rng.random() < 0.3:
        inner[1] = inner[0]
    return np.array([0, *inner, length])


class Shares:
    """A distributed copy of a graph, and the rows of this rank in arrays of the whole graph."""

    def __init__(self, comm: Communicator, graph, rng, square=False, **options):
        self.comm = comm
        ranges = {n: cuts(rng, getattr(graph, n), comm.size) for n in ("num_src", "num_dst")}
        if square:
            ranges["num_src"] = ranges["num_dst"]
        own = {n: tuple(r[comm.rank : comm.rank + 2].tolist()) for n, r in ranges.items()}
        first, last = own["num_dst"]
        entries = np.flatnonzero((graph.dst >= first) & (graph.dst < last))
        sources = None if square else own["num_src"]
        self.graph = comm.graph(
            graph.src[entries],
            graph.dst[entries],
            owned=own["num_dst"],
            owned_src=sources,
            **options,
        )
        owners = np.searchsorted(ranges["num_dst"][1:-1], graph.dst, side="right")
        entries = np.argsort(owners, kind="stable")[self.graph.edges]
        self.places = np.argsort(comm._engine.rows(entries[:, None])[0][:, 0])
        self.rows = {"num_src": self.graph.sources, "num_dst": self.graph.nodes}
        self.rows |= {"num_entries": entries, "num_edges": entries}
        if graph._ids is not None:
            ids, rows = graph.edge_ids[entries], graph.num_edges
            self.graph = self.graph.with_edge_ids(ids, rows, replicated=True)
            del self.rows["num_edges"]

    def of(self, name, array):
        """Return the own rows of an array, whose first axis has this name."""
        if array is None or name not in self.rows:
            return array
        return np.ascontiguousarray(array[self.rows[name]])

    def of_problem(self, problem):
        """Return the problem with the own rows of its arrays, and the reverses of own edges."""
        arrays = {n: self.of(problem.rows(n), a) for n, a in problem.arrays.items()}
        options = dict(problem.options)
        for name in problem.op.signature.indexed:
            if options.get(name) is not None:
                given = np.asarray(options[name])[self.rows["num_edges"]]
                options[name] = np.where(given >= 0, self.places[given], -1)
        return replace(problem.having(**arrays), graph=self.graph, options=options)


def shared_problem(comm, case, seed, graph=None, **options):
    """Return a problem on one rank, and its shares."""
    problem = case.problem(graph, seed=seed)
    paired = bool(problem.op.signature.indexed)
    if paired and problem.graph.num_src != problem.graph.num_dst:
        graph, nodes = problem.graph, max(problem.graph.num_src, problem.graph.num_dst)
        problem = case.problem(Graph(graph.src, graph.dst, nodes), seed=seed)
    rng = np.random.default_rng(seed)
    return problem, Shares(comm, problem.graph, rng, paired, **options)


def rows_of(phase):
    """Return the axis of points of each result of a phase, None for arrays without."""

    def axis(shape):
        names = [size.text for size in shape]
        return names.index("points") if "points" in names else None

    shapes = phase.outputs.values()
    return [axis(s) for s in shapes][-1:] if phase.name == "jvp" else [axis(s) for s in shapes]


class Points:
    """Points of this rank in problems of which every rank has the whole."""

    def __init__(self, comm, rng, count):
        self.comm = comm
        self.own = slice(*cuts(rng, count, comm.size)[comm.rank : comm.rank + 2].tolist())
        self.count = self.own.stop - self.own.start

    def of(self, array, axis):
        if array is None or axis is None:
            return array
        return np.ascontiguousarray(array[(slice(None),) * axis + (self.own,)])

    def arguments(self, problem, phase):
        slots = {s.name: s.shape for p in problem.op._phases.values() for s in p.slots}
        for name in problem.names(phase):
            names = [size.text for size in slots[name]]
            yield self.of(
                problem.arrays[name], names.index("points") if "points" in names else None
            )

    def run(self, problem, phase, **keywords):
        options = {**problem.options, **keywords}
        if "points" in options:
            options["points"] = self.count
        function = problem.op if phase == "forward" else getattr(problem.op, phase)
        result = function(self.comm, *self.arguments(problem, phase), **options)
        return result if isinstance(result, tuple) else (result,)

    def compare(self, problem, tolerance, wanted=None):
        """Compare all phases with those of one rank; return the largest relative error."""
        worst = 0.0
        for phase in cases.PHASES:
            keywords = {"wanted": wanted} if wanted and phase.endswith("backward") else {}
            expected = problem.run(phase, **keywords)
            got = self.run(problem, phase, **keywords)
            for axis, a, b in zip(rows_of(problem.op._phases[phase]), got, expected, strict=True):
                assert (a is None) == (b is None)
                if a is None:
                    continue
                size = np.abs(b).max(initial=0)
                b = self.of(b, axis)
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                assert a.flags.c_contiguous
                error = np.abs(a - b).max(initial=0)
                assert error <= tolerance * size, (str(problem.op.name), phase, error, size)
                worst = max(worst, error / (size or 1))
        return worst


def points_of(problem):
    """Return the number of points of a problem."""
    for declared in problem.op.signature.inputs.values():
        names = [size.text for size in declared.shape]
        if "points" in names:
            return problem.arrays[declared.name].shape[names.index("points")]
    return problem.options["points"]


def problems(name, seed):
    for widths in "one", "small", "odd":
        case = cases.replace(cases.representative(name), widths=widths)
        yield case.problem(seed=seed)
