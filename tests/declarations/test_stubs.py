"""Signatures, types and docstrings as editors and type checkers see them, in the stubs.

The tests share the signatures that stubs are compared with, so they are one file.
"""

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import jedi
import pytest

import pyops
from pyops import _kernels
from pyops._call.compound import COMPOUNDS
from pyops._call.operator import OPERATORS
from pyops._call.several import CHOICE, Several

pytestmark = pytest.mark.bare
PACKAGE = Path(pyops.__file__).parent
EVERY = OPERATORS | COMPOUNDS
KINDS = {str(inspect.signature(op)): name for name, op in EVERY.items()}.values()
"""One operator of each signature."""
PHASES = "__call__", "forward", "backward", "double_backward", "jvp"
FRAMEWORKS = {"torch": "tensor", "jax": "of_jax"}
EXTRA = {"return_attention", "precision"}
"""Options that are not in the signatures at run time."""
LAYERS = [
    alias.name
    for node in ast.parse((PACKAGE / "torch" / "nn" / "__init__.py").read_text()).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if alias.asname == alias.name
]
HEAD = """\
from typing import Any

import jax
import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import assert_type

import pyops
import pyops.jax
import pyops.torch
from pyops.cuda import DeviceGraph

class OnDevice:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

def calls(
    graph: pyops.Graph,
    array: NDArray[np.float64],
    single: NDArray[np.float32],
    tensor: torch.Tensor,
    of_jax: jax.Array,
    there: DeviceGraph,
    on_device: OnDevice,
) -> None:
"""


def method(op, phase):
    return op if phase == "__call__" else getattr(op, phase)


def of_phase(op, phase):
    """Return the signature of a call, with its keywords, or of a phase."""
    return inspect.signature(op.forward if phase == "__call__" else getattr(op, phase))


def same(function, signature):
    """Return whether the parameters of a function in a stub are those of a signature."""
    held = function.args
    places = [a.arg for a in held.args if a.arg != "self"]
    defaults = dict(zip(places[::-1], held.defaults[::-1], strict=False))
    names = [a.arg for a in held.kwonlyargs]
    defaults |= {n: d for n, d in zip(names, held.kw_defaults, strict=True) if d is not None}
    parameters = signature.parameters.values()
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    found = {n: ast.literal_eval(d) for n, d in defaults.items() if n not in {*EXTRA, "wanted"}}
    expected = {p.name: p.default for p in parameters if p.default is not p.empty}
    expected.pop("wanted", None)
    kinds = {a.arg: ast.unparse(a.annotation) for a in held.kwonlyargs if a.annotation}
    if kinds.get(CHOICE, "").startswith("tuple["):  # of several results, without a default
        expected.pop(CHOICE)
    return (
        [*places, *(n for n in names if n not in EXTRA)] == [*signature.parameters]
        and [n for n in names if n not in EXTRA] == keywords
        and found == expected
        and not held.vararg
        and not held.kwarg
    )


def functions(body, name):
    return [f for f in body if isinstance(f, ast.FunctionDef) and f.name == name]


def syntax(package):
    return ast.parse((PACKAGE / package / "__init__.pyi").read_text()).body


def test_stubs_are_those_of_the_declarations():
    """Every overload of the stub has the parameters of the signature at run time."""
    classes = {c.name: c for c in syntax("") if isinstance(c, ast.ClassDef)}
    for name, op in EVERY.items():
        for phase in PHASES:
            found = functions(classes[f"_{name}"].body, phase)
            assert found
            assert all(same(f, of_phase(op, phase)) for f in found), (name, phase)


@pytest.mark.parametrize("package", FRAMEWORKS)
def test_stubs_of_frameworks(package):
    body = syntax(package)
    for name, op in EVERY.items():
        found = functions(body, name)
        assert len(found) == 1 + (op.signature.attention is not None) + isinstance(op, Several)
        assert all(same(f, inspect.signature(op)) for f in found), name


def test_stub_of_the_kernels():
    """Procedures, their parameters and whether they return a result are those of f2py."""
    heads = {}
    for name in dir(_kernels):
        module = getattr(_kernels, name)
        for procedure in dir(module) if name.startswith("pyops_") else ():
            if not procedure.startswith("_") and name != "pyops_partials":
                head, _, _ = getattr(module, procedure).__doc__.partition("\n")
                result, _, call = head.rpartition(" = ")
                heads[name, procedure] = bool(result), re.findall(r"\w+", call)[1:]
    stub = ast.parse((PACKAGE / "_kernels.pyi").read_text())
    assert heads == {
        (c.name, f.name): (ast.unparse(f.returns) != "None", [a.arg for a in f.args.args])
        for c in stub.body
        if isinstance(c, ast.ClassDef)
        for f in c.body
    }


