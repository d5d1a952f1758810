"""Parent process: starts the workers, checks their results, and times them in turn."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.peers import FORMULAS, FRONT_ENDS, PEERS
from benchmarks.problem import operator_module
from benchmarks.row import Row, check

SLOW = 3.0
TOGETHER = 2
"""First calls at a time: compiling, which most of them do, takes longer than all that is timed."""
REST, AT_REST = 0.005, 0.02  # seconds, and the largest load of threads at rest


class WorkerError(Exception):
    """Error of a request to a worker."""


class Worker:
    """Process of one peer: `worker("command", ...)` runs the command or raises WorkerError."""

    def __init__(self, peer: str, threads: int):
        self.peer, self.threads = peer, threads
        settings = dict.fromkeys(
            ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)
        )
        settings["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={str(threads > 1).lower()}"
        settings["MALLOC_ARENA_MAX"] = "1"  # a single arena, which malloc_trim empties
        settings["JAX_PLATFORMS"] = "cpu"
        settings["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the worker)
        self.connection, child = Pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", peer, str(threads), str(child.fileno())],
            env=os.environ | settings,
            pass_fds=[child.fileno()],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        child.close()

    def __call__(self, *request):
        try:
            self.connection.send(request)
            done, answer = self.connection.recv()
        except (EOFError, OSError):
            code = self.process.wait()
            self.log.seek(0)
            last = self.log.read().strip().splitlines()[-1:]
            end = "killed, out of memory?" if code == -signal.SIGKILL else f"status {code}"
            raise WorkerError(" ".join([f"process ended: {end}", *last])) from None
        if not done:
            raise WorkerError(answer)
        return answer

    def __str__(self) -> str:
        return f"{self.peer}, {self.threads} thread{'s' * (self.threads > 1)}"

    def run_time(self) -> int:
        """Return the nanoseconds that the worker's threads have run."""
        times = 0
        for thread in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            with suppress(OSError):  # a thread that has just ended
                times += int(thread.read_text().split()[0])
        return times

    def close(self) -> None:
        self.connection.close()
        self.process.wait()
        self.log.close()


def revive(workers: dict[tuple[str, int], Worker]) -> None:
    """Start again the workers whose processes have ended."""
    for key, worker in workers.items():
        if worker.process.poll() is not None:
            workers[key] = Worker(*key)


def takes_part(peer: str, case: Case) -> bool:
    chosen = case.peers or (*PEERS, *FRONT_ENDS)
    return peer in chosen and hasattr(operator_module(case), FORMULAS[peer])


def measure(
    case: Case, workers: list[Worker], rounds: int, note: Callable[[str], None]
) -> list[Row]:
    """Measure all phases of one case; failures are recorded in their rows."""
    rows, loaded = [], []
    for worker in workers:
        note(f"{worker}: inputs")
        try:
            worker("load", case)
            loaded.append(worker)
        except WorkerError as failure:
            broken = partial(Row, threads=worker.threads, peer=worker.peer, failure=str(failure))
            rows += [broken(case, phase) for phase in case.phases]
    for phase in case.phases:
        rows += measure_phase(case, phase, loaded, rounds, note)
    for worker in loaded:
        if worker.process.poll() is None:
            worker("drop")
    return rows


def settle(workers: list[Worker]) -> None:
    """Wait, at most two seconds, until no worker runs: some threads spin after a call."""
    for _ in range(round(2 / REST)):
        before = sum(worker.run_time() for worker in workers)
        time.sleep(REST)
        if sum(worker.run_time() for worker in workers) - before < 1e9 * REST * AT_REST:
            return


def measure_phase(case, phase, workers, rounds, note):
    rows = [Row(case, phase, worker.threads, worker.peer) for worker in workers]
    note(f"{phase}, first calls")
    answers = {}

    def first(worker, row):
        try:
            row.extra_bytes, answers[row.place] = worker("first", phase)
        except WorkerError as failure:
            row.failure = str(failure)

    with ThreadPoolExecutor(TOGETHER) as together:
        list(together.map(first, workers, rows))
    check(answers, rows)
    turns = [(w, row) for w, row in zip(workers, rows, strict=True) if not row.failure]
    done = 0
    while done < rounds:
        note(f"{phase}, round {done + 1}")
        for worker, row in random.sample(turns, len(turns)):
            settle(workers)
            try:
                row.seconds.append(worker("seconds", phase))
            except WorkerError as failure:
                row.failure, row.seconds = str(failure), []
        turns = [(worker, row) for worker, row in turns if not row.failure]
        done += 1
        if any(row.seconds[-1] > SLOW for _, row in turns):
            rounds = min(rounds, 3)
    return rows
