"""Files of PyTorch models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _container
from ._model import METADATA

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import torch

    from ._calls import Scalar


def save(
    model: torch.nn.Module,
    path: str | os.PathLike[str],
    inputs: object,
    *,
    hyperparameters: Mapping[str, Scalar] | None = None,
) -> None:
    """Write a PyTorch model to a file that `load` reads without PyTorch.

    The file has the ``state_dict``, readable by the package safetensors, too, and a program of the
    calls that the model makes: layers of `pyops.torch.nn`, modules and functions of torch and
    operators of `pyops.torch`. It is found by one call of the model, and its results are compared
    with the model's.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation: ``model.eval()``. Batch norms become scale and shift by the running
        statistics.
    path : path
    inputs : tuple, dict, or one tensor
        Examples of the arguments of a call. Their sizes, apart from columns, do not matter to the
        file. Integers of shape (2, num_edges) or a graph become an input of kind "graph". Graphs
        that the model searches, as `DimeNetPlusPlus` and `GNOBlock` do, become inputs before the
        others.
    hyperparameters : dict of numbers and texts, optional
        For the reader, beside the public attributes of the model that are numbers or texts.

    Raises
    ------
    NotImplementedError
        For what a program cannot express: a layer or an option, a function, a branch that depends
        on values or on the number of rows. The message names it, its module and the line.
    TypeError, ValueError
        If inputs do not fit the model.
    """
    from ..torch._lowering import lower

    found = lower(model, inputs, hyperparameters)
    metadata = {"format": "pt", METADATA: found.program.text()}
    _container.write(path, found.tensors, metadata)
