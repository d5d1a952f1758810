"""Parameter blocks: several tensors packed into the one vector that a kernel reads.

All functions take NumPy arrays, PyTorch tensors or JAX arrays and return the same kind. They are
differentiable, and the layouts are those of the operators.
"""

# More than half of the module is documentation.

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ._call.arrays import check_size
from ._libraries import check_parts, library_of, split
from ._network_order import in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

Array: TypeAlias = Any
"""An array of any of the libraries."""


class DimenetBlock(NamedTuple):
    """Parts of the weights of `dimenet_aggregate`, views into them."""

    A: Array
    B: Array


class GnoBlock(NamedTuple):
    """Parts of a block of `gno_kernel` and `gno_conv`, views into it."""

    U: Array
    b_u: Array
    V: Array
    b_v: Array


def pack_gno(U: Array, b_u: Array, V: Array, b_v: Array) -> Array:  # noqa: N803
    """Pack a kernel network V act(U x + b_u) + b_v into one block.

    Parameters
    ----------
    U : array, shape (hidden, dim)
    b_u : array, shape (hidden,)
    V : array, shape (in_features * out_features, hidden)
        As the weight of a torch ``Linear``; row f_in * out_features + f_out gives the element
        (f_in, f_out) of the matrix of an edge.
    b_v : array, shape (in_features * out_features,)

    Returns
    -------
    array, shape (hidden * (dim + 1) + (hidden + 1) * in_features * out_features,)
        U | b_u | V | b_v, the matrices in column-major order.

    Raises
    ------
    TypeError, ValueError
        If a part is not a float32 or float64 array like the others, or has the wrong shape.
    """
    library, parts = check_parts("pack_gno", {"U": U, "b_u": b_u, "V": V, "b_v": b_v})
    for name, part in parts.items():
        shape = tuple(part.shape)
        if part.ndim != (2 if name in "UV" else 1):
            axes = {"U": "(hidden, dim)", "V": "(in_features * out_features, hidden)"}
            expected = axes.get(name, "one dimension")
            raise ValueError(f"pack_gno: {name}: expected {expected}, got {shape}")
        if 0 in shape:
            raise ValueError(f"pack_gno: {name}: expected sizes of at least 1, got {shape}")
    hidden, entries = len(U), len(V)
    for name, shape in {"b_u": (hidden,), "V": (entries, hidden), "b_v": (entries,)}.items():
        if (got := tuple(parts[name].shape)) != shape:
            raise ValueError(f"pack_gno: {name}: expected shape {shape}, got {got}")
    flat = [part.T.reshape(-1) if part.ndim == 2 else part for part in parts.values()]
    return library.concatenate(flat)


def unpack_gno(block: Array, *, dim: int, hidden: int) -> GnoBlock:
    """Return views of the parts of a block, or of the gradient of one.

    Parameters
    ----------
    block : array, shape (hidden * (dim + 1) + (hidden + 1) * in_features * out_features,)
    dim : int
        Number of coordinates of an edge.
    hidden : int
        Number of hidden units.

    Returns
    -------
    GnoBlock
        U (hidden, dim), b_u (hidden,), V (in_features * out_features, hidden) and b_v, named
        views: writing to them writes to the block.

    Raises
    ------
    TypeError, ValueError
        If the block is not a float32 or float64 vector of such a length.
    """
    library_of(block).check("unpack_gno: block", block)
    dim, hidden = check_size("unpack_gno: dim", dim), check_size("unpack_gno: hidden", hidden)
    layer = hidden * (dim + 1)
    length = len(block) if block.ndim == 1 else 0
    entries, rest = divmod(length - layer, hidden + 1)
    if rest or entries < 1:
        raise ValueError(
            "unpack_gno: block: expected length hidden*(dim+1)+(hidden+1)*in_features*out_features "
            f"with hidden={hidden} and dim={dim}, got shape {tuple(block.shape)}"
        )
    U, b_u, V, b_v = split(block, hidden * dim, layer, layer + hidden * entries)  # noqa: N806
    return GnoBlock(U.reshape(dim, hidden).T, b_u, V.reshape(hidden, entries).T, b_v)


class GatBlock(NamedTuple):
    """Parts of a block of `gat`, views into it."""

    a_src: Array
    a_dst: Array
    a_edge: Array | None


