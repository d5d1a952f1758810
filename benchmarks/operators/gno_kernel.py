"""kappa_e = V relu(U x_e + b_u) + b_v: a hidden layer U, b_u, then the weight V and bias b_v."""

from benchmarks.problem import grid, kernel_inputs


def inputs(case, rng):
    coords = grid(case, rng, case.edges, case.dims)
    return {"coords": coords, **kernel_inputs(case, rng, case.dims)}


def output_shape(case):
    return case.edges, case.width * case.out_features


def in_torch(graph, coords, hidden_weight, hidden_bias, weight, bias):
    from torch.nn.functional import linear, relu

    return linear(relu(linear(coords, hidden_weight, hidden_bias)), weight, bias)


def in_jax(graph, coords, hidden_weight, hidden_bias, weight, bias):
    from jax.nn import relu

    return relu(coords @ hidden_weight.T + hidden_bias) @ weight.T + bias


def in_pyops(case, graph):
    import pyops

    sizes = {"hidden": case.hidden, "in_features": case.width, "out_features": case.width}
    return pyops.gno_kernel, (), sizes


def pack(*arrays):
    """Pack both layers, the last four arrays, into one block."""
    from pyops.blocks import pack_gno

    return *arrays[:-4], pack_gno(*arrays[-4:])


def unpack(case, *arrays):
    """Unpack the last array, the block, into both layers."""
    from pyops.blocks import unpack_gno

    return *arrays[:-1], *unpack_gno(arrays[-1], dim=case.dims, hidden=case.hidden)


def multiply_adds(case):
    hidden = case.edges * case.hidden * case.dims
    product = case.edges * case.hidden * case.width**2
    return {
        "forward": hidden + product,
        "backward": 3 * hidden + 2 * product,
        "double_backward": 7 * hidden + 5 * product,
    }


def elements_moved(case):
    """Count elements of memory traffic: one of the [E, F_in F_out] arrays, or two."""
    kappa = case.edges * case.width**2
    return {"forward": kappa, "backward": kappa, "double_backward": 2 * kappa}
