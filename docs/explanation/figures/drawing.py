"""Style and shapes of the figures of the explanation pages.

Figures are narrow, with large letters, so that they are readable on a phone. They have no
background: the theme puts a white one behind images in the dark.
"""

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

BLUE, ORANGE, GREEN, PURPLE = "#0067a5", "#c8500a", "#00785a", "#8c4f93"
INK, GREY, PALE = "#222222", "#6b6b6b", "#e9e9e9"
WIDTH = 5.0  # inches


def style():
    """Set the parameters of Matplotlib; the plot directive resets them before each script."""
    mpl.rcParams.update(
        {
            "font.size": 11,
            "axes.labelsize": 11,
            "axes.titlesize": 11.5,
            "axes.edgecolor": GREY,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.labelcolor": INK,
            "text.color": INK,
            "xtick.color": GREY,
            "ytick.color": GREY,
            "xtick.labelsize": 10,
            "ytick.labelsize": 10,
            "legend.frameon": False,
            "legend.fontsize": 10.5,
            "lines.linewidth": 2,
            "mathtext.fontset": "dejavusans",
            "savefig.transparent": True,
            "svg.hashsalt": "pyops",
        }
    )


def plot(height, rows=1, **options):
    """Return a figure with axes below each other."""
    style()
    return plt.subplots(rows, figsize=(WIDTH, height), layout="constrained", **options)


def canvas(height):
    """Return axes without frame, in tenths of an inch from the lower left corner."""
    style()
    figure = plt.figure(figsize=(WIDTH, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 10 * WIDTH), ylim=(0, 10 * height))
    axes.axis("off")
    return axes


def box(axes, x, y, width, height, text="", color=BLUE, fill=None, size=11, **options):
    """Draw a rounded rectangle with a text in its middle."""
    patch = FancyBboxPatch(
        (x, y),
        width,
        height,
        boxstyle="round,pad=0,rounding_size=0.5",
        edgecolor=color,
        facecolor=fill or color + "22",
        linewidth=1.4,
        **options,
    )
    axes.add_patch(patch)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size)


def arrow(axes, start, end, color=GREY, bend=0.0, **options):
    """Draw an arrow between two points."""
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=11,
            shrinkA=0,
            shrinkB=0,
            color=color,
            linewidth=1.4,
            connectionstyle=f"arc3,rad={bend}",
            **options,
        )
    )


def label(axes, x, y, text, color=INK, size=11, **options):
    """Write a text, centred unless told otherwise."""
    options = {"ha": "center", "va": "center", **options}
    axes.text(x, y, text, color=color, fontsize=size, **options)
