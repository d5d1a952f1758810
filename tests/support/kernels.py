"""Stand-ins for the compiled procedures of an operator."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import NamedTuple

from pyops._schema import Procedure


class Compiled(NamedTuple):
    """Compiled procedure as Python calls it."""

    call: Callable
    interface: Procedure
    variant: str

    @property
    def symbol(self):
        """Name in C."""
        return f"pyops_{self.interface.name}_{self.variant}"


def phases_of(op):
    """Return all phases of an operator, special ones included."""
    special = filter(None, (op._by_sample, op._attention))
    return [*op._phases.values(), *op._keeping.values(), *special]


@contextmanager
def replaced(op, stand_in):
    """Run the operator with `stand_in(compiled)` in place of each kernel."""
    before = [(phase, phase._variants, phase._plans) for phase in phases_of(op)]
    for phase, kernels, _ in before:
        phase._variants = {
            variant: stand_in(Compiled(kernel, phase.interface, variant))
            for variant, kernel in kernels.items()
        }
        phase._plans = {}
    try:
        yield
    finally:
        for phase, kernels, plans in before:
            phase._variants, phase._plans = kernels, plans
