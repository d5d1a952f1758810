"""The C++ library that registers the operators with PyTorch for programs without Python."""

import _ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from pyops.torch.cpp import build  # noqa: E402
from pyops.torch.cpp.tables import operators  # noqa: E402

from ... import ROOT  # noqa: E402
from ...support import user_programs  # noqa: E402
from ...support.cases import OPERATORS  # noqa: E402

pytestmark = [
    pytest.mark.bare,
    pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler"),
]
EXAMPLE = ROOT / "examples" / "cpp"
TORCH = Path(torch.__file__).parent
ENDINGS = "", "_backward", "_double_backward", "_jvp", "_attention", "_traced", "_attention_traced"
FILES = "model.pt2", "inputs.pt", "outputs.pt"
STEP = 40
"""Of the cases of operators, every so many are compared."""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache with the kernels that `pyops.torch` loads."""
    folder = tmp_path_factory.mktemp("cache")
    built = python("-m", "pyops.torch.cpp", PYOPS_CACHE_DIR=folder).split()
    assert [Path(built[-1])] == [*folder.iterdir()]
    return folder


def python(*words, **environment):
    return user_programs.run(sys.executable, *words, cwd=ROOT, **environment)


def test_all_declared_operators_are_in_the_tables():
    assert operators(ROOT / "pyops" / "ops").keys() == OPERATORS.keys()


def test_schemas_are_those_of_python(library):
    program = (
        "import sys, torch; torch.ops.load_library(sys.argv[1]); "
        "print(*torch._C._jit_get_all_schemas(), sep='\\n')"
    )
    found = {line for line in python("-c", program, library).splitlines() if "pyops::" in line}
    declared = {f"{name}{tail}" for name in OPERATORS for tail in ENDINGS} | {"beyond"}
    expected = {
        str(schema)
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.removeprefix("pyops::") in declared and schema.name.startswith("pyops::")
    }
    assert found == expected


def test_calls_are_those_of_numpy_and_refusals_those_of_python(library):
    assert "refusals" in python("-m", "tests.support.cpp_calls", library, STEP)


def test_beside_python_it_registers_nothing(library):
    program = (
        "import sys, torch, pyops.torch as pt; torch.ops.load_library(sys.argv[1]); "
        "x = torch.ones(3, 2); print(torch.equal(torch.ops.pyops.elem_scale(x, x[0]), x))"
    )
    output = python("-c", program, library)
    assert "expected a program without Python, got one where pyops.torch has" in output
    assert "True" in output.splitlines()


def test_kernels_that_python_loads(cache):
    module = "tests.support.native_calls"
    output = python("-m", module, STEP, PYOPS_CACHE_DIR=cache, OMP_NUM_THREADS=2)
    assert "refusals" in output


def test_kernels_of_another_build_are_not_loaded(cache, tmp_path):
    (built,) = cache.iterdir()
    shutil.copy(built, tmp_path / "torch-other.so")
    program = "from pyops.torch import _native; print(_native.load())"
    assert "False" in python("-c", program, PYOPS_CACHE_DIR=tmp_path).splitlines()
    for content in b"no library", Path(_ctypes.__file__).read_bytes():
        (tmp_path / built.name).write_bytes(content)
        output = python("-c", program, PYOPS_CACHE_DIR=tmp_path)
        assert f"pyops.torch: {tmp_path / built.name} is not used: " in output
        assert "False" in output.splitlines()


def test_users_without_a_home():
    program = (
        "from pathlib import Path\n"
        "def home(): raise RuntimeError('Could not determine home directory.')\n"
        "Path.home = home\n"
        "import pyops.torch; from pyops import _cache; print(_cache.wanted(), _cache.folder())"
    )
    output = python("-c", program, PYOPS_CACHE_DIR="", XDG_CACHE_HOME="")
    assert "there is no home directory; PYOPS_CACHE_DIR may name a folder" in output
    assert "None /" in output


def test_program_without_python(library, tmp_path):
    python(EXAMPLE / "export.py", tmp_path)
    program = tmp_path / "program"
    folders = library.parent, TORCH / "lib"
    user_programs.run(
        *("c++", "-std=c++20", "-isystem", TORCH / "include", EXAMPLE / "program.cpp"),
        *("-o", program, "-Wl,--no-as-needed"),
        *(option for folder in folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")),
        *("-lpyops_torch", "-ltorch", "-ltorch_cpu", "-lc10"),
    )
    user_programs.run(program, *(tmp_path / name for name in FILES))
    loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert "libpyops_torch" in loaded
    assert "libpython" not in loaded
    found = torch.load(tmp_path / "outputs.pt")
    expected = torch.load(tmp_path / "expected.pt")
    for one, other, tolerance in zip(found, expected, (1e-6, 1e-12, 1e-12), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
