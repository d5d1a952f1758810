"""The low-level calls of pylibcugraphops.operators, on NumPy arrays."""

from ._mha import mha_gat_n2n_bwd as mha_gat_n2n_bwd
from ._mha import mha_gat_n2n_bwd_fp32_fp32_fp32_fp32 as mha_gat_n2n_bwd_fp32_fp32_fp32_fp32
from ._mha import mha_gat_n2n_efeat_bwd as mha_gat_n2n_efeat_bwd
from ._mha import (
    mha_gat_n2n_efeat_bwd_fp32_fp32_fp32_fp32 as mha_gat_n2n_efeat_bwd_fp32_fp32_fp32_fp32,
)
from ._mha import mha_gat_n2n_efeat_fwd as mha_gat_n2n_efeat_fwd
from ._mha import mha_gat_n2n_efeat_fwd_fp32_fp32 as mha_gat_n2n_efeat_fwd_fp32_fp32
from ._mha import mha_gat_n2n_fwd as mha_gat_n2n_fwd
from ._mha import mha_gat_n2n_fwd_fp32_fp32 as mha_gat_n2n_fwd_fp32_fp32
from ._mha import mha_gat_v2_n2n_bwd as mha_gat_v2_n2n_bwd
from ._mha import mha_gat_v2_n2n_efeat_bwd as mha_gat_v2_n2n_efeat_bwd
from ._mha import mha_gat_v2_n2n_efeat_fwd as mha_gat_v2_n2n_efeat_fwd
from ._mha import mha_gat_v2_n2n_fwd as mha_gat_v2_n2n_fwd
from ._mha import mha_params as mha_params
from ._mha import mha_simple_n2n_bwd as mha_simple_n2n_bwd
from ._mha import mha_simple_n2n_efeat_bwd as mha_simple_n2n_efeat_bwd
from ._mha import mha_simple_n2n_efeat_fwd as mha_simple_n2n_efeat_fwd
from ._mha import mha_simple_n2n_fwd as mha_simple_n2n_fwd
