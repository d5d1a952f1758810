"""Programs that are written step by step, each evaluated for example inputs.

Most of the module is one class, `Builder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import torch

from ...graph import Graph
from ...models._calls import CALLS, GRAPH, INDEX, REAL, Scalar
from ...models._interpreter import run
from ...models._model import dtype_of, seen
from ...models._program import Input, Program, Step, check
from ...models._tape import Node, Tape
from ...ops.elementwise import REDUCTIONS
from .graph_sizes import have_same_rows, sizes_of_graphs

if TYPE_CHECKING:
    import numpy.typing as npt

Lowering: TypeAlias = Callable[..., "object"]
Own = TypeVar("Own", bound=Lowering)
_ROWS = "index", "like", "num_src", "num_dst"
_VIEWS = "reshape", "slice", "transpose"
MODULES: dict[type[torch.nn.Module], Lowering] = {}
"""How a module is written: a function of the builder, the module and the arguments of its call."""


def lowering(*kinds: type[torch.nn.Module]) -> Callable[[Own], Own]:
    """Register a function for modules of some classes, not for those of their subclasses."""

    def register(function: Own) -> Own:
        MODULES.update(dict.fromkeys(kinds, function))
        return function

    return register


class UnsupportedError(NotImplementedError):
    """Raised for what a program cannot express."""


@dataclass(frozen=True, eq=False)
class Ref:
    """Value of a program, with the shape that it has for the example inputs."""

    name: str
    kind: str
    shape: tuple[int, ...] = ()
    full: tuple[int, ...] = ()
    """Shape in torch, for parameters of more than two axes, which programs see as matrices."""

    @property
    def axes(self) -> int:
        return len(self.shape)

    @property
    def columns(self) -> int:
        return self.shape[1]


@dataclass(eq=False)
class Example:
    """Argument of a call that is no value of programs, such as truth values."""

    name: str
    value: torch.Tensor
    used: bool = False


class Builder:
    """Program of a model under construction."""

    def __init__(self, model: torch.nn.Module, default: npt.DTypeLike) -> None:
        self.model = model
        self.paths = {id(module): path for path, module in model.named_modules()}
        self.steps: list[Step] = []
        self.inputs: list[Input] = []
        self.call: Callable[..., object]
        """Function that applies a module or a plain function to values, set by the tracer."""
        self.functions: Mapping[Callable[..., object], Callable[..., object]] = {}
        """How functions are written that names do not identify."""
        state = model.state_dict(keep_vars=True)
        self._keys: dict[int, str] = {}
        self.tied: dict[str, str] = {}
        self.tensors: dict[str, npt.NDArray[np.generic]] = {}
        for key, tensor in state.items():
            self.tensors[key] = _array(key, tensor)
            if id(tensor) in self._keys:
                self.tied[key] = self._keys[id(tensor)]
            else:
                self._keys[id(tensor)] = key
        self._held = list(state.values())  # so that no other tensor gets their ids
        trained = {id(t) for t in model.parameters() if t.requires_grad}
        self.parameters = [key for key, t in state.items() if id(t) in trained]
        self.parameters = [key for key in self.parameters if key not in self.tied]
        reals = [array for array in self.tensors.values() if array.dtype.char in "fd"]
        self.dtype = dtype_of("pyops.models.save", reals, default)
        self._tape = Tape(self.dtype)
        self._tape.recording = False
        self._reals: dict[str, Node] = {}
        self._others: dict[str, object] = {}
        self._used = {*self.tensors}
        self._unsized: set[str] = set()
        self._known: dict[object, Ref] = {}
        self._searched: dict[object, dict[str, Ref]] = {}
        self.examples: list[Example] = []
        self._views: dict[str, str] = {}
        self._varying: dict[str, tuple[bool, bool]] = {}
        """Whether rows and columns of real values depend on the sizes of the inputs."""
        self._ends: dict[str, tuple[str, str]] = {}
        self.hyperparameters: dict[str, Scalar] = {}
        self.zero_rows: dict[str, int] = {}
        """Rows of parameters that have to be zero, as those of padding are."""

    def refuse(self, module: torch.nn.Module | None, text: str) -> UnsupportedError:
        """Return the error for what a module is or does."""
        if module is None:
            return UnsupportedError(text)
        path = self.paths.get(id(module), "")
        return UnsupportedError(f"{path or 'the model'} ({type(module).__name__}): {text}")

    def add_input(self, name: str, value: object) -> Ref:
        """Add an input with an example: an array, the indices of one, or a graph."""
        name = self._unused(name)
        if isinstance(value, Graph):
            self.inputs.append(Input(name, GRAPH))
            self._others[name] = value
            return Ref(name, GRAPH)
        assert isinstance(value, np.ndarray)
        if value.dtype.kind in "iu":
            self.inputs.append(Input(name, INDEX))
            self._others[name] = value.astype(np.int64)
            return Ref(name, INDEX, value.shape)
        columns = value.shape[1] if value.ndim == 2 else None
        self.inputs.append(Input(name, REAL, columns))
        self._reals[name] = Node(value)
        return Ref(name, REAL, value.shape)

    def example(self, name: str) -> object:
        """Return the example of an input."""
        return self._reals[name].value if name in self._reals else self._others[name]

    def add_edges(self, name: str, edges: npt.NDArray[np.integer]) -> Ref:
        """Add a graph that is given as pairs of nodes; its first use determines the sizes."""
        ref = self.add_input(name, Graph(edges[0], edges[1]))
        self._unsized.add(ref.name)
        return ref

    def set_sizes(self, ref: Ref, num_src: int, num_dst: int) -> None:
        """Set the numbers of nodes of a graph that was given as pairs of nodes."""
        if ref.name in self._unsized:
            self._unsized.remove(ref.name)
            graph = self._others[ref.name]
            assert isinstance(graph, Graph)
            self._others[ref.name] = Graph(graph.src, graph.dst, num_src, num_dst)

    def set_ends(self, ref: Ref, sources: Ref, destinations: Ref) -> None:
        """Set values with a row for each node of a graph."""
        self._ends.setdefault(ref.name, (sources.name, destinations.name))

    def add_searched(
        self,
        module: torch.nn.Module,
        option: str,
        points: Sequence[Ref | Example],
        search: Callable[[], Mapping[str, object]],
    ) -> dict[str, Ref]:
        """Add a graph that a module searches, and what the search returns beside it.

        These inputs come before those of the call. The attribute of the module that bounds
        distances becomes a hyperparameter. Modules that search among the same points, those of
        sources and of destinations first, by the same bound share the inputs.
        """
        bound = getattr(module, option)
        key = tuple(point.name for point in points), bound
        if key not in self._searched:
            found = {name: self.add_input(name, value) for name, value in search().items()}
            place = sum(map(len, self._searched.values()))
            own = self.inputs[-len(found) :]
            self.inputs = [*self.inputs[:place], *own, *self.inputs[place : -len(found)]]
            self._searched[key] = found
            self._ends[found["graph"].name] = points[0].name, points[1].name
        path = self.paths.get(id(module), "")
        self.hyperparameters[f"{path}.{option}" if path else option] = float(bound)
        return self._searched[key]

    def add_example(self, name: str, value: torch.Tensor) -> Example:
        """Add an argument that no step takes, but the search of neighbours may."""
        example = Example(name, value)
        self.examples.append(example)
        return example

    def consumed(self, given: Ref | Example | None) -> npt.NDArray[np.generic] | None:
        """Return an argument that the search takes, so that it is no input of the program."""
        if given is None:
            return None
        if isinstance(given, Example):
            given.used = True
            found: npt.NDArray[np.generic] = given.value.detach().cpu().numpy()
            return found
        self.inputs = [one for one in self.inputs if one.name != given.name]
        return self.array(given)

    def array(self, ref: Ref) -> npt.NDArray[np.floating]:
        """Return the example of a real value."""
        return self._reals[ref.name].value

    def parameter(self, tensor: torch.Tensor) -> Ref:
        """Return a parameter or a buffer."""
        name = self._keys.get(id(tensor))
        if name is None:
            raise UnsupportedError(
                f"expected tensors of the state_dict alone, got one of shape {tuple(tensor.shape)};"
                " register_buffer adds it"
            )
        array = self.tensors[name]
        if array.dtype == self.dtype:
            shape = seen(array.shape)
            self._reals[name] = Node(np.asarray(array, self.dtype).reshape(shape))
            return Ref(name, REAL, shape, array.shape if array.ndim > 2 else ())
        if array.dtype.kind == "i" and array.ndim == 1:
            self._others[name] = array
            return Ref(name, INDEX, array.shape)
        raise UnsupportedError(f"{name}: expected real numbers or indices, got {array.dtype}")

    def number(self, tensor: torch.Tensor) -> Ref:
        """Return a parameter or a buffer with the axes that it has in torch; 0 for one number."""
        found = self.parameter(tensor)
        return found if tensor.dim() > 0 else self.unary("sum", found)

    def indices(self, ref: Ref) -> npt.NDArray[np.integer]:
        """Return the example of indices."""
        found = self._others[ref.name]
        assert isinstance(found, np.ndarray)
        return found

    def step(
        self,
        call: str,
        inputs: Mapping[str, object] | None = None,
        options: Mapping[str, Scalar] | None = None,
        graph: Ref | None = None,
    ) -> Ref:
        """Add a step; inputs that are None are left out, and numbers become options."""
        names: dict[str, str] = {}
        settings = dict(options or {})
        for name, value in (inputs or {}).items():
            if isinstance(value, Ref):
                names[name] = value.name
            elif isinstance(value, (int, float)):
                settings[name] = value
            elif value is not None:
                raise UnsupportedError(
                    f"{call}: {name}: expected a tensor or a number, got {value!r:.60}"
                )
        key = (
            call,
            None if graph is None else graph.name,
            tuple(names.items()),
            tuple(settings.items()),
        )
        if key in self._known:
            return self._known[key]
        result = self._unused(call)
        step = Step(call, result, names, settings, "" if graph is None else graph.name)
        kinds = {**dict.fromkeys(self._reals, REAL)}
        kinds |= {n: GRAPH if isinstance(v, Graph) else INDEX for n, v in self._others.items()}
        CALLS[call].check(call, step.graph, names, settings, kinds)
        run(step, "example", self._tape, self._reals, self._others)
        self.steps.append(step)
        self._varying[result] = self._varies(step)
        if call in _VIEWS:
            self._views[result] = names["x"]
        self._known[key] = self._ref(result)
        return self._known[key]

    def has_fixed_columns(self, ref: Ref) -> bool:
        """Return whether the columns of a value do not depend on the sizes of the inputs."""
        return ref.axes < 2 or not self._varying.get(ref.name, (True, False))[1]

    def _varies(self, step: Step) -> tuple[bool, bool]:
        """Return whether the rows and the columns of a result depend on sizes of inputs."""
        given = {}
        for name, value in step.inputs.items():
            held = (value not in self.tensors, False)
            rows, columns = self._varying.get(value, held)
            is_vector = value in self._reals and self._reals[value].value.ndim == 1
            given[name] = (rows, columns or (is_vector and rows))
        rows, columns = (any(one[place] for one in given.values()) for place in (0, 1))
        options, axis = step.options, step.options.get("axis")
        if step.graph or step.call in ("gather", "scatter_sum", "full"):
            wide = any(columns for name, (_, columns) in given.items() if name not in _ROWS)
            return True, wide and step.call != "full"
        if step.call == "transpose":
            return columns, rows
        if step.call in ("matmul", "linear"):
            first, second = list(given.values())[:2]
            return first[0], second[1] if step.call == "matmul" else second[0]
        if step.call == "reshape":
            shape = options["shape"]
            assert isinstance(shape, tuple)
            varies = rows or columns
            return varies and shape[0] == -1, varies and shape[-1] == -1 and len(shape) == 2
        if step.call == "concat" and axis == 0:
            matrix = self._reals[step.result].value.ndim == 2
            return rows, columns and matrix
        if step.call == "slice" and axis != 0 and options.get("stop") is not None:
            return rows, False
        if step.call in REDUCTIONS and axis is not None:
            matrix = self._reals[step.inputs["x"]].value.ndim == 2
            if axis == 0 and matrix:
                return (False, columns) if options.get("keepdims") else (columns, False)
            return rows, False
        return rows, columns

    def memory(self, ref: Ref) -> str:
        """Return the name of the value whose memory a value shares in torch."""
        name = ref.name
        while name in self._views:
            name = self._views[name]
        return name

    def _ref(self, name: str) -> Ref:
        if name in self._reals:
            return Ref(name, REAL, self._reals[name].value.shape)
        value = self._others[name]
        return Ref(name, INDEX, value.shape) if isinstance(value, np.ndarray) else Ref(name, GRAPH)

    def program(self, outputs: Sequence[Ref], hyperparameters: Mapping[str, Scalar]) -> Program:
        """Return the program, checked as if it had been read."""
        steps = self._needed([ref.name for ref in outputs])
        used = {name for step in steps for name in step.names}
        searched = {ref.name for found in self._searched.values() for ref in found.values()}
        program = Program(
            type(self.model).__name__,
            dict(hyperparameters),
            tuple(one for one in self.inputs if one.name in used or one.name not in searched),
            tuple(self.parameters),
            dict(self.tied),
            tuple(steps),
            tuple(ref.name for ref in outputs),
        )
        program = sizes_of_graphs(program, self._shapes(), self._ends)
        check(program, kinds_of(self.tensors))
        return program

    def has_same_rows(self, one: Ref, other: Ref) -> bool:
        """Return whether two values have equally many rows, whatever the sizes of the inputs."""
        return have_same_rows(one.name, other.name, self.steps, self._shapes(), self._ends)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: node.value.shape for name, node in self._reals.items()}

    def _needed(self, names: Sequence[str]) -> list[Step]:
        """Return the steps on which the outputs depend."""
        needed, kept = {*names}, []
        for step in reversed(self.steps):
            if step.result in needed:
                needed.update(step.names)
                kept.append(step)
        return kept[::-1]

    def _unused(self, stem: str) -> str:
        name, number = stem, 1
        while name in self._used:
            number += 1
            name = f"{stem}_{number}"
        self._used.add(name)
        return name

    # Steps that many layers take.

    def binary(self, name: str, x1: object, x2: object) -> Ref:
        return self.step(name, {"x1": x1, "x2": x2})

    def add(self, *terms: object) -> Ref:
        """Return the sum of values, leaving out None."""
        first, *others = (term for term in terms if term is not None)
        for term in others:
            first = self.binary("add", first, term)
        assert isinstance(first, Ref)
        return first

    def multiply(self, x1: object, x2: object) -> Ref:
        return self.binary("multiply", x1, x2)

    def divide(self, x1: object, x2: object) -> Ref:
        return self.binary("divide", x1, x2)

    def unary(self, name: str, x: Ref, **options: Scalar) -> Ref:
        return self.step(name, {"x": x}, options)

    def reshape(self, x: Ref, *shape: int) -> Ref:
        x = replace(x, full=()) if x.full else x
        known = [n for n in shape if n != -1]
        if x.shape == shape or (len(shape) == 1 == x.axes and not known):
            return x
        return self.step("reshape", {"x": x}, {"shape": shape})

    def column(self, x: Ref) -> Ref:
        """Return a vector as a matrix of one column."""
        return self.reshape(x, -1, 1) if x.axes == 1 else x

    def flat(self, x: Ref) -> Ref:
        return self.reshape(x, -1)

    def transpose(self, x: Ref) -> Ref:
        return self.step("transpose", {"x": x})

    def concat(self, parts: Sequence[Ref], axis: int) -> Ref:
        if len(parts) == 1:
            return parts[0]
        inputs = {f"x{place}": part for place, part in enumerate(parts, start=1)}
        return self.step("concat", inputs, {"axis": axis})

    def block(self, parts: Sequence[Ref]) -> Ref:
        """Return the elements of all parts as one vector."""
        return self.concat([self.flat(part) for part in parts], 0)

    def columns(self, x: Ref, start: int, stop: int) -> Ref:
        """Return columns of a matrix."""
        if (start, stop) == (0, x.columns):
            return x
        return self.step("slice", {"x": x}, {"axis": 1, "start": start, "stop": stop})

    def matmul(self, a: Ref, b: Ref) -> Ref:
        return self.step("matmul", {"a": a, "b": b})

    def product(self, x: Ref, weight: Ref, bias: Ref | None = None) -> Ref:
        """Return x times the transpose of the weight of a linear layer, and its bias."""
        return self.step("linear", {"x": x, "weight": weight, "bias": bias})

    def linear(self, layer: torch.nn.Module | None, x: Ref) -> Ref:
        """Return the result of a linear layer, or of what takes its place."""
        found = self.call(layer, x)
        assert isinstance(found, Ref)
        return found

    def apply(self, function: object, *values: Ref) -> Ref:
        """Return the value of a module or a function with one result."""
        found = self.call(function, *values)
        if not isinstance(found, Ref):
            raise UnsupportedError(f"expected one tensor as the result of {function!r:.60}")
        return found

    def tensor(self, tensor: torch.Tensor | None) -> Ref | None:
        return None if tensor is None else self.parameter(tensor)

    def full(self, like: Ref, value: float, columns: int | None = None) -> Ref:
        options: dict[str, Scalar] = {"value": value}
        if columns is not None:
            options["columns"] = columns
        return self.step("full", {"like": like}, options)

    def degrees(self, graph: Ref) -> Ref:
        """Return the in-degrees as a column."""
        return self.column(self.step("in_degrees", graph=graph))

    def aggregate(
        self,
        graph: Ref,
        x: Ref | None = None,
        edge: Ref | None = None,
        weight: Ref | None = None,
        **options: Scalar,
    ) -> Ref:
        return self.step("aggregate", {"x": x, "edge": edge, "weight": weight}, options, graph)


def _array(key: str, tensor: torch.Tensor) -> npt.NDArray[np.generic]:
    if isinstance(tensor, torch.nn.parameter.UninitializedParameter):
        raise UnsupportedError(f"{key}: expected a width, which the first call of the model sets")
    if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
        raise UnsupportedError(f"{key}: expected float32 or float64, got {tensor.dtype}")
    if tensor.is_complex() or tensor.layout is not torch.strided:
        raise UnsupportedError(f"{key}: expected a dense tensor of real numbers or integers")
    found: npt.NDArray[np.generic] = tensor.detach().cpu().contiguous().numpy().copy()
    return found


def kinds_of(tensors: Mapping[str, npt.NDArray[np.generic]]) -> dict[str, str]:
    """Return the kinds of tensors in a program."""
    return {
        name: REAL if array.dtype.char in "fd" else INDEX if array.ndim == 1 else "none"
        for name, array in tensors.items()
    }
