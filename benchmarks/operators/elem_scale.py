"""y = scale * x, with one scale for all samples; the case has as many features as nodes."""

from benchmarks.problem import normal


def inputs(case, rng):
    x = normal(case, rng, case.samples, case.nodes)
    return {"x": x, "scale": normal(case, rng, case.nodes)}


def output_shape(case):
    return case.samples, case.nodes


def in_torch(graph, x, scale):
    return scale * x


def in_jax(graph, x, scale):
    return scale * x


def in_pyops(case, graph):
    import pyops

    return pyops.elem_scale, (), {}


def multiply_adds(case):
    count = case.samples * case.nodes
    return {"forward": count, "backward": 2 * count, "double_backward": 4 * count}


def elements_moved(case):
    """Count arrays of samples that each phase reads and writes."""
    count = case.samples * case.nodes
    return {"forward": 2 * count, "backward": 3 * count, "double_backward": 5 * count}
