"""Fortran API, compiled by each available compiler: nodes against finite differences and Python."""

import itertools
import re
import subprocess

import numpy as np
import pytest

from pyops import Graph
from pyops._call.operator import OPERATORS

from ... import ROOT
from .compilers import COMPILERS, PROGRAMS, Installed, Whole, available, cases

EXAMPLES = ROOT / "examples" / "fortran"
WIDE = ("-fdefault-integer-8",)
"""Programs with 8-byte default integers and logicals, beside modules with 4-byte ones."""
UNCHECKED = {"gfortran": ("-O0", "-fcheck=no-all", "-fno-sanitize=all"), "flang-22": ("-O0",)}
"""Flags that reduce the compile time of long programs."""
pytestmark = pytest.mark.bare
every_program = pytest.mark.parametrize(
    "program", ["originals", "tapes", "misuse", "molecules", "neighbours", "watched"]
)

GRAPH = Graph.from_csc(
    np.array(cases.ADJ_IA) - 1,
    np.array(cases.ADJ_JA)[:, 0] - 1,
    cases.SIZES["num_src"],
    np.array(cases.ADJ_JA)[:, 1] - 1,
)


def log_softmax(x, axis):
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def layer_norm(x, eps):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps)


FORMULAS = {
    "square": lambda x: x * x,
    "signs": lambda x, y, z: -((x + 2 * y - 1 / z) ** 2),
    "leaky": lambda x: np.where(x > 0, x, 0.2 * x),
    "exponential": lambda x: np.where(x > 0, x, 0.2 * np.expm1(x)),
    "matmul": lambda a, b: b @ a,
    "matmul-self": lambda a: a @ a,
    "reshape": lambda x: x.reshape(2, 6),
    "transpose": lambda x: x.T,
    "gather": lambda x: x[[3, 0, 0, 1, 3, 3]],
    "scatter_sum": lambda x: np.stack([x[1] + x[2], 0 * x[0], x[0] + x[3], 0 * x[0]]),
    "matmul_transposed": lambda a, b: b @ a.T,
    "linear": lambda x, weight, bias: x @ weight.T + bias,
    "merge": lambda x, y: np.where([True, False, True], x, y),
    "softmax-1": lambda x: np.exp(log_softmax(x, 1)),
    "softmax-2": lambda x: np.exp(log_softmax(x, 0)),
    "log_softmax-1": lambda x: log_softmax(x, 1),
    "log_softmax-2": lambda x: log_softmax(x, 0),
    "layer_norm": lambda x, weight, bias: layer_norm(x, 0.1) * weight + bias,
    "layer_norm-plain": lambda x: layer_norm(x, 1e-5),
    "concat-1": lambda *x: np.concatenate(x, axis=1),
    "concat-2": lambda *x: np.concatenate(x, axis=0),
    "concat-self": lambda x: np.concatenate([x, x], axis=1),
    "slice-1": lambda x: x[:, 1:3],
    "slice-2": lambda x: x[1:3],
    "clip-both": lambda x: x.clip(-0.4, 0.5),
    "clip-high": lambda x: x.clip(None, 0.1),
    "network": lambda a, b, c, d: np.tanh(c[[1, 1, 0]] @ b + d) @ a,
}
"""Formulas of procedures that are no Python operators; Fortran matrices appear transposed."""


def expanded(sources, variant, *names):
    """Generate the test programs of all operators, in a variant."""
    for name in names:
        target = sources.folder / f"{name}_{variant}.f90"
        sources.expand(PROGRAMS / f"{name}.fypp", target, VARIANT=variant)
        yield target


@pytest.mark.parametrize("variant", ["r8", "r4"])
def test_nodes(build, sources, variant):
    programs = [*expanded(sources, variant, "checking", "operators")]
    for flags in WIDE + UNCHECKED[build.compiler], ():
        build.run(*programs, flags=flags)
        check_written(build.folder / f"{variant}.txt", variant)


def check_written(file, variant):
    """Check the results that a program wrote for every operator against Python."""
    dtype, tolerance = {"r8": (np.float64, 1e-12), "r4": (np.float32, 2e-4)}[variant]
    seen = set()
    for name, arrays in written(file, dtype):
        expected = by_python(name, arrays)
        for what, array in expected.items():
            scale = np.maximum(1, abs(array).max(initial=0))
            error = abs(arrays[what].reshape(array.shape) - array).max(initial=0)
            assert error <= tolerance * scale, (name, what)
        seen.add(name.partition("-")[0])
    renamed = {"max": "maxval", "min": "minval", "where": "merge"}
    assert seen >= {renamed.get(op, op) for op in OPERATORS}


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_kernels_too(sources, compiler, tmp_path):
    """Compile the whole library by each compiler."""
    if compiler not in available():
        pytest.skip(f"no {compiler} here")
    test_nodes(Whole(compiler, sources, tmp_path), sources, "r8")


@pytest.mark.parametrize("wide", [False, True], ids=["", "wide integers"])
@every_program
def test_program(build, program, wide):
    flags = WIDE + UNCHECKED[build.compiler] if wide else ()
    build.run(PROGRAMS / "listening.f90", PROGRAMS / f"{program}.f90", flags=flags)


def test_examples_with_wide_integers(build):
    build.run(EXAMPLES / "gno_conv.f90", flags=WIDE)  # compares its gradient with differences
    for name in "darcy", "burgers":
        build.link(EXAMPLES / f"{name}.f90", flags=WIDE)


