"""Power flows of a real transmission grid of pandapower, under loads that vary.

A scenario scales all loads and the generation that serves them by one factor, and each by one of
its own; the AC power flow of pandapower gives the voltage angles. Buses are in pandapower's order,
powers per unit, angles in radians from the reference bus.
"""

import json
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandapower
import pandapower.networks
from pandapower.pypower.makeBdc import makeBdc
from tqdm import tqdm

LOADS, SPREAD = (0.5, 1.05), 0.2  # of all loads together, and of each about that


@dataclass(frozen=True)
class Grid:
    places: np.ndarray  # [buses, 2], on a map
    ends: np.ndarray  # [2, branches], buses
    resistance: np.ndarray  # [branches], as all that follows
    reactance: np.ndarray
    shift: np.ndarray  # of the angle in a transformer
    susceptance: np.ndarray  # [buses, buses], of the DC power flow
    shifted: np.ndarray  # [buses], what the shifts inject there
    reference: int

    @cached_property
    def spread(self):
        """The angles [buses, buses] that a unit of power at each bus makes in the DC power flow."""
        others = np.delete(np.arange(len(self.places)), self.reference)
        inverse = np.zeros_like(self.susceptance)
        inverse[np.ix_(others, others)] = np.linalg.inv(self.susceptance[np.ix_(others, others)])
        return inverse

    def dc_flow(self, powers):
        return (powers.real - self.shifted) @ self.spread.T


@dataclass(frozen=True)
class Scenarios:
    """Complex powers injected and angles [scenarios, buses]."""

    grid: Grid
    powers: np.ndarray
    angles: np.ndarray

    def select(self, scenarios):
        return replace(self, powers=self.powers[scenarios], angles=self.angles[scenarios])

    def error(self, angles):
        """Root of the mean square of an error, in degrees."""
        return float(np.degrees(np.sqrt(np.mean((angles - self.angles) ** 2))))


def solve_scenarios(case, count, seed):
    """Scenarios of a grid that `pandapower.networks` has by that name."""
    rng, net = np.random.default_rng(seed), getattr(pandapower.networks, case)()
    loads, generation, others = net.load[["p_mw", "q_mvar"]], net.gen.p_mw, net.sgen.p_mw
    powers, angles = [], []
    for number in tqdm(range(count), "power flows"):
        factor = rng.uniform(*LOADS)
        net.load[["p_mw", "q_mvar"]] = loads.mul(_shares(rng, loads.p_mw) * factor, axis=0)
        net.gen.p_mw = generation * _shares(rng, generation) * factor
        net.sgen.p_mw = others * factor
        pandapower.runpp(net, init="results" if number else "auto")
        solved = net._ppc["internal"]
        powers.append(solved["Sbus"])
        angles.append(np.angle(solved["V"]))
    (reference,), angles = solved["ref"], np.unwrap(angles, axis=0)
    grid = _grid(net, solved, int(reference))
    return Scenarios(grid, np.array(powers), angles - angles[:, grid.reference, None])


def _shares(rng, values):
    """Random factors of the values that leave their sum."""
    shares = np.exp(SPREAD * rng.standard_normal(len(values)))
    return shares * values.sum() / (shares * values).sum()


def _grid(net, solved, reference):
    branch = solved["branch"].real
    susceptance, _, shifted, *_ = makeBdc(solved["bus"], solved["branch"])
    return Grid(
        places=np.array([json.loads(text)["coordinates"] for text in net.bus.geo]),
        ends=branch[:, :2].astype(int).T,
        resistance=branch[:, 2],
        reactance=branch[:, 3],
        shift=np.radians(branch[:, 9]),
        susceptance=susceptance.toarray().real,
        shifted=shifted.real,
        reference=reference,
    )
