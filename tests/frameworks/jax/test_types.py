"""Static types of the front end, checked against JAX's own annotations."""

from ...support.type_checks import assert_checked


def test_types_against_those_of_jax():
    assert_checked("pyops.jax")