def test_kinds(build, sources):
    """Integers and logicals of both kinds in all combinations; none is truncated to 4 bytes."""
    programs = PROGRAMS / "listening.f90", *expanded(sources, "r4", "kinds")
    build.run(*programs, flags=UNCHECKED[build.compiler])


@pytest.mark.parametrize("variant", ["r8", "r4"])
def test_pointers(build, sources, variant):
    """Every gradient can be assigned to a procedure pointer and called by it."""
    programs = expanded(sources, variant, "checking", "pointers")
    build.run(*programs, flags=UNCHECKED[build.compiler])


def run(program, *arguments):
    return subprocess.run(
        [program, *map(str, arguments)], cwd=program.parent, capture_output=True, text=True
    )


def test_mistakes_stop_the_program(build):
    """Errors stop the program, unless a handler continues or the status is checked."""
    programs = PROGRAMS / "listening.f90", PROGRAMS / "misuse.f90"
    program = build.link(*programs, flags=UNCHECKED[build.compiler])
    told = [line.split(" ", 1) for line in run(program).stdout.splitlines()]
    told = [(how == "watched", message.strip()) for how, message in told]
    assert len(told) > 80
    for number in range(len(told)):
        expected = []
        for watched, message in told[number:]:
            expected.append(f"{'' if watched else 'ERROR STOP '}pyops: {message}")
            if not watched:
                break
        done = run(program, number)
        assert [line for line in done.stderr.splitlines() if "pyops: " in line] == expected
        assert done.returncode == 1
        if build.compiler == "gfortran":
            assert re.search(r"misuse\.f90:\d+", done.stderr)  # the source lines of the call stack


def test_watched_errors_are_written_once(build):
    """Only the first error of a tape is printed, not one per step."""
    programs = PROGRAMS / "listening.f90", PROGRAMS / "watched.f90"
    program = build.link(*programs, flags=UNCHECKED[build.compiler])
    lines = run(program).stderr.splitlines()
    assert lines.count("pyops: gno_conv: params: expected shape (40, 1), got (50, 1)") == 1


@every_program
@pytest.mark.skipif("gfortran" not in available(), reason="no gfortran here")
def test_program_of_users(program, tmp_path):
    """A user program compiles with the installed modules and library."""
    Installed(tmp_path).run(PROGRAMS / "listening.f90", PROGRAMS / f"{program}.f90")


def written(file, dtype):
    """Yield name and arrays of each check, in NumPy layout."""
    lines = iter(file.read_text().splitlines())

    def matrix():
        rows, columns = map(int, next(lines).split())
        text = [next(lines).split() for _ in range(columns)]
        return np.array(text, dtype).reshape(columns, rows)

    for line in lines:
        name, count = line.split()
        names = [f"x{i}" for i in range(int(count))]
        arrays = {n: matrix() for n in [*names, "gy", "y"]}
        arrays |= {"g" + n: matrix() for n in names}
        arrays |= {"h" + n: matrix() for n in names}
        arrays |= {n: matrix() for n in [*("d" + n for n in names), "dgy"]}
        yield name, arrays


def by_python(name, arrays):
    """Return the same results by Python, if Python has the operator."""
    inputs = [arrays[n] for n in itertools.takewhile(lambda n: n != "gy", arrays)]
    names = [f"x{i}" for i in range(len(inputs))]
    if name in FORMULAS:
        return {"y": FORMULAS[name](*inputs)}
    base, *words = name.split("-")
    op = OPERATORS[{"maxval": "max", "minval": "min"}.get(base, base)]
    options = {}
    arguments = inputs + [arrays["gy"]] + [arrays["h" + n] for n in names]
    if op.name == op.declaration:
        given = [n for n in op.signature.inputs if f"no_{n}" not in words]
        words = [w for w in words if not w.startswith("no_")]
        declared = op.signature.options.values()
        options = {
            o.name: w == "True" if o.kind is bool else w
            for o, w in zip((o for o in declared if o.choices), words, strict=True)
        }
        sizes = cases.sizes_of(op.signature.sizes)
        options |= {o.name: sizes[o.name] for o in declared if o.is_size}
        if "image" in words:
            options["reverse"] = np.array(cases.REVERSE) - 1
        arguments = fill(op, given, arguments)
        names = [f"x{given.index(n)}" if n in given else "" for n in op.signature.inputs]
    elif base in cases.REDUCTIONS:
        axes = {"1": 1, "2": 0}[words[0]] if words else None
        options = {"axis": axes, "keepdims": True}
    count = len(op.signature.inputs)
    first, middle, last = arguments[:count], arguments[count], arguments[count + 1 :]
    graph = [GRAPH] if op.signature.has_graph else []
    expected = {"y": op(*graph, *first, **options)}
    gradients = op.backward(*graph, *first, middle, **options)
    seconds = op.double_backward(*graph, *first, middle, *last, **options)
    expected |= {"g" + n: g for n, g in zip(names, gradients, strict=True) if n}
    expected |= {"d" + n: g for n, g in zip(names, seconds[:-1], strict=True) if n}
    return expected | {"dgy": seconds[-1]}


def fill(op, given, arguments):
    """Return inputs, gy and cotangents in the declared forms, None for absent ones."""
    forms = [i.forms[-1] for i in op.signature.inputs.values()]

    def complete(arrays):
        held = dict(zip(given, arrays, strict=True))
        return [
            None if n not in held else held[n].ravel() if len(form) == 1 else held[n]
            for n, form in zip(op.signature.inputs, forms, strict=True)
        ]

    n = len(given)
    return [*complete(arguments[:n]), arguments[n], *complete(arguments[n + 1 :])]
