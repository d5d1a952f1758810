"""Registers the packages that run calls with other arrays than those of NumPy.

None of them is imported here: a module is with the first of its arrays.
"""

from ._call.arrays import on_device
from ._call.backends import register, register_device
from ._call.half import is_half


def register_all() -> None:
    """Register the backends of this package, but for ranks, which are imported to be used."""
    register("pyops.cuda._dispatch", on_device)
    register("pyops._call.half", is_half)
    register_device("pyops.cuda._host", on_device)
