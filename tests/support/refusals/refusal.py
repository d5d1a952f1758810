from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Refusal:
    """Call that must be refused, with its error and message."""

    cause: str
    where: str
    call: Callable[[], Any]
    error: type[Exception]
    message: str

    def __str__(self):
        return f"{self.where}-{self.cause}"


def refusal(cause, problem, phase, argument, error, message, **keywords):
    """Return the refusal of a phase of a problem because of the argument named in the message."""
    caller = caller_name(problem.op, phase)
    message = rf"^{caller}: {argument}: {message}"
    return Refusal(
        cause, f"{caller}-{argument}", lambda: problem.run(phase, **keywords), error, message
    )


def caller_name(op, phase):
    return op.name if phase == "forward" else f"{op.name}.{phase}"
