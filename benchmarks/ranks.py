"""Measures operators over ranks of MPI: halos, messages, time and memory of each rank.

Writes a tetrahedral mesh into files that ranks map into memory, and starts itself on several ranks.
Ends with an estimate of weak scaling from what was measured: seconds a row, seconds a message, and
bytes a second, for the largest halos of the table.

Each rank runs this file, so it is one program.

    python -m benchmarks.ranks       five minutes on two quiet cores
    python -m benchmarks.ranks --nodes 50000 --parts 2 16
"""

import argparse
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import pyops
from benchmarks.machine import describe
from benchmarks.options import positive

PHASES = "forward", "backward", "double_backward"
OPERATORS = {
    "gno_conv": (pyops.gno_conv, 16, {"hidden": 16, "activation": "gelu"}),
    "gat": (pyops.gat, 64, {"heads": 8}),
    "aggregate": (pyops.aggregate, 64, {"reduce": "sum"}),
}
"""Operator, columns of the features, options."""
SENT = {"forward": (1, 1), "backward": (2, 2), "double_backward": (2, 4)}
"""Exchanges of a phase, and the feature matrices in them."""
WEIGHTS = 16 * 4 + 17 * 16 * 16
NEIGHBOURS, RANKS = 20, 1024
REPEATS = 200


def write_mesh(folder, nodes):
    """Cubes of six tetrahedra each, 14 neighbours inside, nodes moved at random."""
    side = round(nodes ** (1 / 3))
    count = side**3
    number = np.arange(count).reshape(side, side, side)
    pairs = []
    for step in itertools.product((0, 1), repeat=3):
        if any(step):
            low = number[tuple(slice(0, side - s) for s in step)].ravel()
            high = number[tuple(slice(s, side) for s in step)].ravel()
            pairs += [np.stack([low, high]), np.stack([high, low])]
    src, dst = np.concatenate(pairs, 1)
    order = np.argsort(dst * count + src)
    rng = np.random.default_rng(0)
    points = np.stack(np.unravel_index(np.arange(count), number.shape), 1)
    points = points + 0.3 * rng.random((count, 3))
    offsets = np.searchsorted(dst[order], np.arange(count + 1))
    for name, array in {"points": points, "src": src[order], "offsets": offsets}.items():
        np.save(folder / f"{name}.npy", array)


