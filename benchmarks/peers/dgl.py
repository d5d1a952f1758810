"""DGL 1.1.3: its sparse kernels, run as torch eager."""

from types import SimpleNamespace

import dgl

from benchmarks.peers.torch import arrays, eager, set_threads, tensors

__all__ = ["arrays", "set_threads"]
COMPILED = False


def versions():
    return {"dgl": dgl.__version__}


def load(module, problem):
    graph, *rest = tensors(problem)
    nodes = problem.case.nodes
    packed = dgl.create_block((graph.src, graph.dst), num_src_nodes=nodes, num_dst_nodes=nodes)
    packed.create_formats_()
    return eager(module.in_dgl, SimpleNamespace(dgl=packed, **vars(graph)), *rest)
