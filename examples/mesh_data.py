"""A vortex street behind a cylinder, on an unstructured mesh, for examples/mesh.py."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import map_coordinates
from scipy.spatial import Delaunay
from tqdm import trange

INSIDE, INLET, OUTLET, WALL = range(4)
SPEED, REYNOLDS, PERIOD = 0.1, 120, 0.19  # of the inflow, by the diameter; Strouhal number
DIRECTIONS = np.array(
    [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
)
WEIGHTS = np.array([4 / 9, *[1 / 9] * 4, *[1 / 36] * 4])[:, None, None]
OPPOSITE = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])


@dataclass
class Channel:
    """Cells of a channel, periodic across, and a cylinder in it."""

    length: int
    height: int
    diameter: float

    @property
    def centre(self):
        return 0.22 * self.length, 0.5 * self.height + 0.7  # off the axis, to start the shedding

    def distance(self, x, y):
        """Distance from the surface of the cylinder."""
        return np.hypot(x - self.centre[0], y - self.centre[1]) - self.diameter / 2

    @property
    def steps_of_a_period(self):
        return self.diameter / (PERIOD * SPEED)


def equilibrium(density, velocity):
    along = np.tensordot(DIRECTIONS, velocity, 1)
    square = (velocity**2).sum(0)
    return WEIGHTS * density * (1 + 3 * along + 4.5 * along**2 - 1.5 * square)


def simulate(channel, frames, each_period, warm_up):
    """Velocities [frames, 2, length, height] by the lattice Boltzmann method (D2Q9, BGK).

    `each_period` frames are kept of each period of the shedding, after `warm_up` periods.
    """
    x, y = np.mgrid[: channel.length, : channel.height]
    solid = channel.distance(x, y) < 0
    relaxation = 1 / (3 * SPEED * channel.diameter / REYNOLDS + 0.5)
    velocity = np.zeros((2, channel.length, channel.height))
    velocity[0] = SPEED
    inflow = equilibrium(1.0, velocity)[:, 0]
    f = equilibrium(1.0, velocity)
    between = channel.steps_of_a_period / each_period
    stored = [int(between * (warm_up * each_period + frame)) for frame in range(frames)]
    kept = []
    for step in trange(stored[-1] + 1, desc="flow", dynamic_ncols=True):
        f[:, 0] = inflow
        f[:, -1] = f[:, -2]
        density = f.sum(0)
        velocity = np.tensordot(DIRECTIONS.T, f, 1) / density
        if len(kept) < frames and step == stored[len(kept)]:
            kept.append(np.where(solid, 0, velocity))
        f += relaxation * (equilibrium(density, velocity) - f)
        f[:, solid] = f[OPPOSITE][:, solid]
        for number, (right, up) in enumerate(DIRECTIONS):
            f[number] = np.roll(f[number], (right, up), (0, 1))
    return np.array(kept)


@dataclass
class Mesh:
    """Triangles of nodes, and the kind of each node."""

    points: np.ndarray
    cells: np.ndarray
    kinds: np.ndarray


def make_mesh(channel, spacing, seed=0):
    """Nodes on the cylinder and around, closer to each other near it."""
    rng = np.random.default_rng(seed)
    angles = np.arange(0, 2 * np.pi, 2 * spacing / channel.diameter)
    rim = np.transpose([np.cos(angles), np.sin(angles)]) * channel.diameter / 2 + channel.centre
    right, top = channel.length - 1, channel.height - 1
    across = np.linspace(0, top, 1 + int(top / spacing))
    along = np.linspace(0, right, 1 + int(right / spacing))[1:-1]
    border = [(0, y) for y in across] + [(right, y) for y in across]
    border += [(x, y) for x in along for y in (0, top)]
    tried = rng.uniform(0, (right, top), (40 * along.size * across.size, 2))
    points = np.concatenate([rim, border, tried])  # the first ones are chosen
    count = len(rim) + len(border)
    away = channel.distance(*tried.T)
    wanted = spacing * (0.6 + 0.5 * np.minimum(1, away / channel.diameter))
    for point, apart in zip(tried[away > 0.5 * spacing], wanted[away > 0.5 * spacing], strict=True):
        if ((points[:count] - point) ** 2).sum(1).min() > apart**2:
            points[count] = point
            count += 1
    points = points[:count]
    cells = Delaunay(points).simplices
    cells = cells[channel.distance(*points[cells].mean(1).T) > 0]
    kinds = np.full(len(points), INSIDE)
    kinds[points[:, 0] == 0] = INLET
    kinds[points[:, 0] == right] = OUTLET
    kinds[: len(rim)] = WALL
    return Mesh(points, cells, kinds)


def sample(mesh, flow):
    """Velocities [frames, nodes, 2] at the nodes, in units of the inflow."""
    at = [[map_coordinates(u, mesh.points.T, order=1) for u in velocity] for velocity in flow]
    values = np.array(at).swapaxes(1, 2) / SPEED
    values[:, mesh.kinds == WALL] = 0
    return values
