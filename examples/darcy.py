"""A graph neural operator learns Darcy flow on an unstructured mesh.

    -div(a grad u) = 1, u = 0 on the border: the network maps log a to u, both given at the nodes.

Between pointwise linear maps it sums over all nodes within a radius, weighted by the area around
each, through a matrix that a small kernel network makes from the relative position:

    h_i <- h_i + silu(sum_j area_j h_j kappa(x_j - x_i) + h_i W + b)

That is the quadrature of an integral over a disc. Nothing in it knows the mesh, so the network
runs on a finer one without training. A batch is one graph, its samples side by side without edges
between them: features [samples * nodes, width], coords [samples * edges, 2].

    python examples/darcy.py       about a minute on two quiet cores; the picture is in results/
"""

import argparse
import math
from pathlib import Path

import autograd.numpy as np
from autograd import value_and_grad
from autograd.extend import defvjp_argnums, primitive
from autograd.misc.optimizers import adam
from autograd.scipy.special import expit
from darcy_data import Flows, draw_fields, make_mesh, solve_flows
from darcy_figure import draw
from scipy.spatial import cKDTree
from skfem import Basis, ElementTriP1
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import pyops

RADIUS, WIDTH, HIDDEN, BATCH, RATE = 0.2, 32, 16, 4, 4e-3
PRECISION = np.float32  # of the network; the optimiser works in float64


@primitive
def gno_conv(graph, features, coords, params):
    return pyops.gno_conv(graph, features, coords, params, hidden=HIDDEN)


def gno_conv_vjp(argnums, _, inputs, __):
    """VJP for autograd; only the features and the parameters have a gradient."""

    def backward(gy):
        wanted = "features", "params"
        gradients = pyops.gno_conv.backward(*inputs, cast(gy), wanted=wanted, hidden=HIDDEN)
        return [gradients[n - 1] for n in argnums]

    return backward


defvjp_argnums(gno_conv, gno_conv_vjp)


class Discretisation:
    """Data of a mesh for the network, `BATCH` copies of it side by side in one graph.

    `even`, the u of a = 1, is an input and a factor of the output: it vanishes on the border.
    """

    def __init__(self, flows: Flows):
        points, copies = flows.points, BATCH
        tree = cKDTree(points)
        pairs = tree.sparse_distance_matrix(tree, RADIUS, output_type="coo_matrix")
        shift = len(points) * np.arange(copies)[:, None]
        src, dst = ((ends + shift).ravel() for ends in (pairs.row, pairs.col))
        self.graph = pyops.Graph(src, dst, copies * len(points))
        self.coords = tiled((points[pairs.row] - points[pairs.col]) / RADIUS)
        self.area = tiled(flows.area[:, None] / (math.pi * RADIUS**2))
        self.even = tiled(flows.even[:, None])
        self.inputs = np.concatenate([tiled(2 * points - 1), 50 * self.even], axis=1)


def tiled(rows):
    return cast(np.tile(rows, (BATCH, 1)))


def draw_network(rng, layers):
    def linear(inward, outward):
        return [rng.standard_normal((inward, outward)) / math.sqrt(inward), np.zeros(outward)]

    def kernel():
        return pyops.blocks.pack_gno(
            U=rng.standard_normal((HIDDEN, 2)),
            b_u=rng.uniform(-1, 1, HIDDEN),
            V=rng.standard_normal((WIDTH * WIDTH, HIDDEN)) / math.sqrt(HIDDEN * WIDTH),
            b_v=np.zeros(WIDTH * WIDTH),
        )

    hidden = [[kernel(), *linear(WIDTH, WIDTH)] for _ in range(layers)]
    out = [*linear(WIDTH, WIDTH), *linear(WIDTH, 1)]
    return {"lift": linear(4, WIDTH), "layers": hidden, "out": out}


def network(parameters, mesh, log_a):
    """u [BATCH, nodes] from log a [BATCH, nodes]."""
    (lift, shift), (last, offset, out, mean) = parameters["lift"], parameters["out"]
    h = np.concatenate([cast(log_a).reshape(-1, 1), mesh.inputs], axis=1) @ cast(lift)
    h = h + cast(shift)
    for kernel, weight, bias in parameters["layers"]:
        neighbours = gno_conv(mesh.graph, h * mesh.area, mesh.coords, cast(kernel))
        h = h + silu(neighbours + h @ cast(weight) + cast(bias))
    u = silu(h @ cast(last) + cast(offset)) @ cast(out) + cast(mean)
    return (5 * mesh.even * u).reshape(BATCH, -1)


