"""Float32 sums of the same values in random orders, and in the order of the rows."""

import numpy as np
from drawing import BLUE, GREEN, plot

rng = np.random.default_rng(0)
values = rng.standard_normal(4096).astype(np.float32)
exact = values.sum(dtype=np.float64)
sums = np.array([np.cumsum(rng.permutation(values))[-1] for _ in range(2000)], np.float64)
fixed = np.cumsum(values)[-1]

figure, axes = plot(2.6)
scale = 1e6 / abs(exact)
axes.hist((sums - exact) * scale, bins=41, color=BLUE, alpha=0.75)
axes.axvline((fixed - exact) * scale, color=GREEN, linewidth=2.2)
axes.text(0.02, 0.95, "2,000 random orders", color=BLUE, transform=axes.transAxes, va="top")
axes.text(
    0.98,
    0.95,
    "order of the row:\nalways this sum",
    color=GREEN,
    transform=axes.transAxes,
    ha="right",
    va="top",
)
axes.set(xlabel="relative error of the sum, in millionths", ylabel="orders", ylim=(0, 230))
