"""Device libraries against the CPU kernels.

Run on the host, with serial loops, unless ACC_DEVICE_TYPE and OMP_TARGET_OFFLOAD select a device;
arrays are in the memory of the device that runs. Builds for NVIDIA devices are inspected as far as
possible without a device.
"""

import itertools
import os
import re
import subprocess
from functools import partial

import numpy as np
import pytest

from pyops.__main__ import flags

from .. import ROOT
from ..support import broadcasts
from ..support.broadcasts import FUNCTIONS, PAIRS, REDUCTIONS
from ..support.cases import CASES, PHASES, representative
from ..support.compare import assert_close, assert_same
from ..support.device_libraries import (
    BUILT,
    COVERED,
    FLAVOURS,
    PATHS,
    assert_agree,
    run_both,
    through,
)
from ..support.layouts import LAYOUTS

pytestmark = [
    pytest.mark.bare,
    pytest.mark.skipif(not BUILT, reason=f"built only with {' or '.join({*FLAVOURS.values()})}"),
]
FOUNDING = "gno_kernel gno_aggregate gno_conv ono_encode ono_decode radial_basis spherical_basis"
FOUNDING = {*FOUNDING.split(), "dimenet_aggregate", "gat", "elementwise"}
both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])
one_flavour = pytest.mark.parametrize("flavour", [*BUILT][:1] or ["acc"])
every_flavour = pytest.mark.parametrize("flavour", [f for f in BUILT if f != "threads"] or ["acc"])
every_phase = pytest.mark.parametrize("phase", PHASES)
every_operator = pytest.mark.parametrize("name", [n for n in COVERED if n != "elementwise"])
whole_phase = pytest.mark.parametrize("phase", ["backward", "double_backward"])


def test_coverage():
    assert set(COVERED) >= FOUNDING


@every_flavour
@both_types
@every_phase
@pytest.mark.parametrize("case", [case for case in CASES if case.op in COVERED], ids=str)
def test_every_case(case, phase, dtype, flavour):
    problem = case.problem().map(dtype)
    assert_agree(*run_both(flavour, problem.op, partial(problem.run, phase)), dtype)


@one_flavour
@whole_phase
@every_operator
def test_wanted(name, phase, flavour):
    problem = representative(name).problem()
    names = [*problem.op.signature.inputs] + ["gy"] * (phase == "double_backward")
    with through(flavour, problem.op):
        full = dict(zip(names, problem.run(phase), strict=True))
        for number in {0, 1, len(names) - 1}:
            for wanted in itertools.combinations(names, number):
                expected = [full[n] if n in wanted else None for n in names]
                assert_same(problem.run(phase, wanted=wanted), expected)


@one_flavour
@pytest.mark.parametrize("phase", ["double_backward", "jvp"])
@every_operator
def test_absent_cotangents(name, phase, flavour):
    problem = representative(name).problem()
    tangents = ["h" + n for n in problem.op.signature.inputs]
    for number in {0, 1, len(tangents) - 1}:
        for given in itertools.combinations(tangents, number):
            some = problem.having(**{n: None for n in tangents if n not in given})
            assert_agree(*run_both(flavour, some.op, partial(some.run, phase)), np.float64)


@one_flavour
@both_types
@every_phase
@every_operator
def test_out_and_accumulate(name, phase, dtype, flavour, rng):
    """Previous contents are completely overwritten, or completely accumulated to."""
    problem = representative(name).problem().map(dtype)
    with through(flavour, problem.op):
        expected = problem.run(phase)

        def run(out, **keywords):
            return problem.run(
                phase, out=out[0] if phase in ("forward", "jvp") else out, **keywords
            )

        out = [np.full_like(a, np.nan) for a in expected]
        assert_same(run(out), expected)
        out = [rng.standard_normal(a.shape).astype(dtype) for a in expected]
        sums = [a + b for a, b in zip(out, expected, strict=True)]
        assert_close(run(out, accumulate=True), sums, 8 * np.finfo(dtype).eps)


@every_flavour
@both_types
@every_phase
@pytest.mark.parametrize("graph", ["random", "hubs"])
def test_little_work_space(graph, phase, dtype, flavour):
    """Row segments of length one, and of a length that the last does not fill."""
    case = next(c for c in CASES if (c.op, c.graph, c.widths) == ("gno_conv", graph, "small"))
    problem = case.problem().map(dtype)
    expected = problem.run(phase)
    set_workspace = BUILT[flavour].pyops_set_device_workspace
    set_workspace.argtypes = [np.ctypeslib.ctypes.c_int64]
    try:
        for size in 1, 1000:
            set_workspace(size)
            with through(flavour, problem.op):
                assert_agree(problem.run(phase), expected, dtype)
    finally:
        set_workspace(2**28)


@one_flavour
@both_types
@every_phase
@pytest.mark.parametrize("name", ["ono_encode", "ono_decode", "orthonormalize"])
def test_dependent_columns(name, phase, dtype, flavour):
    problem = representative(name).problem().map(dtype)
    basis = problem.arrays["basis"].copy()
    basis[:, 1] = 2 * basis[:, 0]
    problem = problem.having(basis=basis)
    assert_agree(*run_both(flavour, problem.op, partial(problem.run, phase)), dtype)


@one_flavour
@both_types
@pytest.mark.parametrize("name", ["ono_encode", "ono_decode"])
def test_gradients_by_sample(name, dtype, flavour):
    problem = representative(name).problem().map(dtype)
    run = partial(problem.run, "backward", per_sample=True)
    assert_agree(*run_both(flavour, problem.op, run), dtype)


