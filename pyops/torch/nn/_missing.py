"""Replacements for the layers of PyTorch Geometric that this package does not have."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_READOUT = 'pyops.torch.nn.scatter(x, batch, reduce="{}")'
REPLACEMENTS = {
    "GINEConv": 'pyops.torch.edge_update(graph, x, edge=edge_attr, mode="sum"), then '
    "pyops.torch.aggregate(graph, edge=...)",
    "LGConv": "pyops.torch.degree_normalised(graph, x) on a graph with edges in both directions",
    "SGConv": "pyops.torch.degree_normalised(graph, x) on a graph with edges in both directions "
    "and self loops, once for each hop, and a torch Linear",
    "FastRGCNConv": "RGCNConv of this package, which has the same parameters and results",
    "ECConv": "NNConv of this package, which is the same layer",
    "DimeNet": "DimeNetPlusPlus of this package",
    "MessagePassing": "the operators of pyops.torch: layers of this package form no messages",
    "global_add_pool": _READOUT.format("sum"),
    "global_mean_pool": _READOUT.format("mean"),
    "global_max_pool": _READOUT.format("max"),
}
"""Frequent names that this package lacks, and the calls that compute the same."""


def explain(package: str, name: str) -> str:
    """Return the text of the error for a name that the package does not have."""
    if name.startswith("_"):
        return f"module {package!r} has no attribute {name!r}"
    there = [n for n in vars(sys.modules[package]) if n[0] != "_" and n[0].isupper()]
    text = f"{package}: expected one of {', '.join(sorted(there))}, got {name}"
    if name in REPLACEMENTS:
        text += f"; use {REPLACEMENTS[name]}"
    return f"{text}; layers of torch_geometric.nn work beside these in one model"


class Finder:
    """Last finder of modules: explains why `from package import name` fails.

    That statement drops the text of an AttributeError and then looks for a submodule, whose finder
    may raise an ImportError of its own.
    """

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        """Raise an error for a public name of the package; find nothing else."""
        package, _, name = fullname.rpartition(".")
        if package == self.package and not name.startswith("_"):
            raise ImportError(explain(package, name), name=fullname)
