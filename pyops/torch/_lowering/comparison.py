"""Comparison of programs with the models that they are written from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ...models._model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from ..._call.types import Dtype
    from ...models._program import Program

CALLER = "pyops.models.save"
_TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
"""Largest difference from torch, relative to the largest element, that rounding explains."""
_ELSEWHERE = 100.0
"""How many times as much for other parameters, for which no model is made."""


class Lowered(NamedTuple):
    """Program of a model, its tensors, and the example inputs of the program."""

    program: Program
    tensors: dict[str, npt.NDArray[np.generic]]
    examples: tuple[object, ...]
    dtype: Dtype


def compare(expected: object, lowered: Lowered) -> None:
    """Refuse a program whose results differ from those of the model for the example inputs."""
    model = Model(lowered.program, lowered.tensors, dtype=lowered.dtype)
    _compare_results(expected, model(*lowered.examples))


def _compare_results(
    expected: object, found: object, suffix: str = "", factor: float = 1.0
) -> None:
    both = [one if isinstance(one, tuple | list) else (one,) for one in (expected, found)]
    for place, (wanted, got) in enumerate(zip(*both, strict=True)):
        reference = wanted.detach().cpu().numpy()
        if reference.shape != got.shape:
            raise NotImplementedError(
                f"{CALLER}: result {place}: expected shape {reference.shape}, as the model "
                f"returns, the program returns {got.shape}"
            )
        scale = np.abs(reference).max(initial=0.0)
        _check(
            f"result {place}: expected the values of the model{suffix}",
            got,
            reference,
            factor * scale,
        )


def _check(
    label: str,
    got: npt.NDArray[np.floating],
    reference: npt.NDArray[np.floating],
    scale: float,
) -> None:
    allowed = _TOLERANCE[str(got.dtype)] * (scale if np.isfinite(scale) else 1.0)
    if not np.allclose(got, reference, rtol=0, atol=allowed + 1e-30, equal_nan=True):
        raise NotImplementedError(
            f"{CALLER}: {label}, the program differs by {np.abs(got - reference).max():.3g}"
        )


def compare_elsewhere(
    model: torch.nn.Module,
    inputs: Sequence[object],
    lowered: Lowered,
    zero_rows: Mapping[str, int],
) -> None:
    """Refuse a program that differs for other parameters, or in gradients by parameters.

    Sets the parameters of the model, which the caller restores. Values that are equal in the
    model, such as weights of ones, may hide a difference that training would reveal.
    """
    parameters = dict(model.named_parameters())
    changed = dict(lowered.tensors)
    random = np.random.default_rng(0)
    with torch.no_grad():
        for name, parameter in parameters.items():
            if not parameter.is_floating_point():
                continue
            value = _moved(changed[name], random)
            if name in zero_rows:
                value[zero_rows[name]] = 0
            parameter.copy_(torch.from_numpy(value))
            changed[name] = value
    changed.update({name: changed[one] for name, one in lowered.program.tied.items()})
    program = Model(lowered.program, changed, dtype=lowered.dtype)
    with torch.enable_grad():
        expected = model(*inputs)
    _compare_results(expected, program(*lowered.examples), " for other parameters", _ELSEWHERE)
    first = expected[0] if isinstance(expected, tuple | list) else expected
    if first.requires_grad and bool(first.detach().isfinite().all()):
        _compare_gradients(first, expected, parameters, program, lowered)


def _moved(value: npt.NDArray[np.generic], random: np.random.Generator) -> npt.NDArray[np.floating]:
    """Return values of the same signs near by, and small ones in place of zeros."""
    real = np.asarray(value, np.float64)
    draws = random.uniform(-0.1, 0.1, real.shape)
    return np.asarray(np.where(real == 0, draws, real * (1 + draws)), value.dtype)


def _compare_gradients(
    first: torch.Tensor,
    expected: object,
    parameters: Mapping[str, torch.Tensor],
    program: Model,
    lowered: Lowered,
) -> None:
    trained = {name: one for name, one in parameters.items() if name in program.parameters}
    weights = np.cos(np.arange(first.numel())).reshape(first.shape)
    gy = np.asarray(weights, lowered.dtype)
    cotangent = torch.from_numpy(gy).to(first.device)
    found = torch.autograd.grad(first, [*trained.values()], cotangent, allow_unused=True)
    others = len(expected) - 1 if isinstance(expected, tuple | list) else 0
    own = program.backward(*lowered.examples, gy, *[None] * others)
    both = {
        name: (np.zeros(own[name].shape) if one is None else one.cpu().numpy(), own[name])
        for name, one in zip(trained, found, strict=True)
    }
    scale = max((np.abs(one).max(initial=0.0) for one, _ in both.values()), default=0.0)
    for name, (wanted, got) in both.items():
        _check(f"{name}: expected the gradient of the model", got, wanted, _ELSEWHERE * scale)
