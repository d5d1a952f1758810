"""Float32 against float64, to the error explained by rounding and the number of terms."""

import numpy as np
import pytest

from ..support.cases import CASES
from ..support.rounding import bounds


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32(case):
    single = case.problem().map(np.float32)
    for phase in "forward", "backward", "double_backward":
        limits = bounds(single, phase, np.float32)
        check(single, phase, limits)
    check(single, "jvp", limits[-1:])  # whose result is the last of a double backward pass


def check(single, phase, limits):
    runs = single.run(phase), single.map(np.float64).run(phase)
    for got, expected, limit in zip(*runs, limits, strict=True):
        if got is None:
            assert expected is limit is None
        else:
            assert got.dtype == np.float32
            assert expected.dtype == np.float64
            assert (abs(got - expected) <= limit).all(), phase
