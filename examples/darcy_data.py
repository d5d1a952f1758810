"""Darcy flow through a random medium, solved by finite elements on unstructured triangles.

    -div(a grad u) = 1 in the unit square around a round well, u = 0 on the border and the well,
    log a a Gaussian random field

The same fields can be solved on any mesh, which is what a neural operator is asked to learn.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import Delaunay
from scipy.stats import qmc
from skfem import Basis, BilinearForm, ElementTriP1, MeshTri, condense, solve
from skfem.helpers import dot, grad
from skfem.models import unit_load
from tqdm import tqdm

MODES = 12
CENTRE, WELL = (0.62, 0.58), 0.15  # of the well, and its radius


@dataclass(frozen=True)
class Flows:
    """Solutions on one mesh: log a and u [samples, nodes]; `area` [nodes] belongs to each node.

    `even` [nodes] is u for a = 1.
    """

    mesh: MeshTri
    area: np.ndarray
    even: np.ndarray
    log_a: np.ndarray
    u: np.ndarray

    @property
    def points(self):
        return self.mesh.p.T

    def select(self, samples):
        return replace(self, log_a=self.log_a[samples], u=self.u[samples])

    def error(self, prediction):
        """Relative L2 errors, averaged over the samples."""
        off = ((prediction - self.u) ** 2) @ self.area
        return float(np.sqrt(off / (self.u**2 @ self.area)).mean())


def make_mesh(spacing, seed):
    """Random points no closer than 0.8 spacings inside, even ones on the borders, triangulated."""
    side = np.linspace(0, 1, round(1 / spacing), endpoint=False)
    zero, one = np.zeros_like(side), np.ones_like(side)
    sides = (side, zero), (one, side), (1 - side, one), (zero, 1 - side)
    border = [np.stack(ends, axis=1) for ends in sides]
    angle = np.linspace(0, 2 * np.pi, round(2 * np.pi * WELL / spacing), endpoint=False)
    well = CENTRE + WELL * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    inside = qmc.PoissonDisk(2, radius=0.8 * spacing, rng=seed).fill_space()
    away = np.minimum(0.5 - abs(inside - 0.5).max(axis=1), well_distance(inside))
    points = np.concatenate([*border, well, inside[away > 0.6 * spacing]])
    cells = Delaunay(points).simplices
    cells = cells[well_distance(points[cells].mean(axis=1)) > 0]
    return MeshTri(np.ascontiguousarray(points.T), np.ascontiguousarray(cells.T))


def well_distance(points):
    return np.linalg.norm(points - CENTRE, axis=1) - WELL


def draw_fields(samples, seed, deviation=1.0):
    """Coefficients [samples, MODES, MODES] of log a in cosines, falling off as 1/(|k|^2 + 9)."""
    waves = np.pi**2 * np.arange(MODES) ** 2
    amplitude = 1 / (waves[:, None] + waves + 9)
    amplitude[0, 0] = 0  # a constant factor of a only divides u
    power = np.where(waves > 0, 0.5, 1)  # the mean square of each cosine
    amplitude *= deviation / np.sqrt(power @ amplitude**2 @ power)
    return amplitude * np.random.default_rng(seed).standard_normal((samples, MODES, MODES))


def log_fields(points, fields):
    waves = np.cos(np.pi * points[:, :, None] * np.arange(MODES))
    return np.einsum("skl,nk,nl->sn", fields, waves[:, 0], waves[:, 1], optimize=True)


@BilinearForm
def diffusion(u, v, w):
    return w.a * dot(grad(u), grad(v))


def solve_flows(mesh, fields):
    """Solved on a refinement, read at the nodes of the mesh: all meshes share one truth."""
    fine = mesh.refined(2)
    basis, border = Basis(fine, ElementTriP1()), fine.boundary_nodes()
    load = unit_load.assemble(basis)

    def solution(log_a):
        stiffness = diffusion.assemble(basis, a=basis.interpolate(np.exp(log_a)))
        return solve(*condense(stiffness, load, D=border))[: mesh.nvertices]

    return Flows(
        mesh=mesh,
        area=unit_load.assemble(Basis(mesh, ElementTriP1())),
        even=solution(np.zeros(fine.nvertices)),
        log_a=log_fields(mesh.p.T, fields),
        u=np.stack([solution(log_a) for log_a in tqdm(log_fields(fine.p.T, fields), "solving")]),
    )
