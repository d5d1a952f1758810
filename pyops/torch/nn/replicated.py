"""Modules whose parameters are the same on all ranks of a communicator."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import torch
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from ...distributed import Communicator
from .._call import memory
from .._phase import is_transformed
from .._ranks import replicated

if TYPE_CHECKING:
    from collections.abc import Mapping


class Replicated(torch.nn.Module):
    """Module on the rank's own rows, whose parameters are the same on all ranks.

    Their gradients are sums over ranks, added in one message, so that all ranks take the same step;
    what is differentiated is the sum of the losses of all ranks. The module may have any layers,
    also those of `pyops.torch.nn` and operators on distributed graphs. All its inputs belong to the
    rank. Derivatives of any order follow, as for the module itself.

    Parameters
    ----------
    module : torch.nn.Module
        Its parameters are equal on all ranks, as after ``torch.manual_seed`` with one seed.
    comm : pyops.distributed.Communicator

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """

    def __init__(self, module: torch.nn.Module, comm: Communicator) -> None:
        super().__init__()
        caller = "Replicated"
        if not isinstance(comm, Communicator):
            raise TypeError(
                f"{caller}: comm: expected a pyops.distributed.Communicator, "
                f"got {type(comm).__name__}"
            )
        comm._together(caller, lambda: _checked(caller, module), tuple)
        self.module = module
        self.comm = comm

    def forward(self, *arguments: object, **options: object) -> Any:
        """Call the module."""
        return called(self.module, self.comm, arguments, options)


def called(
    module: torch.nn.Module,
    comm: Communicator,
    arguments: tuple[object, ...],
    options: Mapping[str, object],
) -> Any:
    """Call a module with parameters whose gradients are summed over ranks."""
    if comm._inside:
        return module(*arguments, **options)
    held = parameters_of(module)
    copies = replicated(comm, [*held.values()]) if held else ()
    comm._inside = True
    try:
        return functional_call(module, dict(zip(held, copies, strict=True)), arguments, {**options})
    finally:
        comm._inside = False


def parameters_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters by which a derivative may be requested."""
    transformed = is_transformed()  # of a wrapped parameter, an outer level may take the gradient
    return {
        n: p
        for n, p in module.named_parameters()
        if p.requires_grad or (transformed and p.is_floating_point())
    }


def _checked(caller: str, module: object) -> list[object]:
    """Return what identifies the parameters."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"{caller}: module: expected a torch.nn.Module, got {type(module).__name__}"
        )
    found: list[object] = []
    for name, parameter in module.named_parameters():
        label = f"{caller}: module: {name}"
        if is_lazy(parameter):
            raise ValueError(f"{label}: expected a parameter with a shape, got a lazy one")
        if not parameter.is_cpu:
            raise ValueError(f"{label}: expected a parameter on the CPU, got {parameter.device}")
        elements = zlib.crc32(memory(parameter.detach().contiguous()).tobytes())
        found.append((name, str(parameter.dtype), tuple(parameter.shape), elements))
    return found
