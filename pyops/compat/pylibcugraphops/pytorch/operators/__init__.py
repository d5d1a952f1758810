"""The autograd functions: aggregations, attention, relations, edge updates.

Features of a graph that is not bipartite are one tensor with rows for the source nodes, the first
of which are the destinations. Those of a bipartite graph are a pair, for sources and destinations.
"""

from ._aggregations import agg_concat_e2n as agg_concat_e2n
from ._aggregations import agg_concat_n2n as agg_concat_n2n
from ._edges import update_efeat_bipartite_e2e as update_efeat_bipartite_e2e
from ._edges import update_efeat_e2e as update_efeat_e2e
from ._edges import update_efeat_static_e2e as update_efeat_static_e2e
from ._mha import mha_gat_n2n as mha_gat_n2n
from ._mha import mha_gat_v2_n2n as mha_gat_v2_n2n
from ._mha import mha_simple_n2n as mha_simple_n2n
from ._relations import agg_hg_basis_n2n_post as agg_hg_basis_n2n_post
