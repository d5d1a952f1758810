r"""
Your PyTorch Geometric model, faster by one import
==================================================

:mod:`pyops.torch.nn` has :doc:`layers of PyTorch Geometric </guide/layers>`: same constructor, same
parameters, same results. This page changes the import under a model in the middle of its training,
and measures time and memory before and after. The least change of all is one line after the model
is made: :func:`pyops.torch.nn.convert` swaps its layers in place.

.. code-block:: console

    $ pip install "pyops-kernels[torch]" torch_geometric scipy matplotlib tqdm

Times are seconds of one processor core of the machine that built this page. Run it on yours.
"""

import copy
import ctypes
import gc
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch_geometric.nn
from scipy.spatial import cKDTree
from tqdm import tqdm

import pyops
import pyops.torch.nn

torch.manual_seed(0)
torch.set_num_threads(1)
pyops.set_num_threads(1)

# %%
# The task
# --------
# 5,000 sensors in a square measure five waves through noise. A sensor belongs to the wave that is
# highest there, which its noisy measurement alone does not show. The neighbours help: each sensor
# receives messages from the nearest sixteen.

NODES, NEIGHBOURS, CLASSES = 5_000, 16, 5
rng = np.random.default_rng(0)
points = rng.random((NODES, 2))
waves = np.sin(points @ rng.normal(0, 9, (2, CLASSES)) + rng.uniform(0, 6, CLASSES))
classes = torch.tensor(waves.argmax(axis=1))
x = torch.tensor(waves + rng.normal(0, 1.5, waves.shape), dtype=torch.float32)
_, near = cKDTree(points).query(points, NEIGHBOURS + 1)
edge_index = torch.tensor(np.stack([near[:, 1:].ravel(), np.arange(NODES).repeat(NEIGHBOURS)]))
in_training = torch.tensor(rng.random(NODES) < 0.5)

# %%
# The model
# ---------
# The model is the usual one. The package that the layer comes from is an argument only because this
# page needs both; in your code it is the line ``from torch_geometric.nn import GATv2Conv``, which
# becomes ``from pyops.torch.nn import GATv2Conv``.


class Classifier(torch.nn.Module):
    """Two layers of attention, from measurements to the logits of classes."""

    def __init__(self, package):
        super().__init__()
        self.first = package.GATv2Conv(CLASSES, 16, heads=4)
        self.last = package.GATv2Conv(64, CLASSES, heads=4, concat=False)

    def forward(self, x, edge_index):
        """Logits of each node."""
        return self.last(torch.nn.functional.elu(self.first(x, edge_index)), edge_index)


before = Classifier(torch_geometric.nn)
after = Classifier(pyops.torch.nn)
print(after)

# %%
# Names and shapes of the parameters are the same, so a ``state_dict`` of one loads into the other,
# in both directions. The outputs then agree up to rounding, and so do the gradients.

print(after.load_state_dict(before.state_dict()))


def logits_and_gradients(model):
    """Logits and the gradients of the loss."""
    logits = model(x, edge_index)
    value = torch.nn.functional.cross_entropy(logits, classes)
    return [logits.detach(), *torch.autograd.grad(value, [*model.parameters()])]


for name, one, other in zip(
    ("logits", *(name for name, _ in before.named_parameters())),
    logits_and_gradients(before),
    logits_and_gradients(after),
    strict=True,
):
    difference = float((one - other).abs().max() / one.abs().max())
    print(f"{name:15} largest difference {difference:.1e} of the largest element")

# %%
# Training goes on
# ----------------
# Twenty steps with PyTorch Geometric. Then one copy goes on with it, and another with pyops, which
# receives the state of the model and that of the optimiser.


def train(model, optimiser, steps, name):
    """Train for some steps; returns losses and the seconds of each step."""
    losses, seconds = [], []
    for _ in tqdm(range(steps), name):
        start = time.process_time()
        optimiser.zero_grad()
        logits = model(x, edge_index)
        loss = torch.nn.functional.cross_entropy(logits[in_training], classes[in_training])
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        seconds.append(time.process_time() - start)
    return losses, seconds


def accuracy(model):
    """Share of the held-out sensors that are classified rightly."""
    with torch.no_grad():
        right = model(x, edge_index).argmax(dim=1) == classes
    return float(right[~in_training].float().mean())


adam = torch.optim.Adam(before.parameters(), lr=0.02)
start = train(before, adam, 20, "PyTorch Geometric")

after.load_state_dict(before.state_dict())
adam_after = torch.optim.Adam(after.parameters())
adam_after.load_state_dict(copy.deepcopy(adam.state_dict()))

runs = {
    "PyTorch Geometric": train(before, adam, 30, "PyTorch Geometric"),
    "pyops": train(after, adam_after, 30, "pyops"),
}
for (name, (losses, seconds)), model in zip(runs.items(), (before, after), strict=True):
    print(
        f"{name:18} loss {losses[-1]:.5f}   accuracy {accuracy(model):.4f}   "
        f"{1000 * np.median(seconds):6.1f} ms a step"
    )

# %%

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
styles = {"PyTorch Geometric": "tab:orange", "pyops": "tab:blue"}
left.plot(start[0], color="0.5", label="before the change")
for (name, (losses, _)), width in zip(runs.items(), (5, 1.5), strict=True):
    left.plot(np.arange(20, 50), losses, color=styles[name], linewidth=width, label=name)
left.set(xlabel="step of Adam", ylabel="cross entropy", title="training loss")
left.legend(frameon=False)
for name, (losses, seconds) in runs.items():
    middle.plot(sum(start[1]) + np.cumsum(seconds), losses, color=styles[name], label=name)
