"""pyops.h describes arguments correctly: NULL is accepted wherever the header allows it."""

import ctypes
import inspect
import itertools
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import pyops.__main__
from pyops import Graph, blocks

from ..support import broadcasts
from ..support.cases import OPERATORS, VARIANTS
from ..support.compare import assert_same
from ..support.device_libraries import Kernel, header, prototypes
from ..support.kernels import replaced

LIBRARY = ctypes.CDLL(str(pyops.__main__.library()))
BITS = "present", "given", "wanted"
GRAPHS = "random", "edges without entries", "shared edges"
PROCEDURES = "forward|backward|double_backward|by_sample|attention"
BLOCKS = {m[1]: m[2] for m in re.finditer(r"^/\* (\w+): (.*?)\*/", header(), re.DOTALL | re.M)}


def meanings(declaration):
    """Return the text of each argument of an operator's procedures."""
    table = re.findall(r"^ \* (\w+)  +(.*(?:\n \*   .*)*)", BLOCKS[declaration], re.MULTILINE)
    return {name: " ".join(re.sub(r"\n \* +", " ", text).split()) for name, text in table}


def bits(text, phase):
    """Return the bit of each array in a mask, as its text lists them."""
    (part,) = [p for p in text.split("; ")[1:] if ":" not in p or p.startswith(f"{phase}:")] or [""]
    return {name: int(bit) for bit, name in re.findall(r"(\d+) (\w+)", part)}


class Nulls:
    """Decides which arguments of an operator's procedures are NULL, and records which were."""

    def __init__(self, declaration):
        self.declaration, self.texts, self.met = declaration, meanings(declaration), set()
        self.by_bit = BITS if declaration == "elementwise" else BITS[1:]
        """Masks whose bits determine whether an array is NULL."""

    def phase(self, name):
        return name.removeprefix(f"pyops_{self.declaration}_").rpartition("_")[0]

    def masks(self, name):
        """Return the mask and the bit of each array for which a procedure takes a mask."""
        phase = self.phase(name)
        taken = set(prototypes()[name])
        listed = [
            (mask, *one)
            for mask in BITS
            if mask in taken
            for one in bits(self.texts[mask], phase).items()
        ]
        return {array: (mask, bit) for mask, array, bit in listed if array in taken}

    def allowed(self, name):
        """Return the arguments of a procedure that the header allows to be NULL."""
        masks = self.masks(name)
        found = {n for n in masks if masks[n][0] in self.by_bit and n != "y"}
        found |= {
            n for n in prototypes()[name] if re.search("possibly NULL|Optional", self.texts[n])
        }
        second = self.phase(name).startswith("double_backward")
        return found if second else found - {"gy"}

    def now(self, name, argument, given):
        """Return whether an argument is NULL in a call with these values."""
        mask, bit = self.masks(name).get(argument, (None, 0))
        if mask in self.by_bit:
            return not given[mask] & bit
        if argument == "gy":
            last = self.masks(name).get("dgy", ("", 0))[1]
            return given.get("wanted") == last > 0
        if "if shared_edges is 0" in self.texts[argument]:
            return not given["shared_edges"]
        if "Optional" in self.texts[argument]:
            return not given[mask] & bit if mask else not given[argument].size
        return False


class Bare(Kernel):
    """Procedure of the library called with NULL for all optional arguments."""

    def __init__(self, compiled, nulls):
        name = compiled.symbol
        super().__init__(compiled, getattr(LIBRARY, name), prototypes()[name], None)
        self.name, self.nulls = name, nulls

    def address(self, name, given):
        if self.nulls.now(self.name, name, given):
            self.nulls.met.add((self.name, name))
            return nullcontext()
        return super().address(name, given)


class Hollow(Bare):
    """Procedure of the library called with NULL also for all empty arrays."""

    def address(self, name, given):
        return nullcontext() if not given[name].size else super().address(name, given)


def subsets(names):
    """Yield none of the names, each alone, and all."""
    return dict.fromkeys([(), *((name,) for name in names), tuple(names)])


def calls(problem):
    """Yield every phase with subsets of the cotangents and of the results."""
    signature = problem.op.signature
    graph = [] if problem.graph is None else [problem.graph]
    given = [n for n in signature.inputs if problem.arrays[n] is not None]
    without = problem.having(**{"h" + n: None for n in given})
    yield partial(problem.run, "forward")
    for some in subsets(given):
        yield partial(problem.run, "backward", wanted=some)
        yield partial(problem.having(**{"h" + n: None for n in some}).run, "jvp")
    for some in subsets([*given, "gy"]):
        yield partial(problem.run, "double_backward", wanted=some)
    yield partial(without.run, "double_backward")
    if signature.attention:
        yield partial(problem.run, "forward", return_attention=True)
    if signature.by_sample:
        for some in subsets(given):
            yield partial(problem.run, "backward", per_sample=True, wanted=some)
    if signature.keeps:
        forward = partial(problem.op.forward, *graph, *problem.inputs, **problem.options)
        _, saved = forward()
        yield forward
        for some in subsets(given):
            yield partial(problem.run, "backward", saved=saved, wanted=some)
        for some in subsets([*given, "gy"]):
            yield partial(problem.run, "double_backward", saved=saved, wanted=some)
        yield partial(problem.run, "jvp", saved=saved)
        yield partial(without.run, "double_backward", saved=saved)


