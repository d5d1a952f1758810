"""Operators on graphs that are distributed over the ranks of MPI; see docs/guide/distributed.md."""

from .._call.backends import register as _register
from ._communicator import Communicator as Communicator
from ._graph import DistributedGraph as DistributedGraph
from ._mpi import end_by_exceptions as _end_by_exceptions
from ._partition import partition as partition

__all__ = ["Communicator", "DistributedGraph", "partition"]

_register(
    "pyops.distributed._dispatch",
    lambda argument: isinstance(argument, (DistributedGraph, Communicator)),
)

_end_by_exceptions()