def cast(array):
    return array.astype(PRECISION)


def silu(x):
    return x * expit(x)


def predict(parameters, flows):
    mesh = Discretisation(flows)
    starts = range(0, len(flows.u), BATCH)
    return np.concatenate([network(parameters, mesh, flows.log_a[s : s + BATCH]) for s in starts])


def loss(parameters, mesh, flows):
    off = network(parameters, mesh, flows.log_a) - flows.u
    return np.mean(np.sqrt((off**2 @ flows.area) / (flows.u**2 @ flows.area)))


slope = value_and_grad(loss)


def train(flows, steps, layers, seed):
    """The parameters after some steps of Adam, at a rate that falls in stages, and the losses."""
    rng, mesh, losses = np.random.default_rng(seed), Discretisation(flows), []
    rest = np.array([], int)

    def gradient(parameters, _):
        nonlocal rest
        if len(rest) < BATCH:
            rest = rng.permutation(len(flows.u))
        batch, rest = rest[:BATCH], rest[BATCH:]
        value, gradients = slope(parameters, mesh, flows.select(batch))
        losses.append(float(value))
        bar.update()
        bar.set_postfix(loss=f"{np.mean(losses[-30:]):.3f}", refresh=False)
        return gradients

    parameters, stages = draw_network(rng, layers), 6
    with tqdm(total=steps // stages * stages, desc="training") as bar:
        for stage in range(stages):
            rate = RATE * (1 + math.cos(math.pi * stage / stages)) / 2
            parameters = adam(gradient, parameters, num_iters=steps // stages, step_size=rate)
    return parameters, losses


def ridge(train, test):
    """The linear map from log a to u with the penalty that leave-one-out validation prefers."""
    weight = np.sqrt(train.area)
    mean, fields = train.u.mean(axis=0), train.log_a * weight
    products = fields @ fields.T

    def left_out(penalty):
        inverse = np.linalg.inv(products + penalty * np.eye(len(fields)))
        off = inverse @ (train.u - mean) / np.diag(inverse)[:, None]
        return (off**2 @ train.area).sum(), inverse

    _, inverse = min(map(left_out, 10.0 ** np.arange(-3, 3)), key=lambda result: result[0])
    return mean + (test.log_a * weight) @ fields.T @ inverse @ (train.u - mean)


def interpolated(flows, values, points):
    """Values [samples, nodes] on the mesh of `flows` at other points."""
    probe = Basis(flows.mesh, ElementTriP1()).probes(points.T)
    return np.stack([probe @ value for value in values])


def main(arguments=None):
    """Train, report and draw; returns the mean relative errors, by method and mesh."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=480)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--samples", type=int, default=128, help="fields to train on")
    parser.add_argument("--spacing", type=float, default=1 / 16, help="between nodes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results/darcy.png"))
    given = parser.parse_args(arguments)

    held_out = 8 * BATCH
    fields = draw_fields(given.samples + held_out, given.seed)
    mesh, finer = make_mesh(given.spacing, seed=1), make_mesh(given.spacing / 2, seed=2)
    trained = solve_flows(mesh, fields[: given.samples])
    test, fine = (solve_flows(m, fields[given.samples :]) for m in (mesh, finer))
    print(
        f"{given.samples} fields to train on, {held_out} held out; "
        f"{len(test.area)} nodes, {len(fine.area)} on the finer mesh"
    )

    with threadpool_limits(1, user_api="blas"):  # small products: its threads would be in the way
        parameters, losses = train(trained, given.steps, given.layers, given.seed)
        predictions = {"graph neural operator": [predict(parameters, f) for f in (test, fine)]}
    mean = np.broadcast_to(trained.u.mean(axis=0), test.u.shape)
    for name, values in {"ridge regression": ridge(trained, test), "mean solution": mean}.items():
        predictions[name] = [values, interpolated(trained, values, fine.points)]

    errors = {
        name: [flows.error(values) for flows, values in zip((test, fine), both, strict=True)]
        for name, both in predictions.items()
    }
    print(f"{'relative L2 error':24}{'training mesh':>15}{'finer mesh':>15}")
    for name, (on_test, on_fine) in errors.items():
        print(f"{name:24}{on_test:15.3f}{on_fine:15.3f}")
    draw(given.output, test, fine, predictions["graph neural operator"], losses, errors)
    print(f"picture: {given.output}")
    return errors


if __name__ == "__main__":
    main()
