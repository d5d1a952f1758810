"""Functions of torch and methods of tensors, as steps.

The table at the end refers to all of them, so this is one module.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

import pyops.torch as pt
from pyops.torch import nn

from ..._call.operator import OPERATORS as _DECLARED
from ...models._calls import CALLS, GRAPH, INDEX, REAL, Scalar
from ...ops.elementwise import ARITY
from ..nn._dimenet import product, swish
from ..nn._reductions import EXTREMES
from . import thresholds
from .blocks import PACKED
from .builder import Builder, Ref, UnsupportedError
from .unknown_sizes import Rows, Unknown

if TYPE_CHECKING:
    from types import ModuleType


Function: TypeAlias = Callable[..., object]
OPERATORS: dict[Function, str] = {getattr(pt, name): name for name in _DECLARED}
"""Operators of `pyops.torch` by their functions."""
_NAMES = {
    "neg": "negative",
    "asin": "arcsin",
    "atan": "arctan",
    "absolute": "abs",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "truediv": "divide",
    "true_divide": "divide",
    "swish": "silu",
    "product": "multiply",
}
"""Names of functions of one and two operands, where those of pyops differ."""
_MODULES = "torch", "_operator", "pyops"
OF_ANY_AXES = "reshape", "view", "flatten", "size", "dim"
"""Functions and methods that take parameters of more than two axes."""


def lowered(builder: Builder, target: str | Function, *args: object, **kwargs: object) -> object:
    """Write the call of a function, or of a method that is given by its name."""
    if not isinstance(target, str):
        if target in OPERATORS:
            return _operator(builder, OPERATORS[target], *args, **kwargs)
        own = builder.functions.get(target)
        if own is not None:
            return own(builder, *args, **kwargs)
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    module = "torch" if isinstance(target, str) else getattr(target, "__module__", None) or "torch"
    known = _NAMES.get(name, name)
    kwargs = {key: value for key, value in kwargs.items() if (key, value) not in _HARMLESS}
    if module.partition(".")[0] in _MODULES:
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](builder, *args, **kwargs)
        if known in ARITY:
            return _elementwise(builder, known, *args, **kwargs)
    raise UnsupportedError(f"{name}: there is no such function in programs")


def check_axes(target: object, values: Sequence[object]) -> None:
    """Refuse parameters of more than two axes, which programs see as matrices, but to reshape."""
    name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
    for value in values:
        if isinstance(value, tuple | list):
            check_axes(target, value)
        elif isinstance(value, Ref) and value.full and name not in OF_ANY_AXES:
            raise UnsupportedError(f"{name}: expected one or two dimensions, to which reshape "
                                   f"leads, got a parameter of shape {value.full}")  # fmt: skip


def _operator(builder: Builder, name: str, *args: object, **kwargs: object) -> Ref:
    """Write the call of an operator of `pyops.torch`."""
    if name not in CALLS:
        raise UnsupportedError(f"{name}: there is no such function in programs")
    signature = _DECLARED[name].signature
    held = dict(zip(signature.positional, args, strict=False)) | kwargs
    if name.endswith("softmax") and not signature.has_graph:
        held.setdefault("axis", -1)
    graph = held.pop("graph", None)
    assert graph is None or isinstance(graph, Ref)
    inputs = {n: held.pop(n) for n in signature.inputs if n in held}
    for one in (graph, *inputs.values()):
        _refuse_numbers(name, one)
    return builder.step(name, inputs, _options(name, held), graph)


def _refuse_numbers(name: str, value: object) -> None:
    if value is not None and not isinstance(value, Ref):
        raise UnsupportedError(f"{name}: expected tensors, got {value!r:.60}")


def _options(name: str, given: dict[str, object]) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for key, value in given.items():
        if not isinstance(value, str | bool | int | float | tuple | None):
            raise UnsupportedError(f"{name}: {key}: expected a number or a text, got {value!r:.60}")
        found[key] = value
    return found


def _elementwise(builder: Builder, name: str, *args: object, **kwargs: object) -> Ref:
    names = {"input": 0, "other": 1}
    operands = list(args) + [kwargs.pop(key) for key in names if key in kwargs]
    if kwargs or len(operands) != ARITY[name]:
        raise UnsupportedError(f"{name}: expected {ARITY[name]} operands, got {len(operands)} and "
                               f"{', '.join(kwargs) or 'no options'}")  # fmt: skip
    places = ["x1", "x2"] if ARITY[name] == 2 else ["x"]
    for one in operands:
        _check_broadcast(name, one)
    return builder.step(name, dict(zip(places, operands, strict=True)))


_HARMLESS = (
    *(("inplace", value) for value in (False, True)),
    *((name, None) for name in ("out", "dtype", "rounding_mode")),
    ("alpha", 1),
)
"""Arguments that change no result."""


def _check_broadcast(name: str, value: object) -> None:
    real = isinstance(value, Ref) and value.kind == REAL
    if not real and not (isinstance(value, int | float) and not isinstance(value, bool)):
        raise UnsupportedError(f"{name}: expected real tensors and numbers, got {value!r:.60}")


def _power(builder: Builder, x: object, exponent: object) -> Ref:
    """Write a power; that of a whole number up to 4 is a product, as bases may be negative."""
    _check_broadcast("pow", x)
    if isinstance(x, Ref) and isinstance(exponent, int | float):
        if exponent in (1, 2, 3, 4):
            square = builder.multiply(x, x) if exponent > 1 else x
            return {1: x, 2: square}.get(int(exponent)) or builder.multiply(
                square, x if exponent == 3 else square
            )
        special = {0.5: "sqrt", -1: "reciprocal"}.get(exponent)
        if special is not None:
            return builder.unary(special, x)
        if exponent == int(exponent):
            raise UnsupportedError(f"pow: expected an exponent up to 4 or no whole number, got "
                                   f"{exponent}")  # fmt: skip
    return builder.binary("power", x, exponent)


def _leaky_relu(builder: Builder, x: Ref, negative_slope: float = 0.01, *_: bool) -> Ref:
    return builder.unary("leaky_relu", x, negative_slope=negative_slope)


def _elu(builder: Builder, x: Ref, alpha: float = 1.0, *_: bool) -> Ref:
    return builder.unary("elu", x, alpha=alpha)


def _gelu(builder: Builder, x: Ref, *, approximate: str = "none") -> Ref:
    if approximate != "none":
        raise UnsupportedError(f"gelu: approximate: expected 'none', got {approximate!r}")
    return builder.unary("gelu", x)


def _identity(builder: Builder, x: Ref, *_: object, **__: object) -> Ref:
    return x


def _dropout(builder: Builder, x: Ref, p: float = 0.5, training: bool = True, *_: object) -> Ref:
    if training and p > 0:
        raise UnsupportedError("dropout: expected training=False, as in model.eval()")
    return x


def _reduction(name: str) -> Function:
    def lower(
        builder: Builder,
        x: Ref,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        axis: int | None = None,
    ) -> Ref:
        place = _one_axis(name, x, axis if dim is None else dim)
        options: dict[str, Scalar] = {"keepdims": True} if keepdim else {}
        if place is not None:
            options["axis"] = place
        return builder.step(name, {"x": x}, options)

    return lower


def _one_axis(name: str, x: Ref, dim: int | Sequence[int] | None) -> int | None:
    """Return the axis of a reduction, None for all."""
    if dim is None:
        return None
    axes = sorted(d % x.axes for d in ([dim] if isinstance(dim, int) else dim))
    if len(axes) == 1:
        return axes[0]
    if axes == [*range(x.axes)]:
        return None
    raise UnsupportedError(f"{name}: dim: expected one dimension or all, got {dim}")


def _max_or_min(name: str) -> Function:
    def lower(builder: Builder, x: Ref, other: object = None, **kwargs: object) -> Ref:
        if kwargs or (other is not None and not isinstance(other, Ref)):
            raise UnsupportedError(f"{name} along a dimension returns indices; use a{name}")
        if isinstance(other, Ref):
            return builder.binary("maximum" if name == "max" else "minimum", x, other)
        return builder.step(name, {"x": x})

    return lower


def _along(name: str) -> Function:
    def lower(
        builder: Builder,
        x: Ref,
        dim: int | None = None,
        _stacklevel: int = 3,
        dtype: object = None,
    ) -> Ref:
        if dtype is not None or type(_stacklevel) is not int:
            raise UnsupportedError(f"{name}: dtype: expected none")
        if dim is None:
            raise UnsupportedError(f"{name}: dim: expected a dimension, got None")
        return builder.step(name, {"x": x}, {"axis": dim % x.axes})

    return lower


def _cat(builder: Builder, tensors: Sequence[Ref], dim: int = 0, *, axis: int | None = None) -> Ref:
    return builder.concat(list(tensors), (dim if axis is None else axis) % tensors[0].axes)


def _linear(builder: Builder, x: Ref, weight: Ref, bias: Ref | None = None) -> Ref:
    """Write a linear layer; a vector is a matrix of one row."""
    if x.axes == 1:
        return builder.flat(builder.product(builder.reshape(x, 1, -1), weight, bias))
    return builder.product(x, weight, bias)


def _matmul(builder: Builder, a: Ref, b: Ref) -> Ref:
    if a.axes == 2 and b.axes == 1:
        return builder.flat(builder.matmul(a, builder.column(b)))
    return builder.matmul(a, b)


def _addmm(
    builder: Builder, bias: Ref, a: Ref, b: Ref, *, beta: float = 1, alpha: float = 1
) -> Ref:
    if (beta, alpha) != (1, 1):
        raise UnsupportedError(f"addmm: expected beta=1 and alpha=1, got {beta} and {alpha}")
    return builder.add(builder.matmul(a, b), bias)


def _transpose(builder: Builder, x: Ref, *dims: int) -> Ref:
    if x.axes == 1 and not dims:
        return x
    if dims and sorted(d % x.axes for d in dims) != [0, 1]:
        raise UnsupportedError(f"transpose: expected the dimensions 0 and 1, got {dims}")
    return builder.transpose(x)


def _permute(builder: Builder, x: Ref, *dims: int | Sequence[int]) -> Ref:
    order = dims[0] if len(dims) == 1 and isinstance(dims[0], Sequence) else dims
    places = [place % x.axes for place in cast("Sequence[int]", order)]
    return x if places == [*range(x.axes)] else _transpose(builder, x, *places)


def _shaped(builder: Builder, x: Ref, *sizes: object) -> Ref:
    """Write a reshape; the number of rows of the example is not stored."""
    lengths = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes
    found = [n if isinstance(n, int) else -1 for n in lengths]
    if found == [-1, -1] and _has_rows_of(builder, lengths[0], x):
        found = [-1, math.prod(x.shape[1:])]
    if not 1 <= len(found) <= 2 or found.count(-1) > 1:
        raise UnsupportedError(
            "reshape: expected one or two lengths, of which one is not known before the call, got "
            f"{len(found)}, {found.count(-1)} of these"
        )
    return builder.reshape(x, *found)


def _has_rows_of(builder: Builder, length: object, x: Ref) -> bool:
    return isinstance(length, Rows) and builder.has_same_rows(length.ref, x)


def _flatten(builder: Builder, x: Ref, start_dim: int = 0, end_dim: int = -1) -> Ref:
    shape = x.full or x.shape
    first, last = (place % max(len(shape), 1) for place in (start_dim, end_dim))
    if (first, last) == (0, max(len(shape) - 1, 0)):
        return builder.flat(x)
    if first == last and not x.full:
        return x
    left = len(shape) - last + first
    if left != 2:
        raise UnsupportedError(f"flatten: expected two dimensions as the result, got {left}")
    return builder.reshape(x, -1, shape[-1]) if first == 0 else builder.reshape(x, *x.shape)


def _unsqueeze(builder: Builder, x: Ref, dim: int) -> Ref:
    if x.axes == 0 and dim in (0, -1):
        return builder.reshape(x, 1)
    if x.axes != 1:
        raise UnsupportedError(f"unsqueeze: expected a vector, got {x.axes} dimensions")
    return builder.column(x) if dim in (1, -1) else builder.reshape(x, 1, -1)


def _squeeze(builder: Builder, x: Ref, dim: int | None = None) -> Ref:
    place = 1 if dim is None else dim % x.axes
    if x.axes == 1 or (place == 1 and x.columns != 1) or (place == 0 and dim is not None):
        raise UnsupportedError("squeeze: expected the second dimension of a matrix of one column")
    return builder.flat(x)


def _getitem(builder: Builder, x: object, place: object) -> object:
    if isinstance(x, tuple | list | dict):
        held = cast("dict[object, object]", x)
        return held[place]
    assert isinstance(x, Ref)
    if x.kind == GRAPH:
        if place not in (0, 1):
            raise UnsupportedError(f"expected row 0 or 1 of an edge index, got {place!r:.40}")
        return builder.step("destinations" if place == 1 else "sources", graph=x)
    places = place if isinstance(place, tuple) else (place,)
    places = tuple(slice(None) if one is Ellipsis else one for one in places)
    if places in ((None, slice(None)), (slice(None), None)):
        return _unsqueeze(builder, x, places.index(None))
    if len(places) > x.axes:
        raise UnsupportedError(f"expected at most {x.axes} indices, got {len(places)}")
    taken = []
    for axis, one in enumerate(places):
        x = _picked(builder, x, axis, one)
        taken += [axis] if isinstance(one, int) else []
    if len(taken) == x.axes:
        return builder.unary("sum", x)
    return builder.flat(x) if taken else x


def _picked(builder: Builder, x: Ref, axis: int, place: object) -> Ref:
    if isinstance(place, Ref) and place.kind == INDEX and axis == 0:
        return builder.step("gather", {"x": x, "index": place})
    if type(place) is int:
        start = place % _fixed_columns(builder, x) if axis and place < 0 else place
        if start < 0:
            raise UnsupportedError(f"expected a row counted from the first, got {place}")
        options: dict[str, Scalar] = {"axis": axis, "start": start, "stop": start + 1}
        return builder.step("slice", {"x": x}, options)
    if isinstance(place, slice) and place.step in (None, 1):
        ends = place.start, place.stop
        if not all(end is None or isinstance(end, int) for end in ends):
            raise UnsupportedError(f"expected numbers in a slice, got {place!r:.60}")
        if axis == 0 and any(end is not None and end < 0 for end in ends):
            raise UnsupportedError(f"expected rows counted from the first, got {place!r:.60}")
        start, stop = place.start or 0, place.stop
        if axis == 1 and (start < 0 or stop is not None):
            _fixed_columns(builder, x)
            start, stop, _ = place.indices(x.columns)
        if (start, place.stop) == (0, None):
            return x
        options = {"axis": axis, "start": start, "stop": None if place.stop is None else stop}
        return builder.step("slice", {"x": x}, options)
    raise UnsupportedError(f"expected slices, integers and indices of rows, got {place!r:.60}")


def _fixed_columns(builder: Builder, x: Ref) -> int:
    """Return the columns of a matrix, which may not depend on the sizes of inputs."""
    if not builder.has_fixed_columns(x):
        raise UnsupportedError("expected columns whose number does not depend on that of rows")
    return x.columns


def _index_select(builder: Builder, x: Ref, dim: int, index: Ref) -> Ref:
    if dim % max(x.axes, 1) != 0:
        raise UnsupportedError(f"index_select: expected dimension 0, got {dim}")
    return builder.step("gather", {"x": x, "index": index})


def _embedding(
    builder: Builder,
    index: Ref,
    weight: Ref,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Ref:
    if max_norm is not None or scale_grad_by_freq:
        raise UnsupportedError("embedding: expected no max_norm and no scale_grad_by_freq")
    if padding_idx is not None:
        place = padding_idx % weight.shape[0]
        if builder.array(weight)[place].any():
            raise UnsupportedError("embedding: padding_idx: expected a row of zeros")
        builder.zero_rows[weight.name] = place
        kept = tuple(float(row != place) for row in range(weight.shape[0]))
        factor = builder.column(builder.step("constant", {}, {"values": kept}))
        weight = builder.multiply(weight, factor)
    return builder.step("gather", {"x": weight, "index": index})


def _layer_norm(
    builder: Builder,
    x: Ref,
    normalized_shape: Sequence[int],
    weight: Ref | None = None,
    bias: Ref | None = None,
    eps: float = 1e-5,
) -> Ref:
    if tuple(normalized_shape) != x.shape[1:]:
        raise UnsupportedError(f"layer_norm: expected the last dimension, got {normalized_shape}")
    return builder.step("layer_norm", {"x": x, "weight": weight, "bias": bias}, {"eps": eps})


def normalized(builder: Builder, x: Ref, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Ref:
    """Write a division by the Euclidean norm; the smallest one is in the sum, with derivative 0."""
    if p != 2:
        raise UnsupportedError(f"normalize: p: expected 2, got {p}")
    options: dict[str, Scalar] = {"axis": dim % x.axes, "keepdims": True}
    squares = builder.step("sum", {"x": builder.multiply(x, x)}, options)
    least = builder.binary("maximum", squares, eps**2)
    return builder.divide(x, builder.unary("sqrt", least))


def _full_like(value: float) -> Function:
    def lower(builder: Builder, x: Ref, **_: object) -> Ref:
        return builder.full(x, value, _fixed_columns(builder, x) if x.axes == 2 else None)

    return lower


def _chunks(builder: Builder, x: Ref, count: int, dim: int = 0) -> list[Ref]:
    width = -(-x.shape[dim % x.axes] // count)
    return _split(builder, x, width, dim)


def _split(builder: Builder, x: Ref, sizes: int | Sequence[int], dim: int = 0) -> list[Ref]:
    if dim % x.axes != 1:
        raise UnsupportedError(f"split: expected dimension 1, got {dim}")
    columns = _fixed_columns(builder, x)
    if isinstance(sizes, int):
        sizes = [min(sizes, columns - start) for start in range(0, columns, sizes)]
    parts, start = [], 0
    for size in sizes:
        parts.append(builder.columns(x, start, start + size))
        start += size
    return parts


def _size(builder: Builder, x: Ref, dim: int | None = None) -> object:
    shape: tuple[int | Unknown, ...] = (Rows(x), *(x.full or x.shape)[1:])
    if not builder.has_fixed_columns(x):
        shape = Rows(x), Unknown(x)
    return shape if dim is None else shape[dim]


def _dim(builder: Builder, x: Ref) -> int:
    return len(x.full or x.shape)


def _rows_of(name: str, src: Ref, dim: int, rows: object) -> Ref | None:
    """Return a value with as many rows as there are groups, None if an index determines them."""
    if dim % src.axes != 0 or not (rows is None or isinstance(rows, Rows)):
        raise UnsupportedError(f"{name}: expected dimension 0, and rows of a tensor as the groups")
    return rows.ref if isinstance(rows, Rows) else None


def _groups(builder: Builder, name: str, index: Ref | None, like: Ref | None) -> Ref:
    """Return the graph whose entries run to their groups."""
    if index is None or like is None:
        raise UnsupportedError(f"{name}: expected an index, and the rows of a tensor as the groups")
    return builder.step("graph_of", {"src": index, "dst": index, "num_src": like, "num_dst": like})


def _scatter(
    builder: Builder,
    src: Ref,
    index: Ref,
    dim: int = 0,
    dim_size: object = None,
    reduce: str = "sum",
) -> Ref:
    like = _rows_of("scatter", src, dim, dim_size)
    if reduce in EXTREMES:
        graph = _groups(builder, "scatter", index, like)
        return builder.aggregate(graph, edge=builder.column(src), reduce=EXTREMES[reduce])
    if reduce not in ("sum", "add", "mean"):
        raise UnsupportedError(f"scatter: reduce: expected sum, mean, max or min, got {reduce!r}")
    total = builder.step("scatter_sum", {"x": src, "index": index, "like": like})
    if reduce != "mean":
        return total
    ones = builder.full(src, 1.0)
    count = builder.step("scatter_sum", {"x": ones, "index": index, "like": like})
    count = builder.binary("maximum", count, 1.0)
    return builder.divide(total, builder.column(count) if src.axes == 2 else count)


def _pool(reduce: str) -> Function:
    def lower(builder: Builder, x: Ref, batch: Ref | None, size: object = None) -> Ref:
        if batch is None:
            return builder.step(reduce, {"x": x}, {"axis": 0, "keepdims": True})
        return _scatter(builder, x, batch, 0, size, reduce)

    return lower


def geometric() -> list[ModuleType]:
    """Return the module of PyTorch Geometric's layers, if it is imported."""
    found = sys.modules.get("torch_geometric.nn")
    return [] if found is None else [found]


