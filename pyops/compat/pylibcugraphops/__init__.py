"""The interface of NVIDIA's pylibcugraphops, on NumPy or CuPy arrays of any width."""

from . import dimenet as dimenet
from . import operators as operators
from ._csc import bipartite_csc_int32 as bipartite_csc_int32
from ._csc import bipartite_csc_int64 as bipartite_csc_int64
from ._csc import make_bipartite_csc as make_bipartite_csc
from ._csc_full import bipartite_csc_hg_int32 as bipartite_csc_hg_int32
from ._csc_full import bipartite_csc_hg_int64 as bipartite_csc_hg_int64
from ._csc_full import make_bipartite_csc_hg as make_bipartite_csc_hg
from ._csc_full import make_csc as make_csc
from ._csc_full import make_csc_hg as make_csc_hg
from ._install import install as install
from ._mma import MMAOp as MMAOp
