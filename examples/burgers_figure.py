"""The picture of examples/burgers.py."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw(path, first, last, predictions, losses, errors):
    """Held-out waves before and after, the losses, and the errors of all methods."""
    figure = Figure(figsize=(14, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subfigures(1, 2, width_ratios=(3, 1))
    x = np.linspace(0, 1, first.shape[1])
    axes = left.subplots(2, 3, sharex=True)
    for sample, axis in enumerate(axes.flat):
        axis.plot(x, first[sample], color="0.75", linewidth=1, label="at first")
        axis.plot(x, last[sample], color="k", linewidth=2.4, label="at the end")
        for name, style in {"ridge regression": "C2:", "ONO": "C0--", "LNO": "C1--"}.items():
            axis.plot(x, predictions[name][sample], style, linewidth=1.4, label=name)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(frameon=False, fontsize=9)
    left.suptitle("held-out waves of Burgers' equation")
    left.supxlabel("x")
    upper, lower = right.subplots(2, 1)
    for name, values in losses.items():
        window = min(30, len(values))
        smooth = np.convolve(values, np.ones(window) / window, "valid")
        upper.semilogy(np.arange(window - 1, len(values)), smooth, label=name)
    upper.set(title="training", xlabel="step of Adam", ylabel="relative L2 error")
    upper.legend(frameon=False)
    upper.grid(which="both", alpha=0.3)
    bars = lower.bar(range(len(errors)), errors.values(), color=["C0", "C1", "C2", "0.6"])
    lower.bar_label(bars, fmt="%.3f", padding=2)
    names = [name.replace(" ", "\n") for name in errors]
    lower.set_xticks(range(len(errors)), names, fontsize=8)
    lower.set(title="held-out waves", ylabel="relative L2 error")
    lower.margins(y=0.15)
    lower.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
