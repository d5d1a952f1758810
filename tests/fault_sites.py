"""Where faults are seeded, by family, and which tests can see them."""

import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FORTRAN = ROOT / "fortran"
FAMILIES = {
    "graph convolution": "kernels/convolution* kernels/edge_layer kernels/gno_* kernels/kernel_* "
    "kernels/matrix_sums",
    "neighbours": "kernels/neighbour_* kernels/aggregate kernels/degree_normalised "
    "kernels/edge_to_edge kernels/edge_update kernels/hetero_basis",
    "attention": "kernels/attention* kernels/gat* kernels/dot_attention* kernels/transformer_conv "
    "kernels/segment_softmax kernels/score_activation",
    "triplets": "kernels/triplet* kernels/dimenet_aggregate kernels/directions kernels/dots",
    "bases": "kernels/bessel kernels/radial_basis kernels/spherical_* kernels/harmonics",
    "transforms": "kernels/ono_* kernels/lno_* kernels/laplace kernels/ortho* kernels/basis "
    "kernels/cholesky_qr kernels/gram_schmidt kernels/triangular kernels/tall kernels/product",
    "elementwise": "kernels/elementwise kernels/functions kernels/broadcast kernels/reduction "
    "kernels/elem_scale kernels/activation",
    "foundation": "kernels/tile kernels/rows kernels/partial_sums kernels/graph kernels/edges "
    "kernels/threads kernels/lines kernels/memory",
    "macros": "*",
    "nodes": "nodes/*",
}
"""Families of templates beneath fortran/, from which faults are drawn in equal shares."""
NOT_SEEDED = {"kernels/prefetch", "kernels/process"}
"""Prefetches change no result; how many threads there are and what a fork does neither."""
BLIND = {
    "test_blocks_of_libraries test_compat* test_jax test_onnx test_torch*": (
        "front ends, which call the kernels that tests of the operators call"
    ),
    "test_examples": "programs, whose operators are all in the table",
    "test_fortran": "programs, which call the same kernels; see below",
    "test_openacc": "kernels of devices, which are sources of their own",
    "test_packaging test_streets": "build files, names and packages",
    "test_fork test_interrupts test_memory test_neighbours test_process": (
        "processes, threads, signals, memory"
    ),
    "test_blocks test_graph_refusals test_operators test_radius_graph test_reference test_refusals "
    "test_testing": ("Python alone, and the references"),
}
"""Tests that cannot see what a kernel computes, or see no more of it than others do."""
ABOUT = {
    "test_activations": "gno_kernel",
    "test_attention": "gat gat_v2 segment_softmax transformer_conv",
    "test_broadcasting": "elementwise",
    "test_dimenet": "dimenet_aggregate radial_basis spherical_basis spherical_harmonics",
    "test_elementwise": "elementwise",
    "test_known_numbers": "gno_aggregate gno_conv gno_kernel kernel_conv",
    "test_orthonormal": "elem_scale lno_decode lno_encode ono_decode ono_encode orthonormalize",
    "test_reductions": "elementwise",
}
"""The operators that some tests are about; others have all, or are named after what they run."""
OF_KERNELS = "test_derivatives", "test_forward"
"""Tests that find most faults of kernels, before all others."""
OF_NODES = (
    ["tests/test_fortran.py", "-k", "users"],
    ["tests/test_partials.py"],
    ["tests/test_fortran.py", "-k", "gfortran"],
)
"""Tests that run nodes, the cheap ones first. The last compile them with sanitizers."""


def paths(family: str) -> list[Path]:
    """The templates of a family."""
    found = (path for word in FAMILIES[family].split() for path in FORTRAN.glob(f"{word}.fypp"))
    return sorted(path for path in found if name_of(path) not in NOT_SEEDED)


def name_of(path: Path) -> str:
    """A template beneath fortran/, without its ending."""
    return path.relative_to(FORTRAN).with_suffix("").as_posix()


@cache
def _text(path: Path) -> str:
    return path.read_text()


def parts(template: Path) -> set[Path]:
    """A template and those that it includes."""
    found = {template}
    for name in re.findall(r'^#:include "(\w+\.fypp)"', _text(template), re.MULTILINE):
        folders = template.parent, FORTRAN, FORTRAN / "nodes"
        found |= parts(next(f / name for f in folders if (f / name).exists()))
    return found


@cache
def _reached() -> dict[str, set[str]]:
    """The kernels whose code runs for each operator, by the modules that they use."""
    kernels = {path.stem: path for path in FORTRAN.glob("kernels/*.fypp")}
    uses = re.compile(r"^ *use pyops_(\w+?)(?:_r8)?,", re.MULTILINE)
    used = {
        name: {name, *uses.findall(_text(path))} & kernels.keys() for name, path in kernels.items()
    }
    while True:
        wider = {name: set().union(*(used[n] for n in names)) for name, names in used.items()}
        if wider == used:
            return used
        used = wider


def operators(changed: Path) -> set[str]:
    """The operators whose kernels have the code of a template; none where any may see it."""
    listed = re.search(r"^operators = \[(.*?)\]", _text(ROOT / "meson.build"), re.DOTALL | re.M)
    kernels = {p.stem for p in FORTRAN.glob("kernels/*.fypp") if changed in parts(p)}
    return {name for name in re.findall(r"\w+", listed[1]) if _reached()[name] & kernels}


def tests(changed: Path) -> list[list[str]]:
    """The tests that can see a fault in a template, as arguments of pytest: first the sharpest."""
    folder = ROOT / "tests"
    if changed.parent.name == "nodes":
        return [*OF_NODES]
    blind = [word for words in BLIND for word in words.split()]
    found = {path.stem for path in folder.glob("test_*.py")}
    seeing = {name for name in found if not any(fnmatch(name, word) for word in blind)}
    reached = operators(changed)
    about = {name for name, of in ABOUT.items() if not reached.isdisjoint(of.split())}
    if reached:
        seeing -= ABOUT.keys() - about
    sharp = ({f"test_{changed.stem}"} | about | {*OF_KERNELS}) & seeing
    stages = [[f"tests/{name}.py" for name in sorted(s)] for s in (sharp, seeing - sharp)]
    return stages if reached else [*stages, OF_NODES[-1]]
