"""The low-level calls of pylibcugraphops.operators, on NumPy or CuPy arrays."""

from typing import NoReturn

from ._aggregations import agg_concat_e2n_bwd as agg_concat_e2n_bwd
from ._aggregations import agg_concat_e2n_fwd as agg_concat_e2n_fwd
from ._aggregations import agg_concat_n2n_bwd as agg_concat_n2n_bwd
from ._aggregations import agg_concat_n2n_e2n_bwd as agg_concat_n2n_e2n_bwd
from ._aggregations import agg_concat_n2n_e2n_fwd as agg_concat_n2n_e2n_fwd
from ._aggregations import agg_concat_n2n_fwd as agg_concat_n2n_fwd
from ._aggregations import agg_simple_e2n_bwd as agg_simple_e2n_bwd
from ._aggregations import agg_simple_e2n_fwd as agg_simple_e2n_fwd
from ._aggregations import agg_simple_n2n_bwd as agg_simple_n2n_bwd
from ._aggregations import agg_simple_n2n_e2n_bwd as agg_simple_n2n_e2n_bwd
from ._aggregations import agg_simple_n2n_e2n_fwd as agg_simple_n2n_e2n_fwd
from ._aggregations import agg_simple_n2n_fwd as agg_simple_n2n_fwd
from ._edges import agg_dmpnn_e2e_bwd as agg_dmpnn_e2e_bwd
from ._edges import agg_dmpnn_e2e_fwd as agg_dmpnn_e2e_fwd
from ._edges import update_efeat_e2e_concat_bwd as update_efeat_e2e_concat_bwd
from ._edges import update_efeat_e2e_concat_fwd as update_efeat_e2e_concat_fwd
from ._edges import update_efeat_e2e_sum_bwd as update_efeat_e2e_sum_bwd
from ._edges import update_efeat_e2e_sum_fwd as update_efeat_e2e_sum_fwd
from ._mha import mha_params as mha_params
from ._mha_calls import BY_PRECISION as _BY_PRECISION
from ._mha_calls import mha_gat_n2n_bwd as mha_gat_n2n_bwd
from ._mha_calls import mha_gat_n2n_efeat_bwd as mha_gat_n2n_efeat_bwd
from ._mha_calls import mha_gat_n2n_efeat_fwd as mha_gat_n2n_efeat_fwd
from ._mha_calls import mha_gat_n2n_fwd as mha_gat_n2n_fwd
from ._mha_calls import mha_gat_v2_n2n_bwd as mha_gat_v2_n2n_bwd
from ._mha_calls import mha_gat_v2_n2n_efeat_bwd as mha_gat_v2_n2n_efeat_bwd
from ._mha_calls import mha_gat_v2_n2n_efeat_fwd as mha_gat_v2_n2n_efeat_fwd
from ._mha_calls import mha_gat_v2_n2n_fwd as mha_gat_v2_n2n_fwd
from ._mha_calls import mha_simple_n2n_bwd as mha_simple_n2n_bwd
from ._mha_calls import mha_simple_n2n_efeat_bwd as mha_simple_n2n_efeat_bwd
from ._mha_calls import mha_simple_n2n_efeat_fwd as mha_simple_n2n_efeat_fwd
from ._mha_calls import mha_simple_n2n_fwd as mha_simple_n2n_fwd
from ._reductions import AggOp as AggOp
from ._relations import agg_hg_basis_n2n_post_bwd as agg_hg_basis_n2n_post_bwd
from ._relations import agg_hg_basis_n2n_post_fwd as agg_hg_basis_n2n_post_fwd
from ._weighted import agg_concat_weighted_n2n_bwd as agg_concat_weighted_n2n_bwd
from ._weighted import agg_concat_weighted_n2n_fwd as agg_concat_weighted_n2n_fwd
from ._weighted import agg_weighted_n2n_bwd as agg_weighted_n2n_bwd
from ._weighted import agg_weighted_n2n_fwd as agg_weighted_n2n_fwd

globals().update(_BY_PRECISION)


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
