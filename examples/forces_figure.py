"""The figure of `forces.py` and `molecules.py`: progress, parity of energies and forces."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw(
    path,
    losses,
    energies,
    forces,
    *,
    title="Molecules not seen",
    wanted="GFN2-xTB",
    found="DimeNet++",
):
    figure = Figure(figsize=(12, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3)
    window = max(1, len(losses) // 60)
    smooth = np.convolve(losses, np.ones(window) / window, "valid")
    axes[0].semilogy(np.arange(len(smooth)) + window, np.sqrt(smooth))
    axes[0].set(xlabel="step", ylabel="error in training (eV/Å)", title="Training")
    pairs = (
        (axes[1], energies, f"{title}: energy (eV/atom)"),
        (axes[2], forces, f"{title}: forces (eV/Å)"),
    )
    for axis, (exact, got), heading in pairs:
        ends = np.min([exact.min(), got.min()]), np.max([exact.max(), got.max()])
        axis.plot(ends, ends, color="0.7", zorder=0)
        axis.plot(exact.ravel(), got.ravel(), ".", markersize=3)
        axis.set(xlabel=wanted, ylabel=found, title=heading)
        axis.set_aspect("equal", adjustable="datalim")
    figure.savefig(path, dpi=120)
