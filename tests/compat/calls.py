"""Every low-level call of pylibcugraphops: its arguments and its outputs."""

import functools
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyops.compat import pylibcugraphops
from pyops.compat.pylibcugraphops import dimenet, operators
from pyops.compat.pylibcugraphops.operators import AggOp

from ..support.graphs import reverses
from .test_attention import ACTIVATIONS

NODES, EDGES, TYPES, HEADS, DIM = 9, 40, 3, 2, 6
EXTREMES = AggOp.Max, AggOp.Min
rng = np.random.default_rng(5)
draw = rng.standard_normal

DST = np.sort(rng.integers(0, NODES - 1, EDGES))
"""Graph whose last node is isolated."""
CSC = np.searchsorted(DST, np.arange(NODES + 1)), rng.integers(0, NODES - 1, EDGES)
ROWS, KINDS = rng.permutation(EDGES), rng.integers(0, TYPES, EDGES)


def plain(move):
    return pylibcugraphops.make_csc(*map(move, (*CSC, ROWS)))


def bipartite(move):
    offsets, indices, rows = map(move, (*CSC, ROWS))
    return pylibcugraphops.make_bipartite_csc(offsets, indices, NODES + 2, rows)


def typed(move):
    offsets, indices, types = map(move, (*CSC, KINDS))
    return pylibcugraphops.make_csc_hg(offsets, indices, 1, TYPES, None, types)


def typed_bipartite(move):
    offsets, indices, types = map(move, (*CSC, KINDS))
    sizes = {"n_src_nodes": NODES + 2}
    return pylibcugraphops.make_bipartite_csc_hg(offsets, indices, 1, TYPES, None, types, **sizes)


@dataclass
class Case:
    """Call with its arguments; outputs have a shape and a type, a graph is a factory function."""

    call: Any
    outs: dict[str, Any]
    given: dict[str, Any]
    about: str = ""
    stream: str = field(default="stream_id")

    def __str__(self):
        return f"{self.call.__name__} {self.about}".strip()

    def run(self, move=lambda array: array, one=None, **others):
        """Return the outputs of a call; `one` is an argument's name and a function for it."""
        name, function = one or (None, move)
        way = {n: function if n == name else move for n in (*self.outs, *self.given)}
        outs = {n: way[n](np.full(s, -7, k)) for n, (s, k) in self.outs.items()}
        given = {n: self.moved(way[n], value) for n, value in self.given.items()}
        self.call(**outs, **{**given, **others})
        return outs

    @staticmethod
    def moved(move, value):
        if isinstance(value, np.ndarray):
            return move(value)
        return value(move) if callable(value) and not isinstance(value, type) else value

    @property
    def arrays(self):
        return [*self.outs, *(n for n, a in self.given.items() if isinstance(a, np.ndarray))]


def floats(*shape):
    return shape, "d"


def aggregations():
    x, edge = draw((NODES, 5)), draw((EDGES, 3))
    x[2, 3] = edge[7, 0] = np.nan
    for name, given, width, own in (
        ("agg_simple_n2n", {"input": x}, 5, 0),
        ("agg_simple_e2n", {"input": edge}, 3, 0),
        ("agg_simple_n2n_e2n", {"input_node": x, "input_edge": edge}, 8, 0),
        ("agg_concat_n2n", {"input": x}, 5, 5),
        ("agg_concat_e2n", {"input_edge": edge, "input_node": x}, 3, 5),
        ("agg_concat_n2n_e2n", {"input_node": x, "input_edge": edge}, 8, 5),
    ):
        dims = {"dim_node": 5, "dim_edge": 3} if name.startswith("agg_concat_") else {}
        for op in AggOp:
            graph = {"graph": plain, "aggregation_operation": op}
            more = {n: d for n, d in dims.items() if name == "agg_concat_n2n_e2n"}
            outs = {"output_embedding": floats(NODES, width + own)}
            if op in EXTREMES:
                outs["output_extrema_location"] = (NODES, width), np.int32
            inputs = {f"{n}_embedding": a for n, a in given.items()}
            forward = Case(getattr(operators, f"{name}_fwd"), outs, inputs | graph | more, op.name)
            yield forward
            outs = {f"grad_{n}": floats(*a.shape) for n, a in given.items()}
            more = {"grad_output": draw((NODES, width + own))}
            more |= dims if "e2n" in name else {}
            if op in EXTREMES:
                more["output_extrema_location"] = forward.run()["output_extrema_location"]
            yield Case(getattr(operators, f"{name}_bwd"), outs, graph | more, op.name)


