# One source: a tutorial is one page, which is made of this file.
r"""
Graph attention on a power grid
===============================

The voltage angles of a transmission grid follow from the power injected at its buses. The linear
*DC power flow* neglects losses and voltages. Graph attention learns what it misses, from solutions
of the full AC power flow in which loads vary and one line is out of service. It is tested on
outages that it never saw: for a graph network a lost line is a missing edge, while a regression on
the powers has no place for it.

.. code-block:: console

    $ pip install "pyops-kernels[torch]" pandapower matplotlib tqdm
"""

import json
import math
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandapower
import pandapower.networks
import torch
from matplotlib.collections import LineCollection
from pandapower.pypower.makeBdc import makeBdc
from tqdm import tqdm

import pyops
import pyops.torch

torch.manual_seed(0)
torch.set_num_threads(1)

# %%
# Scenarios
# ---------
# The grid is a synthetic one on the footprint of central Illinois, with 200 buses. A scenario
# scales all loads together, each load by itself, and takes a random line out of service. Lines
# whose loss would cut off a bus stay. pandapower solves the AC power flow.

rng = np.random.default_rng(0)
net = pandapower.networks.case_illinois200()
places = np.array([json.loads(text)["coordinates"] for text in net.bus.geo])
loads, generation = net.load[["p_mw", "q_mvar"]].copy(), net.gen.p_mw.copy()


def solve(line):
    """AC power flow of a random scenario without a line; None if there is no solution."""
    factor = rng.uniform(0.6, 1.1)
    own = np.exp(0.15 * rng.standard_normal(len(loads)))
    net.load[["p_mw", "q_mvar"]] = loads.mul(factor * own, axis=0)
    net.gen.p_mw = generation * factor
    net.line.in_service = net.line.index != line
    try:
        pandapower.runpp(net, init="auto", numba=False)
    except pandapower.LoadflowNotConverged:
        return None
    case = net._ppc["internal"]
    if len(case["bus"]) < len(net.bus):
        return None  # a bus is cut off
    branch = case["branch"].real
    matrix, _, shifted, *_ = makeBdc(case["bus"], case["branch"])
    reference = int(case["ref"][0])
    keep = np.arange(len(net.bus)) != reference
    spread = np.zeros(matrix.shape)
    spread[np.ix_(keep, keep)] = np.linalg.inv(matrix.toarray().real[np.ix_(keep, keep)])
    angles = np.angle(case["V"])
    angles -= angles[reference]
    injected = case["Sbus"].real - shifted.real
    return SimpleNamespace(
        line=line,
        power=case["Sbus"],
        ends=branch[:, :2].astype(int).T,
        impedance=branch[:, 2:4],  # resistance, reactance
        spread=spread,  # from powers to angles, of the DC power flow
        dc=spread @ injected,
        missing=matrix @ angles - injected,  # power with which the DC flow would be right
        angles=angles,
    )


