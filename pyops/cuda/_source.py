"""The CUDA sources: where they are, and the complete text to compile."""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ._formulas import GENERATED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KERNELS = Path(__file__).parent / "kernels"
OPTIONS = ("--std=c++17",)
"""NVRTC options in addition to the architecture; none relaxes floating-point semantics."""
TYPES = {
    "f": ("float", "float"),
    "d": ("double", "double"),
    "h": ("float", "bfloat16"),
    "e": ("float", "float16"),
}
"""Types of real numbers and of features, by the character of NumPy's type of the features.

Those of bfloat16 are int16: their bits.
"""


def sources() -> list[str]:
    """Return the names of all sources."""
    return sorted(path.stem for path in KERNELS.glob("*.cu"))


def kernels(source: str) -> list[str]:
    """Return the names of the kernels of a source."""
    return re.findall(r'extern "C" __global__ void (?:BOUNDS\s*)?(\w+)', _read(f"{source}.cu"))


def types(source: str) -> str:
    """Return the characters of the types that a source compiles for."""
    return "".join(TYPES) if re.search(r"\bfeature\b", _read(f"{source}.cu")) else "fd"


def variants(source: str) -> Iterator[dict[str, int]]:
    """Yield all sets of constants of a source, from its lines ``//! NAME 1 2 4``."""
    lines = re.findall(r"^//! (\w+) ([\d ]+)$", _read(f"{source}.cu"), re.MULTILINE)
    values = [[(name, int(value)) for value in some.split()] for name, some in lines]
    return map(dict, itertools.product(*values))


@functools.cache
def _read(name: str) -> str:
    """Return a source with its includes and what is generated."""
    text = (KERNELS / name).read_text()
    text = re.sub(r'^#include "(.+)"$', lambda found: _read(found[1]), text, flags=re.MULTILINE)
    return re.sub(r"^//@ (\w+)\n", lambda found: GENERATED[found[1]](), text, flags=re.MULTILINE)


def compose(source: str, kind: str, constants: Mapping[str, int]) -> str:
    """Return a source for one type of features, after the definitions shared by all."""
    chosen = dict(constants)
    if not any(chosen == variant for variant in variants(source)):
        raise ValueError(f"{source}.cu: no variant with {chosen}")
    defined = "".join(f"#define {name} {value}\n" for name, value in chosen.items())
    real, feature = TYPES[kind]
    head = f"#define REAL {real}\n#define REAL_IS_{real.upper()} 1\n#define FEATURE {feature}\n"
    return (
        f'{head}{defined}#line 1 "common.cuh"\n{_read("common.cuh")}\n'
        f'#line 1 "{source}.cu"\n{_read(f"{source}.cu")}'
    )
