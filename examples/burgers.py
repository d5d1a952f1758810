"""An orthogonal and a Laplace neural operator learn Burgers' equation.

    du/dt + u du/dx = viscosity d2u/dx2 on [0, 1], u = 0 at both ends: u at the end from u at first

Between pointwise linear maps both operators go through a few coefficients of every channel, mix
the channels there, mode by mode, and come back:

    h <- h + silu(decode(mix(encode(h))) + h W + b)

The orthogonal one (ONO) takes the coefficients in a basis that it learns and that stays
orthonormal by construction, the Laplace one (LNO) in exponentials whose rates it learns. The
baseline is the best linear map; waves that steepen and meet are not linear.

    python examples/burgers.py     about a minute on two quiet cores; the picture is in results/
"""

import argparse
import math
from pathlib import Path

import autograd.numpy as np
from autograd import value_and_grad
from autograd.extend import defvjp_argnums, primitive
from autograd.misc.optimizers import adam
from autograd.scipy.special import expit
from burgers_data import draw_waves, solve_waves
from burgers_figure import draw
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import pyops

MODES, WIDTH, LAYERS, BATCH, RATE = 16, 20, 3, 16, 8e-3
PRECISION = np.float32  # of the networks; the optimiser works in float64


def differentiable(op, **options):
    """An operator of pyops as autograd takes it."""
    names = [*op.signature.inputs]

    def vjp(argnums, _, inputs, __):
        def backward(gy):
            wanted = [names[n] for n in argnums]
            gradients = op.backward(*inputs, cast(gy), wanted=wanted, **options)
            return [gradients[n] for n in argnums]

        return backward

    function = primitive(lambda *inputs: op(*inputs, **options))
    defvjp_argnums(function, vjp)
    return function


def cast(array):
    return array.astype(PRECISION)


def transforms(kind, points):
    """To the coefficients of functions at the points and back, and the first parameter of both."""
    x = np.linspace(0, 1, points)
    if kind == "ONO":
        there, back = differentiable(pyops.ono_encode), differentiable(pyops.ono_decode)
        waves = np.cos(math.pi * np.arange(MODES) * x[:, None])
        return there, back, waves / math.sqrt(points)
    there = differentiable(pyops.lno_encode)
    back = differentiable(pyops.lno_decode, points=points)
    rates = np.linspace(-8, 8, MODES)

    def balanced(h, poles):
        """A mean over the points, large exponentials made small."""
        return there(h / cast(np.array(points)), poles) * cast(np.exp(np.minimum(rates, 0)))

    def restored(coefficients, poles):
        return back(coefficients * cast(np.exp(np.minimum(rates, 0))), poles)

    return balanced, restored, rates


class Network:
    """u at the end [samples, points] from u at first."""

    def __init__(self, kind, points):
        self.encode, self.decode, self.start = transforms(kind, points)
        x = np.linspace(0, 1, points)
        self.places = cast(np.stack([2 * x - 1, np.sin(math.pi * x)], axis=-1))
        self.border = cast(np.sin(math.pi * x) ** 0.25)  # 0 at both ends

    def draw(self, rng):
        def linear(inward, outward):
            return [rng.standard_normal((inward, outward)) / math.sqrt(inward), np.zeros(outward)]

        def layer():
            mixing = rng.standard_normal((MODES, WIDTH, WIDTH)) / WIDTH
            return [self.start.copy(), mixing, *linear(WIDTH, WIDTH)]

        layers = [layer() for _ in range(LAYERS)]
        return {"lift": linear(3, WIDTH), "layers": layers, "out": [*linear(WIDTH, 1)]}

    def __call__(self, parameters, u):
        (lift, shift), (out, mean) = parameters["lift"], parameters["out"]
        samples, points = u.shape
        places = np.broadcast_to(self.places, (samples, *self.places.shape))
        h = np.concatenate([cast(u)[..., None], places], axis=-1) @ cast(lift) + cast(shift)
        for transform, mixing, weight, bias in parameters["layers"]:
            channels = np.transpose(h, (0, 2, 1)).reshape((samples * WIDTH, points))
            modes = self.encode(channels, cast(transform)).reshape((samples, WIDTH, MODES))
            mixed = np.transpose(np.transpose(modes, (2, 0, 1)) @ cast(mixing), (1, 2, 0))
            back = self.decode(mixed.reshape((samples * WIDTH, MODES)), cast(transform))
            back = np.transpose(back.reshape((samples, WIDTH, points)), (0, 2, 1))
            h = h + silu(back + h @ cast(weight) + cast(bias))
        change = (h @ cast(out) + cast(mean)).reshape((samples, points))
        return self.border * (cast(u) + change)


