"""Programs of `pyops.jax` over several devices, of one process and of several."""

import os
import socket
import subprocess
import sys

import pytest

from .. import ROOT

pytest.importorskip("jax")
pytestmark = pytest.mark.bare
SECONDS = 240
"""Longest time of a program, on a busy machine."""


def start(program, *arguments):
    return run("-m", f"tests.distributed.programs.{program}", *arguments)


def run(*arguments):
    values = {
        "OMP_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
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
    finally:
        for program in started:
            program.kill()
    codes = [program.returncode for program in started]
    assert not any(codes), "\n".join(map(str, (codes, *outputs)))


PROGRAMS = {
    "operators": 2,
    "graphs": 3,
    "needed_by_all": 3,
    "transformations": 2,
    "inside": 2,
    "attention": 3,
    "axes": 4,
    "rows": 3,
    "ranges": 3,
    "programs": 2,
    "refusals": 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_devices(name):
    passes(start("sharded", name, PROGRAMS[name]))


def test_one_device():
    passes(start("sharded", "needed_by_all", 1))


@pytest.mark.parametrize("devices", [1, 2])
def test_processes(devices):
    """Two processes, with one or two devices each."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    passes(*(start("processes", rank, 2, port, devices) for rank in range(2)))


def test_example():
    """Two devices train the network of one, and agree on a product with the Hessian."""
    code = (
        "import sys; sys.path.insert(0, 'examples'); import ranks_jax\n"
        "losses, differences = ranks_jax.main(['--nodes=300', '--steps=8'])\n"
        "assert losses[-1] < 0.8 * losses[0], losses\n"
        "assert max(differences.values()) < 1e-12, differences"
    )
    passes(run("-c", code))
