"""Work of both ways to sum over pairs, for a node with as many edges in as out."""

import numpy as np
from drawing import GREEN, GREY, ORANGE, plot

DEGREES = 7
edges = np.arange(1, 41)

figure, axes = plot(3.0)
axes.plot(edges, edges**2 * DEGREES, color=ORANGE)
axes.plot(edges, 2 * edges * DEGREES**2, color=GREEN)
axes.text(
    30.6, 8200, "pairs:\n" + r"in $\cdot$ out $\cdot L$", color=ORANGE, ha="right", va="center"
)
axes.text(40.5, 1500, r"density: $L^2$ (in + out)", color=GREEN, ha="right", va="center")
for limit, text in (5, "forward"), (10, "backward"), (17, "double backward"):
    axes.axvline(limit, color=GREY, linewidth=1.2, linestyle=":")
    axes.text(limit - 0.3, 11300, text, color=GREY, ha="right", va="top", rotation=90)
axes.set(
    xlim=(0, 41),
    ylim=(0, 11500),
    xlabel="edges into a node, and out of it",
    ylabel="multiply-adds per channel",
)
axes.set_yticks([0, 2500, 5000, 7500, 10000], ["0", "2,500", "5,000", "7,500", "10,000"])
