"""Programs of PyTorch models, for `pyops.models.save`.

The code of a model runs with values in place of tensors; each call of a function or of a layer adds
the steps of its lowering, which are evaluated for the example inputs at once.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
import torch

from ... import graph as _graph
from ...models._program import scalar
from . import attention as attention
from . import convolutions as convolutions
from . import dimenet as dimenet
from . import mesh as mesh
from . import modules as modules
from . import neural_operators as neural_operators
from . import pna as pna
from . import schnet as schnet
from .builder import Builder, Ref, UnsupportedError
from .comparison import CALLER as _CALLER
from .comparison import Lowered, compare, compare_elsewhere
from .tracing import Tracer, line_of

if TYPE_CHECKING:
    from ...models._calls import Scalar

_one_at_a_time = threading.RLock()
"""Held while functions of torch and Python are replaced, which all threads see."""
_NEIGHBOURS = {"neighbors_index", "neighbors_row_splits"}
"""Keys of neighbourhoods as `NeighborSearch` returns them."""


def lower(
    model: torch.nn.Module, inputs: object, hyperparameters: Mapping[str, Scalar] | None
) -> Lowered:
    """Return the program of a model, whose results equal those of the model for the inputs."""
    with _one_at_a_time:
        return _lower(model, inputs, hyperparameters)


def _lower(
    model: torch.nn.Module, inputs: object, hyperparameters: Mapping[str, Scalar] | None
) -> Lowered:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{_CALLER}: model: expected a torch.nn.Module, got {type(model).__name__}")
    named = _by_name(model, inputs)
    builder = _builder(model, named.values())
    arguments = [_example(builder, name, value) for name, value in named.items()]
    with _unchanged(model), torch.no_grad():
        expected = model(*map(_copied, named.values()))
    with _unchanged(model):
        outputs = _outputs(_traced(builder, arguments))
    given = {
        name: scalar(f"{_CALLER}: hyperparameters: {name}", value)
        for name, value in (hyperparameters or {}).items()
    }
    settings = {**_attributes(model), **builder.hyperparameters, **given}
    program = builder.program(outputs, settings)
    examples = tuple(builder.example(one.name) for one in program.inputs)
    lowered = Lowered(program, builder.tensors, examples, builder.dtype)
    compare(expected, lowered)
    with _unchanged(model):
        compare_elsewhere(model, [*map(_copied, named.values())], lowered, builder.zero_rows)
    return lowered


@contextmanager
def _unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Restore attributes, parameters and buffers that are set meanwhile."""
    held = [vars(module) for module in model.modules()]
    held += [own[name] for own in held for name in ("_parameters", "_buffers", "_modules")]
    before = [dict(own) for own in held]
    tensors = [(one, one.detach().clone()) for one in (*model.parameters(), *model.buffers())]
    try:
        yield
    finally:
        for own, values in zip(held, before, strict=True):
            own.clear()
            own.update(values)
        with torch.no_grad():
            for tensor, value in tensors:
                if not torch.equal(tensor, value):
                    tensor.copy_(value)


def _traced(builder: Builder, arguments: Sequence[object]) -> object:
    """Return the results of the model's code for values of the program."""
    try:
        results = Tracer(builder).run(arguments)
        _check_examples(builder)
        return results
    except Exception as error:  # code of the model, which runs with tensors, may raise anything
        _check_examples(builder)
        line = line_of(error.__traceback__)
        place = f"{line}: " if line else ""
        cause = None if isinstance(error, UnsupportedError) else error
        raise NotImplementedError(f"{_CALLER}: {place}{error}") from cause


def _check_examples(builder: Builder) -> None:
    """Refuse arguments that are no values of programs, unless a search took them."""
    for example in builder.examples:
        if not example.used:
            value = example.value
            raise TypeError(
                f"{_CALLER}: inputs: {example.name}: expected a vector or a matrix of real numbers "
                f"or integers, got {value.dtype} of shape {tuple(value.shape)}"
            )


