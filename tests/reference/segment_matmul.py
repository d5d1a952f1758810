import numpy as np

from .scores import total


def forward(graph, x, weight, bias):
    y = np.einsum("ef,efo->eo", x[graph.src], weight[graph.dst])
    return y if bias is None else y + bias[graph.dst]


def backward(graph, x, weight, bias, gy):
    to_x = np.einsum("efo,eo->ef", weight[graph.dst], gy)
    to_weight = np.einsum("ef,eo->efo", x[graph.src], gy)
    return (
        total(graph.src, graph.num_src, to_x),
        total(graph.dst, graph.num_dst, to_weight),
        None if bias is None else total(graph.dst, graph.num_dst, gy),
    )
