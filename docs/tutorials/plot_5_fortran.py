r"""
A Fortran solver that learns its closure
========================================

A solver of the heat equation lacks a material law: how the conductivity :math:`k` of a rod depends
on its temperature :math:`u`,

.. math:: \partial_t u = \partial_x \bigl(k(u)\, \partial_x u\bigr).

A small network in the solver learns it from temperatures that were measured, by gradients through
the time steps. All of this happens in one Fortran program, which needs no Python when it runs. On
this page Python writes the network's first weights, compiles and runs the program, and draws what
it wrote. All quantities are dimensionless.

To run this page you need gfortran 12 or newer, :download:`conductivity.f90` in the same folder, and

.. code-block:: console

    $ pip install pyops-kernels matplotlib
"""

# %%
# The solver on a tape
# --------------------
# ``use pyops`` provides arrays that record what is computed with them. The cells of the rod are
# the nodes of a graph and its faces are edges, one in each direction. The closure is a *kernel
# network*, the operator :obj:`pyops.gno_kernel` with one input and one output, under a softplus
# that keeps the conductivity positive. A time step adds to each cell what flows in over its edges:
#
# .. literalinclude:: conductivity.f90
#    :language: fortran
#    :start-at: function closure(u)
#    :end-before: subroutine train()
#    :dedent:
#
# ``u`` points to a new array in each step, and the tape keeps the old ones. ``train`` runs twenty
# steps from measured temperatures, compares with the measurements ten and twenty steps later, and
# calls ``loss%backward()``. The gradient of the loss in all weights is then in ``weights%grad``,
# by which ``adam%step()`` changes them. The `whole program`_ is below.
#
# Weights from Python to Fortran
# ------------------------------
# The program reads its weights by stream access: raw little-endian float32, in the order of
# :func:`pyops.blocks.pack_gno`. NumPy writes just that.

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import pyops

HIDDEN = 16
rng = np.random.default_rng(0)
start = pyops.blocks.pack_gno(
    U=rng.uniform(-8, 8, (HIDDEN, 1)),
    b_u=rng.uniform(-4, 4, HIDDEN),
    V=0.1 * rng.standard_normal((1, HIDDEN)),
    b_v=np.zeros(1),
).astype("<f4")

temporary = tempfile.TemporaryDirectory()  # removed at the end of the program
folder = Path(temporary.name)
weights, results = folder / "weights.bin", folder / "results.txt"
start.tofile(weights)
print(f"{start.size} weights, {weights.stat().st_size} bytes")

# %%
# Compiling and running
# ---------------------
# ``python -m pyops --flags`` prints where the modules and the library are. The program prints the
# conductivity at three temperatures before it trains, and then how far its temperatures are off.

program = folder / "conductivity"
flags = subprocess.check_output([sys.executable, "-m", "pyops", "--flags"], text=True).split()
compiler = os.environ.get("FC", "gfortran")
options = ["-O2", "-J", folder, "-o", program]
subprocess.run([compiler, *options, "conductivity.f90", *flags], check=True)


