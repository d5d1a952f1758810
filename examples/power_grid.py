"""Graph attention learns the voltage angles of a real power grid from what is injected.

The DC power flow is linear: a matrix takes powers to angles. What it leaves out, losses and
voltages, is local: it acts like further powers at the buses, which depend on the branches around.
Graph attention predicts these from the powers and the DC flow of the neighbourhood,

    theta = theta_DC + M delta,    delta = network(powers, theta_DC),    M the matrix of DC flow

    h_i <- h_i + silu(sum_j alpha_ij (h_j W) + h_i V + b),    alpha of both ends and the branch

A batch is one graph, its scenarios side by side without edges between them.

    python examples/power_grid.py       two minutes on two quiet cores; the picture is in results/
"""

import argparse
import math
from pathlib import Path

import autograd.numpy as np
from autograd import value_and_grad
from autograd.extend import defvjp_argnums, primitive
from autograd.misc import flatten
from autograd.scipy.special import expit
from power_grid_data import solve_scenarios
from power_grid_figure import draw
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import pyops

HEADS, WIDTH, LAYERS, OWN, BATCH, RATE = 4, 32, 3, 8, 4, 3e-3
PRECISION = np.float32  # of the network; the optimiser works in float64
ROWS = None
"""Type of the features in graph attention, if it is not that of the network."""


@primitive
def gat(graph, x, attention, edges):
    x, edges = (a.astype(ROWS or PRECISION) for a in (x, edges))
    return cast(pyops.gat(graph, x, x, attention, edges, heads=HEADS))


def gat_vjp(argnums, _, inputs, __):
    """VJP for autograd; sources and destinations are the same buses."""
    graph, x, attention, edges = inputs

    def backward(gy):
        rows, along, cotangent = (a.astype(ROWS or PRECISION) for a in (x, edges, gy))
        gradients = pyops.gat.backward(graph, rows, rows, attention, along, cotangent, heads=HEADS)
        by_src, by_dst, by_attention, by_edges = map(cast, gradients[:4])
        return [[None, by_src + by_dst, by_attention, by_edges][n] for n in argnums]

    return backward


defvjp_argnums(gat, gat_vjp)


class Features:
    """Inputs of the network for some scenarios, normalised by those to train on."""

    def __init__(self, trained):
        self.grid = grid = trained.grid
        (f, t), buses = grid.ends, len(grid.places)
        self.src, self.dst = np.concatenate([f, t]), np.concatenate([t, f])
        shift = buses * np.arange(BATCH)[:, None]
        ends = ((ends + shift).ravel() for ends in (self.src, self.dst))
        self.graph = pyops.Graph(*ends, BATCH * buses)
        sizes = [np.log(np.maximum(abs(z), 1e-6)) for z in (grid.reactance, grid.resistance)]
        branches = np.stack([*sizes, grid.shift], axis=1)
        branches = (branches - branches.mean(axis=0)) / (branches.std(axis=0) + 1e-9)
        self.branches = np.concatenate([branches, branches * [1, 1, -1]])
        self.units = [1.0] * 6
        self.units = [np.sqrt(np.mean(value**2)) for value in self.raw(trained)]
        loads = self.loads(trained)
        self.loads_mean, self.loads_unit = loads.mean(), loads.std()
        off = trained.angles @ grid.susceptance.T - (trained.powers.real - grid.shifted)
        self.mean = off.mean(axis=0)  # the powers that make up for the linear flow, on average

    def raw(self, scenarios):
        grid = self.grid
        angles = grid.dc_flow(scenarios.powers)
        between = angles[:, self.src] - angles[:, self.dst]
        flow = between / np.tile(grid.reactance, 2)
        loss = flow**2 * np.tile(grid.resistance, 2)
        return scenarios.powers.real, scenarios.powers.imag, angles, between, flow, loss

    @staticmethod
    def loads(scenarios):
        return scenarios.powers.real.clip(max=0).sum(axis=1)

    def __call__(self, scenarios):
        """Of buses [BATCH * buses, 4] and of branches either way, and the DC angles."""
        raw = self.raw(scenarios)
        p, q, angles, *flows = (v / unit for v, unit in zip(raw, self.units, strict=True))
        loads = (self.loads(scenarios) - self.loads_mean) / self.loads_unit
        buses = np.stack([root(p), root(q), angles, np.tile(loads[:, None], p.shape[1])], axis=-1)
        branches = [np.tile(self.branches, (BATCH, 1, 1)), np.stack([*map(root, flows)], axis=-1)]
        edges = np.concatenate(branches, axis=-1)
        return cast(buses.reshape(-1, 4)), cast(edges.reshape(-1, 6)), cast(raw[2])


def root(x):
    """Powers of buses and branches are spread over orders of magnitude."""
    return np.sign(x) * np.sqrt(abs(x))


def cast(array):
    return array.astype(PRECISION)


def silu(x):
    return x * expit(x)


