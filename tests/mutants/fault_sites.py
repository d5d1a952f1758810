"""Locations of seeded faults, by family, and the tests that can detect them."""

import re
from collections.abc import Iterable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from .. import ROOT

FORTRAN = ROOT / "fortran"
KERNELS = {
    name: folder / f"{name}.fypp"
    for folder in sorted(path.parent for path in FORTRAN.glob("*/meson.build"))
    for listed in re.findall(r"^words = \[(.*?)\]", (folder / "meson.build").read_text(), re.DOTALL)
    for name in re.findall(r"'(\w+)'", listed)
}
"""Sources of the kernels, as listed in the build files of their folders."""
OPERATORS = sorted(name for name in KERNELS if (ROOT / "pyops" / "ops" / f"{name}.py").exists())
FAMILIES = {path.parent.name: f"{path.parent.name}/*" for path in KERNELS.values()}
FAMILIES |= {"macros": "*", "nodes": "nodes/**/*"}
"""Families of templates under fortran/, from which equal numbers of faults are drawn."""
NOT_SEEDED = {"both_kinds"}
NOT_SEEDED |= {f"runtime/{name}" for name in ("machine", "prefetch", "process", "tuning")}
"""Modules whose faults change no result: prefetches, names, sizes, thread counts and forks."""
BLIND = {
    "compat/* frameworks/* operators/test_onnx": (
        "front ends, which call the same kernels or those of devices; for nodes see below"
    ),
    "declarations/test_registry process/test_installation process/test_prefix": (
        "build files, names and packages"
    ),
    "process/test_coexistence process/test_fork process/test_interrupts process/test_memory "
    "process/test_resources": "processes, threads, signals, memory",
    "process/test_examples": "programs, whose operators are all in the table",
    "declarations/test_blocks declarations/test_objects declarations/test_stubs "
    "graph/test_refusals operators/test_check_gradients operators/test_reference "
    "operators/test_refusals": "Python alone, and the references",
}
"""Tests that do not depend on the results of kernels, or check no more of them than others do."""
ABOUT = {
    "activations": "gno_kernel",
    "aggregate": "aggregate",
    "attention": "gat gat_v2 segment_softmax transformer_conv",
    "bases": "radial_basis spherical_basis spherical_harmonics",
    "broadcasting": "elementwise",
    "dimenet": "dimenet_aggregate spherical_harmonics",
    "elementwise": "elementwise",
    "known_values": "gno_aggregate gno_conv gno_kernel kernel_conv",
    "orthonormal": "elem_scale lno_decode lno_encode ono_decode ono_encode orthonormalize",
    "reductions": "elementwise",
}
"""Operators that tests/families/test_<name>.py checks; others check all, or are parametrized."""
OF_KERNELS = "derivatives", "forward"
"""Tests that detect most faults of kernels, which run first."""
OF_NODES = (
    ["tests/frameworks/fortran/test_nodes.py", "-k", "users"],
    ["tests/operators/test_partials.py"],
    ["tests/frameworks/fortran/test_nodes.py", "-k", "gfortran"],
)
"""Tests that run nodes, cheapest first. The last compile them with sanitizers."""


def paths(family: str) -> list[Path]:
    """Return the templates of a family."""
    found = (path for word in FAMILIES[family].split() for path in FORTRAN.glob(f"{word}.fypp"))
    return sorted(path for path in found if name_of(path) not in NOT_SEEDED)


def name_of(path: Path) -> str:
    """Return the path of a template under fortran/ without its suffix."""
    return path.relative_to(FORTRAN).with_suffix("").as_posix()


@cache
def _text(path: Path) -> str:
    return path.read_text()


def parts(template: Path) -> set[Path]:
    """Return a template and the templates that it includes."""
    found = {template}
    for name in re.findall(r'^#:include "([\w/]+\.fypp)"', _text(template), re.MULTILINE):
        folders = template.parent, FORTRAN, FORTRAN / "nodes"
        found |= parts(next(f / name for f in folders if (f / name).exists()))
    return found


@cache
def _reached() -> dict[str, set[str]]:
    """Return the kernels that each operator runs, by the modules that they use."""
    uses = re.compile(r"^ *use pyops_(\w+?)(?:_r8)?,", re.MULTILINE)
    used = {
        name: {name, *uses.findall(_text(path))} & KERNELS.keys() for name, path in KERNELS.items()
    }
    while True:
        wider = {name: set().union(*(used[n] for n in names)) for name, names in used.items()}
        if wider == used:
            return used
        used = wider


def operators(changed: Path) -> set[str]:
    """Return the operators whose kernels use a template; none if any operator may."""
    kernels = {name for name, path in KERNELS.items() if changed in parts(path)}
    return {name for name in OPERATORS if _reached()[name] & kernels}


def _named(found: Iterable[str], names: set[str]) -> set[str]:
    """Return those of the tests that have one of these names, in any folder."""
    return {path for path in found if path.rpartition("/test_")[2] in names}


def tests(changed: Path) -> list[list[str]]:
    """Return the tests that can detect a fault in a template as pytest arguments, best first."""
    folder = ROOT / "tests"
    if FORTRAN / "nodes" in changed.parents:
        return [*OF_NODES]
    blind = [word for words in BLIND for word in words.split()]
    found = {
        path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("test_*.py")
    }
    seeing = {name for name in found if not any(fnmatch(name, word) for word in blind)}
    reached = operators(changed)
    about = {name for name, of in ABOUT.items() if not reached.isdisjoint(of.split())}
    if reached:
        seeing -= _named(seeing, ABOUT.keys() - about)
    sharp = _named(seeing, {changed.stem, *about, *OF_KERNELS})
    stages = [[f"tests/{name}.py" for name in sorted(s)] for s in (sharp, seeing - sharp)]
    return stages if reached else [*stages, OF_NODES[-1]]
