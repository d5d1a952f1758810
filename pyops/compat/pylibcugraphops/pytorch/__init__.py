"""The autograd functions of pylibcugraphops.pytorch, on CPU tensors.

Code written for these runs by importing from here. Any width and float64 are supported, results
are bitwise equal in every run, and all functions are twice differentiable.
"""

from . import operators as operators
from ._csc import CSC as CSC
from ._csc import BipartiteCSC as BipartiteCSC
from ._csc import HeteroCSC as HeteroCSC
from ._csc import SampledCSC as SampledCSC
from ._csc import SampledHeteroCSC as SampledHeteroCSC
from ._csc import StaticCSC as StaticCSC
from ._csc import StaticHeteroCSC as StaticHeteroCSC