@pytest.mark.parametrize("package", ["", *FRAMEWORKS])
def test_public_names(package):
    """Names that a package exports are those of its stub."""
    imported = ast.parse((PACKAGE / package / "__init__.py").read_text()).body
    names = {a.asname for n in imported if isinstance(n, ast.ImportFrom) for a in n.names}
    names = {n for n in names if not n.startswith("_")} | EVERY.keys()
    body = syntax(package)
    found = {f.name for f in body if isinstance(f, ast.FunctionDef)}
    found |= {a.asname for n in body if isinstance(n, ast.ImportFrom) for a in n.names if a.asname}
    found |= {n.target.id for n in body if isinstance(n, ast.AnnAssign)} - {"__version__"}
    assert found == names


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    """Other processes would read what this one is writing."""
    jedi.settings.cache_directory = str(tmp_path_factory.mktemp("jedi"))


def signatures(text):
    """Return what jedi shows behind a parenthesis."""
    root = str(PACKAGE.parent)
    project = jedi.Project(root, sys_path=[root, *sys.path], smart_sys_path=False)
    environment = jedi.InterpreterEnvironment()
    imports = "import pyops, pyops.jax, pyops.torch, pyops.torch.nn\n"
    return jedi.Script(
        f"{imports}{text}(", project=project, environment=environment
    ).get_signatures()


def shown(signature):
    """Return the names of the parameters that jedi shows, but for the star."""
    return [p.name for p in signature.params if p.name not in EXTRA]


def test_jedi_shows_operators():
    for name, op in EVERY.items():
        for phase in PHASES:
            text = f"pyops.{name}" if phase == "__call__" else f"pyops.{name}.{phase}"
            first, *others = signatures(text)
            summary = inspect.getdoc(method(op, phase)).split("\n\n")[phase == "__call__"]
            for signature in first, *others:
                assert shown(signature) == [*of_phase(op, phase).parameters], text
                assert summary in signature.docstring(raw=True)
            for p in first.params:
                if p.name not in {*op.signature.options, "accumulate", "return_attention"}:
                    continue
                assert re.search(r": (int|float|bool|Literal)", p.to_string()), text


@pytest.mark.parametrize("package", FRAMEWORKS)
def test_jedi_shows_functions_of_frameworks(package):
    for name, op in EVERY.items():
        for signature in signatures(f"pyops.{package}.{name}"):
            assert shown(signature) == [*inspect.signature(op).parameters]
            assert op.__doc__ in signature.docstring(raw=True)


@pytest.mark.parametrize("name", LAYERS)
def test_jedi_shows_layers(name):
    (signature,) = signatures(f"pyops.torch.nn.{name}")
    doc, open_ended = signature.docstring(raw=True), inspect.Parameter.VAR_KEYWORD
    names = [p.name for p in signature.params if p.kind is not open_ended]
    assert names or "\n    Parameters\n" not in doc
    assert [
        n for n in names if not re.search(rf"^(.*, )?{n}(, .*)?( : |$)", doc, re.MULTILINE)
    ] == []


def pyright(folder, lines):
    """Return the rules that pyright reports, by line, in a function of these lines."""
    for library, kind in ("torch", "Tensor"), ("jax", "Array"):
        (folder / "typings" / library).mkdir(parents=True)
        (folder / "typings" / library / "__init__.pyi").write_text(f"class {kind}: ...\n")
    (folder / "program.py").write_text(HEAD + "".join(f"    {line}\n" for line in lines))
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(PACKAGE.parent)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    words = "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)
    start, found = HEAD.count("\n"), {}
    for message in json.loads(done.stdout)["generalDiagnostics"]:
        if message["severity"] == "error":
            line = message["range"]["start"]["line"] - start
            found.setdefault(lines[line] if line >= 0 else HEAD, set()).add(message["rule"])
    return found


def given(op, signature, array, graph="graph", **replaced):
    """Return the arguments of a call, by name: all that are required and those replaced."""
    values = dict.fromkeys(op.signature.one_of[:1], array)
    for p in signature.parameters.values():
        if p.default is p.empty:
            values[p.name] = array if p.kind is not p.KEYWORD_ONLY else "3"
    values |= {"graph": graph} if "graph" in values else {}
    return ", ".join(f"{n}={v}" for n, v in (values | replaced).items() if v)


def placed(signature, absent=()):
    """Return all arguments by position, and the options that are required by name."""
    values = []
    for p in signature.parameters.values():
        if p.kind is not p.KEYWORD_ONLY:
            values.append("graph" if p.name == "graph" else "None" if p.name in absent else "array")
        elif p.default is p.empty:
            values.append(f"{p.name}=3")
    return ", ".join(values)


def tuple_of(*types):
    return f"tuple[{', '.join(types)}]"


