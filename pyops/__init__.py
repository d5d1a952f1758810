"""Differentiable graph and neural-operator kernels, written in Fortran."""

from importlib.metadata import version as _version

from . import blocks as blocks
from . import partials as partials
from . import testing as testing
from ._backends import register_all as _register_all
from ._call.compound import starred as _starred
from ._call.threads import get_num_threads as get_num_threads
from ._call.threads import set_num_threads as set_num_threads
from .dimenet import dimenet_basis as dimenet_basis
from .graph import Graph as Graph
from .neighbours import knn_graph as knn_graph
from .neighbours import radius_graph as radius_graph
from .ops.aggregate import aggregate as aggregate
from .ops.degree_normalised import degree_normalised as degree_normalised
from .ops.dimenet_aggregate import dimenet_aggregate as dimenet_aggregate
from .ops.edge_difference import edge_difference as edge_difference
from .ops.edge_mlp import edge_mlp as edge_mlp
from .ops.edge_network import edge_network as edge_network
from .ops.edge_to_edge import edge_to_edge as edge_to_edge
from .ops.edge_update import edge_update as edge_update
from .ops.elem_scale import elem_scale as elem_scale
from .ops.elementwise import abs as abs
from .ops.elementwise import add as add
from .ops.elementwise import arcsin as arcsin
from .ops.elementwise import arctan as arctan
from .ops.elementwise import clip as clip
from .ops.elementwise import cos as cos
from .ops.elementwise import cosh as cosh
from .ops.elementwise import divide as divide
from .ops.elementwise import elu as elu
from .ops.elementwise import erf as erf
from .ops.elementwise import exp as exp
from .ops.elementwise import gelu as gelu
from .ops.elementwise import hardsigmoid as hardsigmoid
from .ops.elementwise import leaky_relu as leaky_relu
from .ops.elementwise import log as log
from .ops.elementwise import log_softmax as log_softmax
from .ops.elementwise import max as max
from .ops.elementwise import maximum as maximum
from .ops.elementwise import mean as mean
from .ops.elementwise import min as min
from .ops.elementwise import minimum as minimum
from .ops.elementwise import multiply as multiply
from .ops.elementwise import negative as negative
from .ops.elementwise import power as power
from .ops.elementwise import reciprocal as reciprocal
from .ops.elementwise import relu as relu
from .ops.elementwise import sigmoid as sigmoid
from .ops.elementwise import silu as silu
from .ops.elementwise import sin as sin
from .ops.elementwise import sinh as sinh
from .ops.elementwise import softmax as softmax
from .ops.elementwise import softplus as softplus
from .ops.elementwise import sqrt as sqrt
from .ops.elementwise import subtract as subtract
from .ops.elementwise import sum as sum
from .ops.elementwise import tan as tan
from .ops.elementwise import tanh as tanh
from .ops.elementwise import where as where
from .ops.gat import gat as gat
from .ops.gat_v2 import gat_v2 as gat_v2
from .ops.gno_aggregate import gno_aggregate as gno_aggregate
from .ops.gno_conv import gno_conv as gno_conv
from .ops.gno_kernel import gno_kernel as gno_kernel
from .ops.hetero_basis import hetero_basis as hetero_basis
from .ops.kernel_conv import kernel_conv as kernel_conv
from .ops.lno_decode import lno_decode as lno_decode
from .ops.lno_encode import lno_encode as lno_encode
from .ops.ono_decode import ono_decode as ono_decode
from .ops.ono_encode import ono_encode as ono_encode
from .ops.orthonormalize import orthonormalize as orthonormalize
from .ops.radial_basis import radial_basis as radial_basis
from .ops.segment_matmul import segment_matmul as segment_matmul
from .ops.segment_softmax import segment_softmax as segment_softmax
from .ops.spherical_basis import spherical_basis as spherical_basis
from .ops.spherical_harmonics import spherical_harmonics as spherical_harmonics
from .ops.transformer_conv import transformer_conv as transformer_conv

_register_all()

from . import models as models  # noqa: E402 (needs the table of operators)

__version__ = _version("pyops-kernels")

__all__ = [
    "Graph",
    "blocks",
    "get_num_threads",
    "knn_graph",
    "models",
    "partials",
    "radius_graph",
    "set_num_threads",
    "testing",
    *_starred(),
]