def draw_network(rng, buses):
    def linear(inward, outward):
        return [rng.standard_normal((inward, outward)) / math.sqrt(inward), np.zeros(outward)]

    def layer():
        attention = pyops.blocks.pack_gat(
            *(rng.standard_normal((3, HEADS, WIDTH // HEADS)) / math.sqrt(WIDTH / HEADS))
        )
        return [linear(WIDTH, WIDTH)[0], attention, *linear(6, WIDTH), *linear(WIDTH, WIDTH)]

    own = rng.standard_normal((buses, OWN)) / math.sqrt(OWN)
    layers = [layer() for _ in range(LAYERS)]
    last = np.zeros((WIDTH, 1))
    return [own, np.zeros(buses), *linear(4 + OWN, WIDTH), layers, *linear(WIDTH, WIDTH), last]


def network(parameters, features, scenarios):
    """The angles [BATCH, buses]."""
    own, mean, lift, shift, layers, weight, offset, last = parameters
    buses, edges, dc = features(scenarios)
    h = np.concatenate([buses, np.tile(cast(own), (BATCH, 1))], axis=1) @ cast(lift) + cast(shift)
    for message, attention, branch, bias, keep, constant in layers:
        along = edges @ cast(branch) + cast(bias)
        around = gat(features.graph, h @ cast(message), cast(attention), along)
        h = h + silu(around + h @ cast(keep) + cast(constant))
    delta = (silu(h @ cast(weight) + cast(offset)) @ cast(last)).reshape(dc.shape)
    return dc + (delta + cast(mean + features.mean)) @ cast(features.grid.spread).T


def predict(parameters, features, scenarios):
    starts = range(0, len(scenarios.angles), BATCH)
    batches = [scenarios.select(slice(s, s + BATCH)) for s in starts]
    return np.concatenate([network(parameters, features, batch) for batch in batches])


def loss(parameters, features, scenarios):
    off = network(parameters, features, scenarios) - cast(scenarios.angles)
    return np.degrees(np.sqrt(np.mean(off**2)))


slope = value_and_grad(loss)


def train(scenarios, steps, seed):
    """The parameters after some steps of Adam, at a rate that falls to 0, and the losses."""
    rng, features, losses = np.random.default_rng(seed), Features(scenarios), []
    vector, unflatten = flatten(draw_network(rng, len(scenarios.grid.places)))
    mean, square, rest = np.zeros_like(vector), np.zeros_like(vector), np.array([], int)
    with tqdm(range(steps), "training") as bar:
        for step in bar:
            if len(rest) < BATCH:
                rest = rng.permutation(len(scenarios.angles))
            batch, rest = rest[:BATCH], rest[BATCH:]
            value, gradients = slope(unflatten(vector), features, scenarios.select(batch))
            gradient, _ = flatten(gradients)
            mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
            rate = RATE * (1 + math.cos(math.pi * step / steps)) / 2
            scale = np.sqrt(square / (1 - 0.99 ** (step + 1))) + 1e-8
            vector = vector - rate / (1 - 0.9 ** (step + 1)) * mean / scale
            losses.append(float(value))
            bar.set_postfix(loss=f"{np.mean(losses[-20:]):.2f} degrees", refresh=False)
    return unflatten(vector), features, losses


def ridge(inputs, outputs, test):
    """The linear map with the penalty that leave-one-out validation prefers, applied to `test`."""
    shift, mean = inputs.mean(axis=0), outputs.mean(axis=0)
    products = (inputs - shift) @ (inputs - shift).T

    def left_out(penalty):
        penalty *= np.trace(products) / len(products)
        inverse = np.linalg.inv(products + penalty * np.eye(len(products)))
        off = inverse @ (outputs - mean) / np.diag(inverse)[:, None]
        return (off**2).sum(), inverse

    _, inverse = min(map(left_out, 10.0 ** np.arange(-6, 4)), key=lambda result: result[0])
    return mean + (test - shift) @ (inputs - shift).T @ inverse @ (outputs - mean)


def linear_methods(trained, test):
    """The DC power flow, and what a regression of the powers makes of the angles or adds to it."""
    flow = [scenarios.grid.dc_flow(scenarios.powers) for scenarios in (trained, test)]
    powers = [np.concatenate([s.powers.real, s.powers.imag], axis=1) for s in (trained, test)]
    off = trained.angles - flow[0]
    return {
        "DC power flow": flow[1],
        "ridge regression": ridge(powers[0], trained.angles, powers[1]),
        "DC flow and mean": flow[1] + off.mean(axis=0),
        "DC flow and ridge": flow[1] + ridge(powers[0], off, powers[1]),
    }


def main(arguments=None):
    """Train, report and draw; returns the held-out errors in degrees, by method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="case2869pegase", help="a grid of pandapower.networks")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--scenarios", type=int, default=96, help="to train on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results/power_grid.png"))
    parser.add_argument("--precision", choices=("32", "bf16-mixed"), default="32")
    given = parser.parse_args(arguments)
    global ROWS
    ROWS = None
    if given.precision == "bf16-mixed":
        from ml_dtypes import bfloat16

        ROWS = bfloat16

    held_out = 8 * BATCH
    scenarios = solve_scenarios(given.case, given.scenarios + held_out, given.seed)
    trained = scenarios.select(slice(given.scenarios))
    test = scenarios.select(slice(given.scenarios, None))
    buses, branches = scenarios.angles.shape[1], scenarios.grid.ends.shape[1]
    print(
        f"{given.case}: {buses} buses, {branches} branches; "
        f"{given.scenarios} scenarios to train on, {held_out} held out"
    )
    with threadpool_limits(1, user_api="blas"):  # small products: its threads would be in the way
        parameters, features, losses = train(trained, given.steps, given.seed)
        prediction = predict(parameters, features, test)
    predictions = linear_methods(trained, test)
    best = predictions["DC flow and ridge"]
    predictions["graph attention"] = prediction
    errors = {name: test.error(angles) for name, angles in predictions.items()}
    print("held-out error of the angles, root mean square in degrees")
    for name, error in errors.items():
        print(f"{name:24}{error:10.3f}")
    draw(given.output, test, prediction, best, losses, errors)
    print(f"picture: {given.output}")
    return errors


if __name__ == "__main__":
    main()
