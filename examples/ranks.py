"""A graph neural operator learns on a mesh of which each of two ranks reads a half.

    u' = D (mean over neighbours of u_j - u_i) + u - u^3: it maps u to u some steps later.

The mesh lies in files. A rank maps them into memory, reads the nodes and edges of its half, lets
`partition` find a better half, and reads the fields of that. It has rows of its own nodes and
copies of those next to them on the other rank, nothing else. Losses and gradients are sums over
ranks, so both train the same network: that of one rank, up to rounding.

    python examples/ranks.py       a minute on two quiet cores; the picture is in results/
"""

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import autograd.numpy as np
from autograd import value_and_grad
from autograd.extend import defvjp, defvjp_argnums, primitive
from autograd.misc import flatten
from autograd.misc.optimizers import adam
from autograd.scipy.special import expit
from ranks_data import FIELDS, write_mesh
from ranks_figure import draw

import pyops
from pyops.distributed import Communicator, partition

WIDTH, HIDDEN, LAYERS, RATE = 8, 8, 3, 1e-2


class Share(NamedTuple):
    """Part of the mesh that a rank owns."""

    graph: pyops.distributed.DistributedGraph
    coords: np.ndarray
    before: np.ndarray
    after: np.ndarray
    nodes: int
    """Number of nodes of all ranks."""


