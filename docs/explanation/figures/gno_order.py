"""Order of the two sums of a graph neural operator."""

from drawing import BLUE, GREEN, GREY, ORANGE, PALE, arrow, box, canvas, label

axes = canvas(4.6)

label(axes, 1, 44, "Matrix of each edge first", ha="left", weight="bold")
for k in range(3):
    y = 37 - 6.2 * k
    box(axes, 1, y + 0.6, 4.6, 3, "$h_e$", GREEN)
    arrow(axes, (6.2, y + 2.1), (10.6, y + 2.1))
    label(axes, 8.2, y + 3.4, "$V$", size=10.5)
    box(axes, 11, y - 0.4, 5.4, 5.2, r"$\kappa_e$", ORANGE)
    label(axes, 17.6, y + 2.1, r"$\cdot$", size=15)
    box(axes, 18.8, y + 0.6, 4.6, 3, "$x_j$", BLUE)
    arrow(axes, (24, y + 2.1), (29.4, 33 - 2 * k))
box(axes, 30, 27, 5, 7, r"$\sum_e$", GREY, PALE)
arrow(axes, (35.4, 30.5), (39.6, 30.5))
box(axes, 40, 28.5, 5, 4, "$m_i$", BLUE)
label(axes, 30, 24.6, r"per edge: $H F^2$", ORANGE, ha="left")

axes.plot([1, 49], [21.6, 21.6], color=PALE, linewidth=1.5)

label(axes, 1, 19.4, "Sum of outer products first", ha="left", weight="bold")
for k in range(3):
    y = 13 - 5.2 * k
    box(axes, 1, y, 4.6, 3, "$h_e$", GREEN)
    label(axes, 7, y + 1.5, r"$\otimes$", size=13)
    box(axes, 8.4, y, 4.6, 3, "$x_j$", BLUE)
    arrow(axes, (13.6, y + 1.5), (17.4, 9.9 - 1.2 * k))
box(axes, 18, 4.8, 14.4, 8, r"$Z_i=\sum_e h_e\otimes x_j$", GREEN, size=10)
arrow(axes, (33, 8.8), (41.4, 8.8))
label(axes, 37, 10.4, "$V$, once", size=10.5)
box(axes, 42, 6.8, 5, 4, "$m_i$", BLUE)
label(axes, 18, 2.4, r"per edge: $H F$, per node: $H F^2$", GREEN, ha="left")
