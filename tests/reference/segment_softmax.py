from .scores import softmax, softmax_back, total


def forward(graph, logits):
    return softmax(graph, logits[graph.edge_ids])


def backward(graph, logits, gy):
    gentries = softmax_back(graph, softmax(graph, logits[graph.edge_ids]), gy)
    return (total(graph.edge_ids, graph.num_edges, gentries),)