lines = rng.permutation(net.line.index)
held_out = {*lines[: len(lines) // 4]}  # these lines are never out in training
scenarios = [solve(line) for line in tqdm([*lines, *rng.choice(lines, 40)], "power flows")]
scenarios = [s for s in scenarios if s is not None]
train = [s for s in scenarios if s.line not in held_out]
test = [s for s in scenarios if s.line in held_out]
print(f"{len(places)} buses; {len(train)} scenarios to train on, {len(test)} with other outages")

# %%
# Graphs and features
# -------------------
# Each scenario has a graph of its own, with an edge in both directions for each branch in service.
# A batch puts scenarios side by side in one graph. Features of a bus are its active and reactive
# power, the DC angle and the load of the whole grid; those of an edge are the branch's resistance,
# its reactance and the DC flow.


def root(x):
    """Powers are spread over orders of magnitude."""
    return np.sign(x) * np.sqrt(abs(x))


class Batch:
    """Tensors and graph of some scenarios."""

    def __init__(self, chosen):
        buses = len(places)
        src, dst, edges = [], [], []
        for number, s in enumerate(chosen):
            (f, t), (r, x) = s.ends, np.maximum(s.impedance.T, 1e-4)
            flow = (s.dc[f] - s.dc[t]) / x
            src += [number * buses + f, number * buses + t]
            dst += [number * buses + t, number * buses + f]
            own = [np.log(r) / 3 + 1.5, np.log(x) / 3 + 1]
            edges += [np.stack([*own, root(way)], axis=1) for way in (flow, -flow)]
        self.graph = pyops.torch.Graph(
            np.concatenate(src), np.concatenate(dst), num_src=len(chosen) * buses
        )
        self.edges = tensor(np.concatenate(edges))
        power = np.array([s.power for s in chosen])
        self.dc = tensor([s.dc for s in chosen])
        total = power.real.clip(max=0).sum(axis=1, keepdims=True).repeat(buses, axis=1)
        nodes = [root(power.real), root(power.imag), 5 * self.dc.numpy(), 0.1 * total]
        self.nodes = tensor(np.stack(nodes, axis=2).reshape(-1, 4))
        self.spread = tensor(np.array([s.spread for s in chosen]))
        self.angles = tensor([s.angles for s in chosen])


def tensor(array):
    """Tensor in float32."""
    return torch.tensor(np.asarray(array), dtype=torch.float32)


# %%
# The model
# ---------
# :obj:`pyops.torch.gat` computes, for each of several heads, a weighted mean of the neighbours'
# features; the weights are a softmax over the incoming edges of a score of both ends and the edge.
# The network's output is a power at each bus, which the matrix of the DC flow turns into angles:
# what the DC flow neglects acts like power that is injected locally. It starts from the mean of
# that power in the training scenarios.

HEADS, WIDTH, OWN = 4, 32, 8


class Attention(torch.nn.Module):
    """A layer of graph attention beside a pointwise linear map."""

    def __init__(self):
        super().__init__()
        self.message = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.edge = torch.nn.Linear(3, WIDTH)
        self.keep = torch.nn.Linear(WIDTH, WIDTH)
        blocks = torch.randn(3, HEADS, WIDTH // HEADS) / math.sqrt(WIDTH // HEADS)
        self.attention = torch.nn.Parameter(pyops.blocks.pack_gat(*blocks))

    def forward(self, h, batch):
        """Features of the next layer, and the attention weights [edges, heads]."""
        x = self.message(h)
        near, weights = pyops.torch.gat(
            batch.graph, x, x, self.attention, self.edge(batch.edges), heads=HEADS,
            return_attention=True,
        )  # fmt: skip
        return h + torch.nn.functional.silu(near + self.keep(h)), weights


class Model(torch.nn.Module):
    """Voltage angles [scenarios, buses]; each bus has learned features of its own."""

    def __init__(self, layers=3):
        super().__init__()
        self.own = torch.nn.Parameter(torch.randn(len(places), OWN) / math.sqrt(OWN))
        self.mean = torch.nn.Parameter(tensor([s.missing for s in train]).mean(dim=0))
        self.lift = torch.nn.Linear(4 + OWN, WIDTH)
        self.layers = torch.nn.ModuleList(Attention() for _ in range(layers))
        self.last = torch.nn.Linear(WIDTH, 1)
        torch.nn.init.zeros_(self.last.weight)

    def forward(self, batch):
        """Angles, and the attention weights of each layer."""
        own = self.own.repeat(len(batch.dc), 1)
        h, attention = self.lift(torch.cat([batch.nodes, own], dim=1)), []
        for layer in self.layers:
            h, weights = layer(h, batch)
            attention.append(weights)
        power = self.mean + 0.03 * self.last(h).reshape(batch.dc.shape)
        return batch.dc + (batch.spread @ power[:, :, None])[:, :, 0], attention


model = Model()

# %%
# Training
# --------

EPOCHS, SIZE = 45, 8
batches = [Batch(train[k : k + SIZE]) for k in range(0, len(train), SIZE)]
optimiser = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimiser, max_lr=5e-3, total_steps=EPOCHS * len(batches)
)
losses = []
for epoch in tqdm(range(1, EPOCHS + 1), "training"):
    for number in torch.randperm(len(batches)):
        batch = batches[number]
        angles, _ = model(batch)
        loss = torch.rad2deg((angles - batch.angles).square().mean().sqrt())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    if epoch % 9 == 0:
        print(f"epoch {epoch}   error {np.mean(losses[-len(batches) :]):.3f} degrees")

# %%
# Outages that it never saw
# -------------------------
# The comparison: the DC power flow of the grid without the line, the same with its mean error on
# the training scenarios taken off, and with a ridge regression of its error on all powers.

with torch.no_grad():
    everything = Batch(test)
    prediction, attention = model(everything)


def arrays(chosen):
    """Return inputs of the regression, DC angles and true angles."""
    powers = np.array([np.concatenate([s.power.real, s.power.imag]) for s in chosen])
    return powers, *(np.array([getattr(s, name) for s in chosen]) for name in ("dc", "angles"))


(x, dc, truth), (x_test, dc_test, truth_test) = arrays(train), arrays(test)
off, centre = truth - dc, x.mean(0)
products = (x - centre) @ (x - centre).T


def left_out(penalty):
    """Error of ridge regression by leave-one-out validation, and its dual matrix."""
    inverse = np.linalg.inv(products + penalty * np.eye(len(x)))
    return (((inverse @ (off - off.mean(0))).T / np.diag(inverse)) ** 2).sum(), inverse


_, inverse = min((left_out(p) for p in 10.0 ** np.arange(-4, 5)), key=lambda result: result[0])
ridge = off.mean(0) + (x_test - centre) @ (x - centre).T @ inverse @ (off - off.mean(0))
results = {
    "DC power flow": dc_test,
    "DC flow + mean error": dc_test + off.mean(0),
    "DC flow + ridge regression": dc_test + ridge,
    "DC flow + graph attention": prediction.numpy(),
}
errors = {}
print(f"{'error in degrees':28}{'median':>8}{'all':>8}{'worst':>8}")
for name, angles in results.items():
    squares = np.mean(np.degrees(angles - truth_test) ** 2, axis=1)
    errors[name] = np.sqrt(squares)  # root mean square of each scenario
    median, worst = np.median(errors[name]), errors[name].max()
    print(f"{name:28}{median:8.3f}{np.sqrt(squares.mean()):8.3f}{worst:8.3f}")

# %%
# Where the attention goes
# ------------------------
# With ``return_attention=True`` the operator also returns the weights, an array [edges, heads] in
# the order of the edges. They are detached: gradients flow through the features alone. We look at
# the scenario for which the DC flow is worst. The picture in the middle shows the larger of the two
# weights of a branch, in the first layer, as the mean over heads. Where a bus has one neighbour
# alone, its weight is 1 whatever the network learned: such ends are left out.

shown = int(errors["DC power flow"].argmax())
scenario, (f, t) = test[shown], test[shown].ends
first = sum(2 * s.ends.shape[1] for s in test[:shown])
weights = attention[0][first : first + 2 * len(f)].mean(dim=1).numpy().reshape(2, -1)
degree = np.bincount(np.concatenate([f, t]), minlength=len(places))
weights = np.where(degree[np.stack([t, f])] > 1, weights, 0).max(axis=0)

figure, axes = plt.subplots(1, 3, figsize=(11, 4.6), layout="constrained", width_ratios=(1, 1, 0.9))
segments = places[scenario.ends.T]
lost = places[net.line.loc[scenario.line, ["from_bus", "to_bus"]].to_numpy(int)]
axes[0].add_collection(LineCollection(segments, colors="0.7", linewidths=0.8))
dots = axes[0].scatter(*places.T, c=np.degrees(scenario.angles), s=18, zorder=2)
axes[0].plot(*lost.T, color="tab:red", linewidth=2.5, zorder=3, label="line out of service")
axes[0].set(title="voltage angles (AC)")
axes[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), frameon=False)
figure.colorbar(dots, ax=axes[0], label="degrees", location="bottom", shrink=0.8)
order = np.argsort(weights)
branches = LineCollection(segments[order], cmap="magma_r", linewidths=1 + 3 * weights[order])
branches.set_array(weights[order])
branches.set_clim(0, 1)
axes[1].add_collection(branches)
axes[1].scatter(*places.T, color="0.4", s=3, zorder=2)
axes[1].set(title="attention weight of branches", xlim=axes[0].get_xlim(), ylim=axes[0].get_ylim())
figure.colorbar(branches, ax=axes[1], label="weight", location="bottom", shrink=0.8)
for axis in axes[:2]:
    axis.set(xticks=[], yticks=[], aspect=1.3)
    axis.spines[:].set_visible(False)
names = [name.replace(" + ", "\n+ ") for name in errors]
parts = axes[2].boxplot([*errors.values()], orientation="horizontal", tick_labels=names, widths=0.6)
axes[2].set(xscale="log", xlabel="error of a scenario, degrees", title="outages never seen")
axes[2].set_xticks([0.01, 0.03, 0.1, 0.3], ["0.01", "0.03", "0.1", "0.3"])
axes[2].set_xticks([], minor=True)
axes[2].invert_yaxis()
axes[2].spines[["top", "right"]].set_visible(False)
axes[2].grid(axis="x", alpha=0.25)
plt.show()

# %%
# Each box on the right holds half of the scenarios. In the median the network is ahead of the
# regression, which has no input that says which line is out. Over all scenarios (root mean square)
# they are close, as the network misses a few outages by more: 140 scenarios are few to learn from.
#
# ``./run demo power_grid`` in the repository learns a grid of 2,869 buses, without outages.