middle.plot(np.cumsum(start[1]), start[0], color="0.5")
middle.set(xlabel="processor time, s", title="the same against time")
middle.legend(frameon=False)
for axis in (left, middle):
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
predicted = after(x, edge_index).argmax(dim=1)
right.scatter(*points.T, c=predicted, s=3, cmap="viridis", linewidths=0)
wrong = points[(predicted != classes).numpy()]
right.scatter(*wrong.T, s=3, color="tab:red", linewidths=0, label="wrong")
right.set(title="predicted classes", aspect="equal", xticks=[], yticks=[])
right.legend(loc="upper right", markerscale=3)
plt.show()

# %%
# The curves lie on each other, as rounding makes the only difference.
#
# Time and memory of each layer
# -----------------------------
# One layer of each kind: forward and backward pass, the first call for the memory and the median of
# five more for the time. The peak is that of the process above what it held before, as Linux counts
# it. It includes what pyops needs to pack the graph.


def resident(field):
    """Megabytes of the process: VmRSS now, VmHWM at the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) / 1024


def measure(layer, *inputs):
    """Seconds and megabytes of a forward and backward pass."""

    def step():
        layer.zero_grad()
        layer(*inputs).square().mean().backward()

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory goes back to the system
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is held now
    held = resident("VmRSS")
    step()
    peak, seconds = resident("VmHWM") - held, []
    for _ in range(5):
        start = time.process_time()
        step()
        seconds.append(time.process_time() - start)
    return np.median(seconds), peak


features = torch.randn(NODES, 32)
offsets = points[edge_index[0]] - points[edge_index[1]]
edge_attr = torch.tensor(offsets / offsets.std(), dtype=torch.float32)


def kernel_network():
    """Network of NNConv, which makes a 32 x 16 matrix for each edge."""
    return torch.nn.Sequential(
        torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 32 * 16)
    )


makers = {
    "GATConv": lambda nn: nn.GATConv(32, 16, heads=4, edge_dim=2),
    "GATv2Conv": lambda nn: nn.GATv2Conv(32, 16, heads=4, edge_dim=2),
    "TransformerConv": lambda nn: nn.TransformerConv(32, 16, heads=4, edge_dim=2),
    "NNConv": lambda nn: nn.NNConv(32, 16, kernel_network()),
}
measured = {}
print(f"{'':18}{'ms, PyG':>10}{'ms, pyops':>11}{'MB, PyG':>10}{'MB, pyops':>11}")
for name, make in makers.items():
    original, drop_in = make(torch_geometric.nn), make(pyops.torch.nn)
    drop_in.load_state_dict(original.state_dict())
    inputs = features, edge_index, edge_attr
    ours, theirs = measure(drop_in, *inputs), measure(original, *inputs)
    measured[name] = theirs, ours
    print(
        f"{name:18}{1000 * theirs[0]:10.1f}{1000 * ours[0]:11.1f}{theirs[1]:10.0f}{ours[1]:11.0f}"
    )

# %%

figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
titles = ("time of forward and backward, ms", "peak memory, MB")
for column, (axis, title, unit) in enumerate(zip(axes, titles, (1000, 1), strict=True)):
    rows = np.arange(len(measured))
    for which, (name, colour) in enumerate(styles.items()):
        lengths = [max(both[which][column] * unit, 0.1) for both in measured.values()]
        bars = axis.barh(rows + 0.38 * which - 0.19, lengths, 0.36, color=colour, label=name)
        axis.bar_label(bars, fmt="%.0f", padding=3, fontsize="small")
    axis.set(xscale="log", title=title, yticks=rows, yticklabels=list(measured))
    axis.xaxis.set_minor_formatter("")  # their labels overlap within a decade
    axis.invert_yaxis()
    axis.margins(x=0.2)
    axis.spines[["top", "right"]].set_visible(False)
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()

# %%
# Memory falls for each layer, as nothing is stored per edge and head between the passes. Time falls
# most for ``NNConv``, whose matrices are never formed, and least for ``TransformerConv`` with edge
# features. How much is gained also depends on the graph: on one of some hundred edges the checks of
# a call count, and there is nothing to gain. :doc:`The benchmarks </benchmarks>` have larger ones.
#
# Other layers
# ------------
# Besides these, :mod:`pyops.torch.nn` has ``DimeNetPlusPlus`` and its blocks, the functions
# ``softmax``, ``scatter`` and ``segment`` of ``torch_geometric.utils``, and layers of
# ``neuralop``. For a layer that it does not have:
#
# - Keep it: layers of both packages work together in one model, on the same ``edge_index``.
# - If it is a ``MessagePassing`` of yours, pass ``pyops.torch.nn.softmax`` in place of that of
#   PyTorch Geometric. A layer of pyops is no ``MessagePassing`` itself: it forms no messages that a
#   subclass could change.
# - Write it with the operators. ``SGConv``, for example, is a linear map and
#   :obj:`pyops.torch.degree_normalised`:


def sgc(layer, x, edge_index):
    """Compute what an SGConv of PyTorch Geometric does, with its parameters."""
    loops = torch.arange(len(x))
    src, dst = (torch.cat([ends, loops]) for ends in edge_index)
    graph = pyops.torch.Graph(src, dst, num_src=len(x))
    return layer.lin(pyops.torch.degree_normalised(graph, x))


layer = torch_geometric.nn.SGConv(32, 16)
symmetric = torch.cat([edge_index, edge_index.flip(0)], dim=1)  # degrees in and out are equal
difference = (sgc(layer, features, symmetric) - layer(features, symmetric)).abs().max()
print(f"SGConv: largest difference {difference:.1e}")

# %%
# :doc:`The guide to PyTorch </guide/torch>` lists what the front end supports.
