"""Differentiable graph and neural-operator kernels, written in Fortran."""

from importlib.metadata import version as _version

from . import blocks as blocks
from . import testing as testing
from ._threads import get_num_threads as get_num_threads
from ._threads import set_num_threads as set_num_threads
from .graph import Graph as Graph
from .ops.elem_scale import elem_scale as elem_scale
from .ops.gno_aggregate import gno_aggregate as gno_aggregate
from .ops.gno_conv import gno_conv as gno_conv
from .ops.gno_kernel import gno_kernel as gno_kernel
from .ops.kernel_conv import kernel_conv as kernel_conv
from .ops.lno_decode import lno_decode as lno_decode
from .ops.lno_encode import lno_encode as lno_encode
from .ops.ono_decode import ono_decode as ono_decode
from .ops.ono_encode import ono_encode as ono_encode
from .ops.orthonormalize import orthonormalize as orthonormalize

__version__ = _version("pyops")
