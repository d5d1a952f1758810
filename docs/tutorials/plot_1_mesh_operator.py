# One source: a tutorial is one page, which is made of this file.
r"""
A graph neural operator on an unstructured mesh
===============================================

Darcy flow through an L-shaped domain with a random permeability :math:`a`,

.. math:: -\nabla \cdot (a\, \nabla u) = 1, \qquad u = 0 \text{ on the boundary.}

A graph neural operator learns the map from :math:`a` to :math:`u` from solutions by finite
elements. Its layers are quadratures of integrals over a disc, so what it learned belongs to no
mesh: we train on one and apply it to another, which is finer towards the reentrant corner.

.. code-block:: console

    $ pip install "pyops-kernels[torch]" scikit-fem scipy matplotlib tqdm
"""

import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.spatial import Delaunay, cKDTree
from scipy.stats import qmc
from skfem import Basis, BilinearForm, ElementTriP1, MeshTri, condense, solve
from skfem.helpers import dot, grad
from skfem.models import unit_load
from tqdm import tqdm

import pyops
import pyops.torch

torch.manual_seed(0)
torch.set_num_threads(1)

# %%
# Meshes
# ------
# Random points that keep a distance, and regular ones on the boundary, are triangulated. The second
# mesh has other points, and its triangles near the corner are split.


def make_mesh(spacing, seed):
    """Triangulation of the unit square without its upper right quarter."""
    corners = np.array([(0, 0), (1, 0), (1, 0.5), (0.5, 0.5), (0.5, 1), (0, 1), (0, 0)])
    sides = [
        np.linspace(a, b, round(np.linalg.norm(b - a) / spacing), endpoint=False)
        for a, b in itertools.pairwise(corners)
    ]
    points = qmc.PoissonDisk(2, radius=0.8 * spacing, rng=seed).fill_space()
    outer = 0.5 - abs(points - 0.5).max(axis=1)  # distance from the square's boundary
    inner = np.linalg.norm(np.maximum(0.5 - points, 0), axis=1)  # and from the missing quarter
    points = np.concatenate([*sides, points[np.minimum(outer, inner) > 0.55 * spacing]])
    triangles = Delaunay(points).simplices
    triangles = triangles[(points[triangles].mean(axis=1) < 0.5).any(axis=1)]
    return MeshTri(np.ascontiguousarray(points.T), np.ascontiguousarray(triangles.T))


def refined_at_corner(mesh):
    """Split the triangles near the reentrant corner."""
    centres = mesh.p[:, mesh.t].mean(axis=1)
    return mesh.refined(np.nonzero(np.linalg.norm(centres.T - 0.5, axis=1) < 0.15)[0])


coarse, fine = make_mesh(1 / 18, seed=1), refined_at_corner(make_mesh(1 / 26, seed=2))

# %%
# Solutions
# ---------
# The logarithm of the permeability is a Gaussian random field, a sum of cosines, so the same field
# can be evaluated on every mesh. Each problem is solved on a refinement and read at the nodes.

MODES = 8


def draw_fields(samples, seed):
    """Coefficients of log a, of standard deviation 1."""
    k2 = np.pi**2 * np.arange(MODES) ** 2
    amplitude = 1 / (k2[:, None] + k2 + 9)
    amplitude[0, 0] = 0
    power = np.where(k2 > 0, 0.5, 1)
    amplitude /= np.sqrt(power @ amplitude**2 @ power)
    return amplitude * np.random.default_rng(seed).standard_normal((samples, MODES, MODES))


def log_a(mesh, fields):
    """Values [samples, nodes]."""
    x, y = (np.cos(np.pi * c[:, None] * np.arange(MODES)) for c in mesh.p)
    return np.einsum("skl,nk,nl->sn", fields, x, y, optimize=True)


@BilinearForm
def diffusion(u, v, w):
    """Weak form of the operator."""
    return w.a * dot(grad(u), grad(v))


def solve_darcy(mesh, fields):
    """Solutions [samples, nodes]; the first is that of a = 1."""
    finer = mesh.refined(1)
    basis, boundary = Basis(finer, ElementTriP1()), finer.boundary_nodes()
    load = unit_load.assemble(basis)
    solutions = []
    for field in tqdm([0 * fields[0], *fields], "finite elements"):
        a = np.exp(log_a(finer, field[None])[0])
        stiffness = diffusion.assemble(basis, a=basis.interpolate(a))
        solutions.append(solve(*condense(stiffness, load, D=boundary))[: mesh.nvertices])
    return np.array(solutions)


