"""m_i = sum over edges (j -> i) of h_j kappa_e, with the matrix of each edge given."""

from benchmarks.problem import normal


def inputs(case, rng):
    return {
        "features": normal(case, rng, case.nodes, case.width),
        "kappa": normal(case, rng, case.edges, case.width * case.out_features),
    }


def output_shape(case):
    return case.nodes, case.width


def in_torch(graph, features, kappa):
    """Evaluate like PyTorch Geometric's NNConv: gather, one small product per edge, scatter-add."""
    import torch

    width = features.shape[1]
    gathered = features.index_select(0, graph.src)
    messages = torch.bmm(gathered.unsqueeze(1), kappa.view(-1, width, width)).squeeze(1)
    return torch.zeros_like(features).index_add_(0, graph.dst, messages)


def in_jax(graph, features, kappa, computed=False):
    """Use a fused sum if kappa is `computed` and there is no derivative, where XLA is faster so."""
    import jax

    kappa = kappa.reshape(-1, *2 * features.shape[1:])
    gathered = features[graph.src]
    if computed and not graph.differentiated:
        messages = (gathered[:, :, None] * kappa).sum(1)
    else:
        messages = jax.numpy.einsum("ei,eio->eo", gathered, kappa)
    return jax.ops.segment_sum(messages, graph.dst, len(features), indices_are_sorted=True)


def in_pyops(case, graph):
    import pyops

    return pyops.gno_aggregate, (graph.packed,), {}


def multiply_adds(case):
    product = case.edges * case.width**2
    return {"forward": product, "backward": 2 * product, "double_backward": 4 * product}


def elements_moved(case):
    """Count one array of matrices read; read and written; two read and one written."""
    kappa = case.edges * case.width**2
    return {"forward": kappa, "backward": 2 * kappa, "double_backward": 3 * kappa}
