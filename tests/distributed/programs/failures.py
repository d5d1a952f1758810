"""Rank 1 of three ends in several ways while the others wait for it."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pyops
from pyops.distributed import Communicator

how, *mark = sys.argv[1:]


def touch():
    """Set the time of a file, if one is named, to that of the failure."""
    for path in mark:
        Path(path).touch()


def fail_in_call(*_):
    raise MemoryError("no memory is left")


if how == "early" and MPI.COMM_WORLD.rank == 1:
    touch()
    raise ValueError("rank 1 is out of luck")
comm = Communicator()
first = 10 * comm.rank
graph = comm.graph(first + np.arange(10), first + np.arange(10), owned=(first, first + 10))
x = np.ones((10, 3))
pyops.aggregate(graph, x)
if how == "none":
    sys.exit(0)
if comm.rank == 1:
    touch()
    if how == "raise":
        raise ValueError("rank 1 is out of luck")
    if how == "memory":
        pyops.aggregate._phases["forward"].run = fail_in_call
    if how == "exit":
        sys.exit(3)
    if how == "SystemExit":
        raise SystemExit("the end")
    if how == "leave":
        sys.exit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if how == "os._exit":
        os._exit(5)
    if how == "wrong":
        x = np.ones((10, 4))
if how == "wrong":
    pyops.aggregate(graph, x)
y = pyops.aggregate(graph, x)
pyops.aggregate.backward(graph, x, None, None, None, y)
comm.sum(1.0)
time.sleep(0.1)
print("not reached")
