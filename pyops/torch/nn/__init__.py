"""Drop-in replacements for PyTorch layers of other packages: change the import.

Constructor arguments, `repr`, names and shapes of the parameters, input forms and results are those
of the originals; a `state_dict` of one loads into the other.

An `edge_index` of a layer of PyTorch Geometric is a tensor [2, edges] with sources in its first and
destinations in its second row; a sparse matrix of torch with a row for each destination; a CSC pair
(offsets, sources); or a packed `pyops.Graph` (`pyops.torch.Graph` if torch compiles). It is packed
once and cached as long as the tensor lives unchanged. A packed graph gets no self loops: make the
layer with ``add_self_loops=False``, and the graph from edges with self loops, for example by
``torch_geometric.utils.add_self_loops``.

Layers of PyTorch Geometric also take a `pyops.distributed.DistributedGraph`, with the rank's own
rows; gradients of their parameters are then sums over ranks. `Replicated` does that to any module.

Layers and tensors may be on a CUDA device, all on the same one. Edges are checked and packed on the
host, so the first call with an index waits for its copy to the host. Inference tensors are copied
in each call; so are edges in compiled functions, except those of a `pyops.torch.Graph`. Neighbours
of positions are searched on the host. Sums by torch's own operations, of narrow rows and of
gradients of gathered rows, are deterministic if torch is set to be.
"""

import sys as _sys
import typing as _typing

from . import _missing
from ._convert import convert as convert
from ._functions import scatter as scatter
from ._functions import segment as segment
from ._functions import softmax as softmax
from .bessel_basis_layer import BesselBasisLayer as BesselBasisLayer
from .cf_conv import CFConv as CFConv
from .cugraph_conv import CuGraphGATConv as CuGraphGATConv
from .cugraph_conv import CuGraphRGCNConv as CuGraphRGCNConv
from .cugraph_conv import CuGraphSAGEConv as CuGraphSAGEConv
from .dimenet_plus_plus import DimeNetPlusPlus as DimeNetPlusPlus
from .edge_conv import EdgeConv as EdgeConv
from .embedding_block import EmbeddingBlock as EmbeddingBlock
from .gat_conv import GATConv as GATConv
from .gatv2_conv import GATv2Conv as GATv2Conv
from .gaussian_smearing import GaussianSmearing as GaussianSmearing
from .gcn_conv import GCNConv as GCNConv
from .gin_conv import GINConv as GINConv
from .gno_block import GNOBlock as GNOBlock
from .graph_conv import GraphConv as GraphConv
from .in_parts import InParts as InParts
from .integral_transform import IntegralTransform as IntegralTransform
from .interaction_block import InteractionBlock as InteractionBlock
from .interaction_pp_block import InteractionPPBlock as InteractionPPBlock
from .linear_channel_mlp import LinearChannelMLP as LinearChannelMLP
from .mesh_graph_net import MeshEdgeBlock as MeshEdgeBlock
from .mesh_graph_net import MeshGraphNetProcessor as MeshGraphNetProcessor
from .mesh_graph_net import MeshNodeBlock as MeshNodeBlock
from .neighbor_search import NeighborSearch as NeighborSearch
from .nn_conv import NNConv as NNConv
from .output_pp_block import OutputPPBlock as OutputPPBlock
from .pna_conv import PNAConv as PNAConv
from .replicated import Replicated as Replicated
from .residual_layer import ResidualLayer as ResidualLayer
from .rgcn_conv import RGCNConv as RGCNConv
from .sage_conv import SAGEConv as SAGEConv
from .schnet import SchNet as SchNet
from .shifted_softplus import ShiftedSoftplus as ShiftedSoftplus
from .sinusoidal_embedding import SinusoidalEmbedding as SinusoidalEmbedding
from .spherical_basis_layer import SphericalBasisLayer as SphericalBasisLayer
from .transformer_conv import TransformerConv as TransformerConv

if not _typing.TYPE_CHECKING:  # type checkers would accept every name

    def __getattr__(name):
        """Explain what to use instead of a layer that is not here."""
        raise AttributeError(_missing.explain(__name__, name))

    _sys.meta_path.append(_missing.Finder(__name__))
