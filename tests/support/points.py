"""Cells and batches of twelve points, for searches of neighbours."""

import numpy as np

CELL = np.array([[2.0, 0, 0], [0.4, 2.2, 0], [0, 0.3, 1.9]])
CASES = {
    "open": {},
    "periodic": {"cell": CELL},
    "slab": {"cell": CELL, "pbc": np.array([True, True, False])},
    "batch": {"batch": np.array([0] * 5 + [2] * 7)},
    "cells": {"batch": np.array([0] * 5 + [1] * 7), "cell": np.stack([CELL, 1.1 * CELL])},
}
