"""The picture of examples/mesh.py."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw(path, mesh, true, predicted, losses, errors, each_period):
    """The flow after half a period and after two, the loss, and the errors over time."""
    figure = Figure(figsize=(15, 7), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subfigures(1, 2, width_ratios=(2.6, 1))
    draw_flows(left, mesh, true, predicted, [each_period // 2, len(true) - 1], each_period)
    upper, lower = right.subplots(2, 1)
    window = min(20, len(losses))
    smooth = np.convolve(losses, np.ones(window) / window, "valid")
    upper.semilogy(losses, color="0.8", linewidth=0.8)
    upper.semilogy(np.arange(window - 1, len(losses)), smooth, color="C0")
    upper.set(title="training", xlabel="step of Adam", ylabel="loss of one frame")
    for name, error in errors.items():
        lower.plot(np.arange(len(error)) / each_period, error, label=name)
    highest = max(error.max() for error in errors.values())
    lower.set(title="alone, after the training", xlabel="periods", ylabel="relative error")
    lower.set_ylim(0, 1.5 * float(highest))  # the legend above the curves
    lower.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def draw_flows(figure, mesh, true, predicted, frames, each_period):
    axes = figure.subplots(3, len(frames))
    speed, off = (np.linalg.norm(a, axis=2) for a in (true, predicted - true))
    triangles = *mesh.points.T, mesh.cells
    for column, frame in zip(axes.T, frames, strict=True):
        values = speed[frame], np.linalg.norm(predicted[frame], axis=1), off[frame]
        titles = "lattice Boltzmann", "MeshGraphNet", "difference"
        for axis, value, title in zip(column, values, titles, strict=True):
            picture = axis.tripcolor(
                *triangles, value, shading="gouraud", cmap="viridis", vmin=0, vmax=speed.max()
            )
            axis.triplot(*triangles, color="k", linewidth=0.2, alpha=0.3)
            axis.set(title=title, aspect="equal", xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        column[0].set_title(f"{titles[0]}, after {frame / each_period:.1f} periods")
    figure.colorbar(picture, ax=axes, location="bottom", aspect=60, pad=0.02, label="speed")