def chosen(name):
    """Return cases that cover every choice of an option and every absent input."""
    met = set()
    for case in VARIANTS:
        new = {*case.choices, ("absent", case.absent)} - met
        if case.op == name and new:
            met |= new
            yield case


def arrays(results):
    return [a for r in results for a in (r if isinstance(r, tuple) else (r,))]


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_null(name):
    """Results equal those without NULL, and every argument that may be NULL has been NULL."""
    nulls = Nulls(name)
    graphs = GRAPHS if OPERATORS[name].signature.has_graph else GRAPHS[:1]
    for case, graph, dtype in itertools.product(chosen(name), graphs, (np.float32, np.float64)):
        problem = replace(case, graph=graph).problem().map(dtype)
        for run in calls(problem):
            expected = arrays(run())
            with replaced(problem.op, lambda compiled: Bare(compiled, nulls)):
                assert_same(arrays(run()), expected)
    check_all_met(nulls)


EMPTY = {"nodes": Graph([], [], 0, 0), "edges": Graph([], [], 4, 3)}
EMPTY |= {"destinations": Graph([], [], 4, 0), "sources": Graph([], [], 0, 3)}


@pytest.mark.parametrize("none", EMPTY)
@pytest.mark.parametrize("name", sorted(n for n, op in OPERATORS.items() if op.signature.has_graph))
def test_null_without_elements(name, none):
    for case in chosen(name):
        for run in calls(case.problem(EMPTY[none])):
            expected = arrays(run())
            with replaced(OPERATORS[name], lambda compiled: Hollow(compiled, Nulls(name))):
                assert_same(arrays(run()), expected)


def test_null_of_elementwise():
    nulls = Nulls("elementwise")
    for name, dtype in itertools.product(broadcasts.FUNCTIONS, (np.float32, np.float64)):
        problem = broadcasts.problem(name, "bias", dtype)
        inputs = [*problem.op.signature.inputs]
        runs = [partial(problem.run, phase) for phase in ("forward", "jvp")]
        runs += [partial(problem.run, "backward", wanted=some) for some in subsets(inputs)]
        for number, _ in enumerate(problem.h):
            h = [None if i == number else a for i, a in enumerate(problem.h)]
            run = partial(problem.op.double_backward, *problem.inputs, problem.gy, *h)
            runs += [partial(run, wanted=some) for some in subsets([*inputs, "gy"])]
        for run in runs:
            expected = run()
            with replaced(problem.op, lambda compiled: Bare(compiled, nulls)):
                assert_same(run(), expected)
    check_all_met(nulls)


def check_all_met(nulls):
    pattern = rf"pyops_{nulls.declaration}_({PROCEDURES})(_kept)?_r[48]"
    procedures = [name for name in prototypes() if re.fullmatch(pattern, name)]
    expected = {(name, argument) for name in procedures for argument in nulls.allowed(name)}
    assert nulls.met == expected
    assert expected


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_sizes(name):
    """Each size is described by the arrays that have it, by what it counts or as an option."""
    signature, texts = OPERATORS[name].signature, meanings(name)
    shapes = " ".join(re.findall(r"^\[.*\]", "\n".join(texts.values()), re.MULTILINE))
    sizes = {n for n in re.findall(r"[a-z]\w*", shapes) if texts.get(n, "[")[0] != "["}
    arrays = "|".join([*signature.inputs, "y"])
    for size in sizes - signature.options.keys():
        assert re.match(rf"Number of|Size: .*\bof ({arrays})\b", texts[size]), (size, texts[size])


@pytest.mark.parametrize("pack", [n for n in vars(blocks) if n.startswith("pack_")])
def test_order_of_blocks(pack):
    """The header describes the order of the parts itself, without reference to Python."""
    parameters = inspect.signature(getattr(blocks, pack)).parameters.values()
    parts = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    texts = [t for name in OPERATORS for t in meanings(name).values() if "Parts:" in t]
    found = [t.partition("Parts:")[2] for t in texts]
    assert any(all(re.search(rf"\b{part}\b.*\(", t) for part in parts) for t in found)
    assert not re.search(r"pyops\.\w|``", header().partition("#ifndef")[2])
