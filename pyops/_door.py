"""What the doors to frameworks share: an operator as a function of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ._operator import Operator

Found = TypeVar("Found")
CONSTANT = "Here alpha is a constant: no derivative passes through what ``return_attention`` gives."


class Door:
    """An operator behind a function of one framework."""

    def __init__(self, op: Operator, framework: str) -> None:
        self.op, self.module = op, f"pyops.{framework}"
        self.label = f"{self.module}.{op.name}"
        self._places = [
            (f"{self.label}: {i.name}", i.optional) for i in op.signature.inputs.values()
        ]
        # known before torch traces what asks for it
        self._least, self._has_graph = op.signature.required, op.signature.has_graph

    def arguments(
        self,
        given: Sequence[Any],
        check_graph: Callable[[str, Any], Found],
        check: Callable[[str, Any], Any],
    ) -> tuple[Found | None, list[Any]]:
        """The graph, None if the operator has none, and one array or None for each input."""
        graph, arrays = None, given
        if self._has_graph and given:
            graph, arrays = check_graph(self.label, given[0]), given[1:]
        most = len(self._places)
        if not self._least <= len(arrays) <= most:
            names = ", ".join(self.op.signature.positional)
            count = len(arrays) + self._has_graph
            raise TypeError(f"{self.label}: expected arguments ({names}), got {count}")
        found = [
            None if a is None and optional else check(label, a)
            for a, (label, optional) in zip(arrays, self._places, strict=False)
        ]
        return graph, found + [None] * (most - len(found))

    def dress(self, call: Callable[..., Any]) -> None:
        """Give the function the name, the signature and the text of the operator."""
        call.__name__ = call.__qualname__ = self.op.name
        call.__module__ = self.module
        call.__doc__ = self.op.__doc__
        if self.op.signature.attention:
            call.__doc__ = f"{call.__doc__}\n\n{CONSTANT}"
        call.__signature__ = self.op.__signature__  # type: ignore[attr-defined]
