"""Graphs on which every operator is tested."""

import numpy as np

from pyops import Graph


def drawn(num_src, num_dst, num_entries, seed=0):
    """Return a random multigraph with unordered edges."""
    rng = np.random.default_rng(seed)
    src, dst = (rng.integers(0, nodes, num_entries) for nodes in (num_src, num_dst))
    return Graph(src, dst, num_src, num_dst)


def shared(src, dst, ids, num_src, num_dst, num_edges):
    """Return a graph whose entries have the given edge ids, which may repeat."""
    order = np.argsort(dst, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=num_dst))])
    return Graph.from_csc(
        offsets, np.asarray(src)[order], num_src, np.asarray(ids)[order], num_edges
    )


def undirected(ends, nodes, num_edges=None):
    """Return both directions of each edge (a, b), which share a row of the edge arrays."""
    a, b = np.transpose(ends)
    ids = np.arange(len(ends))
    both = np.concatenate
    return shared(both([a, b]), both([b, a]), both([ids, ids]), nodes, nodes, num_edges)


def reverses(graph):
    """Return the reverse edge of each edge, if there is one; each is used once."""
    entries = [[] for _ in range(graph.num_edges)]
    for id, src, dst in zip(graph.edge_ids, graph.src, graph.dst, strict=True):
        entries[id].append((int(src), int(dst)))
    waiting, reverse = {}, np.full(graph.num_edges, -1)
    for id, ends in enumerate(entries):
        here, turned = tuple(sorted(ends)), tuple(sorted((dst, src) for src, dst in ends))
        if not ends:
            continue
        if here == turned:
            reverse[id] = id
        elif waiting.get(turned):
            other = waiting[turned].pop()
            reverse[id], reverse[other] = other, id
        else:
            waiting.setdefault(here, []).append(id)
    return reverse


def long_rows():
    """Return a graph with rows and columns longer than the kernels' blocks of 64 entries."""
    rng = np.random.default_rng(1)
    ends = np.repeat([0, 1, 2, 3, 4], [150, 64, 65, 1, 63])
    others = rng.integers(0, 11, len(ends))
    order = rng.permutation(2 * len(ends))
    src, dst = np.concatenate([ends, others + 6]), np.concatenate([others + 6, ends])
    return Graph(src[order], dst[order], 18, 17)


def hubs():
    """Return a graph with a row and a column above the kernels' segment length of 1024 entries."""
    rng = np.random.default_rng(2)
    src, dst = rng.integers(0, 6, (2, 18_500))
    dst[:9000], src[9000:18_000] = 1, 4
    return Graph(src, dst, 6, 7)


GRAPHS = {
    "no nodes": lambda: Graph([], [], 0),
    "no sources": lambda: Graph([], [], 0, 3),
    "no edges": lambda: Graph([], [], 4, 3),
    "one self loop": lambda: Graph(np.zeros(1, np.int32), np.zeros(1, np.int32)),
    "isolated nodes": lambda: Graph([1, 4, 1, 5], [3, 1, 6, 3], 7, 8),
    "all into one": lambda: Graph(np.arange(9), np.full(9, 2), 9, 5),
    "all out of one": lambda: Graph(np.full(9, 2), np.arange(9), 5, 9),
    "duplicate edges": lambda: Graph([0, 0, 0, 1, 2, 1, 0, 2], [1, 1, 1, 0, 2, 0, 1, 2]),
    "few sources": lambda: drawn(3, 11, 25),
    "few destinations": lambda: drawn(11, 3, 25),
    "shared edges": lambda: undirected([(0, 1), (2, 0), (1, 1), (3, 4), (0, 1), (5, 2)], 7, 9),
    "edges without entries": lambda: shared([2, 0, 1, 2], [1, 0, 2, 1], [5, 0, 3, 1], 3, 3, 7),
    "random": lambda: drawn(9, 7, 40),
    "long rows": long_rows,
    "hubs": hubs,
    "many rows": lambda: drawn(70, 150, 300),
    "thousands of rows": lambda: drawn(2100, 2200, 5000),
}
