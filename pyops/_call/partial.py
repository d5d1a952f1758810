"""Single gradients of the Fortran interface from plain arrays, with checks."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING

import numpy as np

from .. import _kernels
from .._schema import Input, show_shape
from .arrays import VARIANTS, check_array, plain
from .indices import Indices, check_integers
from .plan import Slot, solve_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .operator import Operator
    from .types import Array

_MOST = 10


@functools.cache
def words_of(op: str) -> list[str]:
    """Return the sizes and choices in `indices`, which follow adj_ia if there is a graph."""
    letters = getattr(_kernels.pyops_partials, f"{op}_indices")()
    return bytes(letters.tolist()).decode().split()


def _integers(label: str, values: object, ndim: int) -> Indices:
    array = check_integers(label, values)
    if array.size == 0 and array.ndim == 1:
        array = np.empty((0,) + (2,) * (ndim - 1), np.int32)
    if array.ndim != ndim:
        axes = "one dimension" if ndim == 1 else "two columns"
        raise ValueError(f"{label}: expected {axes}, got shape {array.shape}")
    if array.size and not 0 <= array.min() <= array.max() < 2**31:
        raise ValueError(
            f"{label}: expected numbers from 0 to 2**31 - 1, got {array.min()} to {array.max()}"
        )
    return np.ascontiguousarray(array, np.int32)


def _rows_and_columns(array: Array) -> tuple[int, int]:
    """Return the shape in Fortran order."""
    rows = int(np.prod(array.shape[1:])) if array.ndim > 1 else len(array)
    return rows, len(array) if array.ndim > 1 else 1


class Partial:
    """One of the procedures: the gradient of an operator by one of its inputs."""

    def __init__(self, op: Operator, number: int, called: str) -> None:
        self.op, self.number, self.called = op, number, called
        self.declared = op.signature
        self.inputs = list(op.signature.inputs.values())
        self.name = self.inputs[number].name
        names = ["upstream_grad", *op.signature.inputs, "indices"]
        names += ["adj_ja"] * op.signature.has_graph
        kind = inspect.Parameter
        self.__signature__ = inspect.Signature(
            [kind(n, kind.POSITIONAL_OR_KEYWORD) for n in names]
            + [kind("per_sample", kind.KEYWORD_ONLY, default=False)]
        )
        self.names = names

    def __call__(self, *arguments: object, **keywords: object) -> Array:
        try:
            given = self.__signature__.bind(*arguments, **keywords).arguments
        except TypeError as error:
            raise TypeError(f"{self.called}: expected {', '.join(self.names)}: {error}") from None
        per_sample = given.get("per_sample", False)
        if not isinstance(per_sample, (bool, np.bool_)):
            raise TypeError(
                f"{self.called}: per_sample: expected True or False, got {per_sample!r}"
            )
        if per_sample and self.name not in self.declared.by_sample:
            raise ValueError(
                f"{self.called}: per_sample: expected False, there are no such gradients"
            )
        upstream = self._checked("upstream_grad", given["upstream_grad"], None)
        arrays = [
            None
            if given[i.name] is None and i.optional
            else self._checked(i.name, given[i.name], i, upstream)
            for i in self.inputs
        ]
        either = self.declared.one_of
        if either and all(given[n] is None for n in either):
            raise ValueError(f"{self.called}: expected {' or '.join(either)}, got neither")
        this = arrays[self.number]
        if this is None:
            raise ValueError(f"{self.called}: {self.name}: expected an array, got None")
        indices = _integers(f"{self.called}: indices", given["indices"], 1)
        pairs: Indices = np.empty((0, 2), np.int32)
        if self.declared.has_graph:
            pairs = _integers(f"{self.called}: adj_ja", given["adj_ja"], 2)
            if pairs.shape[1] != 2:
                raise ValueError(
                    f"{self.called}: adj_ja: expected two columns, got shape {pairs.shape}"
                )
        self._check(upstream, arrays, indices, pairs)
        output = np.empty((len(upstream), this.size) if per_sample else this.shape, upstream.dtype)
        self._call(upstream, arrays, indices, pairs, output)
        return output

    def _checked(
        self, name: str, array: object, declared: Input | None, like: Array | None = None
    ) -> Array:
        """Check that an array has the declared rank and the dtype of another."""
        label = f"{self.called}: {name}"
        found = plain(check_array(label, array))
        if like is not None and found.dtype.char != like.dtype.char:
            raise TypeError(f"{label}: expected {like.dtype} like upstream_grad, got {found.dtype}")
        form = self.declared.output if declared is None else declared.forms[-1]
        if found.ndim != len(form):
            raise ValueError(
                f"{label}: expected shape {show_shape(form, {})}, got shape {found.shape}"
            )
        return found

    def _check(
        self, upstream: Array, arrays: Sequence[Array | None], indices: Indices, pairs: Indices
    ) -> None:
        """Refuse inconsistent shapes and indices."""
        words = words_of(self.op.name)
        options = {w: self.declared.options[w] for w in words if w in self.declared.options}
        choices = [w for w, o in options.items() if not o.is_size]
        left_out = [w for w in choices if options[w].default is not inspect.Parameter.empty]
        known: dict[str, int] = {}
        start = 0
        if self.declared.has_graph:
            start = 1 + self._destinations(upstream, len(indices) - len(words))
            known = {"num_dst": start - 1, "num_entries": len(pairs)}
        if not start + len(words) - len(left_out) <= len(indices) <= start + len(words):
            held = [f"adj_ia with {start} offsets"] * self.declared.has_graph + words
            but = f", of which {', '.join(left_out)} may be left out" if left_out else ""
            raise ValueError(
                f"{self.called}: indices: expected {', '.join(held) or 'nothing'}{but}, "
                f"got {len(indices)} numbers"
            )
        said = {w: int(n) for w, n in zip(words, indices[start:], strict=False)}
        chosen = {w: self._choice(w, said[w]) for w in choices if w in said}
        values = {n: o.default for n, o in self.declared.options.items()} | chosen
        sizes = {w: n for w, n in said.items() if w not in choices}
        for word, number in sizes.items():
            least = options[word].bounds.least if word in options else 1
            if number < least:
                raise ValueError(
                    f"{self.called}: indices: {word}: expected at least {least}, got {number}"
                )
        known |= {w: n for w, n in sizes.items() if w in options}
        if self.declared.has_graph:
            self._default_sizes(arrays, pairs, known)
        slots = [Slot(i.name, i.name, (i.forms[-1],), "input") for i in self.inputs]
        slots.append(Slot("gy", "upstream_grad", (self.declared.output,), "gy"))
        solve_sizes(self.declared, self.called, slots, [*arrays, upstream], values, known)
        for word, number in sizes.items():
            if known[word] != number:
                raise ValueError(
                    f"{self.called}: indices: {word}: expected {known[word]} as arrays have it, "
                    f"got {number}"
                )
        if self.declared.has_graph:
            self._check_graph(indices[:start], pairs, known)

    def _destinations(self, upstream: Array, rest: int) -> int:
        if self.declared.output[0].text == "num_dst":
            return len(upstream)
        return max(0, rest - 1)

    def _choice(self, word: str, number: int) -> object:
        """Return the choice that a number in `indices` stands for."""
        option = self.declared.options[word]
        ours = {i.choice for i in self.declared.indexed.values() if i.option == word}
        low, high = (0, 1) if option.kind is bool else (1, len({*option.choices} - ours))
        if not low <= number <= high:
            raise ValueError(
                f"{self.called}: indices: {word}: expected a number from {low} to {high}, "
                f"got {number}"
            )
        return bool(number) if option.kind is bool else option.choices[number - 1]

    def _default_sizes(
        self, arrays: Sequence[Array | None], pairs: Indices, known: dict[str, int]
    ) -> None:
        """Set the numbers of nodes and edges that no operand determines, as Fortran does."""
        held = {
            size.text
            for i, a in zip(self.inputs, arrays, strict=True)
            if a is not None
            for size in i.forms[-1]
        }
        if "num_src" not in held:
            known["num_src"] = max(known["num_dst"], int(pairs[:, 0].max(initial=0)))
        if "num_edges" not in held:
            known["num_edges"] = int(pairs[:, 1].max(initial=0))

    def _check_graph(self, adj_ia: Indices, pairs: Indices, known: Mapping[str, int]) -> None:
        steps = np.diff(adj_ia)
        if adj_ia[0] != 1 or adj_ia[-1] != len(pairs) + 1 or (steps < 0).any():
            raise ValueError(
                f"{self.called}: indices: expected adj_ia from 1 to {len(pairs) + 1}, one more "
                f"than the entries of adj_ja, that does not decrease, got {adj_ia[0]} to "
                f"{adj_ia[-1]}"
            )
        for column, (what, size) in enumerate((("nodes", "num_src"), ("edges", "num_edges"))):
            numbers = pairs[:, column]
            wrong = (numbers < 1) | (numbers > known[size])
            if wrong.any():
                entry = int(wrong.argmax())
                raise ValueError(
                    f"{self.called}: adj_ja: expected {what} from 1 to {known[size]}, got "
                    f"{numbers[entry]} in row {entry}"
                )

    def _call(
        self,
        upstream: Array,
        arrays: Sequence[Array | None],
        indices: Indices,
        pairs: Indices,
        output: Array,
    ) -> None:
        shapes = np.full((_MOST + 2, 2), -1, np.int64)
        slots = [*arrays, *[None] * (_MOST - len(arrays)), upstream, output]
        for k, array in enumerate(slots):
            if array is not None:
                shapes[k] = _rows_and_columns(array)
        nothing = np.zeros(1, upstream.dtype)
        variant = VARIANTS[upstream.dtype.char]
        status = getattr(_kernels.pyops_partials, f"{self.op.name}_{variant}")(
            self.number + 1,
            len(indices),
            len(pairs),
            shapes.T,
            np.append(indices, np.int32(0)),
            np.concatenate([pairs, np.zeros((1, 2), np.int32)]).T,
            *(nothing if a is None or not a.size else a.reshape(-1) for a in slots[:-1]),
            output.reshape(-1) if output.size else nothing,
        )
        if status == 1:
            raise MemoryError(f"{self.called}: not enough memory")
        if status:
            raise ValueError(f"{self.called}: expected shapes and indices that fit together")
