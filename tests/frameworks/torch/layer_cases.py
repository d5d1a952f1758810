"""Every layer and function of `pyops.torch.nn` with inputs of two sizes, to test tracing."""

import torch

from pyops.torch import nn

LARGER = 7, 8, 30
"""Numbers of sources, destinations and edges; the second set is smaller in each."""
SMALLER = 6, 5, 12


def edges(sizes, shift=0):
    """Return edges, some of which are self loops."""
    num_src, num_dst, count = sizes
    places = torch.arange(count)
    return torch.stack([(places * 3 + shift) % num_src, (places * places + places) % num_dst])


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1


def nodes(sizes, width=4):
    return draw(sizes[0], width)


def on_nodes(sizes):
    """Return features of nodes and edges between them."""
    return nodes(sizes), edges((sizes[0], sizes[0], sizes[2]))


def with_features(sizes):
    return *on_nodes(sizes), draw(sizes[2], 3)


def with_weights(sizes):
    return *on_nodes(sizes), draw(sizes[2])


def with_types(sizes):
    return *on_nodes(sizes), torch.arange(sizes[2]) % 3


def with_lengths(sizes):
    return *with_weights(sizes), draw(sizes[2], 3)


def on_both(sizes):
    return (draw(sizes[0], 4), draw(sizes[1], 4)), edges(sizes)


def by_offsets(sizes):
    """Return the CSC pair: offsets and sources."""
    splits = torch.arange(sizes[1] + 1) * 2
    x, index = on_both(sizes)
    return x, (splits, index[0, : int(splits[-1])])


def groups(sizes, width):
    """Return rows and their groups, some of which are empty."""
    return draw(sizes[2], width), edges(sizes)[1] // 2 * 2


def offsets(sizes, width):
    count = sizes[2]
    return draw(count, width), torch.tensor([0, 2, 2, count // 2, count])


def in_rows(sizes):
    """Return points, and neighbours for a set of queries in CSR form."""
    index = edges(sizes)[0]
    splits = torch.arange(sizes[1] + 1) * 2
    return draw(sizes[0], 2), index[: int(splits[-1])], splits, draw(sizes[1], 2), draw(sizes[0], 4)


def molecule(sizes):
    count = sizes[0]
    numbers = torch.arange(count) % 5 + 1
    batch = (torch.arange(count) >= 3).long()
    return numbers, 4 * draw(count, 3), batch


def crystals(sizes):
    """Return two crystals, in cells that are smaller than the cutoff."""
    return *molecule(sizes), 3 * torch.eye(3).double() + 0.1 * draw(2, 3, 3)


def triplets(sizes):
    """Return messages and bases of edges, and pairs of edges."""
    pairs = edges((sizes[2], sizes[2], 2 * sizes[2]))
    return draw(sizes[2], 8), draw(sizes[2], 3), draw(2 * sizes[2], 6), pairs[0], pairs[1]


def network(inputs, outputs):
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, 5), torch.nn.ReLU(), torch.nn.Linear(5, outputs)
    )


class Call(torch.nn.Module):
    """Layer or function with the arguments of a call."""

    def __init__(self, layer, run):
        super().__init__()
        self.layer, self.run = layer, run

    def forward(self, *given):
        return self.run(self.layer, *given)


def module(layer, *more):
    return Call(layer, lambda layer, *given: layer(*given, *more))


def mesh(block, place):
    """Return the block, whose new features are in this place of the result."""
    return Call(block, lambda block, x, index, features: block(features, x, index)[place])


def function(call, **options):
    return Call(torch.nn.Identity(), lambda _, *given: call(*given, **options))


def integral(kind):
    width = 8 if kind.startswith("nonlinear") else 4

    def run(layer, y, index, splits, x, f):
        neighbours = {"neighbors_index": index, "neighbors_row_splits": splits}
        return layer(y, neighbours, x, f)

    return Call(nn.IntegralTransform(channel_mlp_layers=[width, 6, 4], transform_type=kind), run)


def block():
    layer = nn.GNOBlock(4, 4, 2, 0.5, use_open3d_neighbor_search=False)
    return Call(layer, lambda layer, y, index, splits, x, f: layer(y, x, f))


def search():
    layer = nn.NeighborSearch(return_norm=True)
    return Call(layer, lambda layer, y, index, splits, x, f: (*layer(y, x, 0.5).values(),))


def dimenet():
    sizes = {"int_emb_size": 4, "basis_emb_size": 3, "out_emb_channels": 6}
    sizes |= {"num_spherical": 2, "num_radial": 3}
    return nn.DimeNetPlusPlus(8, 2, 1, **sizes, cutoff=2.5, output_initializer="glorot_orthogonal")


