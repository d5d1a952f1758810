"""Operators on PyTorch tensors: `pyops.torch.<operator>`, differentiable as often as pyops is.

Provides every operator under its name, with its shapes and options. Kernels read CPU tensors in
place. Gradients, double backward, forward mode and `torch.func` (grad, jvp, vmap, jacrev, hessian)
work as for torch's own functions.
"""

from .._call.compound import COMPOUNDS as _COMPOUNDS
from .._call.compound import starred as _starred
from .._call.framework import adapted as _adapted
from .._call.framework import compound as _compound
from .._call.operator import OPERATORS as _OPERATORS
from ._call import as_numbers as _as_numbers
from ._call import check as _check
from ._function import function as _function
from ._graph import Graph as Graph
from ._radius import knn_graph as knn_graph
from ._radius import radius_graph as radius_graph
from ._sampler import BalancedBatchSampler as BalancedBatchSampler

__all__ = ["BalancedBatchSampler", "Graph", "knn_graph", "radius_graph", *_starred()]

globals().update({name: _function(operator) for name, operator in _OPERATORS.items()})
globals().update(
    {name: _compound(op, "torch", globals(), _check) for name, op in _COMPOUNDS.items()}
)
globals().update(_adapted(globals(), "torch", _as_numbers))
