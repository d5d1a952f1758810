"""pylibcugraphops.pytorch: graphs of lists and arrays, and refusals of invalid arguments."""

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")


import pyops.compat.pylibcugraphops.pytorch as ops_torch  # noqa: E402
from pyops.compat.pylibcugraphops.pytorch import CSC, HeteroCSC, operators  # noqa: E402

from .test_pytorch import Case  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda c: operators.agg_concat_n2n(c.x, None), TypeError, "graph: expected CSC"),
        (lambda c: operators.agg_concat_n2n((c.x, c.y), c.graph), TypeError, "one tensor"),
        (lambda c: operators.agg_concat_n2n(c.x[1:], c.graph), ValueError, r"\(7, width\)"),
        (lambda c: operators.agg_concat_n2n(c.x, c.graph, "add"), ValueError, "aggr"),
        (lambda c: operators.mha_gat_n2n(c.x, c.attention, c.graph, 2, "gelu"), ValueError, "ELU"),
        (lambda c: operators.mha_gat_n2n(c.x, c.attention, c.graph, 2, []), TypeError, "ELU, got"),
        (lambda c: operators.agg_hg_basis_n2n_post(c.x, None, c.graph), TypeError, "HeteroCSC"),
        (
            lambda c: operators.mha_simple_n2n(c.x, c.x, c.x, c.graph, score_bias=c.x),
            ValueError,
            r"mha_simple_n2n: score_bias: expected shape \(14, 1\), got \(7, 6\)",
        ),
        (
            lambda c: operators.mha_simple_n2n(
                c.x, c.x, c.x, c.graph, score_bias=c.edge[:, :1].float()
            ),
            TypeError,
            "mha_simple_n2n: score_bias: expected torch.float64 like key_emb, got torch.float32",
        ),
        (
            lambda c: operators.update_efeat_e2e(None, c.x, c.graph, False, False),
            TypeError,
            "got none",
        ),
        (
            lambda c: operators.update_efeat_e2e(None, c.x, c.graph, True, True, "cat"),
            ValueError,
            "mode",
        ),
        (lambda c: CSC(c.offsets, c.indices, 4), IndexError, "indices"),
        (lambda c: CSC(torch.tensor([0, 0, 0]), c.indices[:0], 1), ValueError, "num_src_nodes"),
        (lambda c: HeteroCSC(c.offsets, c.indices, c.types, 7, 2), IndexError, "edge_types"),
        (lambda c: HeteroCSC(c.offsets, c.indices, c.types[1:], 7, 3), ValueError, "edge_types"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call(Case())


GRAPHS = [CSC, HeteroCSC, ops_torch.BipartiteCSC, ops_torch.StaticCSC, ops_torch.SampledCSC]
GRAPHS += [ops_torch.StaticHeteroCSC, ops_torch.SampledHeteroCSC]
INDICES = torch.tensor([0, 1, 1])
FITTING = {"offsets": torch.tensor([0, 1, 3]), "indices": INDICES, "num_src_nodes": 2}
FITTING |= {"edge_types": INDICES, "num_edge_types": 2, "ef_indices": torch.tensor([2, 0, 1])}
FITTING |= {"dst_max_in_degree": 2, "max_num_neighbors": 2}
FITTING |= {"is_bipartite": True, "reverse_graph_bwd": False}
NO_INDICES = [
    None,
    3,
    [0.5] * 3,
    [0, True, 1],
    INDICES.float().requires_grad_(),
    INDICES.to("meta"),
]
NO_INDICES += [INDICES.to_sparse(), [[0], [1, 2]], INDICES[None], "banana"]
NO_FLAGS = ["no", None, 1, 0.0]
NO_COUNTS = ["2", None, 2.0, 2.5, True, -1, 2**31]
NO_DEGREES = ["x", 2.5, True, -2]
WRONG = {
    "offsets": [*NO_INDICES, [0, 1, 2]],
    "indices": [*NO_INDICES, [0, 1, -1]],
    "edge_types": [*NO_INDICES, [0, 1, 2], [0, 1]],
    "ef_indices": [*NO_INDICES[1:], [0, 1], [0, 1, -1]],
    "num_src_nodes": NO_COUNTS,
    "num_edge_types": NO_COUNTS,
    "is_bipartite": NO_FLAGS,
    "reverse_graph_bwd": NO_FLAGS,
    "dst_max_in_degree": NO_DEGREES,
    "max_num_neighbors": NO_DEGREES,
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("kind", GRAPHS)
def test_graphs_are_refused_by_the_argument(kind, name):
    parameters = inspect.signature(kind).parameters
    given = {n: value for n, value in FITTING.items() if n in parameters}
    assert kind(**given).num_indices == 3
    for value in WRONG[name] if name in parameters else ():
        with pytest.raises((TypeError, ValueError, IndexError, OverflowError)) as error:
            kind(**{**given, name: value})
        assert str(error.value).startswith(f"{kind.__name__}: {name}: expected")


@pytest.mark.parametrize("kind", GRAPHS)
def test_graphs_of_lists_and_arrays(kind):
    """Graphs of lists and arrays equal graphs of tensors."""
    parameters = inspect.signature(kind).parameters
    given = {n: value for n, value in FITTING.items() if n in parameters}
    expected = kind(**given)
    for convert in torch.Tensor.tolist, np.asarray:
        lists = {n: convert(v) if isinstance(v, torch.Tensor) else v for n, v in given.items()}
        found = kind(**lists)
        assert repr(found) == repr(expected)
        np.testing.assert_array_equal(found.graph.src, expected.graph.src)
        np.testing.assert_array_equal(found.graph.dst, expected.graph.dst)
    assert kind(**given | {n: None for n in ("dst_max_in_degree",) if n in given}).num_indices == 3


def every_function():
    """Yield every function with its required arguments."""
    c = Case()
    typed, own, some = HeteroCSC(c.offsets, c.indices, c.types, 7, 3), c.x[:5], {"graph": c.graph}
    edges = some | {"edge_feat": c.edge}
    heads = some | {"feat": c.x, "num_heads": 2}
    return {
        "agg_concat_n2n": some | {"feat": c.x},
        "agg_concat_e2n": edges | {"feat": own},
        "agg_hg_basis_n2n_post": {"feat": c.x, "weights_comb": None, "graph": typed},
        "update_efeat_bipartite_e2e": edges | {"src_feat": c.x, "dst_feat": None},
        "update_efeat_e2e": edges
        | {"node_feat": c.x, "use_source_emb": True, "use_target_emb": False},
        "update_efeat_static_e2e": edges | {"node_feat": c.x},
        "mha_gat_n2n": heads | {"attn_weights": c.attention[:12]},
        "mha_gat_v2_n2n": heads | {"attn_weights": c.attention[:6]},
        "mha_simple_n2n": some | {"key_emb": c.x, "query_emb": c.x, "value_emb": c.x},
    }


@pytest.mark.parametrize("name", every_function())
def test_what_is_no_argument(name):
    function, given = getattr(operators, name), every_function()[name]
    function(**given)
    for argument, parameter in inspect.signature(function).parameters.items():
        wrong = ["banana", 2] if parameter.annotation == "bool" else ["banana"]
        wrong += [None] * (parameter.annotation in ("bool", "Tensor"))
        for value in wrong:
            with pytest.raises((TypeError, ValueError)) as error:
                function(**{**given, argument: value})
            where = f"{name}: {argument}: expected"
            if parameter.annotation in ("bool", "str", "Any"):
                assert str(error.value).startswith(where)
            assert "expected" in str(error.value)


def test_every_function_is_in_the_table():
    public = {n for n, value in vars(operators).items() if callable(value) and n[0] != "_"}
    assert public == every_function().keys()
