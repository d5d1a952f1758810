"""`pyops.torch` on the ranks of a process group of PyTorch."""

import contextlib
import os
import socket
import subprocess
import sys

import pytest

from pyops.distributed import Communicator

from .. import ROOT

torch = pytest.importorskip("torch")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this PyTorch has no gloo", allow_module_level=True)
pytestmark = pytest.mark.bare
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path])),
    "PYTHONWARNINGS": "ignore",
}
SECONDS = 240
"""Longest time of a program, on a busy machine."""


@contextlib.contextmanager
def started(ranks, *program, **environment):
    """Start a process for each rank; end those that are left."""
    processes = [
        subprocess.Popen(
            [sys.executable, *program],
            cwd=ROOT,
            env=os.environ
            | ENVIRONMENT
            | {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
            | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def program(folder, *functions):
    return "-m", "tests.distributed.programs.tensors", str(folder / "store"), *functions


@pytest.mark.parametrize(
    ("ranks", "functions"),
    [
        (2, "maps arrays checks balanced halves"),
        (2, "transformations jacobians graphs"),
        (2, "layers ensembles compiled compositions"),
        pytest.param(2, "inductor", marks=pytest.mark.slow),
        (2, "over_points over_rows inside"),
        (2, "in_parts"),
        (3, "few"),
        (3, "operators refusals"),
        pytest.param(3, "maps layers over_points over_rows", marks=pytest.mark.slow),
    ],
)
def test_ranks(tmp_path, ranks, functions):
    """The functions of the program, which describe what they check."""
    with started(ranks, *program(tmp_path, *functions.split())) as processes:
        texts = [process.communicate(timeout=SECONDS)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * ranks, "\n".join(texts)


@pytest.fixture(scope="module")
def digests():
    """Digests of NumPy's phases on a graph in parts, on one rank of one thread."""
    code = "from tests.distributed.programs.parts import digests; digests()"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


SLOW = [pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((3, 1), (3, 2))]


@pytest.mark.parametrize(("ranks", "threads"), [(1, 2), (2, 1), *SLOW])
def test_same_bits(tmp_path, digests, ranks, threads):
    """Tensors on a graph in parts have the bits of NumPy, for any number of ranks and threads."""
    pytest.importorskip("mpi4py")
    digesting = program(tmp_path, "digests")
    with started(ranks, *digesting, OMP_NUM_THREADS=str(threads)) as processes:
        texts = [process.communicate(timeout=SECONDS)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(texts)
    assert len(digests.splitlines()) > 1000
    assert texts[0].splitlines() == digests.splitlines()


def test_layers_in_parts(tmp_path):
    """Layers and modules on a graph in parts, in the same bits on any number of ranks."""
    found = []
    for ranks in 1, 3:
        folder = tmp_path / str(ranks)
        folder.mkdir()
        with started(ranks, *program(folder, "layers_in_parts")) as processes:
            texts = [process.communicate(timeout=SECONDS)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * ranks, "\n".join(texts)
        found.append(texts[0].splitlines())
    assert len(found[0]) > 200
    assert found[1] == found[0]


FAILURES = {"exit": "has ended", "kill": "has ended", "sleep": "Timed out"}


@pytest.mark.parametrize("how", FAILURES)
def test_failures(tmp_path, how):
    """If one rank ends, or does not call, the others raise an error."""
    seconds = "15" if how == "sleep" else "60"
    with started(2, *program(tmp_path, "ends"), HOW=how, SECONDS=seconds) as both:
        text, _ = both[0].communicate(timeout=SECONDS)
        assert both[0].returncode == 1
        assert "not reached" not in text
        assert "pyops.distributed: expected messages of the other ranks: one of them has" in text
        assert FAILURES[how] in text


def test_example():
    """The example prints the same losses on one and two ranks, which fall."""
    printed = []
    for ranks in 1, 2:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        with started(ranks, "examples/ranks_torch.py", **address) as processes:
            texts = [process.communicate(timeout=SECONDS)[0] for process in processes]
            assert [process.returncode for process in processes] == [0] * ranks, "\n".join(texts)
        printed.append(texts)
    (alone,), (first, second) = printed
    losses = [float(line.split()[-1]) for line in alone.splitlines()]
    assert len(losses) == 3
    assert losses[-1] < losses[0] / 3
    assert (first, second) == (alone, "")


def test_import():
    """Neither pyops.torch nor pyops.distributed imports mpi4py or the compiler of torch."""
    code = "import sys, pyops.torch.nn, pyops.distributed; "
    code += "assert not {'mpi4py', 'torch._dynamo'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | ENVIRONMENT)


def test_without_process_group(monkeypatch):
    """Ranks of torchrun that would each be alone are refused."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="expected a process group of the 2 ranks"):
        Communicator(torch.distributed.group.WORLD)


COSTS = {"equal": [1] * 103, "several": [i * i % 97 for i in range(103)], "few": [5, 1], "none": []}


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("drop_last", [False, True])
def test_sampler(costs, ranks, drop_last):
    """All ranks have steps of as many graphs, each graph in one of them, of nearly equal cost."""
    from pyops.torch import BalancedBatchSampler

    costs = COSTS[costs]
    samplers = [
        BalancedBatchSampler(costs, 8, num_replicas=ranks, rank=rank, drop_last=drop_last)
        for rank in range(ranks)
    ]
    whole = 8 * ranks
    orders = []
    for epoch in range(2):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        batches = [list(sampler) for sampler in samplers]
        assert {len(b) for b in batches} == {len(samplers[0])}
        steps = [[i for batch in step for i in batch] for step in zip(*batches, strict=True)]
        seen = [i for step in steps for i in step]
        assert len(set(seen)) == (len(costs) // whole * whole if drop_last else len(costs))
        assert len(seen) - len(set(seen)) < ranks
        assert {len({len(batch) for batch in step}) for step in zip(*batches, strict=True)} <= {1}
        for step in zip(*batches, strict=True):
            sums = [sum(costs[i] for i in batch) for batch in step]
            assert max(sums) - min(sums) <= max(costs)
        orders.append(seen)
    if len(costs) > whole:
        assert orders[0] != orders[1]


def test_sampler_beats_order():
    """Dealt by cost, the slowest rank of a step has less to do than dealt in order."""
    from pyops.torch import BalancedBatchSampler

    costs = torch.randint(1, 1000, (640,), generator=torch.Generator().manual_seed(0)).tolist()

    def slowest(batches):
        return sum(
            max(sum(costs[i] for i in b) for b in step) for step in zip(*batches, strict=True)
        )

    samplers = [BalancedBatchSampler(costs, 8, num_replicas=4, rank=r) for r in range(4)]
    plain = [
        torch.utils.data.DistributedSampler(range(640), num_replicas=4, rank=r) for r in range(4)
    ]
    by_order = [list(torch.utils.data.BatchSampler(s, 8, False)) for s in plain]
    least = sum(costs) / 4
    assert slowest(list(map(list, samplers))) < 1.01 * least
    assert slowest(by_order) > 1.1 * least


SAMPLER_REFUSALS = {
    "costs: expected one number for each graph, got int64 of shape (1, 1)": {"costs": [[1]]},
    "costs: expected finite numbers from 0 on, got -1.0 at 1": {"costs": [0.0, -1.0]},
    "batch_size: expected": {"batch_size": 0},
    "rank: expected a number from 0 to 2-1, got 2": {"num_replicas": 2, "rank": 2},
    "shuffle: expected True or False, got 1": {"shuffle": 1},
    "seed: expected": {"seed": -1},
}


@pytest.mark.parametrize("text", SAMPLER_REFUSALS)
def test_sampler_refusals(text):
    from pyops.torch import BalancedBatchSampler

    given = {"costs": [1], "batch_size": 1} | SAMPLER_REFUSALS[text]
    with pytest.raises((TypeError, ValueError)) as caught:
        BalancedBatchSampler(**given)
    assert f"BalancedBatchSampler: {text}" in str(caught.value)