def silu(x):
    return x * expit(x)


def error(prediction, u):
    """Relative L2 errors, averaged over the samples."""
    off = ((prediction - u) ** 2).sum(axis=1)
    return np.mean(np.sqrt(off / (u**2).sum(axis=1)))


def train(network, first, last, steps, seed, name):
    """The parameters after some steps of Adam, at a rate that falls in stages, and the losses."""
    rng, losses = np.random.default_rng(seed), []
    slope = value_and_grad(lambda parameters, u, v: error(network(parameters, u), v))

    def gradient(parameters, _):
        batch = rng.choice(len(first), BATCH, replace=False)
        value, gradients = slope(parameters, first[batch], last[batch])
        losses.append(float(value))
        bar.update()
        bar.set_postfix(loss=f"{np.mean(losses[-30:]):.3f}", refresh=False)
        return gradients

    parameters, stages = network.draw(rng), 6
    with tqdm(total=steps // stages * stages, desc=f"training the {name}") as bar:
        for stage in range(stages):
            rate = RATE * (1 + math.cos(math.pi * stage / stages)) / 2
            parameters = adam(gradient, parameters, num_iters=steps // stages, step_size=rate)
    return parameters, losses


def ridge(first, last, test):
    """The linear map with the penalty that leave-one-out validation prefers."""
    mean, products = last.mean(axis=0), first @ first.T

    def left_out(penalty):
        inverse = np.linalg.inv(products + penalty * np.eye(len(first)))
        return ((inverse @ (last - mean) / np.diag(inverse)[:, None]) ** 2).sum(), inverse

    _, inverse = min(map(left_out, 10.0 ** np.arange(-4, 3)), key=lambda result: result[0])
    return mean + test @ first.T @ inverse @ (last - mean)


def main(arguments=None):
    """Train, report and draw; returns the mean relative errors by method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--samples", type=int, default=512, help="waves to train on")
    parser.add_argument("--points", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results/burgers.png"))
    given = parser.parse_args(arguments)

    held_out = 64
    waves = draw_waves(given.samples + held_out, given.seed)
    first, last = solve_waves(waves, given.points)
    (u, test), (v, truth) = (np.split(a, [given.samples]) for a in (first, last))
    print(f"{given.samples} waves to train on, {held_out} held out, at {given.points} points")
    predictions, losses = {}, {}
    with threadpool_limits(1, user_api="blas"):  # small products: its threads would be in the way
        for kind in "ONO", "LNO":
            network = Network(kind, given.points)
            parameters, losses[kind] = train(network, u, v, given.steps, given.seed, kind)
            predictions[kind] = network(parameters, test)
    predictions["ridge regression"] = ridge(u, v, test)
    predictions["mean solution"] = np.broadcast_to(v.mean(axis=0), truth.shape)
    errors = {name: float(error(values, truth)) for name, values in predictions.items()}
    print("relative L2 error of held-out waves")
    for name, value in errors.items():
        print(f"{name:20}{value:8.3f}")
    draw(given.output, test, truth, predictions, losses, errors)
    print(f"picture: {given.output}")
    return errors


if __name__ == "__main__":
    main()
