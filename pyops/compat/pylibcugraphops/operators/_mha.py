"""Attention: multi-head calls with outputs of the caller.

Rows have the heads side by side, ``dim_node = num_heads * width``. ``softmax_scores`` receives the
scores before and after the softmax, [2, num_heads, n_indices], ``activation_scores`` the activated
sums of both ends, [n_indices, dim_node]. Backward calls recompute both and only check the shapes of
the arrays from forward, the scratch and the workspace. All of these may be None, as may gradients
that are not needed. ``stream_id`` applies to arrays on a device, see `_queue`. Results are bitwise
equal in every run, with and without workspace.

Of ``mha_simple`` only the PyTorch wrapper is documented: the arguments have its names in the order
of the other calls. ``score_bias``, [num_edges, num_heads], is added before the softmax to the
scores, which are divided by the root of the width or not.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...._call.arrays import check_number, check_size, kind_of
from ...._call.half import is_half
from ....ops.gat import gat
from ....ops.gat_v2 import gat_v2
from ....ops.transformer_conv import transformer_conv
from .._csc import BipartiteCsc
from .._queue import PLAIN, bind, check_array, check_flag, check_output, graph_for, run
from .._results import write
from ._bias import narrowed, query_scales, widened, with_bias
from ._scores import ACTIVATIONS, check_activation, logits_of

if TYPE_CHECKING:
    from ...._call.operator import Operator
    from ...._call.types import Array, Values

INPUTS = {
    "x_src": "src_node_embedding",
    "x_dst": "dst_node_embedding",
    "attention": "attention_weights",
    "edge_features": "edge_embedding",
    "query": "query_embedding",
    "key": "key_embedding",
    "value": "value_embedding",
}
"""Names of the operators' inputs in these calls."""
FORWARD, BACKWARD = "The value.", "The gradients that are not None."


@dataclass(frozen=True)
class mha_params:  # noqa: N801
    """Parameters shared by the calls of one layer.

    Parameters
    ----------
    num_heads : int
    concat_heads : bool
        Whether the heads of the output are concatenated; otherwise they are averaged.
    activation : {"LeakyReLU", "Identity", "ReLU", "Sigmoid", "Tanh", "ELU"}
        Activation of `mha_gat` and `mha_gat_v2`.
    negative_slope : float
        Slope of LeakyReLU below 0.
    norm_by_dim : bool
        Whether `mha_simple` divides the scores by the root of the width.
    """

    num_heads: int = 1
    concat_heads: bool = True
    activation: str = "LeakyReLU"
    negative_slope: float = 0.2
    norm_by_dim: bool = True

    def __post_init__(self) -> None:
        check_size("mha_params: num_heads", self.num_heads)
        check_number("mha_params: negative_slope", self.negative_slope)
        check_activation("mha_params: activation", self.activation)
        for name in "concat_heads", "norm_by_dim":
            check_flag(f"mha_params: {name}", getattr(self, name))