def _builder(model: torch.nn.Module, inputs: Iterable[object]) -> Builder:
    """Return a builder; a model without tensors has the precision of its inputs."""
    single = any(getattr(value, "dtype", None) is torch.float32 for value in inputs)
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise NotImplementedError(
                f"{_CALLER}: {path or 'the model'}: expected modules of Python, got a ScriptModule"
            )
    try:
        return Builder(model, np.float32 if single else np.float64)
    except UnsupportedError as error:
        raise NotImplementedError(f"{_CALLER}: {error}") from None


def _by_name(model: torch.nn.Module, inputs: object) -> dict[str, object]:
    """Return example inputs by the names of the arguments of `forward`."""
    signature = inspect.signature(model.forward)
    try:
        if isinstance(inputs, Mapping):
            bound = signature.bind(**inputs)
        elif isinstance(inputs, Sequence):
            bound = signature.bind(*inputs)
        else:
            bound = signature.bind(inputs)
    except TypeError as error:
        raise TypeError(
            f"{_CALLER}: inputs: expected the arguments of the model: {error}"
        ) from None
    given = {*bound.arguments}
    bound.apply_defaults()
    found: dict[str, object] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found.update({f"{name}_{place}": one for place, one in enumerate(value, start=1)})
        elif kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            found[name] = value
        elif name in given:
            raise TypeError(f"{_CALLER}: inputs: expected arguments by position, got {name}")
    return found


def _example(builder: Builder, name: str, value: object) -> object:
    """Add an input to the program; None and numbers are constants of it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    label = f"{_CALLER}: inputs: {name}"
    if isinstance(value, _graph.Graph):
        return builder.add_input(name, value)
    if isinstance(value, Mapping) and {*value} == _NEIGHBOURS:
        index, splits = (value[key].numpy() for key in sorted(_NEIGHBOURS))
        graph = _graph.Graph.from_csc(splits, index, int(index.max(initial=-1)) + 1)
        return builder.add_edges(name, np.stack([graph.src, graph.dst]))
    if isinstance(value, tuple) and all(map(_is_real, value)):
        return tuple(_example(builder, f"{name}_{i}", v) for i, v in enumerate(value, start=1))
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        raise TypeError(f"{label}: expected a dense tensor or a graph, got {type(value).__name__}")
    if value.dtype is torch.bool or (value.is_floating_point() and value.dim() not in (1, 2)):
        return builder.add_example(name, value)
    array = value.detach().cpu().numpy()
    if value.dtype in (torch.int32, torch.int64):
        if array.ndim == 1:
            return builder.add_input(name, array)
        if array.ndim == 2 and len(array) == 2:
            return builder.add_edges(name, array)
        raise ValueError(f"{label}: expected edges of shape (2, num_edges) or a vector of indices, "
                         f"got shape {array.shape}")  # fmt: skip
    if array.dtype != builder.dtype:
        raise TypeError(f"{label}: expected {builder.dtype} like the model, got {array.dtype}")
    return builder.add_input(name, array)


def _copied(value: object) -> object:
    """Return a copy of tensors, which the model may change in place."""
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    return value.clone() if isinstance(value, torch.Tensor) else value


def _outputs(results: object) -> list[Ref]:
    found = list(results) if isinstance(results, tuple | list) else [results]
    refs = [one for one in found if isinstance(one, Ref) and one.kind == "real"]
    if len(refs) != len(found):
        raise NotImplementedError(
            f"{_CALLER}: expected a tensor or a tuple of tensors as the result, got {results!r:.60}"
        )
    return refs


def _attributes(model: torch.nn.Module) -> dict[str, Scalar]:
    """Return the numbers and texts among the public attributes of a model."""
    found: dict[str, Scalar] = {}
    for name, value in vars(model).items():
        if not name.startswith("_") and name != "training":
            with suppress(ValueError):  # for values of other types
                found[name] = scalar(name, value)
    return found


def _is_real(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