def read_share(comm, folder):
    """Read a half of the nodes, find better halves, and read the fields of the own one."""
    files = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
    nodes = len(files["points"])
    first, last = (rank * nodes // comm.size for rank in (comm.rank, comm.rank + 1))
    offsets = files["offsets"][first : last + 1]
    src = files["src"][offsets[0] : offsets[-1]].astype(np.int64)
    dst = np.repeat(np.arange(first, last), np.diff(offsets))
    graph = comm.graph(src, dst, owned=(first, last))
    part = partition(graph, method="coordinates", coordinates=files["points"][first:last])
    graph = comm.graph(src, dst, owned=(first, last), part=part)
    points = files["points"][graph.nodes]
    vectors = graph.exchange(points)[graph.local.src] - points[graph.local.dst]
    fields = (files[name][:, graph.nodes] for name in ("before", "after"))
    return Share(graph, vectors * math.sqrt(nodes), *fields, nodes)


def learning(comm, graph):
    """Return two functions for autograd: gno_conv, and weights that all ranks share.

    Gradients by the parameters of gno_conv are sums over ranks already; those by weights that
    a rank uses for its own rows are terms of these sums.
    """

    @primitive
    def convolve(features, coords, params):
        return pyops.gno_conv(graph, features, coords, params, hidden=HIDDEN)

    def convolve_vjp(argnums, _, inputs, __):
        names = [("features", "coords", "params")[n] for n in argnums]

        def backward(gy):
            options = {"hidden": HIDDEN, "wanted": names}
            found = pyops.gno_conv.backward(graph, *inputs, gy, **options)
            return [found[n] for n in argnums]

        return backward

    @primitive
    def share(weights):
        return weights

    defvjp_argnums(convolve, convolve_vjp)
    defvjp(share, lambda *_: comm.sum)
    return convolve, share


def draw_network(rng):
    def linear(inward, outward):
        return rng.standard_normal((inward + 1, outward)) / math.sqrt(inward)

    def kernel():
        return pyops.blocks.pack_gno(
            U=rng.standard_normal((HIDDEN, 2)),
            b_u=rng.uniform(-1, 1, HIDDEN),
            V=rng.standard_normal((WIDTH * WIDTH, HIDDEN)) / math.sqrt(HIDDEN * WIDTH),
            b_v=np.zeros(WIDTH * WIDTH),
        )

    layers = [linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    linears = {"lift": linear(1, WIDTH), "layers": layers, "out": 0.1 * linear(WIDTH, 1)}
    return {"linear": linears, "kernels": [kernel() for _ in range(LAYERS)]}


def train(comm, share, steps):
    """Return the losses, the last one that of a field never trained on, and seconds a step."""
    start, unflatten = flatten(draw_network(np.random.default_rng(0)))
    convolve, replicated = learning(comm, share.graph)
    losses, times = [], [time.perf_counter()]

    def loss(vector, field):
        """Return the own nodes' part of the mean square error, relative to that of no change."""
        network = unflatten(vector)
        linears, unflatten_linears = flatten(network["linear"])
        linears = unflatten_linears(replicated(linears))
        u = share.before[field][:, None]
        h = apply(linears["lift"], u)
        for kernel, linear in zip(network["kernels"], linears["layers"], strict=True):
            z = convolve(h, share.coords, kernel) / 6 + apply(linear, h)
            h = h + z * expit(z)
        off = u[:, 0] + apply(linears["out"], h)[:, 0] - share.after[field]
        return np.sum(off**2) / scale(field)

    def scale(field):
        return comm.sum(float(((share.after[field] - share.before[field]) ** 2).sum()))

    def apply(linear, rows):
        return rows @ linear[:-1] + linear[-1]

    slope = value_and_grad(loss)

    def gradient(vector, step):
        part, found = slope(vector, step % (FIELDS - 1))
        losses.append(comm.sum(float(part)))
        times.append(time.perf_counter())
        return found

    vector = adam(gradient, start, num_iters=steps, step_size=RATE)
    return [*losses, comm.sum(float(loss(vector, FIELDS - 1)))], float(np.median(np.diff(times)))


def work(folder):
    """Program of a rank."""
    comm = Communicator()
    start = time.perf_counter()
    share = read_share(comm, folder)
    setup = time.perf_counter() - start
    losses, seconds = train(comm, share, int(os.environ["STEPS"]))
    graph = share.graph
    own = [graph.num_dst, graph.num_ghosts, len(graph.neighbours)]
    own += [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024]
    table = np.zeros((comm.size, len(own)))
    table[comm.rank] = own
    np.savez(
        folder / f"{comm.rank}of{comm.size}.npz",
        own=graph.nodes,
        ghosts=np.setdiff1d(graph.exchange(graph.nodes), graph.nodes),
    )
    table = comm.sum(table).astype(int).tolist()
    if comm.rank == 0:
        found = {"losses": losses, "seconds": seconds, "setup": setup, "table": table}
        (folder / f"{comm.size}.json").write_text(json.dumps(found))


def launch(ranks, folder, steps):
    """Run this program on several ranks of one thread, and return what it found."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = beside if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("there is no mpiexec: pip install mpich")
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [mpiexec, "-n", str(ranks), sys.executable, __file__, "--folder", folder]
    environment = {**os.environ, **single, "STEPS": str(steps)}
    subprocess.run([*map(str, command)], env=environment, check=True)
    return json.loads((folder / f"{ranks}.json").read_text())


def report(runs, sizes):
    """Print the losses side by side, and what each rank has.

    A layer exchanges features forward and backward, and collects their gradients.
    """
    print(f"{'step':>14}" + "".join(f"{f'{n} ranks' if n > 1 else '1 rank':>14}" for n in runs))
    losses = [run["losses"] for run in runs.values()]
    last = len(losses[0]) - 1
    for step, row in enumerate(zip(*losses, strict=True)):
        if step % max(1, last // 8) == 0 or step == last:
            name = "held out" if step == last else step
            print(f"{name:>14}" + "".join(f"{value:14.9f}" for value in row))
    for count, run in runs.items():
        print(
            f"{count} of {count} ranks: {run['setup']:.1f} s to read and partition, "
            f"{run['seconds']:.2f} s a step"
        )
        for rank, (own, ghosts, neighbours, memory) in enumerate(run["table"]):
            size = ghosts * WIDTH * 8 / 1024
            print(
                f"  rank {rank}: {own} of {sizes['nodes']} nodes, {ghosts} ghosts, "
                f"{3 * LAYERS * neighbours} messages of {size:.0f} KB received a step, {memory} MB"
            )


def main(arguments=None):
    """Write the mesh, train on one and on two ranks, report and draw; return the losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("results/ranks.png"))
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of a rank
    given = parser.parse_args(arguments)
    if given.folder:
        work(given.folder)
        return None
    folder = given.output.with_suffix("")
    sizes = write_mesh(folder, given.nodes)
    print(
        f"{sizes['nodes']} nodes, {sizes['edges']} edges, {sizes['megabytes']:.0f} MB in {folder}"
    )
    runs = {count: launch(count, folder, given.steps) for count in (1, given.ranks)}
    report(runs, sizes)
    draw(given.output, folder, given.ranks, {n: run["losses"] for n, run in runs.items()})
    print(f"picture: {given.output}")
    return [run["losses"] for run in runs.values()]


if __name__ == "__main__":
    main()
