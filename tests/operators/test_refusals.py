"""Invalid calls of operators are refused with the right error and message."""

from collections import Counter

import numpy as np
import pytest

import pyops

from ..support.cases import EVERY, EVERY_VARIANT
from ..support.refusals import WIDTHS, refusals
from ..support.refusals.arrays import other_lengths

REFUSALS = {op.name: [*refusals(op)] for op in EVERY.values()}


@pytest.mark.parametrize("refusal", [r for every in REFUSALS.values() for r in every], ids=str)
def test_refused(refusal):
    with pytest.raises(refusal.error, match=refusal.message) as caught:
        refusal.call()
    assert caught.type is refusal.error


@pytest.mark.parametrize("every", REFUSALS.values(), ids=REFUSALS)
def test_there_are_enough(every):
    assert len(every) >= 40
    assert len(Counter(r.cause for r in every)) >= 12


@pytest.mark.parametrize("case", EVERY_VARIANT, ids=str)
def test_shapes_belong_together(case):
    problem = case.problem(**WIDTHS)
    for name in problem.names("double_backward"):
        if problem.arrays[name] is None:
            continue
        for *_, changed in other_lengths(problem.arrays[name]):
            with pytest.raises(ValueError, match="expected shape"):
                problem.having(**{name: changed}).run("double_backward")


@pytest.mark.parametrize("rank", [1, 3])
def test_ranks_of_shapes(rank):
    """Front ends that trace calls pass shapes alone."""
    with pytest.raises(ValueError, match=r"^elem_scale: x: expected shape \(num_samples, width\),"):
        pyops.elem_scale.output_shape({}, [np.zeros((3,) * rank), np.zeros(3)], {})


@pytest.mark.parametrize("number", [0, -1, 1025, 2**40])
def test_number_of_threads(number):
    with pytest.raises(ValueError, match=rf"number: expected 1 to 1024, got {number}"):
        pyops.set_num_threads(number)


@pytest.mark.parametrize("number", ["x", 1.0, [1], "4", 2j])
def test_type_of_number_of_threads(number):
    with pytest.raises(TypeError, match="number: expected a positive integer or None, got"):
        pyops.set_num_threads(number)
