"""DimeNet++ learns energies and forces of molecules from GFN2-xTB, with molecules held out.

A message runs along every pair of atoms within a cutoff. In each interaction a message takes up
those into its source atom, by distance and angle:

    m_e <- m_e + f(m_e, dimenet_aggregate(vectors, basis, messages, weights))

The energy is a sum over atoms, the forces are its gradient, and training on forces goes through the
second derivatives of every operator. A batch is one graph, its molecules side by side.

    python examples/forces.py      two to three minutes; the picture is in results/
"""

import argparse
import time
from pathlib import Path

import autograd.numpy as np
from autograd import grad, value_and_grad
from autograd.extend import defvjp, defvjp_argnums, primitive
from autograd.misc import flatten
from forces_data import AtomEnergies, PairPotential, make_structures, split
from forces_figure import draw
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import pyops

CUTOFF, WIDTH, CHANNELS, BLOCKS = 5.0, 64, 32, 2
DEGREES, RADIAL, MIDDLE = 7, 6, 8
BATCH, RATE, BY_ENERGY = 12, 5e-3, 0.3


def differentiable(op, graph=(), **options):
    """An operator of pyops for autograd, twice differentiable: its gradients are one vector."""

    @primitive
    def forward(*inputs):
        return op(*graph, *inputs, **options)

    @primitive
    def backward(*inputs_and_gy):
        gradients = op.backward(*graph, *map(np.ascontiguousarray, inputs_and_gy), **options)
        return np.concatenate([gradient.ravel() for gradient in gradients])

    def parts(vector, arrays):
        ends = np.cumsum([array.size for array in arrays])
        pieces = [vector[end - a.size : end] for end, a in zip(ends, arrays, strict=True)]
        return [np.reshape(p, a.shape) for p, a in zip(pieces, arrays, strict=True)]

    def forward_vjp(argnums, _, inputs, __):
        def back(gy):
            gradients = parts(backward(*inputs, gy), inputs)
            return [gradients[n] for n in argnums]

        return back

    def backward_vjp(argnums, _, arguments, __):
        def back(vector):
            *inputs, _gy = arguments
            seconds = op.double_backward(*graph, *arguments, *parts(vector, inputs), **options)
            return [seconds[n] for n in argnums]

        return back

    defvjp_argnums(forward, forward_vjp)
    defvjp_argnums(backward, backward_vjp)
    return forward


@primitive
def multiply(matrix, x):
    """A sparse matrix times rows: gathers, and sums over the edges of an atom."""
    return matrix @ x


def multiply_vjp(argnums, _, inputs, __):
    return lambda gy: [multiply(inputs[0].T, gy) if n else None for n in argnums]


defvjp_argnums(multiply, multiply_vjp)


@primitive
def silu(x, order=0):
    """x times the logistic function, or one of its first two derivatives."""
    s = 0.5 * (1 + np.tanh(0.5 * x))
    if order == 0:
        return x * s
    t = s * (1 - s)
    return s + x * t if order == 1 else t * (2 + x * (1 - 2 * s))


defvjp(silu, lambda _, x, order=0: lambda gy: gy * silu(x, order + 1), argnums=(0,))


class Batch:
    """Molecules side by side in one graph, with what the network needs of it."""

    def __init__(self, kinds, positions, cells=None):
        counts = [len(k) for k in kinds]
        owner = np.repeat(np.arange(len(kinds)), counts)
        self.positions = np.concatenate(positions)
        graph, _, self.offsets, reverse = pyops.radius_graph(
            self.positions, CUTOFF, cell=cells, batch=owner
        )
        edges, atoms = graph.num_edges, len(owner)
        rows, ones = np.arange(edges), np.ones(edges)
        self.into = csr_array((ones, (graph.dst, rows)), (atoms, edges))
        source = csr_array((ones, (rows, graph.src)), (edges, atoms))
        self.span = source - self.into.T
        self.sum = csr_array((np.ones(atoms), (owner, np.arange(atoms))), (len(kinds), atoms))
        one_hot = np.eye(4)[np.concatenate(kinds)]
        self.ends = np.concatenate([source @ one_hot, self.into.T @ one_hot], 1)
        self.radial = differentiable(pyops.radial_basis)
        self.spherical = differentiable(
            pyops.spherical_basis, num_spherical=DEGREES, num_radial=RADIAL
        )
        self.aggregate = differentiable(
            pyops.dimenet_aggregate,
            (graph,),
            num_spherical=DEGREES,
            exclude="image",
            reverse=reverse,
        )


def draw_network(rng, width=WIDTH, blocks=BLOCKS):
    def layer(inward, outward):
        return rng.standard_normal((inward, outward)) / np.sqrt(inward)

    def block():
        rows = DEGREES * RADIAL
        return {
            "own": layer(width, width),
            "other": layer(width, width),
            "radial": layer(RADIAL, width),
            "down": layer(width, CHANNELS),
            "weights": np.concatenate([layer(rows, MIDDLE), layer(MIDDLE, CHANNELS).T]),
            "up": layer(CHANNELS, width),
            "after": layer(width, width),
            "last": 0.5 * layer(width, width),
        }

    def output():
        return {
            "radial": layer(RADIAL, width),
            "first": layer(width, width),
            "second": 0.02 * layer(width, 1),
        }

    return {
        "frequencies": np.pi * np.arange(1.0, RADIAL + 1),
        "start": layer(8, width),
        "radial": layer(RADIAL, width),
        "first": layer(width, width),
        "blocks": [block() for _ in range(blocks)],
        "outputs": [output() for _ in range(blocks + 1)],
    }


