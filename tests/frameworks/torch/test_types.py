"""Static types of the front end and its layers, checked against PyTorch's own annotations."""

from ...support.type_checks import assert_checked


def test_types_against_those_of_torch():
    assert_checked("pyops.torch")


def test_types_of_the_calculator():
    assert_checked("pyops.ase")
