r"""
Train in Python, run in a flow solver
=====================================

A flow solver in Fortran is cheap on a coarse grid, and wrong: its upwind scheme is stable because
it dissipates more than the flow does. How much of that is superfluous depends on the solution. A
network of PyTorch learns it from a fine grid; the solver then calls the network in each of its
steps, without Python. The flow obeys Burgers' equation in a periodic box,

.. math:: \partial_t u + \partial_x (u^2/2) = \nu\, \partial_x^2 u .

To run this page you need gfortran 12 or newer, :download:`closure.f90` in the same folder, and

.. code-block:: console

    $ pip install "pyops-kernels[torch]" matplotlib
"""

# %%
# Where the network stands in the solver
# --------------------------------------
# The flux through the right face of each cell is a centred one less a dissipation. The network
# gives the share of the dissipation to leave out at each face; since both cells of a face use the
# same flux, nothing is lost or made, whatever the network says:
#
# .. literalinclude:: closure.f90
#    :language: fortran
#    :start-at: pure subroutine advance
#    :end-at: end subroutine
#    :dedent:
#
# Truth from a fine grid
# ----------------------
# Random waves on a grid sixteen times as fine, as means over the coarse cells after each coarse
# step. The same scheme advances them, in NumPy and below in PyTorch.

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import pyops.models
from pyops.torch import nn

CELLS, FINER, FRAMES, WAVES, NEW = 64, 16, 120, 24, 8
VISCOSITY, TIME_STEP = 1e-3, 0.25 / CELLS
STEPS, BATCH, WINDOW = 400, 8, 4  # of training: windows of four steps of the solver
rng = np.random.default_rng(0)
torch.set_num_threads(1)  # a few hundred cells are too few for more threads
pyops.set_num_threads(1)


def advance(u, time_step, share=0.0):
    """Return u [waves, cells] after a step, for arrays and tensors."""
    largest, roll = (torch.maximum, torch.roll) if torch.is_tensor(u) else (np.maximum, np.roll)
    dx, right = 1 / u.shape[1], roll(u, -1, 1)
    flux = (u**2 + right**2) / 4 - VISCOSITY * (right - u) / dx
    flux = flux - (1 - share) * largest(abs(u), abs(right)) * (right - u) / 2
    return u - time_step / dx * (flux - roll(flux, 1, 1))


def solve_finely(waves):
    """Return means over the coarse cells [frames, waves, cells]."""
    x = (np.arange(CELLS * FINER) + 0.5) / (CELLS * FINER)
    size, phase = rng.uniform([-1, 0], 1, (4, waves, 2)).transpose(2, 0, 1)[..., None]
    u = sum(size[m] / (m + 1) * np.sin(2 * np.pi * ((m + 1) * x + phase[m])) for m in range(4))
    frames = []
    for frame in range(FRAMES + 1):
        for _ in range(FINER if frame else 0):
            u = advance(u, TIME_STEP / FINER)
        frames.append(u.reshape(waves, CELLS, FINER).mean(axis=2))
    return np.array(frames)


truth, new = solve_finely(WAVES), solve_finely(NEW)

# %%
# The network
# -----------
# Each cell sees the three cells on either side. ``nn.NNConv`` sums over them features times
# matrices that depend on the offset; two linear layers make the share of it. The edges are those of
# a grid; a batch is several grids side by side.


class Closure(torch.nn.Module):
    """Return the share of the dissipation to leave out at the right face of each cell."""

    def __init__(self, width=16):
        super().__init__()
        self.reach = 3
        kernel = torch.nn.Sequential(
            torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2 * width)
        )
        self.neighbours = nn.NNConv(2, width, kernel)
        self.hidden, self.out = torch.nn.Linear(width, width), torch.nn.Linear(width, 1)

    def forward(self, u, edge_index, offsets):
        """Apply the network to values [cells, 1]."""
        h = torch.tanh(self.neighbours(torch.cat([u, u * u], dim=1), edge_index, offsets))
        return torch.sigmoid(self.out(torch.tanh(self.hidden(h))))


torch.manual_seed(0)
network = Closure()


def grids(count):
    """Return the edges of some grids, and the offset of the source of each edge in cells."""
    offsets = np.arange(-network.reach, network.reach + 1)
    cell = np.arange(CELLS)[:, None]
    first = CELLS * np.arange(count)[:, None, None]
    src = first + (cell + offsets) % CELLS
    dst = np.broadcast_to(first + cell, src.shape)
    edges = torch.tensor(np.stack([src.ravel(), dst.ravel()]))
    scaled = np.broadcast_to(offsets / network.reach, src.shape).reshape(-1, 1)
    return edges, torch.tensor(scaled, dtype=torch.float32)


# %%
# Training through the solver
# ---------------------------
# The loss compares windows of the coarse solver with the fine one, and its gradient passes through
# the steps of the solver. So the network learns what the solver needs, not a target that one would
# have to invent.

