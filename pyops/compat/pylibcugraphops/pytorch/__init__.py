"""The autograd functions of pylibcugraphops.pytorch, on tensors on the CPU.

Code written for these runs by importing from here. Widths are free, float64 works, results are the
same to the last bit in every run, and all can be differentiated twice.
"""

from . import operators as operators
from ._csc import CSC as CSC
from ._csc import BipartiteCSC as BipartiteCSC
from ._csc import HeteroCSC as HeteroCSC
from ._csc import SampledCSC as SampledCSC
from ._csc import SampledHeteroCSC as SampledHeteroCSC
from ._csc import StaticCSC as StaticCSC
from ._csc import StaticHeteroCSC as StaticHeteroCSC
