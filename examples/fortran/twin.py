"""A graph neural operator trained by a Fortran program, and by its Python twin beside it.

Both start from the same parameters and take the same batches; the twin is examples/darcy.py.

    python examples/fortran/twin.py PROGRAM      a few minutes on two quiet cores

The file for Fortran is a stream of 4-byte integers, then of 8-byte reals, in the order of `write`.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import darcy  # noqa: E402
from darcy_data import draw_fields, make_mesh, solve_flows  # noqa: E402


def order_of_batches(samples, steps, layers, seed):
    """The parameters that the twin starts from, and the samples of each of its batches."""
    rng = np.random.default_rng(seed)
    start, rest, batches = darcy.draw_network(rng, layers), np.array([], int), []
    for _ in range(steps):
        if len(rest) < darcy.BATCH:
            rest = rng.permutation(samples)
        batches.append(rest[: darcy.BATCH])
        rest = rest[darcy.BATCH :]
    return start, np.array(batches)


def in_order(network):
    """All parameters, one after the other."""
    parts = [*network["lift"], *(part for layer in network["layers"] for part in layer)]
    return np.concatenate([part.ravel() for part in (*parts, *network["out"])])


def write(path, trained, test, steps, layers, seed):
    """Mesh, flows, batches and parameters as the Fortran program reads them."""
    network, batches = order_of_batches(len(trained.u), steps, layers, seed)
    values, mesh = in_order(network), darcy.Discretisation(trained)
    nodes, edges = len(trained.area), mesh.graph.num_edges // darcy.BATCH  # of one copy
    sizes = nodes, edges, darcy.BATCH, layers, darcy.WIDTH, darcy.HIDDEN
    sizes += len(trained.u), len(test.u), steps, len(values)
    src, dst = (ends[:edges] + 1 for ends in (mesh.graph.src, mesh.graph.dst))
    reals = [mesh.coords[:edges], trained.points, trained.even, mesh.area[:nodes], trained.area]
    reals += [trained.log_a, trained.u, test.log_a, test.u, values]
    with open(path, "wb") as file:
        for array in sizes, src, dst, batches + 1:
            file.write(np.asarray(array, np.int32).tobytes())
        for array in reals:
            file.write(np.asarray(array, np.float64).tobytes())


def main(arguments=None):
    """Train both; returns the losses and the held-out errors of the program and of its twin."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the compiled examples/fortran/darcy.f90")
    parser.add_argument("--steps", type=int, default=480)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--samples", type=int, default=128, help="fields to train on")
    parser.add_argument("--spacing", type=float, default=1 / 16, help="between nodes")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)

    fields = draw_fields(given.samples + 8 * darcy.BATCH, given.seed)
    mesh = make_mesh(given.spacing, seed=1)
    trained, test = (solve_flows(mesh, f) for f in np.split(fields, [given.samples]))
    with tempfile.TemporaryDirectory() as folder:
        data, losses = Path(folder, "darcy.bin"), Path(folder, "losses.txt")
        write(data, trained, test, given.steps, given.layers, given.seed)
        output = subprocess.check_output([given.program, data, losses], text=True)
        losses = {"Fortran": np.loadtxt(losses)}
    print(output, end="", flush=True)
    errors = {"Fortran": float(output.split()[-1])}
    with threadpool_limits(1, user_api="blas"):
        begin = time.perf_counter()
        network, losses["Python"] = darcy.train(trained, given.steps, given.layers, given.seed)
        each = (time.perf_counter() - begin) / len(losses["Python"])
        errors["Python"] = test.error(darcy.predict(network, test))
    print(f"the twin in Python: {1000 * each:.1f} ms a step")
    apart = abs(losses["Fortran"] - losses["Python"])
    print(f"losses apart by {apart[:20].max():.1e} in the first 20 steps, {apart.max():.1e} in all")
    print("relative L2 error of held-out flows:", *(f"{n} {e:.3f}" for n, e in errors.items()))
    return losses, errors


if __name__ == "__main__":
    main()
