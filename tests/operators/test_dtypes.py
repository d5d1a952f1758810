"""Float32 against float64, to the error explained by rounding and the number of terms."""

import numpy as np
import pytest

from ..support.cases import CASES, PHASES
from ..support.rounding import bounds


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32(case):
    single = case.problem().map(np.float32)
    double = single.map(np.float64)
    for phase in PHASES:
        runs = single.run(phase), double.run(phase), bounds(single, phase, np.float32)
        for got, expected, bound in zip(*runs, strict=True):
            if got is None:
                assert expected is bound is None
            else:
                assert got.dtype == np.float32
                assert expected.dtype == np.float64
                assert (abs(got - expected) <= bound).all(), phase
