"""Differentiable graph and neural-operator kernels, written in Fortran."""

from importlib.metadata import version as _version

from . import blocks as blocks
from . import testing as testing
from ._threads import get_num_threads as get_num_threads
from ._threads import set_num_threads as set_num_threads
from .graph import Graph as Graph
from .ops.gno_aggregate import gno_aggregate as gno_aggregate
from .ops.gno_conv import gno_conv as gno_conv
from .ops.gno_kernel import gno_kernel as gno_kernel
from .ops.kernel_conv import kernel_conv as kernel_conv

__version__ = _version("pyops")
