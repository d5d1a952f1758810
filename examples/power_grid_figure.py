"""The picture of examples/power_grid.py."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure


def draw(path, test, prediction, linear, losses, errors):
    """A held-out scenario, the errors on the grid, the loss, and the errors of all methods."""
    figure = Figure(figsize=(17, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subfigures(1, 2, width_ratios=(3.6, 1))
    axes = left.subplots(1, 3)
    draw_grid(left, axes[0], test.grid, np.degrees(test.angles[0]), "voltage angle, degrees")
    offs = [abs(np.degrees(a - test.angles)).mean(axis=0) for a in (linear, prediction)]
    low, high = np.quantile(np.concatenate(offs), [0.01, 0.995])
    scale = {"cmap": "magma_r", "norm": LogNorm(low, high)}
    titles = "error of linear regression, degrees", "error of graph attention, degrees"
    for axis, off, title in zip(axes[1:], offs, titles, strict=True):
        draw_grid(left, axis, test.grid, off, title, **scale)
    upper, lower = right.subplots(2, 1)
    upper.semilogy(losses, color="0.6", linewidth=0.8)
    upper.set(title="training loss, degrees", xlabel="step")
    names = list(errors)
    colours = ["0.6"] * (len(names) - 1) + ["C1"]
    lower.barh(names, list(errors.values()), color=colours)
    for place, value in enumerate(errors.values()):
        lower.text(value, place, f" {value:.2g}", va="center")
    lower.set(title="held-out error, degrees", xscale="log")
    lower.set_xlim(min(errors.values()) / 2, 3 * max(errors.values()))
    lower.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def draw_grid(figure, axis, grid, values, title, **scale):
    axis.add_collection(LineCollection(grid.places[grid.ends.T], colors="0.8", linewidths=0.4))
    order = np.argsort(values)
    buses = axis.scatter(
        *grid.places[order].T, c=values[order], s=6, linewidths=0, zorder=2, **scale
    )
    axis.set(title=title, xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    figure.colorbar(buses, ax=axis, orientation="horizontal", shrink=0.8, aspect=40)