def right():
    """Yield lines that are correct, with the types of their results."""
    for name, op in ((name, EVERY[name]) for name in KINDS):
        inputs, results = op.signature.inputs, op.signature.results
        one = "NDArray[np.float64]"
        gradients = [one + " | None" * i.optional for i in inputs.values()]
        y = tuple_of(*[one] * len(results)) if len(results) > 1 else one
        types = {
            "__call__": y,
            "forward": tuple_of(y, tuple_of(one, "...")),
            "backward": tuple_of(*gradients),
            "double_backward": tuple_of(*gradients, *[one] * len(results)),
            "jvp": y,
        }
        for phase, expected in types.items():
            call = f"pyops.{name}" + f".{phase}" * (phase != "__call__")
            signature = of_phase(op, phase)
            optional = {n: "array" for n, i in inputs.items() if i.optional}
            unused = {*optional, *(tag + n for n in inputs for tag in "ht")} - {
                *op.signature.one_of[:1]
            }
            for arguments in (
                given(op, signature, "array"),
                given(op, signature, "array", **optional),
                placed(signature),
                placed(signature, unused),
                given(op, signature, "array", accumulate="True", out="None"),
            ):
                yield f"assert_type({call}({arguments}), {expected})"
            yield f"assert_type({call}({given(op, signature, 'on_device', 'there')}), Any)"
            if "wanted" in signature.parameters:
                some = [f"{one} | None"] * (expected.count(one))
                arguments = given(op, signature, "array", wanted=str((next(iter(inputs)),)))
                yield f"assert_type({call}({arguments}), {tuple_of(*some)})"
        call = given(op, inspect.signature(op), "single")
        yield f"assert_type(pyops.{name}({call}), {y.replace('64', '32')})"
        for option in op.signature.options.values():
            for choice in option.choices:
                arguments = given(op, inspect.signature(op), "array", **{option.name: repr(choice)})
                yield f"pyops.{name}({arguments})"
        for package, array in FRAMEWORKS.items():
            kind = {"torch": "torch.Tensor", "jax": "jax.Array"}[package]
            y = tuple_of(*[kind] * len(results)) if len(results) > 1 else kind
            arguments = given(op, inspect.signature(op), array)
            yield f"assert_type(pyops.{package}.{name}({arguments}), {y})"
            if op.signature.attention is not None:
                arguments = f"{arguments}, return_attention=True"
                yield f"assert_type(pyops.{package}.{name}({arguments}), {tuple_of(y, y)})"
        if op.signature.attention is not None:
            arguments = given(op, inspect.signature(op), "array", return_attention="True")
            yield f"assert_type(pyops.{name}({arguments}), {tuple_of(one, one)})"


def wrong():
    """Yield lines that are wrong, each with the rule that it breaks."""
    for name, op in ((name, EVERY[name]) for name in KINDS):
        calls = {f"pyops.{package}.{name}": array for package, array in FRAMEWORKS.items()}
        of = {call: inspect.signature(op) for call in calls}
        for phase in PHASES:
            call = f"pyops.{name}" + f".{phase}" * (phase != "__call__")
            calls[call], of[call] = "array", of_phase(op, phase)
        for call, array in calls.items():
            signature = of[call]
            yield f"{call}({given(op, signature, array, no_such_option='1')})", "reportCallIssue"
            for p in signature.parameters.values():
                if p.default is p.empty:
                    yield (
                        f"{call}({given(op, signature, array, **{p.name: ''})})",
                        "reportCallIssue",
                    )
                if p.name in op.signature.inputs:
                    arguments = given(op, signature, array, **{p.name: "[1.0]"})
                    yield f"{call}({arguments})", "reportArgumentType"
            for option in op.signature.options.values():
                value = {str: "'no such choice'", bool: "'no'"}.get(option.kind, "'three'")
                arguments = given(op, signature, array, **{option.name: value})
                yield f"{call}({arguments})", "reportArgumentType"
            if "wanted" in signature.parameters:
                arguments = given(op, signature, array, wanted="('no_such_input',)")
                yield f"{call}({arguments})", "reportArgumentType"
        if op.signature.has_graph:
            arguments = given(
                op, inspect.signature(op), "tensor", **dict.fromkeys(op.signature.inputs, "tensor")
            )
            yield f"pyops.{name}({arguments})", "reportArgumentType"


def test_pyright_accepts_right_calls(tmp_path):
    lines = [*right()]
    assert pyright(tmp_path, lines) == {}


def test_pyright_reports_wrong_calls(tmp_path):
    expected = dict(wrong())
    found = pyright(tmp_path, [*expected])
    assert expected == {
        line: rule for line, rule in expected.items() if rule in found.get(line, ())
    }
    assert found.keys() == expected.keys()
