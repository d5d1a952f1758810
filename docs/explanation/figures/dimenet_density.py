"""Sums over pairs at a node, pair by pair and through the density of harmonics."""

import numpy as np
from drawing import BLUE, GREEN, GREY, ORANGE, PALE, arrow, box, canvas, label

axes = canvas(4.5)


def node(y, text, color):
    """Draw the edges into and out of a node, and return their inner ends."""
    heights = y + np.array([6.0, 2.0, -2.0, -6.0])
    for k, height in enumerate(heights):
        arrow(axes, (2, height), (11.5, height), BLUE)
        label(axes, 1.2, height, f"$f_{k + 1}$", BLUE, size=10.5, ha="right")
        arrow(axes, (38, height), (47.5, height), ORANGE)
        label(axes, 48.2, height, f"$e_{k + 1}$", ORANGE, size=10.5, ha="left")
    label(axes, 25, y + 9.6, text, color, size=11.5, weight="bold")
    return heights


axes.set_xlim(-2, 52)
ends = node(32, "Pair by pair", GREY)
for start in ends:
    for end in ends:
        axes.plot([12, 37.6], [start, end], color=GREY, linewidth=0.9)
label(axes, 25, 23.6, r"in $\times$ out products of $L\,C$ elements", GREY)

axes.plot([-1, 51], [20.8, 20.8], color=PALE, linewidth=1.5)
ends = node(8.6, "Density of harmonics", GREEN)
for end in ends:
    axes.plot([12, 17.2], [end, 8.6 + (end - 8.6) / 3], color=GREEN, linewidth=1.3)
    axes.plot([32.8, 37.6], [8.6 + (end - 8.6) / 3, end], color=GREEN, linewidth=1.3)
box(
    axes,
    17.4,
    4.4,
    15.2,
    8.4,
    r"$H=\sum_f Y(u_f)\otimes Q_f$" + "\n$L^2 C$ elements",
    GREEN,
    size=9.5,
)
label(axes, 25, 1.4, r"in + out products of $L^2 C$ elements", GREEN)
