"""Every source compiles for the supported devices and types; an invalid one does not."""

import re
import struct

import pytest

from pyops import _cache
from pyops._functions import FUNCTIONS
from pyops.cuda import _compiler
from pyops.cuda._formulas import functions
from pyops.cuda._source import compose, kernels, sources, types, variants

from .nvrtc import cubin, stacks

ARCHITECTURES = 80, 90
KERNELS = "attend", "edge_network", "ends", "gno", "neighbours", "scores"
KERNELS += "triplets_back", "triplets_into"
HOT = [(name, variant) for name in KERNELS for variant in variants(name)]
HOT = [(*some, kind) for some in HOT for kind in types(some[0]) if kind != "d"]
EVERY = [(name, variant) for name in sources() for variant in variants(name)]
EVERY = [(name, some) for name, some in EVERY if some.get("CODE", 3) == 3]  # one function alone
EVERY = [(*some, kind) for some in EVERY for kind in types(some[0])]


def label(value):
    if isinstance(value, dict):
        return "-".join(f"{name}{number}" for name, number in value.items()) or "plain"
    return None


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("source", "constants", "kind"), EVERY, ids=label)
def test_compiles(source, constants, architecture, kind):
    code = cubin(compose(source, kind, constants), architecture)
    for kernel in kernels(source):
        assert kernel.encode() in code


@pytest.mark.parametrize("kind", ["f", "d"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_elementwise_functions_compile(architecture, kind):
    """All functions compile, in one source."""
    codes = range(1, 1 + len(FUNCTIONS))
    bodies = [
        f"#define CODE {code}\n{functions().replace('evaluate', f'evaluate_{code}')}#undef CODE\n"
        for code in codes
    ]
    sums = " + ".join(f"evaluate_{code}(form, *x, *x, *x, *x, *x, *x)" for code in codes)
    kernel = f'extern "C" __global__ void every(whole form, real* x) {{ *x = {sums}; }}'
    head = compose("matrices", kind, {"LANES": 8}).partition('#line 1 "matrices.cu"')[0]
    assert b"every" in cubin("\n".join([head, *bodies, kernel]), architecture)


@pytest.mark.parametrize(("source", "constants", "kind"), HOT, ids=label)
def test_registers_are_enough(source, constants, kind):
    """Kernels spill no registers to memory."""
    found = stacks(cubin(compose(source, kind, constants), 90))
    assert found.keys() >= set(kernels(source))
    assert not any(found[kernel] for kernel in kernels(source))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source", sources())
def test_broken_source_fails(source, architecture):
    text = compose(source, "f", next(variants(source)))
    broken = text.replace("threadIdx.x", "threadIdx.nowhere")
    assert broken != text
    with pytest.raises(RuntimeError, match="nowhere"):
        cubin(broken, architecture)


@pytest.mark.parametrize(("kind", "word"), [("f", "f32"), ("h", "[^f]32"), ("e", "[^f]32")])
def test_features_are_read_by_vectors(kind, word):
    """Four features of float32, or eight of half precision, are one load."""
    pytest.importorskip("cupy")
    _, code = _compiler.compiled(compose("attend", kind, {}), architecture=990)
    assert re.search(rf"ld\.global\S*\.v4\.{word}", code.decode())


def test_unlisted_constants_are_refused():
    with pytest.raises(ValueError, match="no variant"):
        compose("neighbours", "f", {"LANES": 3})


@pytest.fixture
def caches(tmp_path, monkeypatch):
    """Return a user whose cache folder exists."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PYOPS_CACHE_DIR", raising=False)
    _cache.folder.cache_clear()
    yield tmp_path
    _cache.folder.cache_clear()


def test_machine_code_is_kept(caches, monkeypatch):
    text = compose("matrices", "f", {"LANES": 8})
    code = cubin(text, 90)
    path = _compiler.cached(text, 90)
    assert path.parent == caches / "pyops"
    assert path.read_bytes() == code
    monkeypatch.setattr(_compiler, "compiled", None)
    assert _compiler.cached(text, 90) == path
    assert [*path.parent.iterdir()] == [path]


def test_machine_code_is_whole():
    """The machine code is complete: its last part, the program headers, ends within the file."""
    code = cubin(compose("matrices", "f", {"LANES": 8}), 90)
    start, _, _, _, size, count = struct.unpack_from("<2QI3H", code, 32)
    assert start + size * count <= len(code)


def test_code_for_what_the_compiler_does_not_know(caches):
    pytest.importorskip("cupy")
    path = _compiler.cached(compose("matrices", "f", {"LANES": 8}), 990)
    assert path.suffix == ".ptx"
    assert b".target sm_" in path.read_bytes()


def test_where_nothing_can_be_kept(caches, monkeypatch, capsys):
    """If no cache folder is writable, kernels are compiled in each process."""
    (caches / "file").touch()
    monkeypatch.setenv("PYOPS_CACHE_DIR", str(caches / "file"))
    text = compose("matrices", "f", {"LANES": 8})
    assert cubin(text, 90)
    path = _compiler.cached(text, 90)
    assert path.exists()
    assert caches not in path.parents
    assert "compiled code is not kept" in capsys.readouterr().err


def test_subnormal_numbers_are_kept():
    """No kernel code flushes subnormal numbers to zero, except the compiler's code for exp."""
    pytest.importorskip("cupy")
    text = compose("matrices", "f", {"LANES": 8})
    _, code = _compiler.compiled(text, architecture=990)
    assert b".ftz" not in code
