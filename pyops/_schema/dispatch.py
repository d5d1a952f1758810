"""Schemas of the operators in PyTorch's dispatcher, one function for each phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .declaration import Signature

KINDS: dict[type | str, str] = {int: "int", str: "str", float: "float", bool: "bool"}
"""Types of options; any other option is a list of axes."""
INDICES = "Tensor src", "Tensor dst", "Tensor? edge_ids"
SIZES = "num_src", "num_dst", "num_edges"
INTEGERS = "SymInt ", "int "
"""Types, in a schema, of arguments that are sizes of a graph or integer options."""


class FunctionSchema(NamedTuple):
    """Arguments and results of a registered function."""

    arguments: tuple[str, ...]
    returns: str

    def text(self, name: str) -> str:
        return f"{name}({', '.join(self.arguments)}) -> {self.returns}"

    @property
    def integers(self) -> frozenset[int]:
        """Positions of the arguments that are integers."""
        return frozenset(i for i, a in enumerate(self.arguments) if a.startswith(INTEGERS))

    @property
    def traced(self) -> FunctionSchema:
        """Schema of the variant that takes integers as tensors."""
        names = [
            f"Tensor {a.split()[1]}" if i in self.integers else a
            for i, a in enumerate(self.arguments)
        ]
        return FunctionSchema(tuple(names), "Tensor")


def graph_arguments(signature: Signature) -> list[str]:
    """Return the arguments for a graph, none if the operator has none."""
    return [*INDICES, *(f"SymInt {n}" for n in SIZES)] if signature.has_graph else []


def function_name(operator: str, phase: str) -> str:
    return operator if phase == "forward" else f"{operator}_{phase}"


def function_schemas(signature: Signature) -> dict[str, FunctionSchema]:
    """Return the schemas of the phases of an operator."""
    inputs = [f"Tensor{'?' * i.optional} {i.name}" for i in signature.inputs.values()]
    others = [f"Tensor? h{name}" for name in signature.inputs]
    options = [f"{KINDS.get(o.kind, 'int[]?')} {o.name}" for o in signature.options.values()]
    options += [f"Tensor? {name}" for name in signature.indexed]
    gy, wanted = ["Tensor gy"], ["bool[] wanted"]
    found = {
        "forward": ([*inputs, *options], "Tensor"),
        "backward": ([*inputs, *gy, *options, *wanted], "Tensor[]"),
        "double_backward": ([*inputs, *gy, *others, *options, *wanted], "Tensor[]"),
        "jvp": ([*inputs, *others, *options], "Tensor"),
    }
    if signature.attention:
        found["attention"] = found["forward"]
    graph = graph_arguments(signature)
    return {
        phase: FunctionSchema((*graph, *arguments), returns)
        for phase, (arguments, returns) in found.items()
    }