def by_identity() -> dict[Function, Function]:
    """Return how functions are written that names do not identify.

    Those of PyTorch Geometric reduce the nodes of each graph. Called before a trace, which replaces
    them in their modules.
    """
    names = {"add": "sum", "mean": "mean", "max": "max"}
    return (
        _BY_IDENTITY
        | PACKED
        | {
            getattr(module, f"global_{name}_pool"): _pool(own)
            for module in geometric()
            for name, own in names.items()
        }
    )


def _group_softmax(
    builder: Builder,
    src: Ref,
    index: Ref | None = None,
    ptr: object = None,
    num_nodes: object = None,
    dim: int = 0,
) -> Ref:
    like = _rows_of("softmax", src, dim, num_nodes)
    graph = _groups(builder, "softmax", index if ptr is None else None, like)
    found = builder.step("segment_softmax", {"logits": builder.column(src)}, {}, graph)
    return builder.flat(found) if src.axes == 1 else found


_BY_IDENTITY: dict[Function, Function] = {
    nn.scatter: _scatter,
    nn.softmax: _group_softmax,
    swish: lambda builder, x: builder.unary("silu", x),
    product: lambda builder, x, y: builder.multiply(x, y),
}
_FUNCTIONS: dict[str, Function] = {
    "pow": _power,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "gelu": _gelu,
    "softplus": thresholds.softplus,
    **dict.fromkeys(("clone", "contiguous", "positive", "pos"), _identity),
    **dict.fromkeys(("dropout", "feature_alpha_dropout"), _dropout),
    **{name: _reduction(name) for name in ("sum", "mean")},
    **{f"a{name}": _reduction(name) for name in ("max", "min")},
    **{name: _max_or_min(name) for name in ("max", "min")},
    **dict.fromkeys(("clamp", "clip"), thresholds.clamp),
    **{name: _along(name) for name in ("softmax", "log_softmax")},
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm"), _matmul),
    "addmm": _addmm,
    **dict.fromkeys(("t", "transpose", "swapaxes"), _transpose),
    "permute": _permute,
    **dict.fromkeys(("reshape", "view"), _shaped),
    "flatten": _flatten,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "getitem": _getitem,
    "index_select": _index_select,
    "embedding": _embedding,
    "layer_norm": _layer_norm,
    "normalize": normalized,
    "zeros_like": _full_like(0.0),
    "ones_like": _full_like(1.0),
    "chunk": _chunks,
    "split": _split,
    "size": _size,
    "dim": _dim,
    "square": lambda builder, x: _power(builder, x, 2),
    "rsqrt": lambda builder, x: builder.unary("reciprocal", builder.unary("sqrt", x)),
}
