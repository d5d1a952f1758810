"""pylibcugraphops.pytorch on the CPU: against plain formulas."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from pyops.compat.pylibcugraphops.pytorch import CSC, HeteroCSC, operators  # noqa: E402

from ..support.programs import run  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

ACTIVATIONS = {
    "LeakyReLU": lambda z: functional.leaky_relu(z, 0.2),
    "Identity": lambda z: z,
    "ReLU": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "ELU": functional.elu,
}


class Case:
    """Random graph with float64 features of two heads."""

    def __init__(self, bipartite=False, permuted=False, num_src=7, num_dst=5, heads=2, width=3):
        rng = np.random.default_rng(1)
        degrees = torch.tensor([3, 0, 4, 1, 6])[:num_dst]
        self.offsets = functional.pad(degrees.cumsum(0), (1, 0))
        count = int(degrees.sum())
        self.indices = torch.from_numpy(rng.integers(0, num_src, count))
        self.ids = torch.from_numpy(rng.permutation(count)) if permuted else None
        self.types = torch.from_numpy(rng.integers(0, 3, count))
        self.heads, self.num_dst = heads, num_dst
        self.graph = CSC(
            self.offsets, self.indices, num_src, is_bipartite=bipartite, ef_indices=self.ids
        )
        self.dst = torch.repeat_interleave(degrees)
        rows = torch.arange(count) if self.ids is None else self.ids
        self.src_of_row = torch.empty_like(self.indices).index_put_((rows,), self.indices)
        self.dst_of_row = torch.empty_like(self.dst).index_put_((rows,), self.dst)

        def random(*shape):
            return torch.from_numpy(rng.normal(size=shape)).requires_grad_()

        self.x = random(num_src, heads * width)
        self.y = random(num_dst, heads * width)
        self.edge = random(count, heads * width)
        self.edge_weight = (0.5 + random(count).detach().abs()).requires_grad_()
        self.attention = random(heads * 3 * width)

    @property
    def feat(self):
        return (self.x, self.y) if self.graph.is_bipartite else self.x

    @property
    def own(self):
        return self.y if self.graph.is_bipartite else self.x[: self.num_dst]

    def reduced(self, rows, how):
        """Reduce rows of edges, in the order of their features, into the destinations."""
        parts = [rows[self.dst_of_row == i] for i in range(self.num_dst)]
        zero = torch.zeros_like(rows[0])
        reduce = {
            "sum": lambda p: p.sum(0),
            "mean": lambda p: p.mean(0),
            "max": lambda p: p.amax(0),
            "min": lambda p: p.amin(0),
        }[how]
        return torch.stack([reduce(p) if len(p) else zero for p in parts])

    def attended(self, scores, values, concat):
        """Weight values [edges, heads, width] by the softmax of scores [edges, heads]."""
        out = []
        for i in range(self.num_dst):
            here = self.dst_of_row == i
            alpha = torch.softmax(scores[here], 0)
            out.append((alpha[..., None] * values[here]).sum(0))
        out = torch.stack(out)
        return out.flatten(1) if concat else out.mean(1)

    def by_heads(self, rows):
        return rows.unflatten(1, (self.heads, -1))


CASES = [
    pytest.param(bipartite, permuted, id=f"{bipartite=} {permuted=}")
    for bipartite in (False, True)
    for permuted in (False, True)
]


def agree(result, expected, leaves):
    """Assert equal values, gradients and second derivatives."""
    leaves = [t for t in leaves if t is not None]
    sets = []
    for y in (result, expected):
        weight = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).reshape(y.shape)
        gs = torch.autograd.grad((weight * y + y * y).sum(), leaves, create_graph=True)
        total = sum((g * g * torch.sin(g)).sum() for g in gs)
        sets.append([y, *gs, *torch.autograd.grad(total, leaves)])
    scale = max(float(other.detach().abs().max()) for other in sets[1])
    for one, other in zip(*sets, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize(("bipartite", "permuted"), CASES)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("weighted", [False, True])
def test_agg_concat_n2n(bipartite, permuted, aggr, weighted):
    case = Case(bipartite, permuted)
    weight = case.edge_weight if weighted else None
    result = operators.agg_concat_n2n(case.feat, case.graph, aggr, weight)
    rows = case.x[case.src_of_row]
    if weighted:
        rows = rows * weight[:, None]
    expected = case.reduced(rows, aggr)
    if weighted and aggr == "mean":
        sums = case.reduced(weight[:, None], "sum")
        expected = case.reduced(rows, "sum") / torch.where(sums == 0, 1, sums)
    leaves = [case.x, case.y if bipartite else None, weight]
    agree(result, torch.cat([expected, case.own], 1), leaves)


@pytest.mark.parametrize(("bipartite", "permuted"), CASES)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_agg_concat_e2n(bipartite, permuted, aggr):
    case = Case(bipartite, permuted)
    result = operators.agg_concat_e2n(case.y, case.edge, case.graph, aggr)
    expected = torch.cat([case.reduced(case.edge, aggr), case.y], 1)
    agree(result, expected, [case.edge, case.y])


@pytest.mark.parametrize(("bipartite", "permuted"), CASES)
@pytest.mark.parametrize("mode", ["concat", "sum"])
@pytest.mark.parametrize("used", ["esd", "es", "ed", "sd", "s", "d", "e"])
def test_update_efeat(bipartite, permuted, mode, used):
    case = Case(bipartite, permuted)
    edge = case.edge if "e" in used else None
    result = operators.update_efeat_e2e(edge, case.feat, case.graph, "s" in used, "d" in used, mode)
    parts = {"e": edge, "s": case.x[case.src_of_row], "d": case.own[case.dst_of_row]}
    parts = [parts[name] for name in used]
    expected = torch.cat(parts, 1) if mode == "concat" else sum(parts[1:], parts[0])
    nodes = [case.x] if "s" in used or ("d" in used and not bipartite) else []
    leaves = [edge, *nodes, case.y if bipartite and "d" in used else None]
    agree(result, expected, leaves)
    if bipartite:
        ends = case.x if "s" in used else None, case.y if "d" in used else None
        other = operators.update_efeat_bipartite_e2e(edge, *ends, case.graph, mode)
    else:
        options = {"use_source_emb": "s" in used, "use_target_emb": "d" in used, "mode": mode}
        other = operators.update_efeat_static_e2e(edge, case.x, case.graph, **options)
    assert torch.equal(result, other)


@pytest.mark.parametrize(("bipartite", "permuted"), CASES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("with_edges", [False, True])
def test_mha_gat(bipartite, permuted, activation, with_edges):
    case = Case(bipartite, permuted)
    concat = not permuted
    edge = case.edge if with_edges else None
    a = case.attention if with_edges else case.attention[: 2 * case.x.shape[1]]
    result = operators.mha_gat_n2n(
        case.feat, a, case.graph, case.heads, activation, 0.2, concat, edge
    )
    parts = [case.by_heads(case.x)[case.src_of_row], case.by_heads(case.own)[case.dst_of_row]]
    parts += [case.by_heads(edge)] if with_edges else []
    blocks = a.unflatten(0, (len(parts), case.heads, -1))
    scores = sum((p * b).sum(-1) for p, b in zip(parts, blocks, strict=True))
    expected = case.attended(ACTIVATIONS[activation](scores), parts[0], concat)
    agree(result, expected, [case.x, case.y if bipartite else None, edge, case.attention])


@pytest.mark.parametrize(("bipartite", "permuted"), CASES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("with_edges", [False, True])
def test_mha_gat_v2(bipartite, permuted, activation, with_edges):
    case = Case(bipartite, permuted)
    concat = not permuted
    edge = case.edge if with_edges else None
    a = case.attention[: case.x.shape[1]]
    result = operators.mha_gat_v2_n2n(
        case.feat, a, case.graph, case.heads, activation, 0.2, concat, edge_feat=edge
    )
    values = case.by_heads(case.x)[case.src_of_row]
    sums = values + case.by_heads(case.own)[case.dst_of_row]
    sums = sums + case.by_heads(edge) if with_edges else sums
    scores = (ACTIVATIONS[activation](sums) * a.unflatten(0, (case.heads, -1))).sum(-1)
    expected = case.attended(scores, values, concat)
    agree(result, expected, [case.x, case.y if bipartite else None, edge, case.attention])


@pytest.mark.parametrize(("bipartite", "permuted"), CASES)
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("with_edges", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_mha_simple(bipartite, permuted, norm, with_edges, biased):
    case = Case(bipartite, permuted)
    concat = not permuted
    key, value = case.x, case.x.detach().flip(0).requires_grad_()
    query = case.y if bipartite else case.x.detach().roll(1, 0).requires_grad_()
    edge = case.edge if with_edges else None
    bias = case.edge.detach()[:, : case.heads].requires_grad_() if biased else None
    result = operators.mha_simple_n2n(
        key, query, value, case.graph, case.heads, concat, edge, norm, bias
    )
    more = case.by_heads(edge) if with_edges else 0
    keys, values = (case.by_heads(t)[case.src_of_row] + more for t in (key, value))
    scores = (case.by_heads(query)[case.dst_of_row] * keys).sum(-1)
    scores = scores / keys.shape[-1] ** 0.5 if norm else scores
    scores = scores + bias if biased else scores
    agree(result, case.attended(scores, values, concat), [key, query, value, edge, bias])


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_relations(permuted, weighted, norm, own):
    case = Case(False, permuted)
    graph = HeteroCSC(case.offsets, case.indices, case.types, 7, 3, ef_indices=case.ids)
    weights = torch.randn(3, 4, dtype=torch.float64).requires_grad_() if weighted else None
    result = operators.agg_hg_basis_n2n_post(case.x, weights, graph, own, norm)
    table = torch.eye(3, dtype=torch.float64) if weights is None else weights
    rows = case.x[case.indices]
    expected = []
    for i in range(case.num_dst):
        total = torch.zeros(table.shape[1], rows.shape[1], dtype=torch.float64)
        for t in range(3):
            here = (case.dst == i) & (case.types == t)
            part = rows[here].sum(0) / (max(1, int(here.sum())) if norm else 1)
            total = total + table[t][:, None] * part
        expected.append(total.flatten())
    expected = torch.stack(expected)
    expected = torch.cat([expected, case.own], 1) if own else expected
    agree(result, expected, [case.x, weights])


def test_shared_rows():
    """Edges may share rows of input features, but not rows of outputs."""
    offsets, indices = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1])
    graph = CSC(offsets, indices, 2, ef_indices=torch.tensor([0, 1, 0]))
    edge = torch.tensor([[1.0], [10.0]])
    out = operators.agg_concat_e2n(torch.zeros(2, 1), edge, graph)
    assert out[:, 0].tolist() == [11, 1]
    with pytest.raises(ValueError, match="one edge for each row"):
        operators.update_efeat_e2e(edge, torch.zeros(2, 1), graph, True, True)


def test_compiled():
    case = Case()

    def layer(x):
        return operators.agg_concat_n2n(x, case.graph, "mean")

    x = case.x.detach()
    torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), layer(x))


def test_repr():
    assert repr(Case().graph) == "CSC(num_src_nodes=7, num_dst_nodes=5, num_indices=14)"


def test_installed_name():
    run("""
        import pyops.compat.pylibcugraphops
        pyops.compat.pylibcugraphops.install()
        from pylibcugraphops.pytorch import CSC, StaticCSC
        from pylibcugraphops.pytorch.operators import mha_gat_n2n
        import pyops.compat.pylibcugraphops.pytorch as ours
        assert CSC is ours.CSC and mha_gat_n2n is ours.operators.mha_gat_n2n
    """)
