"""Softmax of rows: short rows whole, long rows in segments that are joined."""

from drawing import BLUE, GREEN, GREY, INK, ORANGE, arrow, box, canvas, label

axes = canvas(2.9)

label(axes, 1, 27, "Incoming entries in the order of the destinations", ha="left", size=10.5)
x = 1.0
for width, text in (4, "row 1"), (6, "row 2"), (3.4, ""), (5, "row 4"):
    box(axes, x, 19.5, width, 5, text, BLUE, size=9)
    x += width + 0.3
for k in range(3):
    width = 8.2 if k < 2 else 4.6
    box(axes, x, 19.5, width, 5, "1,024" if k < 2 else "rest", ORANGE, size=9.5)
    x += width + 0.3
label(axes, 31, 26.9, "", INK)
axes.plot([20.6, x - 0.4], [18.4, 18.4], color=ORANGE)
label(axes, 31, 16.9, "row 5, three segments", ORANGE, size=10.5)
axes.plot([1, 19.8], [18.4, 18.4], color=BLUE)
label(axes, 10.4, 16.9, "one block", BLUE, size=10.5)

arrow(axes, (10.4, 15.2), (10.4, 11.4), GREY)
box(axes, 1, 5.2, 19, 6, "$M=\\max z$,  $T=\\sum e^{z-M}$\nexact for each row", GREEN, size=10)
arrow(axes, (31, 15.2), (31, 11.4), GREY)
box(
    axes,
    22,
    5.2,
    27,
    6,
    "$M_s$, $T_s$ of each segment, then\n"
    r"$T=\sum_s T_s\,e^{M_s-M}$ in float64",
    ORANGE,
    size=10,
)
label(axes, 25, 2, "$M$ and $T$ of each row suffice to recompute every weight", size=10.5)
