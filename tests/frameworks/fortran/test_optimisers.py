"""Optimisers of the Fortran API against torch.optim."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ...support.model_files import program, read, write  # noqa: E402
from .compilers import PROGRAMS, command  # noqa: E402
from .test_nodes import UNCHECKED  # noqa: E402

pytestmark = pytest.mark.bare
DTYPES = {"r8": (torch.float64, 1e-12), "r4": (torch.float32, 1e-5)}
STEPS = 12
OPTIONS = [
    ("adam", 0.9, 0.999),
    ("adam", 0.5, 0.9),
    ("sgd", 0.0, 0),
    ("sgd", 0.8, 0),
    ("sgd", 0.8, 1),
]
"""Method; beta1 and beta2, or momentum and whether it is Nesterov's."""
DECAYS = [(0.0, 0), (0.05, 0), (0.05, 1)]
CLIPS = [0.0, 3.0]


@pytest.fixture(scope="module", params=["r8", "r4"])
def runner(request, build, sources):
    """Return a program that steps in one precision."""
    target = sources.folder / f"optimisers_{request.param}.f90"
    sources.expand(PROGRAMS / "optimisers.fypp", target, VARIANT=request.param)
    return build.link(target, flags=UNCHECKED[build.compiler]), *DTYPES[request.param]


def by_torch(parameters, x, method, first, second, decay, decoupled, clip, rate):
    """Take the steps by torch.optim; return the norm of the last gradients."""
    options = {"lr": rate, "weight_decay": decay}
    if method == "adam":
        kind = torch.optim.AdamW if decoupled else torch.optim.Adam
        optimiser = kind(parameters, betas=(first, second), **options)
    else:
        options["weight_decay"] = 0 if decoupled else decay
        optimiser = torch.optim.SGD(parameters, momentum=first, nesterov=bool(second), **options)
    for _ in range(STEPS):
        optimiser.zero_grad()
        torch.nn.functional.linear(x, *parameters[:2]).pow(4).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, clip or torch.inf)
        if method == "sgd" and decoupled:
            with torch.no_grad():
                for p in parameters:
                    if p.grad is not None:
                        p *= 1 - rate * decay
        optimiser.step()
    return float(norm)


def start(dtype):
    numbers = torch.arange(1, 9, dtype=torch.float64)
    weight = (0.1 * numbers[:6] - 0.4).to(dtype).reshape(3, 2)
    bias = torch.tensor([0.5, -0.25, 1], dtype=dtype)
    parameters = [torch.nn.Parameter(p) for p in (weight, bias, torch.ones(1, dtype=dtype))]
    return parameters, (0.3 * numbers - 1).to(dtype).reshape(4, 2)


@pytest.mark.parametrize(("method", "first", "second"), OPTIONS)
def test_steps(runner, method, first, second):
    """Parameters after steps, half of them after a restart from the state."""
    compiled, dtype, tolerance = runner
    for (decay, decoupled), clip in itertools.product(DECAYS, CLIPS):
        rate = 0.02 if method == "adam" else 0.001
        words = method, "-", STEPS, rate, decay, decoupled, clip, first, second
        norm, *values = map(float, command(compiled, *words).split())
        parameters, x = start(dtype)
        expected = by_torch(parameters, x, method, first, second, decay, decoupled, clip, rate)
        found = torch.cat([p.detach().ravel() for p in parameters])
        np.testing.assert_allclose(values, found, rtol=0, atol=tolerance)
        assert norm == pytest.approx(expected, rel=10 * tolerance)


def test_model(runner, tmp_path):
    """Adam over all parameters of a loaded model."""
    compiled, dtype, tolerance = runner
    parameters, x = start(dtype)
    tensors = dict(zip(("weight", "bias"), (p.detach().numpy() for p in parameters), strict=False))
    made = program(
        [("x", "real", {"columns": 2})],
        [("y", "linear", {"x": "x", "weight": "weight", "bias": "bias"})],
        ["weight", "bias"],
        ["y"],
    )
    write(tmp_path / "model.safetensors", tensors, made)
    words = "adam", tmp_path / "model.safetensors", STEPS, 0.02, 0, 0, 1.0, 0.9, 0.999
    command(compiled, *words, cwd=tmp_path)
    by_torch(parameters[:2], x, "adam", 0.9, 0.999, 0, 0, 1.0, 0.02)
    for name, stepped in read(tmp_path / "stepped.safetensors").items():
        expected = parameters[["weight", "bias"].index(name)].detach()
        np.testing.assert_allclose(stepped, expected, rtol=0, atol=tolerance)


def test_refusals(build):
    build.run(PROGRAMS / "listening.f90", PROGRAMS / "training.f90")
