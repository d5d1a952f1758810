"""Inputs and sums of the models of molecules and crystals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .._call import is_tracing
from ._edges.edge_index import check_device

if TYPE_CHECKING:
    from torch import Tensor


def check_atoms(
    caller: str,
    z: Tensor,
    pos: Tensor,
    batch: Tensor | None,
    cell: Tensor | None,
    pbc: Tensor | None,
    parameter: Tensor,
) -> None:
    """Check atomic numbers, positions, molecules and cells, as far as the search does not."""
    given = {"z": z, "pos": pos, "batch": batch, "cell": cell, "pbc": pbc}
    for name, value in given.items():
        if value is not None or name in ("z", "pos"):
            check_device(f"{caller}: {name}", value)
    check_precision(f"{caller}: pos", pos, parameter)
    if not is_tracing() and z.shape != pos.shape[:1]:
        raise ValueError(
            f"{caller}: z: expected {pos.shape[0]} atomic numbers, one for each position, "
            f"got shape {tuple(z.shape)}"
        )
    if cell is None and pbc is not None and (is_tracing() or bool(pbc.any())):
        raise ValueError(f"{caller}: pbc: expected a cell beside it, got none")
    if pbc is not None and pbc.shape[-1:] != (3,):
        raise ValueError(
            f"{caller}: pbc: expected shape (3,) or (num_graphs, 3), got {tuple(pbc.shape)}"
        )
    if cell is not None and not cell.is_floating_point():
        raise TypeError(f"{caller}: cell: expected floating-point numbers, got {cell.dtype}")


def check_precision(label: str, given: Tensor, parameter: Tensor) -> None:
    """Refuse float32 with float64; under autocast half precision meets either."""
    if {given.dtype, parameter.dtype} == {torch.float32, torch.float64}:
        wanted, found = (str(t.dtype).removeprefix("torch.") for t in (parameter, given))
        raise TypeError(f"{label}: expected {wanted} like the parameters, got {found}")


def sum_by_molecule(rows: Tensor, batch: Tensor, counts: Tensor) -> Tensor:
    """Return the sum over the atoms of each molecule."""
    return rows.new_zeros((counts.shape[0], rows.shape[1])).index_add(0, batch, rows)
