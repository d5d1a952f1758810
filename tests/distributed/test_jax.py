"""Programs of `pyops.jax` over several devices, of one process and of several."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from .. import ROOT

pytest.importorskip("jax")
pytestmark = pytest.mark.bare
SECONDS = 240
"""Longest time of a program, on a busy machine."""
SHARES = 24
"""Programs that divide all cases."""


def start(program, *arguments):
    return run("-m", f"tests.distributed.programs.{program}", *arguments)


def run(*arguments):
    values = {
        "OMP_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path])),
    }
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **values},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def passes(*started):
    """Wait for programs that run together; if one fails, the others end too."""
    try:
        outputs = [program.communicate(timeout=SECONDS)[0] for program in started]
    except subprocess.TimeoutExpired:
        for program in started:  # each shows where it is
            program.send_signal(signal.SIGABRT)
        pytest.fail("\n".join(program.communicate()[0] for program in started))
    finally:
        for program in started:
            program.kill()
    codes = [program.returncode for program in started]
    assert not any(codes), "\n".join(map(str, (codes, *outputs)))


PROGRAMS = [
    "1 needed_by_all inside",
    "2 operators",
    "2 transformations inside programs refusals",
    "3 graphs needed_by_all",
    "3 attention ranges rows",
    "4 axes",
]
"""Number of devices, and functions of the program."""
OVER_POINTS = [
    "1 inside reductions",
    "2 conditions eager refusals",
    "3 transforms reductions",
    "3 single inside",
    "4 transformations",
]


@pytest.mark.parametrize("arguments", PROGRAMS)
def test_devices(arguments):
    passes(start("sharded", *arguments.split()))


@pytest.mark.parametrize("arguments", OVER_POINTS)
def test_points(arguments):
    """Operators over points and reductions of rows."""
    passes(start("sharded_points", *arguments.split()))


def test_end():
    passes(*(start("sharded_points", 2, "unfinished") for _ in range(2)))


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_everything(share):
    passes(start("sharded", 3, f"everything:{share}:{SHARES}"))


def test_processes():
    """Two processes, with two devices each."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    passes(*(start("processes", rank, 2, port, 2) for rank in range(2)))


def test_example():
    """Two devices train the network of one, and agree on a product with the Hessian."""
    code = (
        "import sys; sys.path.insert(0, 'examples'); import ranks_jax\n"
        "losses, differences = ranks_jax.main(['--nodes=300', '--steps=8'])\n"
        "assert losses[-1] < 0.8 * losses[0], losses\n"
        "assert max(differences.values()) < 1e-12, differences"
    )
    passes(run("-c", code))
