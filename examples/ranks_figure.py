"""The picture of examples/ranks.py."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

COLOURS = "#3b6fb6", "#e08a2e", "#4f9d69", "#a04fa0"


def draw(path, folder, ranks, losses):
    """The halves of the nodes, rows on both sides of the cut, a field, and the losses."""
    points, src, offsets = (np.load(folder / f"{n}.npy") for n in ("points", "src", "offsets"))
    parts = [np.load(folder / f"{rank}of{ranks}.npz") for rank in range(ranks)]
    figure = Figure(figsize=(13, 8), layout="constrained")
    FigureCanvasAgg(figure)
    (whole, near), (field, training) = figure.subplots(2, 2, width_ratios=(2, 1.3))
    draw_parts(whole, points, parts)
    draw_cut(near, whole, points, src, offsets, parts)
    after = np.load(folder / "after.npy", mmap_mode="r")[-1]
    size = 2e5 / len(points)
    picture = field.scatter(*points.T, c=after, s=0.6 * size, cmap="RdBu_r", linewidths=0)
    figure.colorbar(picture, ax=field, aspect=30, pad=0.01)
    field.set(title="field that is held out, after")
    for axis in whole, near, field:
        axis.set(aspect="equal", xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    draw_losses(training, losses)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def draw_parts(axis, points, parts):
    size = 2e5 / len(points)
    for rank, part in enumerate(parts):
        own = points[part["own"]]
        axis.scatter(*own.T, s=0.6 * size, color=COLOURS[rank % 4], linewidths=0)
    axis.set(title=", ".join(f"rank {r}: {len(p['own'])} nodes" for r, p in enumerate(parts)))


def draw_cut(axis, whole, points, src, offsets, parts):
    """A window around a ghost of rank 0: own nodes, ghosts, and the edges into own nodes."""
    part = parts[0]
    if len(part["ghosts"]) == 0:
        return
    ghosts = points[part["ghosts"]]
    centre = ghosts[np.argmin(abs(ghosts - np.median(ghosts, 0)).sum(1))]
    reach = 9 * np.sqrt(1.7 / len(points))
    corner = centre - reach
    inside = (abs(points - centre) < reach).all(1)
    owner = np.zeros(len(points), bool)
    owner[part["own"]] = True
    dst = np.repeat(np.arange(len(points)), np.diff(offsets))
    shown = inside[dst] & inside[src] & owner[dst]
    ends = np.stack([points[src[shown]], points[dst[shown]]], 1)
    cut = ~owner[src[shown]]
    axis.add_collection(LineCollection(ends[~cut], colors="0.8", linewidths=0.6))
    axis.add_collection(LineCollection(ends[cut], colors="k", linewidths=0.9))
    for rank, other in enumerate(parts):
        own = other["own"][inside[other["own"]]]
        axis.scatter(*points[own].T, s=14, color=COLOURS[rank % 4], zorder=2)
    own = part["ghosts"][inside[part["ghosts"]]]
    axis.scatter(*points[own].T, s=60, facecolors="none", edgecolors="k", zorder=3, label="ghost")
    axis.set(xlim=centre[0] + [-reach, reach], ylim=centre[1] + [-reach, reach])
    axis.set(title=f"rank 0 at the cut: {len(ghosts)} ghosts (circles)")
    window = whole.indicate_inset([*corner, 2 * reach, 2 * reach], edgecolor="k")
    window.set_linewidth(1.2)


def draw_losses(axis, losses):
    for style, (ranks, values) in zip(("-", "o"), losses.items(), strict=True):
        name = f"{ranks} ranks" if ranks > 1 else "1 rank"
        axis.semilogy(values[:-1], style, markersize=4, markerfacecolor="none", label=name)
    axis.set(title="training", xlabel="step of Adam", ylabel="square error, 1 for no change")
    axis.legend(frameon=False)
