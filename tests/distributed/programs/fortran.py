"""The same problems for programs in Fortran and in Python: arrays and results in files."""

import sys
from pathlib import Path

import numpy as np

from pyops.distributed import Communicator

from ...support import cases
from .shares import shared_problem

KINDS = {"r4": np.float32, "r8": np.float64}
SHARED = "shared edges", "edges without entries"
"""Graphs whose edges are no entries, which Fortran does not distribute."""


def chosen():
    """Return every variant of the operators on a graph, and some of them on other graphs."""
    large = "hubs", "many rows", "thousands of rows"
    others = [c for c in cases.CASES if c.widths == "small" and c.graph not in large]
    some = [*cases.VARIANTS, *others[::5]]
    return [
        case
        for case in some
        if cases.OPERATORS[case.op].signature.has_graph
        and case.graph not in SHARED
        and not {*cases.OPERATORS[case.op].signature.one_of[:1]} & {*case.absent}
    ]


def calls():
    """Return the cases of a `select case` in Fortran: an operator with its options."""
    lines = []
    for number, case in enumerate(chosen(), start=1):
        problem = case.problem()
        names = problem.op.signature.inputs
        words = ["graph"]
        for place, (name, array) in enumerate(zip(names, problem.inputs, strict=True), start=1):
            words += [] if array is None else [f"{name}=x({place})%node"]
        words += [
            f"{name}={literal(value)}"
            for name, value in problem.options.items()
            if name not in problem.op.signature.indexed
        ]
        lines += [
            f"case ({number})",
            f"  y => {case.op}( &",
            "    " + ", &\n    ".join(words) + ")",
        ]
    return "\n".join(lines) + "\n"


def replicated():
    """Return the inputs of each case that are the same on all ranks, as bits."""
    lines = []
    for number, case in enumerate(chosen(), start=1):
        problem = case.problem()
        places = enumerate(problem.op.signature.inputs, start=1)
        bits = sum(1 << i for i, name in places if not problem.rows(name).startswith("num_"))
        lines += [f"case ({number})", f"  bits = {bits}"]
    return "\n".join(lines) + "\n"


def literal(value):
    if isinstance(value, bool):
        return f".{value}.".lower()
    if isinstance(value, float):
        return f"{value}d0"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def matrix(array):
    """Return a NumPy array as Fortran has it in memory: rows, columns, values."""
    if array is None:
        return np.array([-1, -1]), None
    columns, width = len(array), int(np.prod(array.shape[1:], dtype=int))
    shape = [columns, 1] if array.ndim == 1 else [width, columns]
    return np.array(shape), array


def write(folder):
    """Write the arrays of this rank, and the results that are expected of it."""
    comm = Communicator()
    given, expected = (Path(folder) / f"{name}-{comm.rank}" for name in ("given", "expected"))
    with given.open("wb") as given, expected.open("wb") as expected:
        for number, case in enumerate(chosen()):
            problem, shares = shared_problem(comm, case, number)
            part = shares.of_problem(problem)
            for dtype in KINDS.values():
                write_problem(
                    given, problem.graph, shares, part.map(lambda a, t=dtype: a.astype(t))
                )
                write_results(expected, part.map(lambda a, t=dtype: a.astype(t)))


def write_problem(file, whole, shares, part):
    """Write own edges and their reverses, ranges of nodes, inputs, their directions, and gy.

    Numbers are from 1.
    """
    entries, rank = shares.rows["num_entries"], part.graph.comm.rank
    ranges = part.graph._destinations.ranges, part.graph._sources.ranges
    owned = [(r[rank] + 1, r[rank + 1]) for r in ranges]
    ends = np.stack([whole.src[entries], whole.dst[entries]]).astype(np.int64) + 1
    reverse = [part.options[name] + 1 for name in part.op.signature.indexed if name in part.options]
    bipartite = part.graph._sources is not part.graph._destinations
    sizes = len(part.inputs), len(entries), len(reverse), bipartite
    file.write(np.array([*sizes, *owned[0], *owned[1]]).tobytes())
    file.write(ends.tobytes())
    file.write(b"".join(np.asarray(numbers, np.int64).tobytes() for numbers in reverse))
    for array in (*part.inputs, *part.cotangents, part.arrays["gy"]):
        shape, values = matrix(array)
        file.write(shape.tobytes())
        if values is not None:
            file.write(np.ascontiguousarray(values).tobytes())


def write_results(file, part):
    for phase in cases.PHASES:
        for array in part.run(phase):
            if array is not None:
                file.write(np.ascontiguousarray(array).tobytes())


def results(given):
    """Yield the case, name, dtype and bytes of each result, by the arrays that a rank was given."""
    for case in chosen():
        for dtype in KINDS.values():
            header = np.frombuffer(given.read(64), np.int64)
            given.read(8 * int(header[1]) * (2 + int(header[2])))
            lengths = []
            for _ in range(2 * int(header[0]) + 1):
                shape = np.frombuffer(given.read(16), np.int64)
                lengths.append(
                    int(shape.prod()) * np.dtype(dtype).itemsize if min(shape) >= 0 else -1
                )
                given.read(max(0, lengths[-1]))
            names = [*cases.OPERATORS[case.op].signature.inputs]
            inputs = [(n, b) for n, b in zip(names, lengths, strict=False) if b >= 0]
            found = [("y", lengths[-1]), *(("g" + n, b) for n, b in inputs)]
            found += [
                *(("d" + n, b) for n, b in inputs),
                ("dgy", lengths[-1]),
                ("jvp", lengths[-1]),
            ]
            yield from ((case, what, dtype, length) for what, length in found)


if __name__ == "__main__":
    write(sys.argv[1])
