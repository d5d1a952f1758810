from .scores import total


def forward(graph, x_src, x_dst):
    return x_src[graph.src] - x_dst[graph.dst]


def backward(graph, x_src, x_dst, gy):
    return total(graph.src, graph.num_src, gy), -total(graph.dst, graph.num_dst, gy)
