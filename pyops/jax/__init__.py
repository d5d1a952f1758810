"""The operators on JAX arrays: `pyops.jax.<operator>`, differentiable to second order.

Has every operator of the table, with its name, shapes and options, on the CPU, inside and outside
of `jax.jit`, under grad, jvp, vmap and hessian. float64 needs jax_enable_x64.
"""

from .._call.compound import COMPOUNDS as _COMPOUNDS
from .._call.compound import starred as _starred
from .._call.framework import adapted as _adapted
from .._call.framework import compound as _compound
from .._call.operator import OPERATORS as _OPERATORS
from ._distribute import distribute as distribute
from ._distributed import DistributedGraph as DistributedGraph
from ._function import as_numbers as _as_numbers
from ._function import check as _check
from ._function import function as _function
from ._graph import Graph as Graph
from ._points import Devices as Devices
from ._radius import knn_graph as knn_graph
from ._radius import radius_graph as radius_graph

__all__ = [
    "Devices",
    "DistributedGraph",
    "Graph",
    "distribute",
    "knn_graph",
    "radius_graph",
    *_starred(),
]

globals().update({name: _function(operator) for name, operator in _OPERATORS.items()})
globals().update({name: _compound(op, "jax", globals(), _check) for name, op in _COMPOUNDS.items()})
globals().update(_adapted(globals(), "jax", _as_numbers))
