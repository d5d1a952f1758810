"""A graph attention network of PyTorch Geometric, before and after changing one import.

The nodes of an irregular mesh are sorted into classes by what they and their neighbours see through
noise. The model is the usual one; only the package that `GATConv` comes from changes.

    python examples/pyg_model.py      a minute
"""

import argparse
import functools
import importlib

import numpy as np
import torch
from one_import import compare
from scipy.spatial import cKDTree

CLASSES, WIDTH, HEADS, NEIGHBOURS = 5, 16, 8, 20


class Classifier(torch.nn.Module):
    """Two layers of attention, from measurements to the logits of classes."""

    def __init__(self, package):
        super().__init__()
        layer = importlib.import_module(
            package
        ).GATConv  # from torch_geometric.nn, or pyops.torch.nn
        self.first = layer(CLASSES, WIDTH, heads=HEADS, dropout=0.2, residual=True)
        self.last = layer(HEADS * WIDTH, CLASSES, heads=HEADS, concat=False)

    def forward(self, x, edge_index):
        return self.last(torch.nn.functional.elu(self.first(x, edge_index)), edge_index)


def make_mesh(nodes):
    """Noisy measurements at points of the unit square, their nearest neighbours and classes."""
    rng = np.random.default_rng(0)
    points = rng.random((nodes, 2))
    waves = np.sin(points @ rng.normal(0, 9, (2, CLASSES)) + rng.uniform(0, 6, CLASSES))
    classes = waves.argmax(1)
    measured = waves + rng.normal(0, 1.5, waves.shape)
    _, near = cKDTree(points).query(points, NEIGHBOURS + 1)
    index = np.stack([near[:, 1:].ravel(), np.arange(nodes).repeat(NEIGHBOURS)])
    return torch.tensor(measured).float(), torch.tensor(index), torch.tensor(classes)


def train(package, nodes):
    """A step of training, and results and gradients at the start."""
    x, edge_index, classes = make_mesh(nodes)
    model = Classifier(package)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss():
        return torch.nn.functional.cross_entropy(model(x, edge_index), classes)

    def step():
        optimiser.zero_grad()
        value = loss()
        value.backward()
        optimiser.step()
        return float(value.detach())

    def result():
        gradients = torch.autograd.grad(loss(), [*model.parameters()])
        return [model(x, edge_index), *gradients]

    return step, result


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    task = functools.partial(train, nodes=options.nodes)
    return compare(task, "torch_geometric.nn", "pyops.torch.nn", options.threads)


if __name__ == "__main__":
    main()
