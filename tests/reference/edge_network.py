import numpy as np

from . import edge_mlp
from .scores import total


def forward(graph, *inputs, reduce, **options):
    y = edge_mlp.forward(graph, *inputs, **options)
    return total(graph.dst, graph.num_dst, y * _weights(graph, reduce))


def backward(graph, *inputs, reduce, **options):
    *inputs, gy = inputs
    return edge_mlp.backward(graph, *inputs, gy[graph.dst] * _weights(graph, reduce), **options)


def preactivations(graph, *inputs, reduce, **options):
    return edge_mlp.preactivations(graph, *inputs, **options)


def _weights(graph, reduce):
    degree = np.bincount(graph.dst, minlength=graph.num_dst)
    return 1 if reduce == "sum" else (1 / degree[graph.dst])[:, None]
