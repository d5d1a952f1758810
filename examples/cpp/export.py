"""Export a network of graph attention and a graph neural operator for a program without Python.

    python examples/cpp/export.py FOLDER

Writes what program.cpp reads, model.pt2 and inputs.pt, and its outputs as Python computes them,
expected.pt.
"""

import sys
from pathlib import Path

import torch

import pyops.torch as pt
from pyops.blocks import pack_gno
from pyops.torch.nn import GATConv, IntegralTransform

NODES, EDGES, WIDTH, HIDDEN = 50, 400, 8, 16


class Network(torch.nn.Module):
    """Attention over the edges, then an integral over the neighbours of each node."""

    def __init__(self):
        super().__init__()
        self.attention = GATConv(WIDTH, 4, heads=2)
        self.integral = IntegralTransform(channel_mlp_layers=[4, 8, 8], transform_type="linear")

    def forward(self, x, points, edge_index, neighbours, splits):
        f = torch.relu(self.attention(x, edge_index))
        region = {"neighbors_index": neighbours, "neighbors_row_splits": splits}
        return self.integral(points, region, f_y=f)


def network_inputs():
    dst = torch.randint(NODES, (EDGES,)).sort().values
    src = torch.randint(NODES, (EDGES,))
    splits = torch.searchsorted(dst, torch.arange(NODES + 1))
    x, points = torch.randn(NODES, WIDTH), torch.rand(NODES, 2)
    return [x, points, torch.stack([src, dst]), src, splits]


def force_inputs():
    src, dst = torch.randint(NODES, (2, EDGES), dtype=torch.int32)
    shapes = (HIDDEN, 3), (HIDDEN,), (WIDTH, HIDDEN), (WIDTH,)
    params = pack_gno(*(torch.randn(shape).double() for shape in shapes))
    features = torch.randn(NODES, 1).double()
    return [src, dst, torch.randn(NODES, 3).double(), features, params]


def forces(src, dst, positions, features, params):
    """Return what the function of program.cpp returns."""
    positions = positions.clone().requires_grad_()
    graph = pt.Graph(src, dst, NODES, NODES)
    vectors = positions[src] - positions[dst]
    y = pt.gno_conv(graph, features, vectors, params, hidden=HIDDEN, activation="gelu")
    (gradient,) = torch.autograd.grad(y.sum(), positions)
    return [y.sum().detach(), -gradient]


def main(folder):
    torch.manual_seed(0)
    network, inputs = Network().eval(), {"network": network_inputs(), "forces": force_inputs()}
    with torch.no_grad():
        result = network(*inputs["network"])
        program = torch.export.export(network, tuple(inputs["network"]))
    target = str(folder / "model.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=target)
    torch.save(inputs, folder / "inputs.pt")
    torch.save([result, *forces(*inputs["forces"])], folder / "expected.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
