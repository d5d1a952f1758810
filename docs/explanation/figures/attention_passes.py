"""Passes of graph attention over the edges, forward and backward."""

from drawing import BLUE, GREEN, GREY, ORANGE, PALE, arrow, box, canvas, label

axes = canvas(5.0)

label(axes, 1, 48, "Forward: one pass over destinations", ha="left", weight="bold")
box(axes, 1, 40.5, 13.5, 5.2, "scores of a block\nof entries", GREEN, size=10)
arrow(axes, (14.9, 43.1), (17.6, 43.1))
box(axes, 18, 40.5, 13.5, 5.2, "softmax of\neach row", GREEN, size=10)
arrow(axes, (31.9, 43.1), (34.6, 43.1))
box(axes, 35, 40.5, 14, 5.2, r"$o_i=\sum\alpha_e x_j$", BLUE, size=11)
arrow(axes, (42, 37.4), (42, 40.2))
label(axes, 42, 36.2, "gathers $x_j$, once", BLUE, size=10.5)
label(axes, 1, 36.2, "stays in cache", GREEN, size=10.5, ha="left")

axes.plot([1, 49], [33, 33], color=PALE, linewidth=1.5)
label(axes, 1, 30.6, "Backward: over sources, then destinations", ha="left", weight="bold")
box(
    axes, 1, 22, 21, 6, "per source $j$:\n" + r"recompute $\alpha_e$ of its entries", GREEN, size=10
)
arrow(axes, (22.4, 25), (25.6, 25))
box(
    axes,
    26,
    22,
    23,
    6,
    r"$\bar x_j=\sum\alpha_e\,\bar o_i$,  $p_e=\langle\bar o_i,x_j\rangle$",
    BLUE,
)
arrow(axes, (41.5, 18.9), (41.5, 21.7), BLUE)
label(axes, 41.5, 17.5, r"gathers $\bar o_i$, once", BLUE, size=10.5)
arrow(axes, (30.5, 21.7), (30.5, 14.2), ORANGE)
label(
    axes, 29.4, 18, "$p_e$: [entries, heads],\nfreed after the call", ORANGE, size=10.5, ha="right"
)
box(
    axes,
    1,
    8,
    48,
    6,
    "per destination $i$:  recompute "
    + r"$\alpha_e$,"
    + r"  $\bar s_e=\mathrm{act}'\,\alpha_e\,(p_e-\sum\alpha p)$",
    GREEN,
    size=10.5,
)
arrow(axes, (25, 7.7), (25, 5.2), GREY)
label(axes, 25, 3.6, "gradients of the score terms: sums over rows of both ends", size=10.5)
