"""Multiply-adds per edge of both orders of the sums of a graph neural operator."""

import numpy as np
from drawing import BLUE, GREEN, GREY, ORANGE, plot
from matplotlib.ticker import ScalarFormatter

HIDDEN = 64
degree = np.geomspace(1, 128, 50)

figure, axes = plot(2.9)
for width, color in (16, GREEN), (32, BLUE), (64, ORANGE):
    fused = HIDDEN * width + HIDDEN * width**2 / degree
    axes.plot(degree, (HIDDEN + 1) * width**2 / fused, color=color)
    axes.text(132, (HIDDEN + 1) * width**2 / fused[-1], f"F = {width}", color=color, va="center")
axes.plot(degree, degree, ":", color=GREY, linewidth=1.4)
axes.text(7.4, 9.4, "degree", color=GREY, rotation=47, ha="center")
axes.set(
    xscale="log",
    yscale="log",
    xlim=(1, 128),
    ylim=(0.9, 64),
    xlabel="edges per node",
    ylabel="times fewer multiply-adds",
    xticks=[1, 2, 4, 8, 16, 32, 64, 128],
    yticks=[1, 2, 4, 8, 16, 32, 64],
)
for axis in axes.xaxis, axes.yaxis:
    axis.set_major_formatter(ScalarFormatter())
axes.minorticks_off()
axes.grid(alpha=0.25)
