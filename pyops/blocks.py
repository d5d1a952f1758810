"""Parameter blocks: several tensors packed into the one vector that a kernel reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._arrays import Array, check_array, check_size


class DimenetBlock(NamedTuple):
    """The parts of the weights of `dimenet_aggregate`, views into them."""

    A: Array
    B: Array


class GnoBlock(NamedTuple):
    """The parts of a block of `gno_kernel` and `gno_conv`, views into it."""

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
        As the weight of a torch ``Linear``; row f_in * out_features + f_out makes the entry
        (f_in, f_out) of the matrix of an edge.
    b_v : array, shape (in_features * out_features,)

    Returns
    -------
    array, shape (hidden * (dim + 1) + (hidden + 1) * in_features * out_features,)
        U | b_u | V | b_v, the matrices column by column.

    Raises
    ------
    TypeError, ValueError
        If a part is not a float32 or float64 array like the others, or has the wrong shape.
    """
    parts = {"U": U, "b_u": b_u, "V": V, "b_v": b_v}
    for name, part in parts.items():
        check_array(f"pack_gno: {name}", part)
        if part.dtype.char != U.dtype.char:
            raise TypeError(f"pack_gno: {name}: expected {U.dtype} like U, got {part.dtype}")
        if part.ndim != (2 if name in "UV" else 1):
            axes = {"U": "(hidden, dim)", "V": "(in_features * out_features, hidden)"}
            expected = axes.get(name, "one dimension")
            raise ValueError(f"pack_gno: {name}: expected {expected}, got {part.shape}")
        if part.size == 0:
            raise ValueError(f"pack_gno: {name}: expected sizes of at least 1, got {part.shape}")
    hidden = len(U)
    shapes = {"b_u": (hidden,), "V": (len(V), hidden), "b_v": (len(V),)}
    for name, shape in shapes.items():
        if parts[name].shape != shape:
            raise ValueError(f"pack_gno: {name}: expected shape {shape}, got {parts[name].shape}")
    dtype = U.dtype.newbyteorder("=")
    return np.concatenate([U.T.ravel(), b_u, V.T.ravel(), b_v], dtype=dtype)


def unpack_gno(block: Array, *, dim: int, hidden: int) -> GnoBlock:
    """Views of the parts of a block, or of the gradient of one.

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
    check_array("unpack_gno: block", block)
    dim, hidden = check_size("unpack_gno: dim", dim), check_size("unpack_gno: hidden", hidden)
    layer = hidden * (dim + 1)
    entries, rest = divmod(block.size - layer, hidden + 1)
    if block.ndim != 1 or rest or entries < 1:
        raise ValueError(
            "unpack_gno: block: expected length hidden*(dim+1)+(hidden+1)*in_features*out_features "
            f"with hidden={hidden} and dim={dim}, got shape {block.shape}"
        )
    U, b_u, V, b_v = np.split(block, [hidden * dim, layer, layer + hidden * entries])  # noqa: N806
    return GnoBlock(U.reshape(dim, hidden).T, b_u, V.reshape(hidden, entries).T, b_v)


class GatBlock(NamedTuple):
    """The parts of a block of `gat`, views into it."""

    a_src: Array
    a_dst: Array
    a_edge: Array | None


def pack_gat(a_src: Array, a_dst: Array, a_edge: Array | None = None) -> Array:
    """Pack the weights of the scores of graph attention into one block.

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
    parts = {"a_src": a_src, "a_dst": a_dst, **({} if a_edge is None else {"a_edge": a_edge})}
    for name, part in parts.items():
        label = f"pack_gat: {name}"
        check_array(label, part)
        if part.dtype.char != a_src.dtype.char:
            raise TypeError(f"{label}: expected {a_src.dtype} like a_src, got {part.dtype}")
        if part.ndim != 2 or part.size == 0:
            raise ValueError(f"{label}: expected (heads, width) of at least 1, got {part.shape}")
    if a_dst.shape != a_src.shape:
        raise ValueError(f"pack_gat: a_dst: expected shape {a_src.shape}, got {a_dst.shape}")
    if a_edge is not None and len(a_edge) != len(a_src):
        raise ValueError(
            f"pack_gat: a_edge: expected shape ({len(a_src)}, edge_width), got {a_edge.shape}"
        )
    dtype = a_src.dtype.newbyteorder("=")
    return np.concatenate([part.ravel() for part in parts.values()], dtype=dtype)


