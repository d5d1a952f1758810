"""The picture of examples/darcy.py."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def draw(path, test, fine, predictions, losses, errors):
    """One held-out field on both meshes, the loss, and the errors of all methods."""
    figure = Figure(figsize=(15, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subfigures(1, 2, width_ratios=(3.4, 1))
    draw_flows(left, (test, fine), [prediction[0] for prediction in predictions])
    upper, lower = right.subplots(2, 1)
    draw_losses(upper, np.array(losses))
    draw_errors(lower, errors)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def draw_flows(figure, meshes, predictions):
    axes = figure.subplots(2, 4)
    largest = max(flows.u[0].max() for flows in meshes)
    offs = [ours - flows.u[0] for ours, flows in zip(predictions, meshes, strict=True)]
    furthest = max(abs(off).max() for off in offs)
    extreme = max(abs(flows.log_a[0]).max() for flows in meshes)
    scales = (
        {"cmap": "PuOr_r", "vmin": -extreme, "vmax": extreme},
        {"cmap": "viridis", "vmin": 0, "vmax": largest},
        {"cmap": "viridis", "vmin": 0, "vmax": largest},
        {"cmap": "RdBu_r", "vmin": -furthest, "vmax": furthest},
    )
    for row, flows, ours, off in zip(axes, meshes, predictions, offs, strict=True):
        relative = np.sqrt(off**2 @ flows.area / (flows.u[0] ** 2 @ flows.area))
        titles = "log a", "u, finite elements", "u, neural operator", f"error, {relative:.1%} in L2"
        values = flows.log_a[0], flows.u[0], ours, off
        triangles = *flows.mesh.p, flows.mesh.t.T
        for axis, title, value, scale in zip(row, titles, values, scales, strict=True):
            picture = axis.tripcolor(*triangles, value, shading="gouraud", **scale)
            axis.triplot(*triangles, color="k", linewidth=0.2, alpha=0.4)
            axis.set(title=title, aspect="equal", xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
            axis.picture = picture
    names = "training mesh", "finer mesh, never trained on"
    for row, flows, name in zip(axes, meshes, names, strict=True):
        row[0].set_ylabel(f"{name}\n{len(flows.area)} nodes", fontsize=12)
    for columns in ([0], [1, 2], [3]):
        picture = axes[0, columns[0]].picture
        figure.colorbar(
            picture,
            ax=axes[:, columns],
            location="bottom",
            aspect=22 * len(columns),
            pad=0.02,
            ticks=MaxNLocator(4 * len(columns)),
        )


def draw_losses(axis, losses):
    window = min(30, len(losses))
    smooth = np.convolve(losses, np.ones(window) / window, "valid")
    axis.semilogy(losses, color="0.8", linewidth=0.8, label="batch")
    axis.semilogy(np.arange(window - 1, len(losses)), smooth, color="C0", label=f"mean of {window}")
    axis.set(title="training", xlabel="step of Adam", ylabel="relative L2 error")
    axis.legend(frameon=False)
    axis.grid(which="both", alpha=0.3)


def draw_errors(axis, errors):
    place = np.arange(len(errors))
    for shift, column, name in ((-0.2, 0, "training mesh"), (0.2, 1, "finer mesh")):
        heights = [both[column] for both in errors.values()]
        bars = axis.bar(place + shift, heights, 0.38, color=f"C{column}", label=name)
        axis.bar_label(bars, fmt="%.2f", padding=2)
    axis.set_xticks(place, [name.replace(" ", "\n") for name in errors])
    axis.set(title="held-out fields", ylabel="relative L2 error")
    axis.margins(y=0.15)
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
