"""Communicators: the ranks that share a graph, and what they agree on before each call.

Most of the module is one class, `Communicator`, and its documentation.
"""

from __future__ import annotations

import builtins
import itertools
import os
import socket
import zlib
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from .._call.arrays import kind_of
from .._call.half import is_half
from .._call.indices import check_bounds, check_indices
from .._call.threads import get_num_threads, limits, set_num_threads
from ._half_rows import added, copied
from ._halo import Transfer, flat, joined
from ._mpi import Engine, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._call.indices import Indices
    from ._check import DistributedCheck
    from ._graph import DistributedGraph
    from ._mpi import Values

Found = TypeVar("Found")
Range = tuple[int, int]
by_name: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""Objects that compiled programs refer to by name: communicators, distributed graphs and maps."""
_names = itertools.count()


class Communicator:
    """The ranks of an MPI communicator or of a process group of PyTorch.

    Graphs, points and rows of arrays are distributed over them.

    All methods are collective: each rank calls them in the same order. An error in the arguments
    of one rank is raised on all of them, with its rank. If the program of a rank ends by an
    exception, or ends while others wait for it, all ranks of MPI end, and those of a process group
    raise an error.

    Operators over points and reductions take it in front of their arrays, where others take the
    graph: ``pyops.orthonormalize(comm, basis)``, ``pyops.mean(comm, x, axis=0)``. Points, or rows,
    are numbered through all ranks; each rank passes its own, and gets results for these. Arrays
    without points, or without rows, are the same on all ranks, cotangents included.

    Unless OMP_NUM_THREADS or `pyops.set_num_threads` has set the number of threads, the ranks of a
    machine that may run on the same processors share these.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or torch.distributed.ProcessGroup, optional
        Communicator or process group, which is duplicated; by default all ranks of MPI,
        ``MPI.COMM_WORLD``. A process group has gloo for tensors on the CPU.

    Raises
    ------
    ImportError
        If mpi4py or an MPI library is missing.
    RuntimeError
        If the launcher belongs to another MPI, or is torchrun and there is no process group, so
        that each rank is alone.
    TypeError
        If `comm` is no communicator of mpi4py and no process group.
    ValueError
        If a process group has no gloo.

    Examples
    --------
    With one rank; each of several gives the nodes that it owns, and its rows.

    >>> from mpi4py import MPI
    >>> import pyops.distributed
    >>> comm = pyops.distributed.Communicator(MPI.COMM_WORLD)
    >>> graph = comm.graph([0, 1, 2], [1, 2, 0], owned=(0, 3))
    >>> y = pyops.aggregate(graph, np.eye(3))
    >>> pyops.max(comm, y, axis=0)
    array([1., 1., 1.])
    """

    def __init__(self, comm: object = None) -> None:
        self._engine = _engine(comm)
        self._graphs, self._closed = 0, False
        self._share_processors()
        self._torch: Any = None
        """State of `pyops.torch` for its calls."""
        self._inside = False
        """Whether a module runs whose parameters are replicated for the rank."""
        self._name = named(self)

    def __repr__(self) -> str:
        return f"Communicator(rank={self.rank}, size={self.size})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("Communicator: cannot be pickled, as it belongs to running ranks")

    def __copy__(self) -> Communicator:
        return self

    def __deepcopy__(self, _: object) -> Communicator:
        """Return the communicator itself, which copies of a module share."""
        return self

    @property
    def rank(self) -> int:
        """Number of this rank, from 0."""
        return self._engine.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._engine.size

    def close(self) -> None:
        """Free the duplicate of the communicator; graphs made with it cannot be used after."""
        self._agree("Communicator.close", ())
        self._closed = True
        self._engine.close()

    def graph(
        self,
        src: npt.ArrayLike,
        dst: npt.ArrayLike,
        *,
        owned: Range,
        owned_src: Range | None = None,
        part: npt.ArrayLike | None = None,
        part_src: npt.ArrayLike | None = None,
        reproducible: int | None = None,
    ) -> DistributedGraph:
        """Build a distributed graph from the edges that each rank has.

        Nodes have global numbers from 0. A rank owns a range of them, and the edges into them. No
        rank sees more than its own edges and one row for each other source of these (ghost).

        Parameters
        ----------
        src, dst : array_like of int32 or int64, shape (entries of this rank,)
            Global numbers of source and destination of each entry. Without `part`, the
            destinations belong to this rank.
        owned : (int, int)
            First node of this rank, and the first of the next rank: ranges follow each other in
            the order of ranks, and may be empty.
        owned_src : (int, int), optional
            The same for source nodes, if these are not the same nodes as the destinations.
        part : array_like of int, shape (owned[1] - owned[0],), optional
            Rank that is to own each of these nodes, such as from `partition`. Nodes are renumbered
            by it, and edges, which may then be those of any destination, are sent to its owner.
        part_src : array_like of int, shape (owned_src[1] - owned_src[0],), optional
            The same for source nodes.
        reproducible : int, optional
            Number of parts, for results with the same bits on any number of ranks and threads: a
            rank has several parts, runs them one after another, and what they add to the same row
            is added in the order of parts. `part` is then the part of each node, by default as many
            nodes in each in their order; a rank gets parts that follow each other. The edges into a
            node are to be given in the same order, through all ranks.

        Returns
        -------
        DistributedGraph

        Raises
        ------
        TypeError, ValueError, IndexError, OverflowError
            As for `pyops.Graph`, and if the ranges do not follow each other, a destination belongs
            to another rank, or a part is no rank.
        """
        from ._build import build

        return build(self, src, dst, owned, owned_src, part, part_src, reproducible)

    def radius_graph(
        self,
        positions: Values,
        cutoff: float,
        *,
        cell: Values | None = None,
        pbc: npt.ArrayLike | None = None,
        batch: npt.ArrayLike | None = None,
    ) -> tuple[DistributedGraph, Values, Values, Indices]:
        """Build the distributed graph of all points closer to each other than a cutoff.

        Points are numbered through all ranks, in their order. A rank gets the positions of the
        points of others around its own; edges, their order and all values are those of
        `pyops.radius_graph` for the points of all ranks. Few ranks should share a region, so order
        the points in space, such as by `partition` of a first graph.

        Parameters
        ----------
        positions : array, shape (points of this rank, dim)
        cutoff, cell, pbc
            As for `pyops.radius_graph`, the same on all ranks.
        batch : array_like of int32 or int64, shape (points of this rank,), optional
            The graph that each point belongs to; graphs may have points on several ranks.

        Returns
        -------
        graph : DistributedGraph
        vectors, offsets : array, shape (num_edges, dim)
        reverse : array of int64, shape (num_edges,)
            Number of the reverse of each own edge, through all ranks, for
            ``dimenet_aggregate(exclude="image")``.

        Raises
        ------
        TypeError, ValueError
            As for `pyops.radius_graph`.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import pyops.distributed
        >>> comm, positions = pyops.distributed.Communicator(MPI.COMM_WORLD), np.eye(3)
        >>> graph, vectors, offsets, reverse = comm.radius_graph(positions, 2.0)
        >>> len(vectors)
        6
        """
        from ._neighbours import distributed_radius_graph

        return distributed_radius_graph(self, positions, cutoff, cell, pbc, batch)

    def knn_graph(
        self,
        positions: Values,
        nearest: int,
        *,
        cell: Values | None = None,
        pbc: npt.ArrayLike | None = None,
        batch: npt.ArrayLike | None = None,
    ) -> tuple[DistributedGraph, Values, Values]:
        """Build the distributed graph of edges from the nearest other points to each point.

        Points are numbered through all ranks, in their order; edges, their order and all values are
        those of `pyops.knn_graph` for the points of all ranks. A rank gets the positions of points
        of others that may be nearer than those of its own; see `radius_graph` for the order of
        points.

        Parameters
        ----------
        positions : array, shape (points of this rank, dim)
        nearest, cell, pbc
            As for `pyops.knn_graph`, the same on all ranks.
        batch : array_like of int32 or int64, shape (points of this rank,), optional
            The graph that each point belongs to; graphs may have points on several ranks.

        Returns
        -------
        graph : DistributedGraph
        vectors, offsets : array, shape (num_edges, dim)

        Raises
        ------
        TypeError, ValueError
            As for `pyops.knn_graph`.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import pyops.distributed
        >>> comm = pyops.distributed.Communicator(MPI.COMM_WORLD)
        >>> graph, vectors, offsets = comm.knn_graph(np.array([[0.0], [1.0], [3.0]]), 1)
        >>> vectors
        array([[ 1.],
               [-1.],
               [-2.]])
        """
        from ._nearest import distributed_knn_graph

        return distributed_knn_graph(self, positions, nearest, cell, pbc, batch)

    def sum(self, value: Any) -> Any:
        """Return the sum of a number, or of arrays of equal shapes, over all ranks.

        Parameters
        ----------
        value : float, int, array or tensor of them
            The same type, dtype and shape on all ranks.

        Returns
        -------
        float, int, array or tensor
            The same on all ranks. Of a tensor it is differentiable: as derivatives are those of the
            sum of the values of all ranks, the gradient is the sum of the cotangents.

        Raises
        ------
        TypeError, ValueError
            If the value is no number or array of numbers, or differs in type between ranks.
        OverflowError
            If the sum of integers exceeds their type.
        """
        if is_tensor(value):
            from ..torch._ranks import summed

            return summed(self, value)

        def check() -> Values:
            array = np.asarray(value)
            whole = array.dtype.kind in "fiu" and array.dtype.itemsize in (4, 8)
            if not whole and not is_half(array):
                raise TypeError(
                    "Communicator.sum: value: expected integers of 32 or 64 bits or real numbers, "
                    f"got {kind_of(value) if array.ndim == 0 else array.dtype}"
                )
            return np.asarray(array, array.dtype.newbyteorder("="))

        array = self._together("Communicator.sum", check, lambda a: (a.dtype.str, a.shape))
        (total,) = added(lambda some: [self._engine.sum(some[0])], [array])
        if array.dtype.kind in "iu":
            rounded = self._engine.sum(array.astype(np.float64))
            if np.any(abs(rounded - total) > 2.0 ** (8 * array.dtype.itemsize - 1)):
                raise OverflowError(
                    f"Communicator.sum: value: expected a sum that {array.dtype} can hold, "
                    f"got one of about {rounded.flat[abs(rounded).argmax()]:.3g}"
                )
        if isinstance(value, np.ndarray):
            return total
        return type(value)(total) if isinstance(value, (int, float)) else total[()]

    def replicated(self, value: Any) -> Any:
        """Return a value that is the same on all ranks, for functions of the rank's own rows.

        The gradient with respect to it is the sum over ranks. Operators do this to the inputs whose
        rows are no nodes or edges.

        Parameters
        ----------
        value : array or tensor
            Such as a parameter.

        Returns
        -------
        array or tensor
            The argument if it is no tensor, else a differentiable copy.
        """
        if not is_tensor(value):
            return value
        from ..torch._ranks import replicated

        return replicated(self, (value,))[0]

    def take(self, rows: Any, numbers: npt.ArrayLike) -> Any:
        """Return the rows with these numbers of an array whose rows are distributed over the ranks.

        Parameters
        ----------
        rows : array_like or tensor of numbers, shape (rows of this rank, ...)
            Rows are numbered through all ranks, in their order.
        numbers : array_like of int32 or int64, shape (n,)
            Numbers of the rows to return, in any order, such as `DistributedGraph.nodes`.

        Returns
        -------
        array or tensor, shape (n, ...)
            Of a tensor it is differentiable.
        """
        if is_tensor(rows):
            from ..torch._ranks import taken

            return taken(self, rows, numbers)

        def check() -> tuple[Values, Values]:
            array = check_rows("Communicator.take: rows", rows)
            return array, check_indices("Communicator.take: numbers", numbers).astype(np.int64)

        caller = "Communicator.take"
        array, wanted = self._together(caller, check, lambda f: (f[0].dtype.str, f[0].shape[1:]))
        transfer, where = self._transfer(caller, len(array), wanted)
        (found,) = copied(lambda some: [transfer.fetch(some[0])], [flat(array)])
        return found[where].reshape(len(wanted), *array.shape[1:])

    def _transfer(self, caller: str, length: int, wanted: Values) -> tuple[Transfer, Values]:
        """Return the messages for rows with these numbers, and the place of each in what comes."""
        ranges = joined(self._engine.gather(np.array([length]))[:, 0])
        most = int(ranges[-1])
        self._together(
            caller, lambda: check_bounds(f"{caller}: numbers", wanted, most, "number of rows")
        )
        unique, where = np.unique(wanted, return_inverse=True)
        return Transfer(self._engine, ranges, unique), where

    def _check(self, *arguments: Any) -> DistributedCheck:
        """Return the check of `pyops.testing.check_gradients` for an operator over points."""
        from ._check import DistributedCheck

        return DistributedCheck(*arguments)

    def _numbered(self) -> int:
        """Return the number of a new graph, which is made on all ranks."""
        self._graphs += 1
        return self._graphs

    def _together(
        self,
        caller: str,
        function: Callable[[], Found],
        what: Callable[[Found], tuple[object, ...]] = lambda _: (),
    ) -> Found:
        """Return the result of a function; an exception on one rank is raised on all of them.

        `what` returns the properties of the result that must be equal on all ranks.
        """
        equal: tuple[object, ...] = ()
        failure = None
        try:
            found = function()
            equal = what(found)
        except Exception as error:
            failure = error
        self._agree(caller, equal, failure)
        return found

    def _agree(
        self,
        caller: str,
        what: tuple[object, ...],
        failure: Exception | None = None,
        number: int | None = None,
    ) -> None:
        """Raise on all ranks unless all make the same call and none has failed.

        `what` are the properties of the arguments that must be equal on all ranks, `number` that of
        the call, which is equal on the ranks that know it.
        """
        if self._closed:
            raise RuntimeError(f"{caller}: expected an open communicator, got one that was closed")
        if self.size == 1:
            if failure is not None:
                raise failure
            return
        checksum = zlib.crc32(repr((caller, what)).encode()) if failure is None else 0
        numbers = (-1, -(2**62)) if number is None else (number, -number)
        values = np.array([failure is not None, checksum, -checksum, *numbers], np.int64)
        failed, most, least, last, first = self._engine.agree(values).tolist()
        if failed:
            kind, text = ("", "") if failure is None else (_builtin(failure), str(failure))
            texts = self._engine.texts((kind, text))
            rank = next(r for r, (name, _) in enumerate(texts) if name)
            kind, text = texts[rank]
            try:
                error = getattr(builtins, kind)(f"rank {rank}: {text}")
            except TypeError:  # it takes other arguments
                error = RuntimeError(f"rank {rank}: {kind}: {text}")
            raise error from failure
        if most != -least or last not in (-1, -first):
            call = "" if number is None else f"(call {number})"
            texts = self._engine.texts((caller, repr(what), call))
            rank = next(r for r, found in enumerate(texts) if found != texts[0])
            expected, other = (" ".join(filter(None, texts[r])) for r in (0, rank))
            name = texts[rank][0] or "pyops.distributed"
            raise ValueError(
                f"rank {rank}: {name}: expected the call of rank 0, {expected}, got {other}"
            )

    def _share_processors(self) -> None:
        """Divide the processors by the ranks that run on them, unless threads have been set."""
        own = sum(1 << processor for processor in os.sched_getaffinity(0))
        machine = socket.gethostname()
        others = self._engine.texts((machine, hex(own)))
        sharing = sum(host == machine and bool(own & int(mask, 16)) for host, mask in others)
        if sharing > 1 and not limits[0] and "OMP_NUM_THREADS" not in os.environ:
            set_num_threads(max(1, get_num_threads() // sharing))


def _engine(comm: object) -> Engine:
    """Return the engine of a communicator of mpi4py or of a process group of PyTorch."""
    kinds = type(comm).__mro__
    if any(kind.__module__.partition(".")[0] == "torch" for kind in kinds):
        from ._process_group import ProcessGroupEngine

        return ProcessGroupEngine(comm)
    ranks = os.environ.get("WORLD_SIZE", "1")
    if comm is None and "TORCHELASTIC_RUN_ID" in os.environ and ranks != "1":
        raise RuntimeError(
            f"Communicator: comm: expected a process group of the {ranks} ranks that torchrun has "
            "started, got None: call torch.distributed.init_process_group('gloo') and pass "
            "torch.distributed.group.WORLD"
        )
    mpi = load()
    comm = mpi.COMM_WORLD if comm is None else comm
    if not isinstance(comm, mpi.Intracomm) or comm == mpi.COMM_NULL:
        raise TypeError(
            "Communicator: comm: expected mpi4py.MPI.Intracomm or a process group of "
            f"torch.distributed, got {kind_of(comm)}"
        )
    return Engine(comm, mpi)


def named(thing: object) -> str:
    """Return a new name, by which `by_name` finds the argument while it lives."""
    name = f"ranks{next(_names)}"
    by_name[name] = thing
    return name


def is_tensor(value: object) -> bool:
    """Return whether a value is a tensor of PyTorch, which is not imported for it."""
    return hasattr(value, "grad_fn")


def _builtin(failure: Exception) -> str:
    """Return the name of the built-in class of an exception."""
    names = (c.__name__ for c in type(failure).__mro__ if c.__module__ == "builtins")
    return next(names)


def check_rows(label: str, rows: object) -> Values:
    """Return the argument as an array of numbers with at least one axis."""
    array = np.asarray(rows)
    known = array.dtype.kind in "iu" or array.dtype.char in "fd" or is_half(array)
    if not known or array.ndim == 0:
        found = array.dtype if array.ndim else kind_of(rows)
        raise TypeError(f"{label}: expected an array of integers or real numbers, got {found}")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))
