"""Phases of an operator, each the derivative of the one before."""

from drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, arrow, box, canvas, label

axes = canvas(5.4)

box(axes, 14, 46, 22, 6, "forward\n$y=f(x)$", BLUE)
box(axes, 27, 29.5, 22, 6, "backward\n$g=J^T\\bar y$", GREEN)
box(axes, 1, 29.5, 22, 6, "jvp\n$\\dot y=J\\,t$", PURPLE)
box(
    axes,
    8,
    11,
    34,
    8,
    "double backward, of $\\langle h,g\\rangle$\n"
    "by $x$:  $\\bar y\\cdot(\\partial_x J\\,h)$    by $\\bar y$:  $J\\,h$",
    ORANGE,
)
arrow(axes, (29, 45.6), (36, 36), GREY)
label(axes, 34.2, 41.6, "reverse mode", GREY, size=10.5, ha="left")
arrow(axes, (21, 45.6), (14, 36), GREY)
label(axes, 15.8, 41.6, "forward mode", GREY, size=10.5, ha="right")
arrow(axes, (38, 29.1), (32, 19.5), GREY)
label(axes, 38.4, 24.6, "reverse or\nforward over\nreverse", GREY, size=10.5, ha="left")
arrow(axes, (12, 29.1), (18, 19.5), GREY)
label(axes, 13.6, 24.4, "reverse over\nforward", GREY, size=10.5, ha="right")
arrow(axes, (25, 10.6), (25, 6.4), GREY)
label(axes, 25, 4.2, "third derivatives raise an error", GREY, size=10.5)
