r"""
JAX: Hessian-vector products and the edge of stability
======================================================

All operators of :mod:`pyops.jax` can be differentiated twice, in any order of forward and reverse
mode, inside :func:`jax.jit`. This page trains a graph neural operator that estimates the size of a
gradient, :math:`|\nabla f|`, from values of :math:`f` at scattered points. It then multiplies
vectors with the Hessian of its loss, compares that with finite differences, and follows the largest
eigenvalue of the Hessian, the *sharpness*, while gradient descent runs.

.. code-block:: console

    $ pip install "pyops-kernels[jax]" matplotlib tqdm
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.flatten_util import ravel_pytree
from tqdm import tqdm

import pyops
import pyops.jax

# %%
# Points, values and a graph
# --------------------------
# Four clouds of 250 random points in the unit square carry random smooth functions. Each point is
# linked with those within a radius, and the clouds are side by side in one graph, without edges
# between them. A :obj:`pyops.jax.Graph` is a pytree: it can be an argument of a function under
# ``jit``. The points of the training stay, the functions change in every step.

POINTS, RADIUS, WIDTH, HIDDEN = 250, 0.15, 16, 16


def make_clouds(rng, clouds):
    """Graph, relative positions on its edges, and positions."""
    positions = rng.random((clouds, POINTS, 2))
    distances = np.linalg.norm(positions[:, :, None] - positions[:, None], axis=3)
    cloud, dst, src = np.nonzero(distances < RADIUS)
    offsets = (positions[cloud, src] - positions[cloud, dst]) / RADIUS
    graph = pyops.jax.Graph(src + POINTS * cloud, dst + POINTS * cloud, num_src=clouds * POINTS)
    return graph, jnp.asarray(offsets, jnp.float32), positions


def draw_functions(rng, positions):
    """Values of f [nodes, 1] and the size of the gradient [nodes], in units of 7."""
    waves, phases = rng.normal(0, 5, (len(positions), 2, 5)), rng.uniform(0, 6.28, (1, 5))
    angles = positions @ waves + phases
    gradient = np.einsum("cnw,cdw->cnd", np.cos(angles), waves) / 2
    f, size = np.sin(angles).sum(axis=2) / 2, np.linalg.norm(gradient, axis=2)
    return jnp.asarray(f.reshape(-1, 1), jnp.float32), jnp.asarray(size.ravel() / 7, jnp.float32)


rng = np.random.default_rng(0)
graph, offsets, positions = make_clouds(rng, 4)
print(graph)

# %%
# The model
# ---------
# The first layer is a mean over the neighbours of a small network's output. Its inputs on an edge
# are the relative position and, from :obj:`pyops.jax.edge_difference`, the difference of the
# values. :obj:`pyops.jax.gno_conv` computes both network and sum. Two dense layers follow. All
# parameters are in one vector, which makes vectors for the Hessian easy to write.


def draw_parameters(rng):
    """Return initial values as one vector, and the function that takes it apart."""

    def normal(*shape, scale=1.0):
        return jnp.asarray(scale * rng.standard_normal(shape), jnp.float32)

    kernel = pyops.blocks.pack_gno(
        U=normal(HIDDEN, 3),
        b_u=normal(HIDDEN, scale=0.5),
        V=normal(WIDTH, HIDDEN, scale=HIDDEN**-0.5),
        b_v=jnp.zeros(WIDTH),
    )
    dense = [normal(WIDTH, 16, scale=WIDTH**-0.5), jnp.zeros(16), normal(16, scale=0.1)]
    return ravel_pytree([kernel, jnp.zeros(WIDTH), *dense, jnp.asarray(0.75)])


start, unravel = draw_parameters(rng)


def model(parameters, graph, offsets, f):
    """Size of the gradient at each point, in units of 7."""
    kernel, bias, weight, shift, last, mean = unravel(parameters)
    coords = jnp.concatenate([offsets, pyops.jax.edge_difference(graph, f, f)], axis=1)
    ones = jnp.ones_like(f)
    h = pyops.jax.gno_conv(graph, ones, coords, kernel, hidden=HIDDEN, activation="tanh")
    h = h / pyops.jax.aggregate(graph, ones)  # the number of neighbours
    return jnp.tanh(jnp.tanh(h + bias) @ weight + shift) @ last + mean


def loss(parameters, graph, offsets, f, target):
    """Mean square error as a share of the variance."""
    error = model(parameters, graph, offsets, f) - target
    return jnp.mean(error**2) / jnp.var(target)


print(f"{start.size} parameters")

# %%
# Training under jit
# ------------------
# The compiled step calls the kernels without Python. Adam is short enough to be written out.


@jax.jit
def adam_step(state, step, batch):
    """One step of Adam with a decaying rate; returns the new state and the loss before it."""
    parameters, first, second = state
    value, gradient = jax.value_and_grad(loss)(parameters, *batch)
    first = 0.9 * first + 0.1 * gradient
    second = 0.99 * second + 0.01 * gradient**2
    scale = jnp.sqrt(second / (1 - 0.99**step)) + 1e-8
    rate = 0.03 * 0.996**step
    return (parameters - rate * first / (1 - 0.9**step) / scale, first, second), value


train = graph, offsets, *draw_functions(rng, positions)  # for later
state, losses = (start, 0 * start, 0 * start), []
for step in tqdm(range(1, 601), "Adam"):
    batch = graph, offsets, *draw_functions(rng, positions)
    state, value = adam_step(state, float(step), batch)
    losses.append(float(value))
    if step % 150 == 0:
        print(f"step {step}   loss {np.mean(losses[-50:]):.3f}")
trained = state[0]

new_graph, new_offsets, new_positions = make_clouds(rng, 8)
test = new_graph, new_offsets, *draw_functions(rng, new_positions)
print(f"loss on new points and new functions: {loss(trained, *test):.3f}")

# %%

prediction, target = (7 * y[:POINTS] for y in (model(trained, *test[:3]), test[3]))
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
largest = float(target.max())
for axis, values, title, style in zip(
    axes,
    (test[2][:POINTS, 0], target, prediction),
    ("input: $f$ at points", r"truth: $|\nabla f|$", r"prediction of $|\nabla f|$"),
    ({"cmap": "PuOr"}, {"vmin": 0, "vmax": largest}, {"vmin": 0, "vmax": largest}),
    strict=True,
):
    dots = axis.scatter(*new_positions[0].T, c=values, s=35, **style)
    axis.set(title=title, aspect="equal", xlabel="$x$")
    figure.colorbar(dots, ax=axis, shrink=0.8)
axes[0].set_ylabel("$y$")
plt.show()

# %%
# A Hessian-vector product
# ------------------------
# The derivative of the gradient along a direction: forward mode over reverse mode. The Hessian of
# n parameters has n² elements; the product costs a few gradients and no matrix.


@jax.jit
def hessian_times(parameters, vector, batch):
    """Product of the Hessian of the loss and a vector."""

    def gradient(at):
        return jax.grad(loss)(at, *batch)

    return jax.jvp(gradient, (parameters,), (vector,))[1]


gradient = jax.jit(jax.grad(loss))
v = jnp.asarray(rng.standard_normal(start.size), jnp.float32)
v = v / jnp.linalg.norm(v)
product = hessian_times(trained, v, train)

# %%
# The alternative is a difference of gradients, (g(p + h v) - g(p - h v)) / 2h. It needs a step h
# that is neither too long for the curvature nor so short that rounding takes over. As the truth we
# take the product in float64, for which all operators have kernels too.

with jax.enable_x64():
    batch64 = (graph, *(jnp.asarray(np.asarray(a), jnp.float64) for a in train[1:]))
    v64 = jnp.asarray(np.asarray(v), jnp.float64)
    trained64 = jnp.asarray(np.asarray(trained), jnp.float64)
    exact = np.asarray(hessian_times(trained64, v64, batch64))


def apart(vector):
    """Distance from the truth, relative."""
    return float(np.linalg.norm(np.asarray(vector) - exact) / np.linalg.norm(exact))


distances = 10.0 ** np.arange(-6, 0.6, 0.5)
differences = [
    (gradient(trained + h * v, *train) - gradient(trained - h * v, *train)) / (2 * h)
    for h in distances.astype(np.float32)
]
errors = [apart(d) for d in differences]
print(f"Hessian-vector product:  {apart(product):.1e} from the truth")
print(f"difference of gradients: {min(errors):.1e} with the best of {len(distances)} steps")

# %%
# The sharpness, while gradient descent runs
# ------------------------------------------
# Power iteration with this product finds the largest eigenvalue of the Hessian. Gradient descent
# with rate η on a quadratic loss diverges along the eigenvector where that exceeds 2/η. Networks do
# something else (`Cohen et al., 2021 <https://arxiv.org/abs/2103.00065>`_): the sharpness grows
# until it reaches 2/η and then stays there, while the loss goes on falling, unevenly. We descend
# from the same start with two rates.


def sharpness(parameters, vector, iterations):
    """Largest eigenvalue, and its eigenvector as a start for the next time."""
    for _ in range(iterations):
        vector = vector / jnp.linalg.norm(vector)
        image = hessian_times(parameters, vector, train)
        value, vector = vector @ image, image
    return float(value), vector


value_and_gradient = jax.jit(jax.value_and_grad(loss))
curves, RATES = {}, (0.01, 0.02)
for rate in RATES:
    parameters, vector, losses, sharp = start, v, [], []
    for step in tqdm(range(701), f"gradient descent, rate {rate}"):
        value, slope = value_and_gradient(parameters, *train)
        losses.append(float(value))
        if step % 20 == 0:
            largest, vector = sharpness(parameters, vector, 30 if step == 0 else 8)
            sharp.append((step, largest))
        parameters = parameters - rate * slope
    curves[rate] = np.array(losses), np.array(sharp).T
    tail = np.mean(sharp[-10:], axis=0)[1]
    print(f"rate {rate}: sharpness {sharp[0][1]:.0f} at first, {tail:.1f} at last")

# %%

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
left.loglog(distances, errors, "o-", color="tab:orange", label="difference of gradients")
left.axhline(apart(product), color="tab:blue", label="Hessian-vector product")
left.set(xlabel="step $h$ of the difference", ylabel="relative error", title="$Hv$ in float32")
left.legend(frameon=False, fontsize="small")
for rate, colour in zip(curves, ("tab:purple", "tab:green"), strict=True):
    losses, (steps, sharp) = curves[rate]
    middle.plot(losses, color=colour, linewidth=1, label=f"rate {rate}")
    right.plot(steps, sharp, "o-", color=colour, markersize=3, label=f"rate {rate}")
    right.axhline(2 / rate, color=colour, linestyle="--", linewidth=1)
middle.set(xlabel="step of gradient descent", ylabel="loss", yscale="log", title="loss")
middle.legend(frameon=False)
right.set(xlabel="step of gradient descent", ylabel="largest eigenvalue", title="sharpness")
right.annotate("2 / rate", (5, 2 / 0.02), (0, 4), textcoords="offset points")
right.set_ylim(0, 230)
right.legend(frameon=False, loc="lower right")
for axis in (left, middle, right):
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
plt.show()

# %%
# The dashed lines are 2/η. Also :func:`jax.hessian`, :func:`jax.vmap` and :func:`jax.jvp` of
# :func:`jax.jvp` work; the last costs a call for each component of the result. Third derivatives do
# not exist. :doc:`The guide to JAX </guide/jax>` lists the limits.
