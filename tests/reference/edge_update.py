import numpy as np

from .scores import total


def forward(graph, x_src, x_dst, edge, *, mode):
    parts = [] if edge is None else [edge[graph.edge_ids]]
    parts += [x_src[graph.src]]
    parts += [] if x_dst is None else [x_dst[graph.dst]]
    return np.concatenate(parts, 1) if mode == "concat" else sum(parts)


def backward(graph, x_src, x_dst, edge, gy, *, mode):
    before, first = 0, {}
    for name, x in {"edge": edge, "src": x_src, "dst": x_dst}.items():
        first[name] = slice(before, before + (0 if x is None else x.shape[1]))
        before = first[name].stop if mode == "concat" else 0
    return (
        total(graph.src, graph.num_src, gy[:, first["src"]]),
        None if x_dst is None else total(graph.dst, graph.num_dst, gy[:, first["dst"]]),
        None if edge is None else total(graph.edge_ids, graph.num_edges, gy[:, first["edge"]]),
    )
