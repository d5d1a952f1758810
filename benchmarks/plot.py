"""Plots time and memory over the number of edges, on logarithmic axes."""

from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.peers import NAMES, PEERS
from benchmarks.problem import operator_module
from benchmarks.report import Rates, limit
from benchmarks.row import Row

COLORS = dict(
    zip(PEERS, ("#0b6e4f", "#d1495b", "#e39d2d", "#3d5a80", "#7d5ba6", "#8d6a4f"), strict=True)
)
STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",
}


def draw(rows: list[Row], rates: Rates, folder: Path) -> None:
    """Write plot-OPERATOR.svg and .png for each operator with plotted cases that were measured."""
    plotted = [row for row in rows if row.case.plotted and row.seconds]
    for operator in dict.fromkeys(row.case.operator for row in plotted):
        draw_operator([row for row in plotted if row.case.operator == operator], rates, folder)


def draw_operator(rows: list[Row], rates: Rates, folder: Path) -> None:
    threads = min(row.threads for row in rows)
    rows = sorted((row for row in rows if row.threads == threads), key=lambda row: row.case.edges)
    forward, backward = ([r for r in rows if r.phase == p] for p in ("forward", "backward"))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(12.6, 4.2), layout="constrained")
        case = rows[0].case
        series = case.title
        if len({row.case.nodes for row in rows}) == 1:
            series = series.replace(
                f"{case.degree} edges a node",
                f"{case.nodes:,} nodes, {case.degree} to {rows[-1].case.degree} edges each",
            )
        subtitle = f"{series}, {threads} thread{'s' * (threads > 1)}. {note(case)}"
        figure.suptitle(subtitle, x=0.01, ha="left", fontsize=10, color="0.35")
        axes[1].sharey(axes[0])
        panel(axes[0], forward, lambda row: 1e3 * median(row.seconds), rates)
        axes[0].set(title="forward", ylabel="milliseconds")
        panel(axes[1], backward, lambda row: 1e3 * median(row.seconds), rates)
        axes[1].set(title="forward + backward", ylabel="milliseconds")
        panel(axes[2], backward, lambda row: 1e-6 * row.extra_bytes, {})
        axes[2].set(title="forward + backward: extra memory", ylabel="megabytes")
        for axis, phase in zip(axes, ("forward", "backward", "backward"), strict=True):
            turn = getattr(operator_module(case), "TURNS", {}).get(phase)
            if turn:
                axis.axvline(turn * case.nodes, linestyle=":", color="0.6", linewidth=1)
        axes[0].legend(loc="best")
        for suffix in ("svg", "png"):
            figure.savefig(folder / f"plot-{case.operator}.{suffix}", dpi=160)
        plt.close(figure)


def note(case) -> str:
    """Return a note on costs that are specific to the peers."""
    return getattr(operator_module(case), "NOTE", "").format(case=case)


def panel(axis, rows: list[Row], value, rates: Rates) -> None:
    """Draw a line for each peer, and one for the limit if rates are given."""
    for peer in PEERS:
        points = [row for row in rows if row.peer == peer]
        edges = [row.case.edges for row in points]
        if points:
            wide = {"linewidth": 2.5, "zorder": 3} if peer == "pyops" else {"linewidth": 1.5}
            label = {"label": NAMES[peer], "color": COLORS[peer]}
            axis.plot(edges, [value(row) for row in points], "o-", markersize=4, **label, **wide)
        if points and peer == "pyops" and rates:
            least = [1e3 * limit(row, rates)[0] for row in points]
            axis.plot(edges, least, "--", color="0.45", linewidth=1.2, label="limit")
    axis.set(xscale="log", yscale="log", xlabel="edges")
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter("{x:,.10g}")
    axis.grid(True, which="major", color="0.9")
