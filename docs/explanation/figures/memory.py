"""Memory of a forward and backward pass beside its inputs, as edges grow.

Lines are formulas, points are measured: growth of the resident memory to its peak in a process of
its own (Linux, one thread, float32, PyTorch 2.13, PyTorch Geometric 2.8), packing of the graph
included. A second run gave the same within a tenth.
"""

import numpy as np
from drawing import GREEN, ORANGE, plot
from matplotlib.ticker import FuncFormatter

MB = 1e6
WIDTH, HIDDEN, HEADS, CHANNELS, DEGREES, RADIAL = 32, 64, 8, 64, 7, 6


def edge_matrices(nodes, edges):
    """Return elements of NNConv: the matrices and their gradients, and smaller arrays."""
    return edges * (2 * WIDTH**2 + 2 * HIDDEN + 2 * WIDTH)


def edge_features(nodes, edges):
    """Return elements of GATConv: four arrays of features and ten of heads for each edge."""
    return edges * (4 * HEADS * 16 + 10 * HEADS) + 2 * nodes * HEADS * 16


def triplets(nodes, edges):
    """Return elements of a sum over a list of triplets: seven arrays of channels for each."""
    return edges**2 / nodes * 7 * CHANNELS


CASES = {
    "Graph neural operator, 2,000 nodes": (
        2000,
        edge_matrices,
        {4000: 36.8, 8000: 71.9, 16000: 143.6, 32000: 286.9},
        {4000: 9.6, 8000: 9.4, 16000: 10.2, 32000: 10.5},
        "NNConv",
    ),
    "Graph attention, 5,000 nodes": (
        5000,
        edge_features,
        {10000: 28.9, 20000: 54.5, 40000: 95.8, 80000: 189.1},
        {10000: 12.6, 20000: 12.8, 40000: 13.2, 80000: 13.8},
        "GATConv",
    ),
    "DimeNet, 500 nodes": (
        500,
        triplets,
        {1000: 4.3, 2000: 15.2, 4000: 57.3, 8000: 226.3},
        {1000: 1.4, 2000: 2.2, 4000: 4.0, 8000: 8.3},
        "list of triplets",
    ),
}

figure, all_axes = plot(6.4, rows=3)
for axes, (title, (nodes, count, theirs, ours, name)) in zip(all_axes, CASES.items(), strict=True):
    edges = np.geomspace(min(theirs), max(theirs), 30)
    axes.plot(edges, 4 * count(nodes, edges) / MB, color=ORANGE, linewidth=1.5)
    axes.plot([*theirs], [*theirs.values()], "o", color=ORANGE)
    axes.plot([*ours], [*ours.values()], "D-", color=GREEN, linewidth=1.5)
    axes.annotate(
        name,
        (edges[11], 1.4 * 4 * count(nodes, edges[11]) / MB),
        color=ORANGE,
        ha="right",
        va="bottom",
    )
    axes.annotate(
        "pyops", (edges[-1], 1.35 * ours[max(ours)]), color=GREEN, ha="right", va="bottom"
    )
    axes.set(xscale="log", yscale="log", ylim=(1, 600), ylabel="MB", title=title)
    axes.set_xticks([*theirs])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()
    axes.grid(alpha=0.25)
all_axes[-1].set_xlabel("edges")