def weighted():
    x, weight = draw((NODES, 5)), rng.uniform(-2, 2, EDGES)
    for op in AggOp:
        for name, width in ("agg_weighted_n2n", 5), ("agg_concat_weighted_n2n", 10):
            given = {"input_embedding": x, "edge_weight": weight, "graph": plain}
            given["aggregation_operation"] = op
            outs = {"output_embedding": floats(NODES, width)}
            if op in EXTREMES:
                outs["output_extrema_location"] = (NODES, 5), np.int64
            if op is AggOp.Mean:
                outs["node_degree"] = floats(NODES)
            yield Case(getattr(operators, f"{name}_fwd"), outs, given, op.name)
            outs = {"grad_input": floats(NODES, 5), "grad_edge_weight": floats(EDGES)}
            given = {**given, "grad_output": draw((NODES, width))}
            yield Case(getattr(operators, f"{name}_bwd"), outs, given, op.name)


def relations():
    forward = operators.agg_hg_basis_n2n_post_fwd
    backward = operators.agg_hg_basis_n2n_post_bwd
    several = itertools.product((None, draw((TYPES, 4))), (False, True), (NODES, NODES + 2))
    for weights, normed, sources in several:
        width = (TYPES if weights is None else 4) * 5 + 5 * normed
        given = {"input_embedding": draw((sources, 5)), "weights_combination": weights}
        given |= {"graph": typed if sources == NODES else typed_bipartite}
        given |= {"concat_own": normed, "norm_by_out_degree": normed}
        about = f"{'bases' if weights is None else ''} {normed} {sources}"
        yield Case(forward, {"output_embedding": floats(NODES, width)}, given, about)
        given = {**given, "grad_output": draw((NODES, width))}
        outs = {"grad_input": floats(sources, 5)}
        if weights is None:
            given["grad_weights"] = None
        else:
            outs["grad_weights"] = floats(TYPES, 4)
        yield Case(backward, outs, given, about)


def edges():
    graph = plain(lambda a: a)
    for own in False, True:
        wide = floats(EDGES, 5 * (1 + own))
        given = {"graph": plain, "rev_edge_ids": reverses(graph.graph), "concat_own": own}
        inputs = {"input_edge_embedding": draw((EDGES, 5))}
        outs = {"output_edge_embedding": wide}
        yield Case(operators.agg_dmpnn_e2e_fwd, outs, inputs | given, own)
        given = {**given, "grad_output_edge_embedding": draw(wide[0])}
        outs = {"grad_input_edge_embedding": floats(EDGES, 5)}
        yield Case(operators.agg_dmpnn_e2e_bwd, outs, given, own)
    names = ("edge", EDGES), ("src_node", NODES + 2), ("dst_node", NODES)
    for mode, dims in ("concat", (3, 4, 2)), ("sum", (5, 5, 5)):
        for absent in (), (0,), (1,), (0, 1), (1, 2):
            parts = [(n, rows, d) for (n, rows), d in zip(names, dims, strict=True)]
            there = [part for k, part in enumerate(parts) if k not in absent]
            width = sum(d for *_, d in there) if mode == "concat" else 5
            given = {f"input_{n}_embedding": draw((rows, d)) for n, rows, d in there}
            nothing = {f"input_{n}_embedding": None for k, (n, *_) in enumerate(parts)
                       if k in absent}  # fmt: skip
            outs = {"output_edge_embedding": floats(EDGES, width)}
            call = getattr(operators, f"update_efeat_e2e_{mode}_fwd")
            yield Case(call, outs, {**given, **nothing, "graph": bipartite}, absent)
            outs = {f"grad_{n}": floats(*a.shape) for n, a in given.items()}
            wide = {"dim_edge": 5}
            if mode == "concat":
                held = [0 if k in absent else d for k, d in enumerate(dims)]
                wide = dict(zip(("dim_edge", "dim_src", "dim_dst"), held, strict=True))
            given = {f"grad_{n}": None for n in nothing} | wide | {"graph": bipartite}
            given["grad_output_edge_embedding"] = draw((EDGES, width))
            yield Case(getattr(operators, f"update_efeat_e2e_{mode}_bwd"), outs, given, absent)