class Call:
    """A forward or backward call of an operator, with its argument names."""

    def __init__(self, name: str, op: Operator, summary: str, arguments: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"{summary} See `pyops.{op.name}`."
        self.op = op
        self._described = summary, arguments
        self.half = ""
        """Half-precision type of the embeddings, if the name of the call says so."""
        words = arguments.split()
        self.inputs = {n: INPUTS[n] for n in op.signature.inputs if INPUTS.get(n) in words}
        defaults = {"grad_attention_weights_workspace": None, "stream_id": 0}
        last = ["stream_id"]
        if op is transformer_conv:
            last += ["score_bias", *["grad_score_bias"] * (summary == BACKWARD)]
            defaults |= dict.fromkeys(last[1:])
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter(n, PLAIN, default=defaults.get(n, inspect.Parameter.empty))
                for n in [*words, *last]
            ]
        )

    def for_features(self, half: str, name: str) -> Call:
        """Return the call of this name for embeddings of a half-precision type."""
        call = Call(name, self.op, *self._described)
        call.half = half
        return call

    def __repr__(self) -> str:
        return f"{self.__name__}{self.__signature__}"

    def __call__(self, *arguments: object, **keywords: object) -> None:
        given = bind(self.__name__, self.__signature__, arguments, keywords)
        for name, kind in {"graph": BipartiteCsc, "params": mha_params}.items():
            if not isinstance(given[name], kind):
                wanted = "a graph of make_bipartite_csc" if name == "graph" else "mha_params"
                raise TypeError(
                    f"{self.__name__}: {name}: expected {wanted}, got {type(given[name]).__name__}"
                )
        run(self.__name__, given, self._rounded if self.half else self._run)

    def _rounded(self, given: Values) -> None:
        """Compute in float32, and round what is stored in arrays of half precision."""
        like = next(iter(self.inputs.values()))
        found = getattr(getattr(given[like], "dtype", None), "name", kind_of(given[like]))
        if found != self.half:
            raise TypeError(f"{self.__name__}: {like}: expected {self.half}, got {found}")
        halves = {n: a for n, a in given.items() if is_half(a)}
        wide = {n: a.astype(np.float32) for n, a in halves.items()}
        self._run({**given, **wide})
        read = {*self.inputs.values(), "grad_output_embedding", "score_bias"}
        with np.errstate(over="ignore", invalid="ignore"):
            for name in halves.keys() - read:
                halves[name][...] = wide[name].astype(halves[name].dtype)

    def _run(self, given: Values) -> None:
        self._check(given)
        if "output_embedding" in given:
            self._forward(given)
        else:
            self._backward(given)

    def _check(self, given: Values) -> None:
        """Check all arrays against the shapes set by graph, parameters and first embedding."""
        graph, heads = given["graph"], given["params"].num_heads
        like = next(iter(self.inputs.values()))
        label = f"{self.__name__}: {like}"
        first = check_array(label, given[like])
        dim = first.shape[1] if first.ndim == 2 else 0
        if not dim or dim % heads:
            raise ValueError(
                f"{label}: expected shape (rows, dim_node), dim_node a multiple of "
                f"num_heads={heads}, got {first.shape}"
            )
        out = dim if given["params"].concat_heads else dim // heads
        blocks = dim if self.op is gat_v2 else 2 * dim
        own_edges = self.op is gat and "edge_embedding" in given
        if own_edges:
            edge = check_array(f"{self.__name__}: edge_embedding", given["edge_embedding"])
            blocks += edge.shape[1] if edge.ndim == 2 else 1
        rows = graph.graph.num_edges
        shapes: dict[str, tuple[int, ...]] = {
            "attention_weights": (blocks,),
            "edge_embedding": (rows, dim),
            "output_embedding": (graph.n_dst_nodes, out),
            "softmax_scores": (2, heads, graph.n_indices),
            "activation_scores": (graph.n_indices, dim),
            "attention_weights_workspace": (graph.n_dst_nodes, blocks),
            "score_bias": (rows, heads),
        }
        for name in ("src_node", "key", "value"):
            shapes[f"{name}_embedding"] = graph.n_src_nodes, dim
        for name in ("dst_node", "query"):
            shapes[f"{name}_embedding"] = graph.n_dst_nodes, dim
        if own_edges:
            shapes["edge_embedding"] = rows, max(1, blocks - 2 * dim)
        read = {*self.inputs.values(), "grad_output_embedding"}
        if given.get("score_bias") is not None:
            read.add("score_bias")
        for name, array in given.items():
            shape = shapes.get(name.removeprefix("grad_"))
            if shape is None or (array is None and name not in read | {"output_embedding"}):
                continue
            label = f"{self.__name__}: {name}"
            if name not in read:
                check_output(label, array, shape, first.dtype)
                continue
            held = check_array(label, array)
            if held.dtype != first.dtype:
                raise TypeError(f"{label}: expected {first.dtype} like {like}, got {held.dtype}")
            if held.shape != shape:
                raise ValueError(f"{label}: expected shape {shape}, got {held.shape}")
        if given.get("grad_score_bias") is not None:
            check_array(f"{self.__name__}: score_bias", given["score_bias"])

    def _prepared(self, given: Values) -> tuple[list[Array | None], Values, float]:
        """Return inputs and options of the operator, and the factor of the queries."""
        params = given["params"]
        inputs = [given.get(self.inputs.get(name, "")) for name in self.op.signature.inputs]
        options = {"heads": params.num_heads, "concat": bool(params.concat_heads)}
        if self.op is not transformer_conv:
            options["activation"] = ACTIVATIONS[params.activation][0]
            options["negative_slope"] = float(params.negative_slope)
            return inputs, options, 1.0
        factor = 1.0
        if not params.norm_by_dim and inputs[0] is not None:
            factor = float(np.sqrt(inputs[0].shape[1] // params.num_heads))
            inputs[0] = inputs[0] * inputs[0].dtype.type(factor)
        return inputs, options, factor

    def _forward(self, given: Values) -> None:
        inputs, options, _ = self._prepared(given)
        graph, scores = graph_for(given["graph"]), given["softmax_scores"]
        bias, heads = given.get("score_bias"), given["params"].num_heads
        if bias is not None:
            inputs = with_bias(inputs, heads, bias)
        result = self.op(
            graph,
            *inputs,
            out=given["output_embedding"] if bias is None else None,
            return_attention=scores is not None,
            **options,
        )
        if bias is not None:
            y, _ = narrowed(result if scores is None else result[0], _heads_of(given))
            write(self.__name__, output_embedding=(given["output_embedding"], y))
        sums = given.get("activation_scores")
        if scores is None and sums is None:
            return
        logits = logits_of(self.op, graph, inputs, given["params"], sums)
        if scores is not None:
            scores[0], scores[1] = logits.T, result[1].T

    def _backward(self, given: Values) -> None:
        inputs, options, factor = self._prepared(given)
        names = list(self.op.signature.inputs)
        out = [given.get("grad_" + self.inputs.get(name, "")) for name in names]
        if given.get("score_bias") is not None:
            self._biased_back(given, inputs, options, dict(zip(names, out, strict=True)))
        else:
            wanted = [name for name, array in zip(names, out, strict=True) if array is not None]
            self.op.backward(
                graph_for(given["graph"]),
                *inputs,
                given["grad_output_embedding"],
                wanted=wanted,
                out=out,
                **options,
            )
        if factor != 1 and out[0] is not None:
            out[0] *= out[0].dtype.type(factor)

    def _biased_back(
        self,
        given: Values,
        inputs: list[Array | None],
        options: Values,
        out: dict[str, Array | None],
    ) -> None:
        """Compute the gradients if scores have a bias."""
        heads, by_bias = given["params"].num_heads, given["grad_score_bias"]
        assert inputs[0] is not None
        scale, _ = query_scales(inputs[0].shape[1] // heads)
        wanted = {name for name, array in out.items() if array is not None}
        gradients = self.op.backward(
            graph_for(given["graph"]),
            *with_bias(inputs, heads, given["score_bias"]),
            widened(given["grad_output_embedding"], _heads_of(given), 0.0),
            wanted=wanted | ({"edge_features"} if by_bias is not None else set()),
            **options,
        )
        results = {}
        for name, gradient in zip(out, gradients, strict=True):
            if gradient is None:
                continue
            narrow, last = narrowed(gradient, heads)
            if name == "query":
                narrow = narrow * narrow.dtype.type(scale)
            if name in wanted:
                results["grad_" + self.inputs[name]] = out[name], narrow
            if name == "edge_features" and by_bias is not None:
                results["grad_score_bias"] = by_bias, last
        write(self.__name__, **results)


def _heads_of(given: Values) -> int:
    """Return the number of heads that are concatenated in a row of the output."""
    return given["params"].num_heads if given["params"].concat_heads else 1