def pack_gat(a_src: Array, a_dst: Array, a_edge: Array | None = None) -> Array:
    """Pack the score weights of graph attention into one block.

    Parameters
    ----------
    a_src, a_dst : array, shape (heads, width)
        Weights of the features of sources and destinations.
    a_edge : array, shape (heads, edge_width), optional
        Weights of the features of edges.

    Returns
    -------
    array, shape (heads * (2 * width + edge_width),)
        a_src | a_dst | a_edge, each head by head.

    Raises
    ------
    TypeError, ValueError
        If a part is not a float32 or float64 array like the others, or has the wrong shape.
    """
    given = {"a_src": a_src, "a_dst": a_dst, **({} if a_edge is None else {"a_edge": a_edge})}
    library, parts = check_parts("pack_gat", given)
    first = tuple(parts["a_src"].shape)
    for name, part in parts.items():
        label, shape = f"pack_gat: {name}", tuple(part.shape)
        if part.ndim != 2 or 0 in shape:
            raise ValueError(f"{label}: expected (heads, width) of at least 1, got {shape}")
        if name == "a_dst" and shape != first:
            raise ValueError(f"{label}: expected shape {first}, got {shape}")
        if name == "a_edge" and shape[0] != first[0]:
            raise ValueError(f"{label}: expected shape ({first[0]}, edge_width), got {shape}")
    return library.concatenate([part.reshape(-1) for part in parts.values()])