# %%
# Input and graph
# ---------------
# A node is linked with all nodes within a radius, and each has the area that belongs to it. With
# that weight the sum over neighbours approximates an integral on any mesh, also on one whose nodes
# are denser in some places. Samples of a batch share the mesh: they are side by side in one graph.

RADIUS, WIDTH, HIDDEN, BATCH = 0.2, 24, 16, 4


class Problem:
    """Fields, solutions and graph on one mesh."""

    def __init__(self, mesh, fields):
        self.mesh, self.points = mesh, mesh.p.T
        self.log_a = torch.tensor(log_a(mesh, fields), dtype=torch.float32)
        even, *u = torch.tensor(solve_darcy(mesh, fields), dtype=torch.float32)
        self.u, self.area = torch.stack(u), unit_load.assemble(Basis(mesh, ElementTriP1()))
        tree = cKDTree(self.points)
        pairs = tree.sparse_distance_matrix(tree, RADIUS, output_type="coo_matrix")
        shift = len(self.points) * np.arange(BATCH)[:, None]
        src, dst = ((ends + shift).ravel() for ends in (pairs.row, pairs.col))
        self.graph = pyops.torch.Graph(src, dst, num_src=BATCH * len(self.points))
        self.offsets = tiled((self.points[pairs.row] - self.points[pairs.col]) / RADIUS)
        self.weight = tiled(self.area[:, None] / (math.pi * RADIUS**2))
        self.area = torch.tensor(self.area, dtype=torch.float32)
        self.even = tiled(even[:, None])
        self.inputs = torch.cat([tiled(2 * self.points - 1), 50 * self.even], dim=1)

    def errors(self, prediction):
        """Relative error in L2 of each sample."""
        off = (prediction - self.u[: len(prediction)]) ** 2 @ self.area
        return torch.sqrt(off / (self.u[: len(prediction)] ** 2 @ self.area))


def tiled(rows):
    """Rows of all samples of a batch."""
    return torch.tensor(np.tile(np.asarray(rows), (BATCH, 1)), dtype=torch.float32)


fields = draw_fields(96 + 24, seed=0)
train, test, other = (
    Problem(mesh, part)
    for mesh, part in ((coarse, fields[:96]), (coarse, fields[96:]), (fine, fields[96:]))
)
for name, problem in (("training mesh", train), ("other mesh", other)):
    edges = problem.graph.num_edges // BATCH
    print(f"{name}: {len(problem.points)} nodes, {edges} edges")

# %%
# The model
# ---------
# Each layer adds to the features h of a node
#
# .. math:: h_i \leftarrow h_i + \operatorname{silu}\Bigl(\sum_j w_j\, h_j\, \kappa(x_j - x_i) +
#           h_i W + b\Bigr)
#
# where κ, a matrix for each relative position, comes from a small network. A framework that forms
# these matrices would hold 576 values for every edge. :obj:`pyops.torch.gno_conv` computes the sum
# without them. The solution for a = 1 is an input and a factor of the output, which makes the
# prediction vanish on the boundary.


class Layer(torch.nn.Module):
    """An integral over a disc and a pointwise linear map."""

    def __init__(self):
        super().__init__()
        self.kernel = torch.nn.Parameter(
            pyops.blocks.pack_gno(
                U=torch.randn(HIDDEN, 2),
                b_u=2 * torch.rand(HIDDEN) - 1,
                V=torch.randn(WIDTH**2, HIDDEN) / math.sqrt(HIDDEN * WIDTH),
                b_v=torch.zeros(WIDTH**2),
            )
        )
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, h, problem):
        """Features of the next layer."""
        near = pyops.torch.gno_conv(
            problem.graph, h * problem.weight, problem.offsets, self.kernel, hidden=HIDDEN
        )
        return h + torch.nn.functional.silu(near + self.linear(h))


class Operator(torch.nn.Module):
    """From log a [samples, nodes] to u [samples, nodes]; `samples` is the size of a batch."""

    def __init__(self, layers=4):
        super().__init__()
        self.lift = torch.nn.Linear(4, WIDTH)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))
        self.out = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.SiLU(), torch.nn.Linear(WIDTH, 1)
        )

    def forward(self, log_a, problem):
        """Predict u."""
        h = self.lift(torch.cat([log_a.reshape(-1, 1), problem.inputs], dim=1))
        for layer in self.layers:
            h = layer(h, problem)
        return (5 * problem.even * self.out(h)).reshape(log_a.shape)


