"""Models in Fortran and C: every call against Python, and what programs can ask of a model."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .... import ROOT
from ....mutants.fault_sites import OPERATORS
from ....support.model_files import program, read, write
from ..compilers import FORTRAN, PROGRAMS, command
from ..test_nodes import UNCHECKED, WIDE
from .examples import DST, SRC, all_cases, small_model

pytestmark = pytest.mark.bare
HERE = Path(__file__).parent
TYPES = {"r8": (np.float64, 1e-12), "r4": (np.float32, 1e-5)}


def write_inputs(path, graph, inputs, **more):
    """Write the file of inputs that the program `models` reads."""
    tensors = {f"{'index' if a.dtype.kind == 'i' else 'input'}:{n}": a for n, a in inputs.items()}
    if graph is not None:
        tensors |= {"graph:" + graph[0]: np.stack(graph[1:3]).astype(np.int64)}
        tensors |= {"sizes:" + graph[0]: np.array(graph[3:], np.int64)}
    write(path, {**tensors, **more})


@pytest.fixture(scope="module", params=["r8", "r4"])
def runner(request, build, sources, tmp_path_factory):
    """Return a program that runs models in one precision, compiled with all checks."""
    target = sources.folder / f"models_{request.param}.f90"
    sources.expand(HERE / "run.fypp", target, VARIANT=request.param)
    return request.param, build.link(target)


def differences(program, *files):
    """Run models; return the differences by number of the model and name."""
    output = command(program, *files)
    return {tuple(words[:2]): float(words[2]) for words in map(str.split, output.splitlines())}


def test_every_call(runner, tmp_path):
    """Each operator, function and other call against Python."""
    variant, compiled = runner
    dtype, tolerance = TYPES[variant]
    names, files, calls = [], [], set()
    for number, (name, (made, inputs, expected)) in enumerate(all_cases(), start=1):
        calls |= {step["call"] for step in made["steps"]}
        files += [tmp_path / f"{number}.model", tmp_path / f"{number}.inputs"]
        write(files[-2], {}, made)
        arrays = {n: a.astype(dtype) if a.dtype.kind == "f" else a for n, a in inputs.items()}
        kinds = {i["name"]: i["kind"] for i in made["inputs"]}
        graph = ("g", SRC, DST, 5, 4) if "graph" in kinds.values() else None
        write_inputs(
            files[-1],
            graph,
            {n: a for n, a in arrays.items() if n in kinds},
            y=np.asarray(expected, dtype),
        )
        names.append(name)
    found = differences(compiled, *files)
    wrong = {n: d for n in names for d in [found[str(names.index(n) + 1), "y"]] if d > tolerance}
    assert not wrong
    assert len(found) == len(names)
    assert calls == table_of_calls()


def table_of_calls():
    """Return the names of all calls that the Fortran sources know."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]; import model_calls;"
        "print(*(c.name for c in model_calls.Table(sys.argv[3]).calls))"
    )
    tables = FORTRAN, ROOT / "pyops"
    return {*command(sys.executable, "-c", code, *tables, ",".join(OPERATORS)).split()}


@pytest.mark.parametrize("wide", [False, True], ids=["", "wide integers"])
def test_handles(build, wide):
    """What programs can ask of a model and set, what they save, and their mistakes."""
    rng = np.random.default_rng(0)
    weight, bias = rng.random((2, 3), np.float32), rng.random(2, np.float32)
    tensors = {"weight": weight, "bias": bias, "half": np.array([0.5, -2], np.float16)}
    tensors |= {"bytes": np.array([1, 255], np.uint8), "copy": weight}
    steps = [("h", "linear", {"x": "x", "weight": "weight", "bias": "bias"})]
    steps += [("y", "tanh", {"x": "h"})]
    settings = {"cutoff": 0.30000000000000004, "count": 12, "flag": True, "text": 'say "é"'}
    made = program(
        [("x", "real", {"columns": 3})],
        steps,
        ["weight", "bias"],
        ["y", "h"],
        hyperparameters=settings,
        tied={"copy": "weight"},
    )
    write(build.folder / "model.safetensors", tensors, made)
    matrix = np.arange(1.0, 7).reshape(2, 3)
    np.save(build.folder / "matrix.npy", matrix)
    np.save(build.folder / "by_columns.npy", np.asfortranarray(matrix))
    flags = WIDE + UNCHECKED[build.compiler] if wide else ()
    build.run(PROGRAMS / "listening.f90", HERE / "handles.f90", flags=flags)
    saved = read(build.folder / "saved.safetensors")
    assert np.array_equal(saved["weight"], weight + 1)
    assert np.array_equal(saved["copy"], weight + 1)
    assert np.array_equal(saved["bias"], bias)
    first = (build.folder / "model.safetensors").read_bytes()
    again = (build.folder / "saved.safetensors").read_bytes()
    assert len(first) == len(again)
    assert not [*build.folder.glob("*.new")]


def test_in_c(build, sources, tmp_path):
    """A program in C, with the prototypes of the header, computes and trains."""
    if build.compiler != "gfortran":
        pytest.skip("the header is the same")
    header = FORTRAN / "header" / "write.py"
    written = sources.folder / "model_c.f90"
    command(sys.executable, header, "0", tmp_path / "pyops.h", ROOT / "pyops", written)
    tensors, made = small_model()
    write(tmp_path / "model.safetensors", tensors, made)
    source = HERE / "model.c"
    flags = "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{tmp_path}"
    command("gcc", *flags, "-fsanitize=address", "-c", source, "-o", tmp_path / "model.o")
    compiled = tmp_path / "model"
    objects = *build.objects, tmp_path / "model.o", *build.library
    command(build.compiler, *build.flags, *objects, "-o", compiled)
    done = subprocess.run([compiled], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["gradients", "right"]
    trained = read(tmp_path / "trained.safetensors")
    assert np.array_equal(trained["w"], tensors["w"])
    assert not np.array_equal(trained["b"], tensors["b"])
    assert re.search("steps|expected", done.stderr)
