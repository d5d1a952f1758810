"""A graph neural operator learns on a graph that JAX distributes over two devices.

    u' = D (mean over neighbours of u_j - u_i) + u - u^3: it maps u to u some steps later.

Points are halved along x. Each device has the points of a half and the edges into them, and fetches
the features of those next to them, in every layer and in all derivatives. Losses and gradients are
sums over devices, so two devices train the same network as one, up to rounding; so does a product
of the Hessian of the loss with a vector.

    python examples/ranks_jax.py       half a minute on two quiet cores
"""

import argparse
import os
import time

DEVICES = 2
COUNT = "--xla_force_host_platform_device_count"  # JAX reads it when it is imported
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {COUNT}={DEVICES}"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of each device

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import pyops  # noqa: E402
import pyops.jax  # noqa: E402

WIDTH, HIDDEN, LAYERS, RATE, DIFFUSION = 8, 8, 3, 1e-2, 0.5
jax.config.update("jax_enable_x64", True)


def draw_problem(nodes, rng):
    """Return random points of the unit square, those near each other, and a field at two times."""
    points = np.concatenate([rng.random((nodes, 2)), np.zeros((nodes, 1))], axis=1)
    graph, vectors, _, _ = pyops.radius_graph(points, (8 / (np.pi * nodes)) ** 0.5)
    waves, phases = rng.normal(0, 6, (2, 20)), rng.uniform(0, 2 * np.pi, 20)
    before = np.sin(points[:, :2] @ waves + phases).mean(1) * 4
    after = before
    for _ in range(10):
        means = pyops.aggregate(graph, after[:, None], reduce="mean")[:, 0]
        after = after + 0.1 * (DIFFUSION * (means - after) + after - after**3)
    return points, graph, vectors[:, :2] * nodes**0.5, before, after


def draw_network(rng):
    """Return the first and last linear map, and the kernel, map and bias of each layer."""
    kernel = HIDDEN * 3 + (HIDDEN + 1) * WIDTH * WIDTH
    shapes = [(1, WIDTH), (WIDTH, 1), *[(kernel,), (WIDTH, WIDTH), (WIDTH,)] * LAYERS]
    scales = [1, 0.3, *[0.1, 0.3, 0] * LAYERS]
    return [jnp.asarray(s * rng.standard_normal(n)) for s, n in zip(scales, shapes, strict=True)]


def apply(graph, network, coords, u):
    """Apply the network to the rows of a device."""
    first, last, *layers = network
    h = u[:, None] @ first
    for kernel, linear, bias in zip(layers[::3], layers[1::3], layers[2::3], strict=True):
        sums = pyops.jax.gno_conv(graph, h, coords, kernel, hidden=HIDDEN)
        h = h + jax.nn.silu(sums / 8 + h @ linear + bias)
    return u + (h @ last)[:, 0]


def train(devices, problem, steps):
    """Train on these devices; return the losses, and a product with the Hessian at the end."""
    points, whole, coords, before, after = problem
    nodes = len(points)
    mesh = Mesh(np.array(devices), ("ranks",))
    half = np.empty(nodes, int)
    half[np.argsort(points[:, 0])] = np.arange(nodes) * len(devices) // nodes
    graph = pyops.jax.distribute(whole.src, whole.dst, nodes, mesh=mesh, part=half)
    data = graph.shard(coords, "num_edges"), *(graph.shard(u, "num_dst") for u in (before, after))

    def local(graph, network, coords, before, after):
        """Return the loss; the bias makes of padding what is no field."""
        error = apply(graph, network, coords, before) - after
        error = jnp.where(graph.rows("num_dst") >= 0, error, 0)
        return jax.lax.psum((error**2).sum(), "ranks") / nodes

    own = P("ranks")
    specs = own, P(), own, own, own
    across = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P())

    def loss(network, graph, data):
        return across(graph, network, *data)

    @jax.jit
    def step(count, network, moments, graph, data):
        """Take a step of Adam."""
        value, slopes = jax.value_and_grad(loss)(network, graph, data)
        m, v = moments
        m = [0.9 * a + 0.1 * g for a, g in zip(m, slopes, strict=True)]
        v = [0.99 * a + 0.01 * g * g for a, g in zip(v, slopes, strict=True)]
        rates = RATE / (1 - 0.9**count), 1 - 0.99**count
        network = [
            p - rates[0] * a / (jnp.sqrt(b / rates[1]) + 1e-8)
            for p, a, b in zip(network, m, v, strict=True)
        ]
        return value, network, (m, v)

    @jax.jit
    def hessian_times(network, vector, graph, data):
        return jax.jvp(lambda some: jax.grad(loss)(some, graph, data), (network,), (vector,))[1]

    network = draw_network(np.random.default_rng(1))
    moments = [[jnp.zeros_like(p) for p in network]] * 2
    losses, start = [], time.perf_counter()
    for count in range(1, steps + 1):
        value, network, moments = step(float(count), network, moments, graph, data)
        losses.append(float(value))
    seconds = time.perf_counter() - start
    vector = [jnp.ones_like(p) for p in network]
    product = hessian_times(network, vector, graph, data)
    y = apply_whole(network, mesh, graph, data)
    return losses, np.concatenate([np.ravel(p) for p in product]), seconds, y


def apply_whole(network, mesh, graph, data):
    """Return the field that the network predicts, at the points in their order."""
    own = P("ranks")
    across = jax.shard_map(apply, mesh=mesh, in_specs=(own, P(), own, own), out_specs=own)
    return graph.gather(jax.jit(across)(graph, network, *data[:2]), "num_dst")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args(arguments)
    problem = draw_problem(options.nodes, np.random.default_rng(0))
    found = {n: train(jax.devices()[:n], problem, options.steps) for n in (1, DEVICES)}
    for devices, (losses, product, seconds, _) in found.items():
        print(
            f"{devices} device{'s' * (devices > 1)}: loss {losses[0]:.4f} to {losses[-1]:.6f} "
            f"in {seconds:.1f} s, product with the Hessian of norm {np.linalg.norm(product):.6f}"
        )
    (one, product, _, y), (two, other, _, z) = found[1], found[DEVICES]
    differences = {
        "losses": max(abs(a - b) / a for a, b in zip(one, two, strict=True)),
        "product": np.linalg.norm(product - other) / np.linalg.norm(product),
        "field": np.linalg.norm(y - z) / np.linalg.norm(y),
    }
    print("relative differences: " + ", ".join(f"{n} {d:.0e}" for n, d in differences.items()))
    return one, differences


if __name__ == "__main__":
    main()
