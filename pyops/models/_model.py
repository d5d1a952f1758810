"""Models read from files: a call, its derivatives, and parameters that are trained in place.

Most of the module is one class, `Model`, and its documentation.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from .._call.arguments import by_position
from .._call.arrays import check_array, kind_of
from .._call.eager import eager
from .._call.indices import check_indices
from .._call.types import Array
from ..graph import Graph
from . import _container
from ._calls import GRAPH, INDEX, REAL, Scalar
from ._interpreter import evaluate
from ._program import Program, read_program
from ._tape import Node, Tape

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence

    from .._call.types import Dtype
    from ._program import Input

METADATA = "pyops.model"
Gradients: TypeAlias = dict[str, Array]
Results: TypeAlias = "Array | tuple[Array, ...]"


class Model:
    """Model of a file, a function of NumPy or of JAX arrays.

    Made by `pyops.models.load`. Real inputs have the type of the parameters. A graph is a
    `pyops.Graph`, which is packed once, or its edges, integers of shape (2, num_edges) with sources
    in the first and destinations in the second row, which are packed by each call. With JAX arrays,
    among inputs or parameters, all results are JAX arrays, and derivatives are those of JAX;
    graphs may then be a `pyops.jax.Graph`, too.

    Attributes
    ----------
    name : str
        Class of the model that was saved.
    inputs : tuple
        Name, kind ("graph", "real" or "index") and columns of each input.
    outputs : int
        Number of results.
    parameters : dict
        Trained arrays, by the keys of the ``state_dict``. Write to the arrays to train them.
    buffers : dict
        Other tensors of the file.
    hyperparameters : mapping
        Numbers and texts that describe the model, such as the cutoff of a neighbour search.
    """

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, npt.NDArray[np.generic]],
        label: str = "Model",
        dtype: npt.DTypeLike = np.float64,
    ) -> None:
        self._program = program
        self._label = label
        self.name = program.name
        self.inputs: tuple[Input, ...] = program.inputs
        self.outputs = len(program.outputs)
        self.hyperparameters: Mapping[str, Scalar] = MappingProxyType(dict(program.hyperparameters))
        trained = {*program.parameters}
        self.parameters: dict[str, Array] = {
            name: _as_real(tensors[name]) for name in program.parameters
        }
        self.buffers = {name: array for name, array in tensors.items() if name not in trained}
        self._shapes = {name: array.shape for name, array in self.parameters.items()}
        reals = [*self.parameters.values(), *_reals(self.buffers).values()]
        self._dtype = dtype_of(label, reals, dtype)
        self._names = [given.name for given in program.inputs]
        self._cotangents = ["gy"] if self.outputs == 1 else [
            f"gy{place}" for place in range(1, self.outputs + 1)
        ]  # fmt: skip

    def __repr__(self) -> str:
        """Return the class of the model and its inputs as text."""
        count = sum(array.size for array in self.parameters.values())
        return f"Model({self.name}({', '.join(self._names)}), {count} parameters, {self._dtype})"

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """Type of parameters, real inputs and results."""
        return self._dtype

    @eager
    def __call__(
        self,
        *inputs: object,
        parameters: Mapping[str, object] | None = None,
        **named: object,
    ) -> Results:
        """Return the results.

        Parameters
        ----------
        *inputs
            The inputs in their order, or by name.
        parameters : mapping of arrays, optional
            In place of ``model.parameters``, with the same keys, to differentiate by them in JAX.

        Returns
        -------
        array, or a tuple of them if the model has several
        """
        given = self._given(self._label, inputs, named, self._names)
        held = self._parameters(parameters)
        if _of_jax([*given.values(), *held.values()]):
            from . import _jax

            found = _jax.call(self._program, self._label, self._dtype, given, held, self.buffers)
            return cast("Results", found)
        tape = Tape(self._dtype)
        tape.recording = False
        nodes: dict[str, Node] = {}
        outputs = self._run(tape, given, held, {}, (), nodes)
        return _results(
            [node.value for node in outputs],
            [*(node.value for node in nodes.values()), *_reals(self.buffers).values()],
        )

    @eager
    def backward(
        self,
        *inputs_and_gy: object,
        wanted: Collection[str] | None = None,
        parameters: Mapping[str, object] | None = None,
        **named: object,
    ) -> Gradients:
        """Return the gradients of <gy, y> by real inputs and parameters.

        Parameters
        ----------
        *inputs_and_gy
            The inputs, then a cotangent for each result, None for zero; or by name, gy, or gy1, gy2
            and so on for several results.
        wanted : collection of str, optional
            Names of the inputs and parameters whose gradients are computed; by default all.
        parameters : mapping of arrays, optional
            In place of ``model.parameters``.

        Returns
        -------
        dict of arrays, by the names of inputs and parameters
        """
        label = f"{self._label}.backward"
        given = self._given(label, inputs_and_gy, named, [*self._names, *self._cotangents])
        names = self._wanted(label, wanted, ())
        tape = Tape(self._dtype)
        nodes: dict[str, Node] = {}
        outputs = self._run(tape, given, self._parameters(parameters), {}, names, nodes)
        seeds = self._seeds(label, outputs, given)
        found = tape.gradients(seeds, [nodes[name] for name in names], again=False)
        return self._gradients(names, nodes, found, [gy.value for _, gy in seeds])

    @eager
    def jvp(
        self,
        *inputs: object,
        tangents: Mapping[str, Array],
        parameters: Mapping[str, object] | None = None,
        **named: object,
    ) -> Results:
        """Return the derivative of the results in the direction of the tangents.

        Parameters
        ----------
        *inputs
            The inputs, or by name.
        tangents : dict of arrays
            Tangents of real inputs and parameters by name; others are zero.
        parameters : mapping of arrays, optional
            In place of ``model.parameters``.
        """
        label = f"{self._label}.jvp"
        given = self._given(label, inputs, named, self._names)
        self._wanted(label, tangents, (), "tangents")
        tape = Tape(self._dtype)
        tape.recording = False
        outputs = self._run(tape, given, self._parameters(parameters), tangents, ())
        found = [np.zeros_like(o.value) if o.tangent is None else o.tangent for o in outputs]
        return _results(found, [*tangents.values()])

    @eager
    def double_backward(
        self,
        *inputs_and_gy: object,
        cotangents: Mapping[str, Array],
        wanted: Collection[str] | None = None,
        parameters: Mapping[str, object] | None = None,
        **named: object,
    ) -> Gradients:
        """Return the gradients of sum <h, gradient> over gradients of `backward`.

        With the gradient g of an energy by positions, and a loss l(g), ``cotangents={"pos": h}``
        with h the gradient of l by g gives the gradients of the loss by all parameters.

        Parameters
        ----------
        *inputs_and_gy
            As for `backward`.
        cotangents : dict of arrays
            Cotangents h of the gradients by real inputs and parameters, by name; others are zero.
        wanted : collection of str, optional
            Names of inputs, parameters and cotangents of results; by default all.
        parameters : mapping of arrays, optional
            In place of ``model.parameters``.

        Returns
        -------
        dict of arrays, by the names of inputs, parameters and cotangents of results
        """
        label = f"{self._label}.double_backward"
        given = self._given(label, inputs_and_gy, named, [*self._names, *self._cotangents])
        names = self._wanted(label, wanted, self._cotangents)
        seeded = self._wanted(label, cotangents, (), "cotangents")
        tape = Tape(self._dtype)
        nodes: dict[str, Node] = {}
        held = self._parameters(parameters)
        both = dict.fromkeys([*names, *seeded])
        outputs = self._run(tape, given, held, {}, both, nodes)
        seeds = self._seeds(label, outputs, given)
        for name, (_, gy) in zip(self._cotangents, seeds, strict=True):
            gy.needed, nodes[name] = name in names, gy
        gradients = tape.gradients(seeds, [nodes[name] for name in seeded], again=True)
        again = []
        for name, gradient in zip(seeded, gradients, strict=True):
            expected = nodes[name].value.shape
            h = self._checked(f"{label}: cotangents: {name}", cotangents[name], expected)
            if gradient is not None:
                again.append((gradient, Node(h)))
        found = tape.gradients(again, [nodes[name] for name in names], again=False)
        return self._gradients(names, nodes, found, [h.value for _, h in (*seeds, *again)])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, with its parameters as they are."""
        held = self._parameters(None)
        tensors = {**self.buffers, **held}
        for name, other in self._program.tied.items():
            tensors[name] = tensors[other]
        arrays = {name: np.asarray(array) for name, array in tensors.items()}
        _container.write(path, arrays, {"format": "pt", METADATA: self._program.text()})

    def _given(
        self, label: str, given: tuple[object, ...], named: dict[str, object], names: Sequence[str]
    ) -> dict[str, object]:
        """Return all arguments by name."""
        held = by_position(label, names, given, named)
        if named:
            raise TypeError(f"{label}: {next(iter(named))}: there is no such input; expected "
                            f"{', '.join(names)}")  # fmt: skip
        if len(held) != len(names):
            raise TypeError(f"{label}: expected {', '.join(names)}, got {len(held)} arguments")
        return dict(zip(names, held, strict=True))

    def _parameters(self, given: Mapping[str, object] | None) -> Mapping[str, object]:
        held: Mapping[str, object] = self.parameters if given is None else given
        label = f"{self._label}: parameters"
        if held.keys() != self._shapes.keys():
            wrong = sorted(held.keys() ^ self._shapes.keys())[0]
            raise ValueError(f"{label}: expected the keys of the model, got {wrong!r} or lack it")
        for name, shape in self._shapes.items():
            array = held[name]
            found = getattr(array, "shape", None), getattr(array, "dtype", None)
            if found != (shape, self._dtype):
                raise ValueError(
                    f"{label}: {name}: expected {self._dtype} of shape {shape}, "
                    f"got {kind_of(array)} {found[1]} of shape {found[0]}"
                )
        return held

    def _wanted(
        self,
        label: str,
        wanted: Collection[str] | None,
        others: Sequence[str],
        what: str = "wanted",
    ) -> list[str]:
        reals = [given.name for given in self.inputs if given.kind == REAL]
        known = [*reals, *self._shapes, *others]
        if wanted is None:
            return known
        if isinstance(wanted, str):
            raise TypeError(f"{label}: {what}: expected a collection of names, got {wanted!r}")
        for name in wanted:
            if name not in known:
                raise ValueError(f"{label}: {what}: expected names of real inputs and parameters, "
                                 f"got {name!r}")  # fmt: skip
        return [name for name in known if name in wanted]

    def _run(
        self,
        tape: Tape,
        given: Mapping[str, object],
        parameters: Mapping[str, object],
        tangents: Mapping[str, Array],
        wanted: Collection[str],
        nodes: dict[str, Node] | None = None,
    ) -> list[Node]:
        """Return the outputs; `nodes` gets those of inputs and parameters."""
        reals, others = self._arguments(given)
        reals.update({name: _as_real(array) for name, array in parameters.items()})
        held = {} if nodes is None else nodes
        for name, array in reals.items():
            tangent = tangents.get(name)
            if tangent is not None:
                label = f"{self._label}.jvp: tangents: {name}"
                tangent = self._checked(label, tangent, array.shape)
            held[name] = Node(array, tangent, name in wanted)
        values = {name: _two_axes(tape, held[name]) for name in reals}
        for name, tensor in self.buffers.items():
            if tensor.dtype == self._dtype:
                values[name] = _two_axes(tape, Node(_as_real(tensor)))
            elif tensor.dtype.kind == "i":
                others[name] = tensor
        return evaluate(self._program, tape, values, others)

    def _arguments(self, given: Mapping[str, object]) -> tuple[dict[str, Array], dict[str, object]]:
        """Return real inputs, and graphs and indices, after checks."""
        reals: dict[str, Array] = {}
        others: dict[str, object] = {}
        for one in self.inputs:
            label, value = f"{self._label}: {one.name}", given[one.name]
            if one.kind == REAL:
                reals[one.name] = self._checked(label, value, None)
                check_columns(label, reals[one.name].shape, one.columns)
            elif one.kind == INDEX:
                others[one.name] = check_indices(label, value)
        rows = {name: array.shape[0] for name, array in reals.items()}
        rows |= {
            name: len(index) for name, index in others.items() if isinstance(index, np.ndarray)
        }
        for one in self.inputs:
            if one.kind == GRAPH:
                label, value = f"{self._label}: {one.name}", given[one.name]
                others[one.name] = as_graph(label, value, one, rows)
        return reals, others

    def _checked(self, label: str, array: object, shape: tuple[int, ...] | None) -> Array:
        found = check_array(label, array, on_host=True)
        if found.dtype != self._dtype:
            raise TypeError(f"{label}: expected {self._dtype} like the parameters, "
                            f"got {found.dtype}")  # fmt: skip
        if shape is not None and found.shape != shape:
            raise ValueError(f"{label}: expected shape {shape}, got {found.shape}")
        return found

    def _seeds(
        self, label: str, outputs: Sequence[Node], given: Mapping[str, object]
    ) -> list[tuple[Node, Node]]:
        """Return the results with their cotangents."""
        if all(given[name] is None for name in self._cotangents):
            raise TypeError(f"{label}: {self._cotangents[0]}: expected an array, got None")
        seeds = []
        for name, node in zip(self._cotangents, outputs, strict=True):
            gy = given[name]
            gy = np.zeros_like(node.value) if gy is None else gy
            if isinstance(gy, np.floating | float) and node.value.ndim == 0:
                gy = np.asarray(gy, self._dtype)
            seeds.append((node, Node(self._checked(f"{label}: {name}", gy, node.value.shape))))
        return seeds

    def _gradients(
        self,
        names: Sequence[str],
        nodes: Mapping[str, Node],
        found: Sequence[Node | None],
        given: Sequence[Array],
    ) -> Gradients:
        gradients = {
            name: np.zeros_like(nodes[name].value) if node is None else node.value
            for name, node in zip(names, found, strict=True)
        }
        return _distinct(gradients, given)


