"""Functions and layers against their originals over sizes, with new indices in every call.

Started as `python -m benchmarks.layers.sizes THREADS ROUNDS NAME...`; prints a table of ratios.
"""

import gc
import os
import sys
import time
import warnings
from functools import partial
from statistics import median

from benchmarks.report import figure, table

SIZES = [10**power for power in range(1, 8)]
MOST = 2**25
"""Elements of rows, messages or matrices above which a size is skipped to save memory."""
DEGREE = 10
"""Rows per group, and edges per node."""
BURST = 0.002
"""Least seconds of repeated calls per timing."""
PAIR = 2.0
"""Seconds per cell of the table, excluding first calls."""
FUNCTIONS = {
    "scatter": [
        (1, {}),
        (8, {}),
        (16, {}),
        (64, {}),
        (16, {"reduce": "mean"}),
        (16, {"reduce": "max"}),
    ],
    "softmax": [(1, {}), (8, {}), (16, {}), (64, {})],
    "segment": [(8, {}), (64, {}), (8, {"reduce": "max"})],
}
LAYERS = {
    "GATConv": [(16, 1), (8, 8)],
    "GATv2Conv": [(16, 1), (8, 8)],
    "TransformerConv": [(16, 1), (8, 8)],
    "NNConv": [(8, 1), (32, 1)],
}
"""Channels and heads."""
NAMES = *FUNCTIONS, *LAYERS


def function_steps(name, columns, options, count):
    """Return a forward and backward pass of the original and of the drop-in, given an index."""
    import torch
    import torch_geometric.utils as originals

    from pyops.torch import nn as drop_ins

    groups = max(2, count // DEGREE)
    src, index = torch.randn(count, columns), torch.randint(groups, (count,))
    gy = torch.randn(count if name == "softmax" else groups, columns)
    given = {"scatter": {"dim_size": groups}, "softmax": {"num_nodes": groups}, "segment": {}}[name]
    if name == "segment":
        index = torch.nn.functional.pad(torch.bincount(index, minlength=groups).cumsum(0), (1, 0))

    def step(function, index):
        leaf = src.detach().requires_grad_()
        torch.autograd.grad(function(leaf, index, **given, **options), leaf, gy)

    return index, [partial(step, getattr(package, name)) for package in (originals, drop_ins)]


def layer_steps(name, channels, heads, count):
    import torch
    import torch_geometric.nn as originals

    from pyops.torch import nn as drop_ins

    nodes = max(2, count // DEGREE)
    x, index = torch.randn(nodes, channels), torch.randint(nodes, (2, count))
    gy, features = torch.randn(nodes, channels * heads), []
    if name == "NNConv":
        features = [torch.randn(count, 6)]
    layers = []
    for package in (originals, drop_ins):
        network = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, channels**2)
        )
        others = [network] if name == "NNConv" else [heads]
        layers.append(getattr(package, name)(channels, channels, *others))

    def step(layer, index):
        leaf = x.detach().requires_grad_()
        y = layer(leaf, index, *features)
        torch.autograd.grad(y, [leaf, *layer.parameters()], gy)

    return index, [partial(step, layer) for layer in layers]


def ratio(index, steps, fresh, rounds, clock):
    """Return the time of the original relative to the drop-in's: calls in turn, median."""

    def seconds(step, calls):
        start = clock()
        for _ in range(calls):
            step(index.clone() if fresh else index)
        return (clock() - start) / calls

    for step in steps:
        seconds(step, 1)
    once = [seconds(step, 1) for step in steps]
    found = [once[0] / once[1]]
    calls = max(1, round(BURST / min(once)))
    affordable = int(PAIR / (calls * sum(once)))
    for _ in range(min(rounds, affordable)):
        theirs, ours = (seconds(step, calls) for step in steps)
        found.append(theirs / ours)
    return median(found)


def rows(names):
    """Yield title, function of the size, and the elements of a row or an edge."""
    for name in names:
        for columns, options in FUNCTIONS.get(name, []):
            what = f"{name} {options.get('reduce', '')}".strip()
            yield (
                f"{what}, {columns} columns",
                partial(function_steps, name, columns, options),
                columns,
            )
        for channels, heads in LAYERS.get(name, []):
            width = channels**2 if name == "NNConv" else channels * heads
            what = f"{channels} channels" if name == "NNConv" else f"{heads} x {channels}"
            yield f"{name}, {what}", partial(layer_steps, name, channels, heads), width


def main(threads, rounds, *names):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-int(threads) :])
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    gc.disable()
    # processor time of the one thread excludes other load of the machine
    clock = time.thread_time if int(threads) == 1 else time.perf_counter
    lines = [["rows or edges", "index", *(f"{size:.0e}".replace("e+0", "e") for size in SIZES)]]
    for what, make, width in rows(names or NAMES):
        cells = {"new": [], "seen": []}
        for size in SIZES:
            made = make(size) if size * width <= MOST else None
            for form, found in cells.items():
                found.append(
                    figure(ratio(*made, form == "new", int(rounds), clock)) if made else ""
                )
            made = None
        lines += [[what, form, *found] for form, found in cells.items()]
        print(*lines[-2], sep=" | ", file=sys.stderr, flush=True)
    print(table(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