def unpack_gat(block: Array, *, heads: int, width: int) -> GatBlock:
    """Return views of the parts of a block, or of the gradient of one.

    Parameters
    ----------
    block : array, shape (heads * (2 * width + edge_width),)
    heads : int
        Number of heads.
    width : int
        Number of features per head.

    Returns
    -------
    GatBlock
        a_src and a_dst (heads, width), a_edge (heads, edge_width) or None: writing to them writes
        to the block.

    Raises
    ------
    TypeError, ValueError
        If the block is not a float32 or float64 vector of such a length.
    """
    library_of(block).check("unpack_gat: block", block)
    heads, width = check_size("unpack_gat: heads", heads), check_size("unpack_gat: width", width)
    length = len(block) if block.ndim == 1 else 0
    edge_width, rest = divmod(length - 2 * heads * width, heads)
    if rest or edge_width < 0:
        raise ValueError(
            "unpack_gat: block: expected length heads*(2*width+edge_width) with "
            f"heads={heads} and width={width}, got shape {tuple(block.shape)}"
        )
    parts = split(block, heads * width, 2 * heads * width)
    a_src, a_dst, a_edge = (part.reshape(heads, len(part) // heads) for part in parts)
    return GatBlock(a_src, a_dst, a_edge if edge_width else None)


def pack_basis(basis: Array) -> Array:
    """Pack a basis of `ono_encode` and `ono_decode` into one block.

    Parameters
    ----------
    basis : array, shape (points, modes)

    Returns
    -------
    array, shape (points * modes,)
        The basis in column-major order.

    Raises
    ------
    TypeError, ValueError
        If the basis is not a float32 or float64 array of two dimensions, neither of them 0.
    """
    library = library_of(basis)
    basis = library.check("pack_basis: basis", basis)
    shape = tuple(basis.shape)
    if basis.ndim != 2:
        raise ValueError(f"pack_basis: basis: expected (points, modes), got {shape}")
    if 0 in shape:
        raise ValueError(f"pack_basis: basis: expected sizes of at least 1, got {shape}")
    return library.concatenate([basis.T.reshape(-1)])


def unpack_basis(block: Array, *, modes: int) -> Array:
    """Return a block, or the gradient of one, as a basis.

    Parameters
    ----------
    block : array, shape (..., points * modes)
        One block, or the gradients of several samples.
    modes : int
        Number of columns of the basis.

    Returns
    -------
    array, shape (..., points, modes)
        A view: writing to it writes to the block.

    Raises
    ------
    TypeError, ValueError
        If the block is not a float32 or float64 array of such a length.
    """
    library_of(block).check("unpack_basis: block", block)
    modes = check_size("unpack_basis: modes", modes)
    if block.ndim < 1 or block.shape[-1] == 0 or block.shape[-1] % modes:
        raise ValueError(
            f"unpack_basis: block: expected length points*modes with modes={modes}, "
            f"got shape {tuple(block.shape)}"
        )
    return block.reshape(*block.shape[:-1], modes, block.shape[-1] // modes).swapaxes(-1, -2)


def pack_dimenet(A: Array, B: Array) -> Array:  # noqa: N803
    """Pack the two layers that map the basis of `dimenet_aggregate` to the channels.

    Parameters
    ----------
    A : array, shape (num_spherical * num_radial, middle)
        The transpose of the weight of the first torch ``Linear``.
    B : array, shape (channels, middle)
        The weight of the second.

    Returns
    -------
    array, shape (num_spherical * num_radial + channels, middle)
        A stacked on B.

    Raises
    ------
    TypeError, ValueError
        If a part is not a float32 or float64 matrix like the other, or the widths differ.
    """
    library, parts = check_parts("pack_dimenet", {"A": A, "B": B})
    for name, part in parts.items():
        shape = tuple(part.shape)
        if part.ndim != 2 or 0 in shape:
            raise ValueError(
                f"pack_dimenet: {name}: expected (rows, middle), neither 0, got {shape}"
            )
    if A.shape[1] != B.shape[1]:
        raise ValueError(
            f"pack_dimenet: B: expected (channels, {A.shape[1]}), got {tuple(B.shape)}"
        )
    return library.concatenate([*parts.values()])


def unpack_dimenet(weights: Array, *, channels: int) -> DimenetBlock:
    """Return views of both layers in the weights, or in the gradient by them.

    Parameters
    ----------
    weights : array, shape (num_spherical * num_radial + channels, middle)
    channels : int
        Rows of the second layer.

    Returns
    -------
    DimenetBlock
        A (num_spherical * num_radial, middle) and B (channels, middle), named views.

    Raises
    ------
    TypeError, ValueError
        If the weights are no float32 or float64 matrix of more rows than channels.
    """
    library_of(weights).check("unpack_dimenet: weights", weights)
    channels = check_size("unpack_dimenet: channels", channels)
    if weights.ndim != 2 or len(weights) <= channels:
        raise ValueError(
            f"unpack_dimenet: weights: expected more than channels={channels} rows of a matrix, "
            f"got shape {tuple(weights.shape)}"
        )
    return DimenetBlock(weights[:-channels], weights[-channels:])


class EdgeNetworkBlock(NamedTuple):
    """Parts of a block of `edge_mlp` and `edge_network`, views into it."""

    first: tuple[Array, Array | None, Array | None]
    """Weights of the first layer for sources, destinations and edges, (hidden, width) each."""
    weights: tuple[Array, ...]
    """Weights of the other layers."""
    biases: tuple[Array, ...]
    """Biases of all layers."""
    scale: Array | None
    shift: Array | None


def pack_edge_network(
    weights: Sequence[Array],
    biases: Sequence[Array],
    scale: Array | None = None,
    shift: Array | None = None,
    *,
    src_width: int,
    dst_width: int = 0,
) -> Array:
    """Pack the layers of a network of entries into one block.

    Parameters
    ----------
    weights : sequence of arrays, shapes (hidden, src_width + dst_width + edge_width), \
(hidden, hidden), ..., (out_features, hidden)
        As the weights of torch ``Linear`` layers; the columns of the first belong to the features
        of sources, destinations and edges, in this order.
    biases : sequence of arrays, shapes (hidden,), ..., (out_features,)
    scale, shift : array, shape (out_features,), optional
        Of the norm.
    src_width, dst_width : int
        Columns of the first weight that belong to sources and destinations.

    Returns
    -------
    array, shape (P,)
        W_src | W_dst | W_edge | b_1 | W_2 | b_2 | ... | scale | shift, the matrices in row-major
        order.

    Raises
    ------
    TypeError, ValueError
        If a part is not a float32 or float64 array like the others, or has the wrong shape.
    """
    caller = "pack_edge_network"
    if len(weights) < 2 or len(weights) != len(biases):
        raise ValueError(
            f"{caller}: expected as many weights as biases, two or more, got {len(weights)} and "
            f"{len(biases)}"
        )
    given = {f"weights[{n}]": weight for n, weight in enumerate(weights)}
    given |= {f"biases[{n}]": bias for n, bias in enumerate(biases)}
    if (scale is None) != (shift is None):
        raise ValueError(f"{caller}: expected scale and shift, or neither")
    given |= {} if scale is None else {"scale": scale, "shift": shift}
    library, parts = check_parts(caller, given)
    src = check_size(f"{caller}: src_width", src_width)
    dst = check_size(f"{caller}: dst_width", dst_width, 0)
    first = tuple(parts["weights[0]"].shape)
    if len(first) != 2 or 0 in first or src + dst > first[1]:
        raise ValueError(
            f"{caller}: weights[0]: expected (hidden, columns) with at least "
            f"src_width+dst_width={src + dst} columns, got {first}"
        )
    last = parts[f"weights[{len(weights) - 1}]"]
    hidden, out = first[0], len(last) if last.ndim else 0
    sizes = [hidden] * (len(weights) - 1) + [out]
    expected: dict[str, tuple[int, ...]]
    expected = {f"weights[{n}]": (sizes[n], hidden) for n in range(1, len(weights))}
    expected |= {f"biases[{n}]": (size,) for n, size in enumerate(sizes)}
    expected |= {} if scale is None else {"scale": (out,), "shift": (out,)}
    for name, shape in expected.items():
        if (got := tuple(parts[name].shape)) != shape or 0 in shape:
            raise ValueError(f"{caller}: {name}: expected shape {shape}, got {got}")
    matrix = parts["weights[0]"]
    ordered = in_order(
        [matrix[:, :src], matrix[:, src : src + dst], matrix[:, src + dst :]],
        [parts[f"weights[{n}]"] for n in range(1, len(weights))],
        [parts[f"biases[{n}]"] for n in range(len(biases))],
        [] if scale is None else [parts["scale"], parts["shift"]],
    )
    return library.concatenate([part.reshape(-1) for part in ordered])


def unpack_edge_network(
    block: Array,
    *,
    src_width: int,
    dst_width: int = 0,
    edge_width: int = 0,
    hidden: int,
    depth: int = 1,
    norm: str = "none",
) -> EdgeNetworkBlock:
    """Return views of the parts of a block, or of the gradient of one.

    Parameters
    ----------
    block : array, shape (P,)
    src_width, dst_width, edge_width : int
        Columns of the first weight that belong to sources, destinations and edges.
    hidden : int
        Number of units of each hidden layer.
    depth : int
        Number of hidden layers.
    norm : {"none", "layer"}

    Returns
    -------
    EdgeNetworkBlock
        Named views: writing to them writes to the block.

    Raises
    ------
    TypeError, ValueError
        If the block is not a float32 or float64 vector of such a length.
    """
    caller = "unpack_edge_network"
    library_of(block).check(f"{caller}: block", block)
    if norm not in ("none", "layer"):
        raise ValueError(f"{caller}: norm: expected 'none' or 'layer', got {norm!r}")
    hidden, depth = check_size(f"{caller}: hidden", hidden), check_size(f"{caller}: depth", depth)
    widths = [
        check_size(f"{caller}: src_width", src_width),
        check_size(f"{caller}: dst_width", dst_width, 0),
        check_size(f"{caller}: edge_width", edge_width, 0),
    ]
    length = len(block) if block.ndim == 1 else 0
    start = hidden * (sum(widths) + 1) + (depth - 1) * hidden * (hidden + 1)
    out, rest = divmod(length - start, hidden + 1 + 2 * (norm == "layer"))
    if rest or out < 1:
        raise ValueError(
            f"{caller}: block: expected length hidden*(src_width+dst_width+edge_width+1)"
            f"+(depth-1)*hidden*(hidden+1)+out_features*(hidden+{3 if norm == 'layer' else 1}) "
            f"with {hidden=}, {depth=} and widths {widths}, got shape {tuple(block.shape)}"
        )
    units = [hidden] * depth + [out]
    shapes: list[tuple[int, ...]] = in_order(
        [(hidden, width) for width in widths],
        [(count, hidden) for count in units[1:]],
        [(count,) for count in units],
        [(out,), (out,)] if norm == "layer" else [],
    )
    places = [*itertools.accumulate(math.prod(shape) for shape in shapes)]
    parts = [p.reshape(s) for p, s in zip(split(block, *places[:-1]), shapes, strict=True)]
    source, *others = parts[:3]
    target, edge = (p if width else None for p, width in zip(others, widths[1:], strict=True))
    scale, shift = (parts.pop(-2), parts.pop()) if norm == "layer" else (None, None)
    first = source, target, edge
    return EdgeNetworkBlock(first, tuple(parts[4::2]), tuple(parts[3::2]), scale, shift)