batch, optimizer = grids(BATCH), torch.optim.Adam(network.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
frames, losses = torch.tensor(truth, dtype=torch.float32), []
for _ in range(STEPS):
    start, wave = rng.integers(0, FRAMES - WINDOW, BATCH), rng.integers(0, WAVES, BATCH)
    u, loss = frames[start, wave], 0
    for step in range(1, WINDOW + 1):
        share = network(u.reshape(-1, 1), *batch).reshape(u.shape)
        u = advance(u, TIME_STEP, share)
        loss = loss + (u - frames[start + step, wave]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    losses.append(float(loss.detach().sqrt()))
print(f"error of a window at first:   {np.mean(losses[:20]):.4f}")
print(f"error of a window at the end: {np.mean(losses[-20:]):.4f}")

# %%
# From Python to Fortran
# ----------------------
# :func:`pyops.models.save` writes the weights and the calls that the model makes. The example
# inputs say which inputs there are; the grid may then have any size. ``reach`` is stored as a
# hyperparameter, which the solver reads.

temporary = tempfile.TemporaryDirectory()  # removed at the end of the program
folder = Path(temporary.name)
model, waves, results = (folder / name for name in ("closure.safetensors", "waves.npy", "results"))
pyops.models.save(network.eval(), model, (frames[0, 0][:, None], *grids(1)))
np.save(waves, new[0])

# %%
# The solver holds the network in a type of its own, which has the graph of the cells and a tape:
#
# .. literalinclude:: closure.f90
#    :language: fortran
#    :start-at: subroutine load(self, file, cells)
#    :end-before: subroutine clear
#    :dedent:
#
# ``python -m pyops --flags`` prints where the modules and the library are.

program = folder / "closure"
flags = subprocess.check_output([sys.executable, "-m", "pyops", "--flags"], text=True).split()
compiler = os.environ.get("FC", "gfortran")
options = ["-O2", "-J", folder, "-o", program]
subprocess.run([compiler, *options, "closure.f90", *flags], check=True)
command = [program, model, waves, str(FRAMES), results]
environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # a grid of 64 cells is small
print(subprocess.check_output(command, text=True, env=environment))

# %%
# New waves
# ---------
# The network has not seen these waves, and 120 steps are thirty times as many as a window of
# training.

lines = np.loadtxt(results)
plain, helped = lines[::2], lines[1::2]


def error(u):
    """Return the relative L2 error at the end, averaged over the waves."""
    return np.mean(np.linalg.norm(u - new[-1], axis=1) / np.linalg.norm(new[-1], axis=1))


print(f"relative error of the coarse solver:  {error(plain):.3f}")
print(f"with the network:                     {error(helped):.3f}")
print(f"momentum made by the network:         {abs((helped - plain).sum(axis=1)).max():.1e}")

# %%
# Python computes the same from the same file, up to the rounding of float32 in the network:

again = torch.tensor(new[0])
with torch.no_grad():
    for _ in range(FRAMES):
        share = network(again.float().reshape(-1, 1), *grids(NEW)).reshape(again.shape)
        again = advance(again, TIME_STEP, share.double())
print(f"largest difference from Python:       {abs(again.numpy() - helped).max():.1e}")

figure, (upper, lower) = plt.subplots(
    2, 3, figsize=(11, 5.6), sharex=True, height_ratios=(3, 2), layout="constrained"
)
x = (np.arange(CELLS) + 0.5) / CELLS
styles = ((plain, "coarse solver", "tab:red"), (helped, "with the network", "tab:blue"))
for wave in range(3):
    upper[wave].plot(x, new[0, wave], color="0.8", linewidth=1, label="start")
    upper[wave].plot(x, new[-1, wave], color="0.6", linewidth=5, label="fine grid")
    for u, name, color in styles:
        upper[wave].plot(x, u[wave], color=color, linewidth=1.2, label=name)
        lower[wave].plot(x, u[wave] - new[-1, wave], color=color, linewidth=1.2)
upper[0].legend(frameon=False, fontsize="small")
upper[0].set_ylabel("$u$")
lower[0].set_ylabel("error of $u$")
figure.supxlabel("position $x$")
for axis in (*upper, *lower):
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
if len(sys.argv) > 1:  # the name of a file for the picture
    figure.savefig(sys.argv[1], dpi=130)
plt.show()

# %%
# The coarse solver smears the shocks, which the network keeps sharp; just before them it leaves out
# a little too much of the dissipation.
#
# The whole solver
# ----------------
#
# .. literalinclude:: closure.f90
#    :language: fortran
#
# :doc:`The guide to trained models </guide/models>` describes what models can contain. In Fortran
# the network can also be trained on: ``call adam%add(model%parameters())`` and
# ``call adam%step()``, see :doc:`the guide to Fortran </guide/fortran>`.
