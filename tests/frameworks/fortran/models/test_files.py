"""Model files that are malformed: a status and a message with file and reason, never a crash."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from ....support.model_files import write, write_bytes
from ..compilers import command
from .examples import small_model

pytestmark = pytest.mark.bare
HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path):
    """Return a folder in memory, where there is one."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared, prefix="pyops-") as name:
        yield Path(name)


@pytest.mark.parametrize("kind", ["model", "NumPy"])
@pytest.mark.parametrize("files", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_mutated_files(build, folder, kind, files):
    """Of many files with changed bytes each is refused with a reason, or computes."""
    original = folder / "original"
    if kind == "model":
        write(original, *small_model())
    else:
        with original.open("wb") as file:
            np.save(file, np.arange(12.0).reshape(3, 4))
    output = command(build.link(HERE / "mutated.f90"), original, files, folder)
    *outcomes, tensors = map(int, output.split())
    assert sum(outcomes) == files
    assert outcomes[7] > files // 2
    assert {n for n, count in enumerate(outcomes) if count} <= {0, 1, 7}
    assert tensors > files // 100  # some files are as good as before
    assert outcomes[0] > files // 100 or kind == "NumPy"


def header_changes():
    """Yield the message for each change of a header of tensors."""
    entry = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
    yield {"a": entry | {"dtype": "F31"}}, "a: dtype: expected a type of elements, got F31"
    yield {"a": {"dtype": "F32"}}, "a: expected dtype, shape and data_offsets"
    yield {"a": []}, "a: expected dtype, shape and data_offsets"
    lengths = "a: shape: expected a list of at most 32 integers"
    yield {"a": entry | {"shape": 4}}, lengths
    yield {"a": entry | {"shape": [2.0, 2]}}, lengths
    yield {"a": entry | {"shape": [1] * 33}}, lengths
    most = "a: shape: expected lengths from 0, and at most 2**56 elements, got "
    yield {"a": entry | {"shape": [-2, -2]}}, most + "-2"
    yield {"a": entry | {"shape": [2**31, 2**31]}}, most + str(2**31)
    yield {"a": entry | {"shape": [0, 2**57, 2**57]}}, most + str(2**57)
    yield {"a": entry | {"shape": [2**31, 0]}}, most + str(2**31)
    wrong = "a: data_offsets: expected a difference of 16 bytes, got "
    yield {"a": entry | {"data_offsets": [0, 12]}}, wrong + "0 and 12"
    yield {"a": entry | {"data_offsets": [16, 0]}}, wrong + "16 and 0"
    yield {"a": entry | {"data_offsets": [-16, 0]}}, wrong + "-16 and 0"
    yield {"a": entry | {"data_offsets": [0]}}, "a: data_offsets: expected two integers"
    yield {"a": entry | {"data_offsets": [0, 2**63]}}, "a: data_offsets: expected two integers"
    places = ": data_offsets: expected data from {} without holes or overlaps, got {}"
    other = entry | {"data_offsets": [8, 24]}
    yield {"a": entry, "b": other}, "b" + places.format(16, 8)
    yield {"a": other}, "a" + places.format(0, 8)
    yield {"__metadata__": {"format": 1}}, "__metadata__: expected an object of texts"
    yield {"__metadata__": []}, "__metadata__: expected an object of texts"
    yield [], "header: expected an object"
    yield {}, "expected 0 bytes of data, got 16"


def text_changes():
    """Yield texts of headers that are no JSON, and the message for each."""
    yield "{ ", "JSON: expected a key at character 3"
    yield '{"a":1', "JSON: expected a comma or the end at character 7"
    yield '{"a":1}x', "JSON: expected the end at character 8"
    yield "[" * 40 + "]" * 40, "JSON: expected less nesting at character 33"
    yield '{"a":01}', "JSON: expected a number without zeros ahead at character 8"
    yield '{"a":' + "1" * 70 + "}", "JSON: expected a shorter number at character 76"
    yield '{"a":"\\ud800"}', "JSON: expected a pair of surrogates at character 13"
    yield '{"a":"\\x"}', "JSON: expected an escape sequence at character 8"
    yield '{"a":"\x01"}', "JSON: expected a character or the end of a text at character 7"
    yield '{"a":nul}', "JSON: expected a value at character 6"
    twice = '"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}'
    yield f"{{{twice},{twice}}}", "header: expected names that differ, got twice a"


def test_malformed_headers(build, tmp_path):
    compiled = build.link(HERE / "loads.f90")
    expected, files = [], []
    changes = [(json.dumps(header), message) for header, message in header_changes()]
    for number, (text, message) in enumerate([*changes, *text_changes()]):
        file = tmp_path / f"{number}.safetensors"
        write_bytes(file, text.encode(), bytes(16))
        files.append(file)
        expected.append(f"7 load: {shown(file)}: {message}")
    for name, content in {"short": b"1234567", "huge": b"\xff" * 8 + b"{}"}.items():
        files.append(tmp_path / name)
        files[-1].write_bytes(content)
    reason = "expected a file of at least 8 bytes, got 7"
    expected.append(f"7 load: {shown(files[-2])}: {reason}")
    reason = "expected a header of 2 to 2 bytes, got length -1"
    expected.append(f"7 load: {shown(files[-1])}: {reason}")
    assert command(compiled, "tensors", *files).splitlines() == expected


def shown(path):
    """Return a path as messages show it."""
    text = str(path)
    return text if len(text) <= 120 else "..." + text[-120:]


def changed(tensors, made, path, value):
    """Return a program in which the value at a path of keys is another; None removes it."""
    made = json.loads(json.dumps(made))
    place = made
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return tensors, made


PROGRAM_CHANGES = [
    (["version"], 2, "version: expected 1, got 2"),
    (["version"], None, "version: expected 1"),
    (["more"], 1, "expected known keys, each once, got more"),
    (["steps"], {}, "steps: expected a list"),
    (["tied"], {"w": "b"}, "tied: expected tensors of the same size and type, got w"),
    (["outputs"], [], "outputs: expected at least one"),
    (["outputs"], ["i"], "outputs: expected names of real values, got i"),
    (["parameters"], ["w", "w"], "parameters: expected names of real tensors, each once, got w"),
    (["parameters"], ["i"], "parameters: expected names of real tensors, each once, got i"),
    (["inputs", 0, "kind"], "tensor", "inputs[0]: kind: expected real, index or graph"),
    (["inputs", 0, "name"], "w", "inputs[0]: name: expected a new name, got w"),
    (["inputs", 0, "more"], 1, "inputs[0]: expected known keys, each once, got more"),
    (
        ["inputs", 0, "columns"],
        -1,
        "inputs[0]: columns: expected a number from 0, or null, of a real input",
    ),
    (["steps", 0, "call"], "lin", "steps[0]: call: expected a known one, got lin"),
    (["steps", 0, "result"], "x", "steps[0]: linear: result: expected a new name, got x"),
    (["steps", 0, "result"], "", "steps[0]: linear: result: expected a new name, got "),
    (["steps", 0, "graph"], "x", "steps[0]: linear: graph: expected none, got x"),
    (["steps", 0, "more"], 1, "steps[0]: expected known keys, each once, got more"),
    (
        ["steps", 0, "inputs", "x"],
        "c",
        "steps[0]: linear: x: expected the name of a real matrix, got c",
    ),
    (
        ["steps", 0, "inputs", "x"],
        "b",
        "steps[0]: linear: x: expected the name of a real matrix, got b",
    ),
    (["steps", 0, "inputs", "x"], None, "steps[0]: linear: inputs: expected x"),
    (
        ["steps", 0, "inputs", "z"],
        "x",
        "steps[0]: linear: inputs: expected known ones, each once, got z",
    ),
    (
        ["steps", 1, "options", "negative_slope"],
        "a",
        "steps[1]: leaky_relu: negative_slope: expected a number, got a",
    ),
    (
        ["steps", 1, "options", "slope"],
        1,
        "steps[1]: leaky_relu: options: expected known ones, each once, got slope",
    ),
    (
        ["steps", 2, "inputs", "x2"],
        "b",
        "steps[2]: concat: inputs: expected all matrices or all vectors",
    ),
    (
        ["steps", 2, "inputs", "x4"],
        "x",
        "steps[2]: concat: inputs: expected known ones, each once, got x4",
    ),
    (["steps", 2, "options", "axis"], 2, "steps[2]: concat: axis: expected 0, 1 or -1, got 2"),
    (["steps", 2, "options", "axis"], None, "steps[2]: concat: options: expected axis"),
    (
        ["steps", 5, "inputs", "index"],
        "x",
        "steps[5]: gather: index: expected the name of an index vector, got x",
    ),
    (
        ["steps", 6, "options", "shape"],
        [-1, -1],
        "steps[6]: reshape: shape: expected one or two lengths, of which one may be -1, got a list",
    ),
    (
        ["steps", 7, "options", "hidden"],
        0,
        "steps[7]: gno_kernel: hidden: expected an integer from 1 to 2147483647, got 0",
    ),
    (
        ["steps", 7, "options", "hidden"],
        2.5,
        "steps[7]: gno_kernel: hidden: expected an integer from 1 to 2147483647, got 2.5",
    ),
    (
        ["steps", 7, "options", "activation"],
        "elu",
        "steps[7]: gno_kernel: activation: expected relu, silu, gelu, tanh, got elu",
    ),
    (
        ["steps", 8, "options", "keepdims"],
        1,
        "steps[8]: mean: keepdims: expected true or false, got 1",
    ),
]


def test_malformed_programs(build, tmp_path):
    """Messages name the step, what it calls, the argument or option, and what was expected."""
    compiled = build.link(HERE / "loads.f90")
    files, expected = [], []
    for number, (path, value, message) in enumerate(PROGRAM_CHANGES):
        files.append(tmp_path / f"{number}.safetensors")
        write(files[-1], *changed(*small_model(), path, value))
        expected.append(f"7 load: {shown(files[-1])}: {message}")
    files.append(tmp_path / "none.safetensors")
    write(files[-1], small_model()[0])
    reason = "expected a program, the entry pyops.model of the metadata"
    expected.append(f"7 load: {shown(files[-1])}: {reason}")
    files.append(tmp_path / "mixed.safetensors")
    tensors, made = small_model()
    write(files[-1], tensors | {"b": tensors["b"].astype(float)}, made)
    reason = "expected tensors of one precision, got float32 and float64"
    expected.append(f"7 load: {shown(files[-1])}: {reason}")
    files.append(tmp_path / "good.safetensors")
    write(files[-1], *small_model())
    expected.append("0")
    assert [line.rstrip() for line in command(compiled, *files).splitlines()] == [
        line.rstrip() for line in expected
    ]