def read(comm, folder):
    """Edges into the nodes that a rank reads, their range and points."""
    points, src, offsets = (
        np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("points", "src", "offsets")
    )
    first, last = (len(points) * rank // comm.size for rank in (comm.rank, comm.rank + 1))
    offsets = offsets[first : last + 1]
    dst = np.repeat(np.arange(first, last), np.diff(offsets))
    return np.array(src[offsets[0] : offsets[-1]]), dst, (first, last), points


def halos(comm, given):
    """Rows that the parts of METIS own, and those of others that they need."""
    from pyops.distributed import partition

    src, dst, owned, _ = read(comm, given.folder)
    nodes = owned[1]
    graph = comm.graph(src, dst, owned=owned)
    for parts in given.parts:
        start = time.perf_counter()
        part = partition(graph, parts)
        seconds = time.perf_counter() - start
        own = np.bincount(part, minlength=parts)
        cut = part[src] != part[dst]
        ghosts = np.unique(part[dst[cut]] * nodes + src[cut])
        each = np.bincount(ghosts // nodes, minlength=parts)
        near = np.unique(ghosts // nodes * parts + part[ghosts % nodes])
        neighbours = np.bincount(near // parts, minlength=parts)
        edges = np.bincount(part[dst], minlength=parts)
        yield {
            "parts": parts,
            "seconds": seconds,
            "rows": own.mean(),
            "ghosts": each.mean(),
            "most ghosts": each.max(),
            "neighbours": neighbours.mean(),
            "most neighbours": neighbours.max(),
            "most edges / mean": edges.max() / edges.mean(),
        }


def messages(comm, given):
    """Seconds of an exchange with many neighbours, played by one, and of its bare messages."""
    from mpi4py import MPI

    width, rows = 16, 64
    other, count = 1 - comm.rank, NEIGHBOURS * rows
    src = np.concatenate([np.arange(count), count + np.arange(count)])
    own = comm.rank * count, (comm.rank + 1) * count
    graph = comm.graph(src, np.resize(np.arange(*own), 2 * count), owned=own)
    x = np.ones((count, width), np.float32)
    transfer = graph._halo.transfer
    transfer.source = transfer.to = [(other, k * rows, (k + 1) * rows) for k in range(NEIGHBOURS)]
    incoming, outgoing = np.empty_like(x), x.copy()
    pieces = [slice(a, b) for _, a, b in transfer.to]

    def bare():
        MPI.Request.Waitall(
            [MPI.COMM_WORLD.Irecv(incoming[piece], other) for piece in pieces]
            + [MPI.COMM_WORLD.Isend(outgoing[piece], other) for piece in pieces]
        )

    large = np.ones(2**21, np.float32)
    echo = np.empty_like(large)

    def both_ways():
        MPI.COMM_WORLD.Sendrecv(large, other, recvbuf=echo, source=other)

    def one():
        MPI.COMM_WORLD.Sendrecv(outgoing[:1], other, recvbuf=incoming[:1], source=other)

    weights = np.ones(WEIGHTS, np.float32)
    found = {
        "bare messages": median(bare),
        "halo exchange": median(lambda: graph._halo.exchange([x])),
        "graph.exchange": median(lambda: graph.exchange(x)),
        "one message": median(one),
        "sum of weights": median(lambda: comm._engine.sum(weights)),
        "bytes a second": large.nbytes / median(both_ways, 20),
        "bytes of each message": rows * width * 4,
    }
    yield found


def median(function, repeats=REPEATS):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def operators(comm, given):
    """Seconds of the phases on all ranks, the shortest of some rounds, and memory of a rank."""
    from pyops.distributed import partition

    src, dst, owned, points = read(comm, given.folder)
    setup = {}
    if comm.size == 1:
        _, setup["Graph"] = timed(comm, pyops.Graph, src, dst, len(points))
    plain, setup["comm.graph"] = timed(comm, comm.graph, src, dst, owned=owned)
    cut = {"method": "coordinates", "coordinates": points[slice(*owned)]}
    part, setup["partition"] = timed(comm, partition, plain, **cut)
    graph, setup["comm.graph, moved"] = timed(comm, comm.graph, src, dst, owned=owned, part=part)
    del src, dst, plain, part, cut
    own = np.array(points[graph.nodes])
    coords = graph.exchange(own)[graph.local.src]
    coords -= own[graph.local.dst]
    coords = coords.astype(np.float32)
    del own
    for name, (op, width, options) in OPERATORS.items():
        forget_peak()
        rng = np.random.default_rng(comm.rank)
        x, gy, h = (rng.standard_normal((graph.num_src, width), np.float32) for _ in range(3))
        same = np.random.default_rng(0)
        weights, along = 0.1 * same.standard_normal((2, WEIGHTS), np.float32)
        inputs, cotangents = {
            "gno_conv": ([x, coords, weights], [h, None, along]),
            "gat": ([x, x, weights[:128], None, None], [h, h, along[:128], None, None]),
            "aggregate": ([x, None, None, None], [h, None, None, None]),
        }[name]
        seconds = {}
        for phase in PHASES:
            arrays = {"forward": [], "backward": [gy]}.get(phase, [gy, *cotangents])
            function = op if phase == "forward" else getattr(op, phase)
            for _ in range(given.rounds):
                begin = together(comm)
                function(graph, *inputs, *arrays, **options)
                seconds[phase] = min(seconds.get(phase, math.inf), together(comm) - begin)
        table = np.zeros((comm.size, 2))
        table[comm.rank] = peak(), graph.num_ghosts
        table = comm.sum(table)
        yield {
            "operator": name,
            "ranks": comm.size,
            "setup": setup,
            "seconds": seconds,
            "megabytes": table[:, 0].tolist(),
            "ghosts": table[:, 1].tolist(),
        }


def timed(comm, function, *arguments, **options):
    """Return what a function returns, and its seconds on all ranks, the shorter of two calls."""
    seconds = math.inf
    for _ in range(2):
        start = together(comm)
        found = function(*arguments, **options)
        seconds = min(seconds, together(comm) - start)
    return found, seconds


def together(comm):
    """Time when all ranks are here."""
    comm.sum(0.0)
    return time.perf_counter()


def forget_peak():
    Path("/proc/self/clear_refs").write_text("5")


def peak():
    """Largest resident memory in MB since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


TASKS = {"halos": halos, "messages": messages, "operators": operators}


def work(given):
    """Program of a rank: run a task, and let the first rank write what it found."""
    from pyops.distributed import Communicator

    comm = Communicator()
    found = [*TASKS[given.task](comm, given)]
    if comm.rank == 0:
        given.found.write_text(json.dumps(found, default=lambda value: value.item()))


def launch(task, ranks, given, **options):
    """Run a task on ranks of one thread, and return what it found."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = beside if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("there is no mpiexec: pip install mpich")
    print(f"{task} on {ranks} ranks", file=sys.stderr)
    target = given.folder / "found.json"
    command = [mpiexec, "-n", ranks, sys.executable, "-m", "benchmarks.ranks", "--task", task]
    command += ["--folder", given.folder, "--found", target, "--parts", *given.parts]
    command += ["--rounds", options.get("rounds", given.rounds)]
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    subprocess.run([*map(str, command)], env={**os.environ, **single}, check=True)
    return json.loads(target.read_text())


def estimate(nodes, halo, sent, measured):
    """Share of the time of ranks that is not spent on messages or waiting, by rows of a rank.

    The largest halo has the size of the table's in rows^(2/3).
    """
    surface = max(row["most ghosts"] / row["rows"] ** (2 / 3) for row in halo)
    uneven = max(row["most edges / mean"] for row in halo)
    neighbours = max(row["most neighbours"] for row in halo)
    latency, bandwidth = sent["one message"], sent["bytes a second"]
    agreement = math.log2(RANKS) * latency
    total = math.log2(RANKS) * sent["sum of weights"]
    for row in measured:
        width = OPERATORS[row["operator"]][1]
        shares = {}
        for rows in 10**3, 10**4, 10**5, 10**6:
            ideal = spent = 0.0
            for phase, seconds in row["seconds"].items():
                exchanges, matrices = SENT[phase]
                size = min(surface * rows ** (2 / 3), 6 * rows) * width * 4 * matrices
                ideal += seconds / nodes * rows
                spent += seconds / nodes * rows * uneven + agreement
                spent += exchanges * neighbours * latency + size / bandwidth
                spent += total if row["operator"] != "aggregate" and phase != "forward" else 0
            shares[str(rows)] = ideal / spent
        yield {"operator": row["operator"], "ranks": RANKS, "efficiency": shares}


def table(title, rows):
    """Print rows of names and values."""
    print(f"\n{title}")
    rows = [{k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in r.items()} for r in rows]
    widths = {k: max(len(k), *(len(r[k]) for r in rows)) for k in rows[0]}
    for row in [{k: k for k in widths}, *rows]:
        print("  ".join(f"{row[k]:>{w}}" for k, w in widths.items()))


def report(found):
    table("parts of METIS", found["halos"])
    sent = found["messages"]
    name = f"exchange with {NEIGHBOURS} neighbours, microseconds"
    times = {k: v * 1e6 for k, v in sent.items() if not k.startswith("bytes")}
    table(name, [{**times, "GB/s": sent["bytes a second"] / 1e9}])
    one, two = ({r["operator"]: r for r in found["operators"] if r["ranks"] == n} for n in (1, 2))
    runs = [one["aggregate"], two["aggregate"]]
    table("setup, s", [{"ranks": run["ranks"], "Graph": "", **run["setup"]} for run in runs])
    rows = []
    for name, phase in itertools.product(OPERATORS, PHASES):
        seconds = [runs[name]["seconds"][phase] for runs in (one, two)]
        rows.append({"operator": name, "phase": phase, "1 rank, s": seconds[0]})
        rows[-1] |= {"2 ranks, s": seconds[1], "ratio": seconds[0] / seconds[1]}
    table("ranks of one thread", rows)
    rows = [
        {"operator": name}
        | {
            f"of {run['ranks']}": max(run["megabytes"])
            for run in found["operators"] + found["memory"]
            if run["operator"] == name
        }
        for name in OPERATORS
    ]
    table("peak memory of a rank, MB", rows)
    rows = [{"operator": row["operator"], **row["efficiency"]} for row in found["estimate"]]
    table(f"estimated efficiency of {RANKS} ranks, all phases, by rows of a rank", rows)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__)
    parser.add_argument("--nodes", type=positive, default=10**6)
    parser.add_argument("--parts", type=positive, nargs="+", default=[2, 16, 64, 256, 1024])
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--output", type=Path, default=Path("results/ranks.json"))
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)  # of a rank, as follows
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        work(given)
        return
    with tempfile.TemporaryDirectory() as folder:
        given.folder = Path(folder)
        write_mesh(given.folder, given.nodes)
        nodes = len(np.load(given.folder / "points.npy", mmap_mode="r"))
        edges = len(np.load(given.folder / "src.npy", mmap_mode="r"))
        found = {"machine": describe(), "nodes": nodes, "edges": edges}
        found["halos"] = launch("halos", 1, given)
        (found["messages"],) = launch("messages", 2, given)
        found["operators"] = launch("operators", 1, given) + launch("operators", 2, given)
        found["memory"] = launch("operators", 8, given, rounds=1)
    one = [row for row in found["operators"] if row["ranks"] == 1]
    found["estimate"] = [*estimate(nodes, found["halos"], found["messages"], one)]
    print(f"{nodes} nodes, {edges} edges")
    report(found)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(found, indent=1))
    print(f"\n{given.output}")


if __name__ == "__main__":
    main()