def _as_real(array: object) -> Array:
    assert isinstance(array, np.ndarray)
    return array


def _reals(tensors: Mapping[str, npt.NDArray[np.generic]]) -> dict[str, Array]:
    return {name: _as_real(array) for name, array in tensors.items() if array.dtype.char in "fd"}


def dtype_of(
    label: str, arrays: Sequence[npt.NDArray[np.generic]], default: npt.DTypeLike
) -> np.dtype[np.floating]:
    """Return the type of all real tensors, the default if there are none."""
    found = {_as_real(array).dtype for array in arrays}
    if len(found) > 1:
        raise ValueError(f"{label}: expected tensors of one precision, got float32 and float64")
    return next(iter(found), cast("Dtype", np.dtype(default)))


def _two_axes(tape: Tape, node: Node) -> Node:
    """Return a tensor as programs see it, a vector or a matrix."""
    shape = node.value.shape
    if len(shape) in (1, 2):
        return node
    return tape.reshape(node, seen(shape))


def seen(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in which programs see a tensor."""
    if not shape:
        return (1,)
    return shape if len(shape) < 3 else (shape[0], int(np.prod(shape[1:])))


def check_columns(label: str, shape: tuple[int, ...], columns: int | None) -> None:
    """Refuse a real input that is no vector, or no matrix of this width."""
    if len(shape) != (1 if columns is None else 2) or (columns is not None and shape[1] != columns):
        expected = "(rows,)" if columns is None else f"(rows, {columns})"
        raise ValueError(f"{label}: expected shape {expected}, got {shape}")


def as_graph(label: str, given: object, one: Input, rows: Mapping[str, int]) -> Graph:
    """Return a graph, made from pairs of nodes if these are given."""
    if isinstance(given, Graph):
        return given
    pairs = np.asarray(given)
    if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.dtype.kind != "i":
        raise TypeError(f"{label}: expected a pyops.Graph or integers of shape (2, num_edges), "
                        f"got {kind_of(given)}")  # fmt: skip
    if not one.num_src or not one.num_dst:
        raise TypeError(f"{label}: expected a pyops.Graph, as no input has a row for each node")
    return Graph(pairs[0], pairs[1], rows[one.num_src], rows[one.num_dst])


def _of_jax(values: Sequence[object]) -> bool:
    """Return whether one of the values is an array of JAX, or its graph."""
    return any(type(value).__module__.startswith(("jax", "pyops.jax")) for value in values)


def _results(arrays: Sequence[Array], given: Sequence[Array]) -> Results:
    """Return arrays in C order that share no memory with each other or with what is given."""
    found: list[Array] = []
    for array in arrays:
        others = [*given, *found]
        if array.base is None:
            shared = any(array is other for other in others)
        else:
            shared = any(np.may_share_memory(array, other) for other in others)
        own = array.flags.c_contiguous and array.flags.writeable and not shared
        found.append(array if own else array.copy())
    return _one_or_all(found)


def _one_or_all(arrays: Sequence[Array]) -> Results:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _distinct(gradients: Gradients, given: Sequence[Array]) -> Gradients:
    """Copy gradients that share memory with each other or with what the caller passed.

    They are in C order and writeable.
    """
    spans: list[tuple[int, int, str]] = []
    for name, array in (*gradients.items(), *(("", array) for array in given)):
        if array.size:
            low, high = np.lib.array_utils.byte_bounds(array)
            spans.append((low, high, name))
    end = 0
    for low, high, name in sorted(spans, key=lambda span: (span[0], span[2])):
        if low < end and name:
            gradients[name] = gradients[name].copy()
        end = max(end, high)
    return {
        name: array if array.flags.carray else array.copy() for name, array in gradients.items()
    }


def load(path: str | os.PathLike[str], dtype: npt.DTypeLike | None = None) -> Model:
    """Read a model from a file that `save` wrote; PyTorch is not needed.

    Parameters
    ----------
    path : path
    dtype : {float32, float64}, optional
        Type to which the tensors are converted; by default they keep their own, and a model without
        tensors takes float64.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the file is no model; the message names file and reason. A file can do nothing but call
        what `pyops.models` lists: it has no code.

    Examples
    --------
    >>> model = pyops.models.load("model.safetensors")  # doctest: +SKIP
    >>> model(graph, x)  # doctest: +SKIP
    """
    tensors, metadata = _container.read(path)
    try:
        if METADATA not in metadata:
            raise ValueError(f"expected a program, {METADATA!r} in the metadata, got none")
        if dtype is not None:
            kind = np.dtype(dtype)
            if kind.char not in "fd":
                raise TypeError(f"pyops.models.load: dtype: expected float32 or float64, "
                                f"got {kind}")  # fmt: skip
            tensors.update({n: array.astype(kind) for n, array in _reals(tensors).items()})
        kinds = {name: _kind(array) for name, array in tensors.items()}
        program = read_program(metadata[METADATA], kinds)
        return Model(program, tensors, dtype=np.float64 if dtype is None else dtype)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _kind(array: npt.NDArray[np.generic]) -> str:
    """Return the kind of a tensor in a program; "none" if no call takes it."""
    if array.dtype.char in "fd":
        return REAL
    is_index = array.dtype.kind == "i" and array.dtype.itemsize in (4, 8) and array.ndim == 1
    return INDEX if is_index else "none"