def energies(network, batch, positions):
    """The energy of each molecule without that of its atoms, in electron volt."""
    vectors = multiply(batch.span, positions) + batch.offsets
    distances = np.sqrt(np.sum(vectors**2, 1)) / CUTOFF
    rbf = batch.radial(distances, network["frequencies"])
    sbf = batch.spherical(distances)
    m = silu(batch.ends @ network["start"] * (1 + rbf @ network["radial"]))
    m = silu(m @ network["first"])
    total = output(network["outputs"][0], batch, rbf, m)
    for p, q in zip(network["blocks"], network["outputs"][1:], strict=True):
        other = silu(m @ p["other"]) * (rbf @ p["radial"])
        x = batch.aggregate(vectors, sbf, silu(other @ p["down"]), p["weights"])
        h = silu(m @ p["own"]) + silu(x @ p["up"])
        m = m + silu(silu(h @ p["after"]) @ p["last"])
        total = total + output(q, batch, rbf, m)
    return multiply(batch.sum, total)[:, 0]


def output(p, batch, rbf, m):
    atoms = multiply(batch.into, (rbf @ p["radial"]) * m)
    return silu(atoms @ p["first"]) @ p["second"]


def energy_and_forces(network, batch, positions):
    """The forces are the negative gradient of the energies by the positions."""
    gradient = grad(lambda x: np.sum(energies(network, batch, x)))(positions)
    return energies(network, batch, positions), -gradient


def loss(network, batch, wanted_energies, wanted_forces):
    """Mean squares of the errors of forces, and of energies per atom."""
    energy, forces = energy_and_forces(network, batch, batch.positions)
    counts = batch.sum @ np.ones(batch.sum.shape[1])
    by_energy = np.mean(((energy - wanted_energies) / counts) ** 2)
    return np.mean((forces - wanted_forces) ** 2) + BY_ENERGY * counts.mean() * by_energy


def make_batch(structures, atoms):
    batch = Batch([s.kinds for s in structures], [s.positions for s in structures])
    energy = np.array([s.energy - atoms(s) for s in structures])
    return batch, energy, np.concatenate([s.forces for s in structures])


def train(structures, atoms, steps, seconds, seed=0):
    """Adam, the rate falling to zero; ends early where time is up. The mean of late iterates."""
    rng = np.random.default_rng(seed)
    vector, unflatten = flatten(draw_network(rng))
    slope = value_and_grad(lambda v, *data: loss(unflatten(v), *data))
    first, second, mean, losses = 0 * vector, 0 * vector, vector, []
    start, share, step = time.process_time(), 0.0, 0
    with tqdm(total=100, unit="%", dynamic_ncols=True) as bar:
        while share < 1:
            step += 1
            chosen = rng.choice(len(structures), min(BATCH, len(structures)), replace=False)
            value, g = slope(vector, *make_batch([structures[k] for k in chosen], atoms))
            g = g * min(1.0, 10 / np.linalg.norm(g))
            first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g * g
            change = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
            rate = RATE * min(1.0, step / 20) * 0.5 * (1 + np.cos(np.pi * share))
            vector = vector - rate * change
            mean = vector if step < 10 else 0.95 * mean + 0.05 * vector
            losses.append(float(value))
            share = max(step / steps, (time.process_time() - start) / seconds)
            bar.set_description(f"step {step}, forces and energies off by {np.sqrt(value):.3f}")
            bar.update(min(100, int(100 * share)) - bar.n)
    return unflatten(mean), np.array(losses)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=12, help="rattled frames of each molecule")
    parser.add_argument("--held-out", type=int, default=8, help="molecules to test on")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=120, help="of processor time for training")
    parser.add_argument("--output", type=Path, default=Path("results/forces.png"))
    options = parser.parse_args(arguments)
    with threadpool_limits(1):  # a batch of some hundred edges keeps no second thread busy
        training, test = split(make_structures(options.frames), options.held_out)
        atoms = AtomEnergies(training)
        pairs = PairPotential(training, atoms)
        network, losses = train(training, atoms, options.steps, options.seconds)
        batch, energy, forces = make_batch(test, atoms)
        got_energy, got_forces = energy_and_forces(network, batch, batch.positions)
    by_pairs = [pairs(s) for s in test]
    counts = np.array([len(s.kinds) for s in test])
    errors = {
        "DimeNet++": (got_energy, got_forces),
        "pair potential": (
            np.array([e for e, _ in by_pairs]),
            np.concatenate([f for _, f in by_pairs]),
        ),
        "zero": (0 * energy, 0 * forces),
    }
    errors = {
        name: (
            float(np.sqrt(np.mean((f - forces) ** 2))),
            float(np.sqrt(np.mean(((e - energy) / counts) ** 2))),
        )
        for name, (e, f) in errors.items()
    }
    print(f"{len(training)} structures, {len(test)} of other molecules for the test")
    for name, (by_force, by_energy) in errors.items():
        print(f"{name:16} forces {by_force:.3f} eV/A, energies {1000 * by_energy:.0f} meV/atom")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw(options.output, losses, (energy / counts, got_energy / counts), (forces, got_forces))
    print(f"picture in {options.output}")
    return errors


if __name__ == "__main__":
    main()