def attention():
    entries = {"softmax_scores": floats(2, HEADS, EDGES), "activation_scores": floats(EDGES, DIM)}
    nodes = {"src_node": NODES + 2, "dst_node": NODES, "edge": EDGES, "key": NODES + 2}
    nodes |= {"query": NODES, "value": NODES + 2}
    for kind in "gat", "gat_v2", "simple":
        names = ("key", "query", "value") if kind == "simple" else ("src_node", "dst_node")
        for efeat in False, True:
            inputs = {f"{n}_embedding": draw((nodes[n], DIM)) for n in (*names, *["edge"] * efeat)}
            if kind != "simple":
                blocks = 2 + efeat if kind == "gat" else 1
                inputs["attention_weights"] = draw(blocks * DIM)
            if kind == "simple":
                inputs["score_bias"] = draw((EDGES, HEADS)) if efeat else None
            for activation in ACTIVATIONS if efeat and kind != "simple" else ["LeakyReLU"]:
                params = operators.mha_params(HEADS, efeat, activation, norm_by_dim=efeat)
                call = f"mha_{kind}_n2n_{'efeat_' if efeat else ''}"
                left = {n: s for n, s in entries.items() if kind == "gat_v2" or n[0] == "s"}
                given = inputs | {"graph": bipartite, "params": params}
                wide = NODES, DIM if efeat else DIM // HEADS
                outs = {"output_embedding": floats(*wide), **left}
                yield Case(getattr(operators, f"{call}fwd"), outs, given, activation)
                more = {"grad_output_embedding": draw(wide), "grad_softmax_scores": None}
                more |= {n: draw(s) for n, (s, _) in left.items()}
                outs = {f"grad_{n}": floats(*a.shape) for n, a in inputs.items() if a is not None}
                yield Case(getattr(operators, f"{call}bwd"), outs, given | more, activation)


def molecules():
    case = functools.partial(Case, stream="cuda_stream")
    x, w = rng.uniform(0.1, 1.1, (EDGES, 1)), np.pi * np.arange(1.0, 7)
    basis = {"input_vector": x, "input_w": w}
    wide = {"rbf": floats(EDGES, 6), "sbf_rad": floats(EDGES, 42)}
    yield case(dimenet.radial_basis_fwd, {f"output_{n}": s for n, s in wide.items()}, basis)
    basis = basis | {f"input_grad_{n}": draw(s) for n, (s, _) in wide.items()}
    by_w = {"output_grad_w": floats(6)}
    outs = {"output_grad_vector": floats(EDGES, 1), **by_w}
    yield case(dimenet.radial_basis_bwd, outs, basis)
    basis = basis | {"input_grad_grad_vector": draw((EDGES, 1)), "input_grad_grad_w": draw(6)}
    outs = {f"output_grad_grad_{n}": s for n, s in wide.items()}
    yield case(dimenet.radial_basis_bwd_bwd, outs | by_w, basis)

    src, dst = np.sort(rng.integers(0, NODES, EDGES)), rng.integers(0, NODES, EDGES)
    order = np.argsort(dst, kind="stable")
    coo = {"coo_idx": np.stack([src, dst])}
    by_dst = coo | {"dst_offsets": np.searchsorted(dst[order], np.arange(NODES + 1))}
    by_dst |= {"dst_edge_index": order}
    by_src = coo | {"src_offsets": np.searchsorted(src, np.arange(NODES + 1))}
    inputs = {"vector": draw((EDGES, 3)), "rbf": draw((EDGES, 42)), "embedding": draw((EDGES, 8))}
    inputs = {f"input_{n}": a for n, a in inputs.items()} | {"input_weights": draw((50, 4))}
    edge, wide, weights = floats(EDGES, 8), floats(EDGES, 42), floats(50, 4)
    yield case(dimenet.agg_edge_to_edge_fwd, {"output_embedding": edge}, inputs | by_dst)
    gy = {"input_grad_embedding": draw((EDGES, 8))}
    outs = {"output_grad_rbf": wide, "output_grad_embedding": edge, "output_grad_weights": weights}
    yield case(dimenet.agg_edge_to_edge_bwd, outs, inputs | gy | by_src)
    tangents = {"input_grad_grad_rbf": draw((EDGES, 42))}
    tangents |= {"input_grad_grad_embedding": draw((EDGES, 8))}
    outs = {
        "output_grad_rbf_grad_embedding": wide,
        "output_grad_embedding_grad_rbf": edge,
        "output_grad_weights": weights,
    }
    yield case(dimenet.agg_edge_to_edge_bwd2_main, outs, inputs | gy | tangents | by_src)
    outs = {"output_grad_grad_embedding": edge}
    yield case(dimenet.agg_edge_to_edge_bwd2_grad, outs, inputs | tangents | by_dst)


KINDS_OF_CALLS = aggregations, weighted, relations, edges, attention, molecules
CASES = [case for cases in KINDS_OF_CALLS for case in cases()]