def run(*arguments):
    """Run the program on one thread, as its arrays are small, and return what it prints."""
    command, environment = [program, *arguments], {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.check_output(command, text=True, env=environment, stderr=subprocess.STDOUT)


output = run(weights, results)
print(output)

# %%
# The same weights make the same network in Python, up to rounding:


def closure(u, block):
    """Conductivity at temperatures u."""
    x = np.asarray(u, np.float32).reshape(-1, 1)
    k = pyops.gno_kernel(x, block, hidden=HIDDEN, in_features=1, out_features=1, activation="tanh")
    return pyops.softplus(k)[:, 0]


in_fortran = np.array(output.splitlines()[0].split(":")[1].split(), np.float32)
in_python = closure([0, 0.5, 1], start)
print("Python: ", *(f"{k:.7f}" for k in in_python))
print(f"largest difference: {abs(in_fortran - in_python).max():.1e}")

# %%
# And back: the program has replaced the weights by the trained ones, which Python loads.

trained = np.fromfile(weights, "<f4")
lines = [np.array(line.split(), float) for line in results.read_text().splitlines()]
u, k_true, k_fortran = np.array(lines[:101]).T
print(f"largest difference of 101 values: {abs(closure(u, trained) - k_fortran).max():.1e}")

# %%
# A test that is no training data
# -------------------------------
# All training rods started from smooth temperatures. The test is a rod with a hot half and a cold
# one. The program solved it with the learned law from the first frame on, 240 steps, while training
# looked twenty steps ahead. The truth is a simulation with the true law on a grid eight times as
# fine. For comparison we also solve with a constant conductivity, and choose the one that suits
# this very rod best.

true, learned = np.array(lines[101::2]), np.array(lines[102::2])
cells, substeps = true.shape[1], 10
time_step = 0.4 / cells**2


def with_constant(k):
    """Solve by the same scheme with a constant conductivity."""
    frames = [true[0]]
    for _ in true[1:]:
        values = frames[-1].copy()
        for _ in range(substeps):
            flux = np.diff(values) * k * time_step * cells**2
            values[:-1] += flux
            values[1:] -= flux
        frames.append(values)
    return np.array(frames)


def error(frames):
    """Root mean square over time and cells."""
    return float(np.sqrt(np.mean((frames - true) ** 2)))


candidates = np.linspace(0.05, 0.95, 91)
best = min(candidates, key=lambda k: error(with_constant(k)))
constant = with_constant(best)
print(f"learned law:              error {error(learned):.4f}")
print(f"best constant, k = {best:.2f}:   error {error(constant):.4f}")
print(f"heat lost by the learned solver: {abs(learned.sum(axis=1) / true[0].sum() - 1).max():.1e}")

# %%
# The network never saw a value of the conductivity, but it has found the law. It is least accurate
# at both ends and at the top. Heat is conserved to rounding, because both sides of a face use the
# same conductivity: the law was learned, the structure of the scheme was not.

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
left.plot(u, k_true, color="0.6", linewidth=5, label="true")
left.plot(u, closure(u, start), color="tab:orange", linestyle=":", label="before training")
left.plot(u, closure(u, trained), color="tab:blue", label="learned")
left.axhline(best, color="tab:red", linestyle="--", linewidth=1, label="best constant")
left.set(xlabel="temperature $u$", ylabel="conductivity $k(u)$", ylim=(0, 1.35), title="the law")
left.legend(frameon=False, fontsize="small", loc="upper left")

x = (np.arange(cells) + 0.5) / cells
shades = plt.cm.viridis(np.linspace(0, 0.9, 5))
for frame, shade in zip((0, 1, 4, 10, 24), shades, strict=True):
    time = frame * substeps * time_step
    middle.plot(x, true[frame], color=shade, linewidth=5, alpha=0.35)
    middle.plot(x, learned[frame], color=shade, label=f"$t$ = {time:.3f}")
    middle.plot(x, constant[frame], color=shade, linestyle="--", linewidth=1)
middle.set(xlabel="position $x$", ylabel="temperature $u$", title="test: hot half, cold half")
middle.legend(frameon=False, fontsize="small")

times = np.arange(len(true)) * substeps * time_step
for frames, name, style in (
    (constant, "best constant", "tab:red"),
    (learned, "learned", "tab:blue"),
):
    right.semilogy(times[1:], np.sqrt(((frames - true) ** 2).mean(1))[1:], color=style, label=name)
right.set(xlabel="time $t$", ylabel="error of $u$ (root mean square)", title="error in time")
right.legend(frameon=False)
for axis in (left, middle, right):
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
plt.show()

# %%
# In the middle, broad lines are the truth, thin ones the learned law, dashed ones the constant.
#
# Errors do not stop the program
# ------------------------------
# By default an error of pyops ends a program with a message, which a long simulation may not want.
# ``read_weights`` in the program shows the other way: after ``call tape%continue_on_error()`` a
# call that fails gives NaN, and ``tape%status()`` and ``tape%message()`` keep the first error. We
# run the program with a file that lacks a weight:

start[:-1].tofile(weights)
print(run(weights, results))

# %%
# Graphs report through an argument: ``call graph%from_edges(src, dst, status=status)``. The
# alternative for a whole program is ``call set_error_handler(procedure)``. The line that begins
# with ``pyops:`` is what pyops itself writes to standard error.
#
# .. _whole program:
#
# The whole program
# -----------------
#
# .. literalinclude:: conductivity.f90
#    :language: fortran
#
# :doc:`The guide to Fortran and C </guide/fortran>` has the ways to link with Meson, CMake and
# pkg-config, ``examples/fortran`` more programs.