model = Operator()
print(f"{sum(p.numel() for p in model.parameters())} parameters")

# %%
# Training
# --------
# The loss is the relative error in L2; the gradients in kernels and features come from
# ``backward`` as usual.

EPOCHS = 14
optimiser = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimiser, max_lr=8e-3, total_steps=EPOCHS * len(train.u) // BATCH
)
losses = []
for epoch in tqdm(range(1, EPOCHS + 1), "training"):
    for chosen in torch.randperm(len(train.u)).reshape(-1, BATCH):
        off = (model(train.log_a[chosen], train) - train.u[chosen]) ** 2 @ train.area
        loss = torch.sqrt(off / (train.u[chosen] ** 2 @ train.area)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    if epoch % 2 == 0:
        print(f"epoch {epoch:2}   relative error {np.mean(losses[-len(train.u) // BATCH :]):.3f}")


# %%
# Fields that it never saw, on both meshes
# ----------------------------------------
# For comparison: the mean of the training solutions, and ridge regression, the best linear map from
# log a to u. Regression knows the nodes of one mesh alone; on the other its predictions are
# interpolated.


def predict(problem):
    """Predictions for all samples."""
    with torch.no_grad():
        return torch.cat([model(part, problem) for part in problem.log_a.split(BATCH)])


def ridge():
    """Ridge regression with the penalty that leave-one-out validation prefers."""
    x, mean = train.log_a.double(), train.u.double().mean(0)
    products, best = (x * train.area) @ x.T, None
    for penalty in 10.0 ** np.arange(-5, 2):
        inverse = torch.linalg.inv(products + penalty * torch.eye(len(x)))
        off = inverse @ (train.u - mean) / inverse.diagonal()[:, None]
        if best is None or off.square().sum() < best[0]:
            best = off.square().sum(), inverse
    return (mean + (test.log_a * train.area).double() @ x.T @ best[1] @ (train.u - mean)).float()


to_fine = Basis(coarse, ElementTriP1()).probes(np.clip(other.points.T, 1e-9, 1 - 1e-9))


def interpolated(values):
    """Values on the training mesh at the nodes of the other."""
    return torch.tensor(np.stack([to_fine @ v.numpy() for v in values]), dtype=torch.float32)


mean, linear = train.u.mean(0).expand_as(test.u), ridge()
results = {
    "neural operator": (predict(test), predict(other)),
    "ridge regression": (linear, interpolated(linear)),
    "mean solution": (mean, interpolated(mean)),
}
print(f"{'relative error in L2':22}{'training mesh':>14}{'other mesh':>14}")
for name, (here, there) in results.items():
    print(f"{name:22}{test.errors(here).mean():14.3f}{other.errors(there).mean():14.3f}")

# %%

figure, axes = plt.subplots(2, 4, figsize=(11, 6), layout="constrained")
sample = 3
top = float(other.u[sample].max())
near = top / 5
for row, (problem, prediction, name) in enumerate(
    (
        (test, results["neural operator"][0], "training mesh"),
        (other, results["neural operator"][1], "other mesh"),
    )
):
    truth, ours = problem.u[sample].numpy(), prediction[sample].numpy()
    error = float(problem.errors(prediction)[sample])
    panels = (
        (problem.log_a[sample].numpy(), r"$\log a$", {"cmap": "PuOr_r", "vmin": -2.5, "vmax": 2.5}),
        (truth, "$u$, finite elements", {"vmin": 0, "vmax": top}),
        (ours, "$u$, neural operator", {"vmin": 0, "vmax": top}),
        (ours - truth, f"error, {error:.1%}", {"cmap": "RdBu_r", "vmin": -near, "vmax": near}),
    )
    for axis, (values, title, style) in zip(axes[row], panels, strict=True):
        triangles = *problem.mesh.p, problem.mesh.t.T
        image = axis.tripcolor(*triangles, values, shading="gouraud", rasterized=True, **style)
        axis.triplot(*triangles, color="black", linewidth=0.25, alpha=0.35)
        axis.set(title=title, aspect="equal", xticks=[0, 1], yticks=[0, 1])
        axis.spines[:].set_visible(False)
        if row == 1:
            figure.colorbar(image, ax=axes[:, list(axes[row]).index(axis)], location="bottom")
    axes[row, 0].set_ylabel(f"{name}\n{len(problem.points)} nodes")
plt.show()

# %%
# The error is the same on both meshes, although the second has more than twice the nodes and the
# network was not trained on it. ``./run demo darcy`` in the repository trains a larger one.