@one_flavour
@every_phase
@pytest.mark.parametrize("name", ["ono_encode", "ono_decode"])
def test_packed_bases(name, phase, flavour):
    problem = representative(name).problem()
    packed = {n: problem.arrays[n].T.reshape(-1).copy() for n in ("basis", "hbasis")}
    problem = problem.having(**packed)
    assert_agree(*run_both(flavour, problem.op, partial(problem.run, phase)), np.float64)


@one_flavour
@both_types
@pytest.mark.parametrize("graph", ["random", "hubs"])
def test_attention(graph, dtype, flavour):
    problem = next(c for c in CASES if (c.op, c.graph) == ("gat", graph)).problem().map(dtype)
    run = partial(problem.run, "forward", return_attention=True)
    assert_agree(*run_both(flavour, problem.op, run), dtype)


@one_flavour
@both_types
@every_phase
@pytest.mark.parametrize("name", FUNCTIONS)
def test_elementwise(name, phase, dtype, flavour):
    for pair in PAIRS if name in ("multiply", "power") else ("same", "bias"):
        p = broadcasts.problem(name, pair, dtype)
        assert_agree(*run_both(flavour, p.op, partial(p.run, phase)), dtype)


@one_flavour
@every_phase
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_elementwise(layout, phase, flavour):
    for pair in "bias", "longer row", "many narrow rows":
        p = broadcasts.problem("multiply", pair).map(LAYOUTS[layout])
        assert_agree(*run_both(flavour, p.op, partial(p.run, phase)), np.float64)


@one_flavour
@pytest.mark.parametrize("axis", [None, (), 0, 1, (0, 2)])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, axis, flavour, rng):
    op = REDUCTIONS[name]
    x = rng.standard_normal((30, 4, 50))
    x[3, 2, 1] = np.nan
    (got,), (expected,) = run_both(flavour, op, lambda: [op(x, axis=axis)])
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@one_flavour
@every_phase
@every_operator
def test_bitwise_again(name, phase, flavour):
    problem = representative(name).problem().map(np.float32)
    with through(flavour, problem.op):
        assert_same(problem.run(phase), problem.run(phase))


@pytest.mark.skipif(len(BUILT) < len(FLAVOURS), reason="not all of them were built")
@both_types
@every_phase
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op in COVERED and c.graph in ("random", "hubs")], ids=str
)
def test_places_do_not_meet(case, phase, dtype):
    """Four threads that share the iterations of a loop give the same bits as one."""
    problem = case.problem().map(dtype)
    with through("acc", problem.op):
        expected = problem.run(phase)
    with through("threads", problem.op):
        assert_same(problem.run(phase), expected)


@every_flavour
def test_nothing_but_the_run_time_of_the_directives(flavour):
    listed = subprocess.run(
        ["readelf", "-d", PATHS[flavour]], capture_output=True, text=True, check=True
    )
    needed = set(re.findall(r"NEEDED.*\[(\w+)", listed.stdout))
    assert needed <= {"libgomp", "libm", "libc", "ld"}


@pytest.fixture(params=["acc", "target"])
def modules(request):
    """Yield the device code for NVIDIA GPUs in a library."""
    if request.param not in BUILT:
        pytest.skip(f"built only with {FLAVOURS[request.param]}")
    data = PATHS[request.param].read_bytes()
    found = [m.decode() for m in re.findall(rb"[^\0]*\n\s*\.version \d[^\0]*", data)]
    if not found:
        pytest.skip("built by a compiler without code for NVIDIA devices")
    return found


def test_every_loop_has_code_for_devices(modules):
    text = "\n".join(modules)
    for declaration in COVERED:
        module = dict.fromkeys(("ono_encode", "ono_decode", "orthonormalize"), "orthonormal")
        module |= {"gno_kernel": "network"}
        own = module.get(declaration, declaration)
        assert re.search(rf"\.entry __pyops_device_{own}_r8_MOD_\w+\$_omp_fn", text), declaration
    assert re.search(r"\.target\s+sm_80", text)


def test_nothing_is_missing_on_devices(modules):
    """Every function called in device code is defined in the library."""
    needed = {f for m in modules for f in re.findall(r"^\.extern \.func.*?(\w+)(?: \(|;)", m, re.M)}
    there = {f for m in modules for f in re.findall(r"^\.visible \.func.*?(\w+)(?: \(|$)", m, re.M)}
    assert needed
    assert needed - there <= {"vprintf", "malloc", "free"}


@pytest.mark.skipif("acc" not in BUILT, reason="built only with -Dopenacc=enabled")
def test_training_on_a_device(tmp_path):
    """Run the example; it fails if the loss does not decrease."""
    library, example = PATHS["acc"], ROOT / "examples" / "fortran" / "device_training.f90"
    found = flags()
    modules = found[: found.index("-L")]
    offload = ["-foffload-options=nvptx-none=-misa=sm_80", "-foffload-options=-lm"]
    if os.environ["ACC_DEVICE_TYPE"] == "host":
        offload = ["-foffload=disable"]
    command = [os.environ.get("FC", "gfortran"), "-O2", "-fopenacc", *offload]
    command += ["-J", tmp_path, *modules]
    command += [example, library, f"-Wl,-rpath,{library.parent}", "-o", tmp_path / "training"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    done = subprocess.run([tmp_path / "training"], check=True, capture_output=True, text=True)
    losses = [float(loss) for loss in re.findall(r"loss\s+(\S+)", done.stdout)]
    assert len(losses) == 7
    assert losses[-1] < 0.05 * losses[0]