def schnet():
    return nn.SchNet(8, 6, 2, 5, cutoff=2.5)


silu = torch.nn.functional.silu
PNA = ["mean", "std", "max"], ["identity", "linear"], torch.tensor([1, 2, 3])
CASES = {
    "GATConv": (lambda: module(nn.GATConv(4, 3, heads=2)), on_nodes),
    "GATConv two sides": (lambda: module(nn.GATConv((4, 4), 3)), on_both),
    "GATConv edges": (lambda: module(nn.GATConv(4, 3, heads=2, edge_dim=3)), with_features),
    "GATConv weights": (
        lambda: module(nn.GATConv(4, 3, heads=2, add_self_loops=False), None, None, True),
        on_nodes,
    ),
    "GATConv max": (lambda: module(nn.GATConv(4, 3, aggr="max", residual=True)), on_nodes),
    "GATv2Conv": (lambda: module(nn.GATv2Conv(4, 3, heads=2)), on_nodes),
    "GATv2Conv edges": (lambda: module(nn.GATv2Conv(4, 3, edge_dim=3)), with_features),
    "GATv2Conv offsets": (lambda: module(nn.GATv2Conv((4, 4), 3)), by_offsets),
    "TransformerConv": (lambda: module(nn.TransformerConv(4, 3, heads=2)), on_nodes),
    "TransformerConv edges": (
        lambda: module(nn.TransformerConv(4, 3, edge_dim=3, beta=True, aggr="mean")),
        with_features,
    ),
    "NNConv": (lambda: module(nn.NNConv(4, 3, network(3, 12))), with_features),
    "NNConv mean": (lambda: module(nn.NNConv(4, 3, network(3, 12), aggr="mean")), with_features),
    "NNConv matrices": (
        lambda: module(nn.NNConv(4, 3, torch.nn.Sequential(network(3, 12), torch.nn.Tanh()))),
        with_features,
    ),
    "GCNConv": (lambda: module(nn.GCNConv(4, 3)), on_nodes),
    "GCNConv weights": (lambda: module(nn.GCNConv(4, 3, improved=True)), with_weights),
    "GCNConv mul": (lambda: module(nn.GCNConv(4, 3, aggr="mul")), with_weights),
    "SAGEConv": (lambda: module(nn.SAGEConv(4, 3)), on_nodes),
    "SAGEConv max": (lambda: module(nn.SAGEConv((4, 4), 3, "max", True)), on_both),
    "SAGEConv offsets": (lambda: module(nn.SAGEConv((4, 4), 3, project=True)), by_offsets),
    "GraphConv": (lambda: module(nn.GraphConv(4, 3)), with_weights),
    "GINConv": (lambda: module(nn.GINConv(network(4, 3), train_eps=True)), on_nodes),
    "EdgeConv": (lambda: module(nn.EdgeConv(network(8, 3), "add")), on_nodes),
    "EdgeConv max": (lambda: module(nn.EdgeConv(network(8, 3))), on_both),
    "EdgeConv of any network": (
        lambda: module(
            nn.EdgeConv(torch.nn.Sequential(network(8, 3), torch.nn.Tanh()), aggr="mean")
        ),
        on_nodes,
    ),
    "MeshEdgeBlock": (lambda: mesh(nn.MeshEdgeBlock(4, 3, 3, 5), 0), with_features),
    "MeshEdgeBlock of three weights": (
        lambda: mesh(nn.MeshEdgeBlock(4, 3, 3, 5, do_concat_trick=True), 0),
        with_features,
    ),
    "MeshNodeBlock": (lambda: mesh(nn.MeshNodeBlock("mean", 4, 3, 4, 5), 1), with_features),
    "MeshGraphNetProcessor": (
        lambda: Call(nn.MeshGraphNetProcessor(2, 4, 4), lambda f, x, i, e: f(x, e, i)),
        lambda sizes: (*on_nodes(sizes), draw(sizes[2], 4)),
    ),
    "RGCNConv": (lambda: module(nn.RGCNConv(4, 3, 3, num_bases=2)), with_types),
    "RGCNConv blocks": (lambda: module(nn.RGCNConv(4, 2, 3, num_blocks=2, aggr="max")), with_types),
    "CuGraphSAGEConv": (lambda: module(nn.CuGraphSAGEConv(4, 3)), on_nodes),
    "CuGraphGATConv": (lambda: module(nn.CuGraphGATConv(4, 3, 2)), on_nodes),
    "CuGraphRGCNConv": (lambda: module(nn.CuGraphRGCNConv(4, 3, 3, 2)), with_types),
    "RGCNConv rows": (
        lambda: Call(nn.RGCNConv(9, 3, 3), lambda f, x, i, t: f(torch.arange(x.shape[0]), i, t)),
        with_types,
    ),
    "CFConv": (lambda: module(nn.CFConv(4, 3, 5, network(3, 5), 2.0)), with_lengths),
    "PNAConv": (lambda: module(nn.PNAConv(4, 3, *PNA)), on_nodes),
    "PNAConv towers": (
        lambda: module(nn.PNAConv(4, 4, *PNA, edge_dim=3, towers=2, divide_input=True)),
        with_features,
    ),
    "softmax": (lambda: function(nn.softmax), lambda sizes: groups(sizes, 2)),
    "softmax wide": (lambda: function(nn.softmax), lambda sizes: groups(sizes, 8)),
    "softmax offsets": (
        lambda: function(lambda x, ptr: nn.softmax(x, ptr=ptr)),
        lambda sizes: offsets(sizes, 8),
    ),
    "scatter": (lambda: function(nn.scatter), lambda sizes: groups(sizes, 2)),
    "scatter wide": (lambda: function(nn.scatter), lambda sizes: groups(sizes, 16)),
    "scatter mean": (lambda: function(nn.scatter, reduce="mean"), lambda sizes: groups(sizes, 16)),
    "scatter max": (lambda: function(nn.scatter, reduce="max"), lambda sizes: groups(sizes, 16)),
    "segment": (lambda: function(nn.segment), lambda sizes: offsets(sizes, 2)),
    "segment wide": (lambda: function(nn.segment, reduce="mean"), lambda sizes: offsets(sizes, 16)),
    "segment max": (lambda: function(nn.segment, reduce="max"), lambda sizes: offsets(sizes, 16)),
    **{
        f"IntegralTransform {kind}": (lambda kind=kind: integral(kind), in_rows)
        for kind in ("linear", "linear_kernelonly", "nonlinear", "nonlinear_kernelonly")
    },
    "GNOBlock": (block, in_rows),
    "NeighborSearch": (search, in_rows),
    "LinearChannelMLP": (
        lambda: module(nn.LinearChannelMLP([4, 6, 3], silu)),
        lambda sizes: (nodes(sizes),),
    ),
    "SinusoidalEmbedding": (
        lambda: module(nn.SinusoidalEmbedding(4, 3, "nerf")),
        lambda sizes: (nodes(sizes),),
    ),
    "DimeNetPlusPlus": (lambda: module(dimenet()), molecule),
    "DimeNetPlusPlus cells": (lambda: module(dimenet()), crystals),
    "SchNet": (lambda: module(schnet()), molecule),
    "SchNet cells": (lambda: module(schnet()), crystals),
    "InteractionBlock": (lambda: module(nn.InteractionBlock(4, 3, 5, 2.0)), with_lengths),
    "GaussianSmearing": (
        lambda: module(nn.GaussianSmearing(0.0, 2.0, 3)),
        lambda sizes: (draw(sizes[2]),),
    ),
    "ShiftedSoftplus": (lambda: module(nn.ShiftedSoftplus()), lambda sizes: (nodes(sizes),)),
    "BesselBasisLayer": (
        lambda: module(nn.BesselBasisLayer(3, 2.0)),
        lambda sizes: (draw(sizes[2]),),
    ),
    "SphericalBasisLayer": (
        lambda: module(nn.SphericalBasisLayer(2, 3, 2.0)),
        lambda sizes: (draw(sizes[2]), draw(2 * sizes[2]), edges((sizes[2], 1, 2 * sizes[2]))[0]),
    ),
    "EmbeddingBlock": (
        lambda: module(nn.EmbeddingBlock(3, 8, silu)),
        lambda sizes: (molecule(sizes)[0], draw(sizes[2], 3), *edges((sizes[0],) * 2 + sizes[2:])),
    ),
    "InteractionPPBlock": (
        lambda: module(nn.InteractionPPBlock(8, 4, 3, 2, 3, 1, 1, silu)),
        triplets,
    ),
    "OutputPPBlock": (
        lambda: module(nn.OutputPPBlock(3, 8, 6, 2, 1, silu, "glorot_orthogonal")),
        lambda sizes: (*triplets(sizes)[:2], edges(sizes)[1]),
    ),
    "ResidualLayer": (lambda: module(nn.ResidualLayer(8, silu)), lambda s: (draw(s[2], 8),)),
}


def case(name):
    """Return a module and its inputs of both sizes."""
    make, given = CASES[name]
    torch.manual_seed(1)
    return make().double(), given(LARGER), given(SMALLER)
