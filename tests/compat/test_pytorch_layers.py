"""Layers of other libraries, written out with their calls of pylibcugraphops.pytorch."""

import pytest

torch = pytest.importorskip("torch")


import pyops.compat.pylibcugraphops.pytorch as ops_torch  # noqa: E402
from pyops.compat.pylibcugraphops.pytorch import CSC, HeteroCSC, operators  # noqa: E402

from .test_pytorch import Case  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def test_layers_of_torch_geometric():
    """The calls of its CuGraph layers: bipartite graphs of sampled neighbourhoods."""
    case = Case()
    colptr, row = case.offsets.int(), case.indices.int()
    graph = CSC(colptr, row, 7, dst_max_in_degree=6)
    x = case.x.detach().float().requires_grad_()
    att = torch.randn(2 * 6, requires_grad=True)
    out = operators.mha_gat_n2n(x, att, graph, 2, "LeakyReLU", 0.2, True, edge_feat=None)
    assert out.shape == (5, 6)
    assert out.dtype == torch.float32
    lin = torch.nn.Linear(2 * 6, 4)
    out = lin(operators.agg_concat_n2n(x, graph, "mean"))
    typed = HeteroCSC(colptr, row, case.types.int(), 7, 3, dst_max_in_degree=6)
    comp, weight = torch.randn(3, 2, requires_grad=True), torch.randn(2 + 1, 6, 4)
    post = operators.agg_hg_basis_n2n_post(x, comp, typed, True, True) @ weight.view(-1, 4)
    (out + post).square().sum().backward()
    assert x.grad.abs().sum() > 0
    assert comp.grad.shape == comp.shape


def test_layers_of_dgl():
    """The calls of dgl 1.1 and cugraph-dgl: old graph types, keywords, one block for all layers."""
    case = Case()
    offsets, indices = case.offsets, case.indices
    sampled = ops_torch.SampledCSC(offsets, indices, 6, 7)
    padded = torch.cat([offsets, offsets[-1:].expand(2)])
    static = ops_torch.StaticCSC(padded, indices)
    for layer in (
        lambda g: operators.agg_concat_n2n(case.x, g, "mean")[:5],
        lambda g: operators.mha_gat_n2n(
            case.x, case.attention[:12], g, 2, "LeakyReLU", 0.2, concat_heads=True
        )[:5],
    ):
        assert torch.equal(layer(sampled), layer(static))
    hetero = ops_torch.SampledHeteroCSC(offsets, indices, case.types, 6, 7, 3)
    fixed = ops_torch.StaticHeteroCSC(padded, indices, case.types, 3)
    comp = torch.randn(3, 2, dtype=torch.float64)
    options = {"concat_own": True, "norm_by_out_degree": True}
    one, other = (
        operators.agg_hg_basis_n2n_post(case.x, comp, g, **options)[:5] for g in (hetero, fixed)
    )
    torch.testing.assert_close(one, other)
    graph = CSC(
        offsets=offsets,
        indices=indices,
        num_src_nodes=7,
        dst_max_in_degree=-1,
        is_bipartite=True,
    )
    graph.add_reverse_graph()
    out = ops_torch.operators.mha_gat_v2_n2n(
        (case.x, case.y),
        case.attention[:6],
        graph,
        num_heads=2,
        activation="LeakyReLU",
        negative_slope=0.2,
        concat_heads=True,
        edge_feat=case.edge,
        deterministic_dgrad=True,
        deterministic_wgrad=True,
    )
    out = out + operators.mha_simple_n2n(
        key_emb=case.x,
        query_emb=case.y,
        value_emb=case.x,
        graph=graph,
        num_heads=2,
        concat_heads=True,
        edge_emb=None,
        norm_by_dim=True,
        score_bias=None,
    )
    assert out.shape == (5, 6)


def test_layers_of_graphcast():
    """The calls of GraphCast: grid to mesh, with a static graph of fewer nodes than sources."""
    case = Case(bipartite=True)
    offsets, indices = case.offsets.to(torch.int64), case.indices.to(torch.int64)
    bipartite = ops_torch.BipartiteCSC(offsets, indices, 7, None, reverse_graph_bwd=True)
    static = ops_torch.StaticCSC(offsets, indices, None)
    efeat = operators.update_efeat_bipartite_e2e(case.edge, case.x, case.y, bipartite, "concat")
    assert efeat.shape == (len(indices), 18)
    cat = operators.agg_concat_e2n(case.y, efeat, static, "sum")
    assert cat.shape == (5, 24)
    total = operators.update_efeat_bipartite_e2e(case.edge, case.x, case.y, bipartite, mode="sum")
    torch.testing.assert_close(total, sum(efeat.split(6, 1)))
    cat.square().sum().backward()
    assert case.x.grad.abs().sum() > 0