def unpack_gat(block: Array, *, heads: int, width: int) -> GatBlock:
    """Views of the parts of a block, or of the gradient of one.

    Parameters
    ----------
    block : array, shape (heads * (2 * width + edge_width),)
    heads : int
        Number of heads.
    width : int
        Number of features of a head.

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
    check_array("unpack_gat: block", block)
    heads, width = check_size("unpack_gat: heads", heads), check_size("unpack_gat: width", width)
    edge_width, rest = divmod(block.size - 2 * heads * width, heads)
    if block.ndim != 1 or rest or edge_width < 0:
        raise ValueError(
            "unpack_gat: block: expected length heads*(2*width+edge_width) with "
            f"heads={heads} and width={width}, got shape {block.shape}"
        )
    parts = np.split(block, [heads * width, 2 * heads * width])
    a_src, a_dst, a_edge = (part.reshape(heads, part.size // heads) for part in parts)
    return GatBlock(a_src, a_dst, a_edge if edge_width else None)


def pack_basis(basis: Array) -> Array:
    """Pack a basis of `ono_encode` and `ono_decode` into one block.

    Parameters
    ----------
    basis : array, shape (points, modes)

    Returns
    -------
    array, shape (points * modes,)
        The basis column by column.

    Raises
    ------
    TypeError, ValueError
        If the basis is not a float32 or float64 array of two dimensions, neither of them 0.
    """
    check_array("pack_basis: basis", basis)
    if basis.ndim != 2:
        raise ValueError(f"pack_basis: basis: expected (points, modes), got {basis.shape}")
    if basis.size == 0:
        raise ValueError(f"pack_basis: basis: expected sizes of at least 1, got {basis.shape}")
    return np.array(basis.T, dtype=basis.dtype.newbyteorder("="), order="C").reshape(-1)


def unpack_basis(block: Array, *, modes: int) -> Array:
    """View of a block, or of the gradient of one, as a basis.

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
    check_array("unpack_basis: block", block)
    modes = check_size("unpack_basis: modes", modes)
    if block.ndim < 1 or block.shape[-1] == 0 or block.shape[-1] % modes:
        raise ValueError(
            f"unpack_basis: block: expected length points*modes with modes={modes}, "
            f"got shape {block.shape}"
        )
    return block.reshape(*block.shape[:-1], modes, block.shape[-1] // modes).swapaxes(-1, -2)


def pack_dimenet(A: Array, B: Array) -> Array:  # noqa: N803
    """Pack the two layers that take the basis of `dimenet_aggregate` to the channels.

    Parameters
    ----------
    A : array, shape (num_spherical * num_radial, middle)
        The transpose of the weight of the first torch ``Linear``.
    B : array, shape (channels, middle)
        The weight of the second.

    Returns
    -------
    array, shape (num_spherical * num_radial + channels, middle)
        A over B.

    Raises
    ------
    TypeError, ValueError
        If a part is not a float32 or float64 matrix like the other, or the widths differ.
    """
    for name, part in {"A": A, "B": B}.items():
        check_array(f"pack_dimenet: {name}", part)
        if part.ndim != 2 or part.size == 0:
            raise ValueError(
                f"pack_dimenet: {name}: expected (rows, middle), neither 0, got {part.shape}"
            )
    if B.dtype.char != A.dtype.char:
        raise TypeError(f"pack_dimenet: B: expected {A.dtype} like A, got {B.dtype}")
    if A.shape[1] != B.shape[1]:
        raise ValueError(f"pack_dimenet: B: expected (channels, {A.shape[1]}), got {B.shape}")
    return np.concatenate([A, B], dtype=A.dtype.newbyteorder("="))


def unpack_dimenet(weights: Array, *, channels: int) -> DimenetBlock:
    """Views of both layers in the weights, or in the gradient by them.

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
    check_array("unpack_dimenet: weights", weights)
    channels = check_size("unpack_dimenet: channels", channels)
    if weights.ndim != 2 or len(weights) <= channels:
        raise ValueError(
            f"unpack_dimenet: weights: expected more than channels={channels} rows of a matrix, "
            f"got shape {weights.shape}"
        )
    return DimenetBlock(weights[:-channels], weights[-channels:])
