from . import gno_aggregate, gno_kernel


def forward(graph, features, coords, params, *, hidden, activation):
    kernel = _kernel(features, coords, params, hidden, activation)
    return gno_aggregate.forward(graph, features, gno_kernel.forward(coords, params, **kernel))


def backward(graph, features, coords, params, gy, *, hidden, activation):
    kernel = _kernel(features, coords, params, hidden, activation)
    kappa = gno_kernel.forward(coords, params, **kernel)
    gfeatures, gkappa = gno_aggregate.backward(graph, features, kappa, gy)
    return gfeatures, *gno_kernel.backward(coords, params, gkappa, **kernel)


def _kernel(features, coords, params, hidden, activation):
    """Return the options of the kernel network."""
    entries = (len(params) - hidden * (coords.shape[1] + 1)) // (hidden + 1)
    inward = features.shape[1]
    return {
        "hidden": hidden,
        "in_features": inward,
        "out_features": entries // inward,
        "activation": activation,
    }
