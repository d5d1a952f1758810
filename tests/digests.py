"""Digests of the results of every operator, to compare builds bit for bit: `./run digests FILE`.

The first call writes the file, later calls compare with it. Results depend on the processor and its
mathematical library, so a file is valid on one machine only.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import pyops

from .levels import TUNABLES, loaded, searched
from .support import broadcasts
from .support.cases import CASES, EVERY_VARIANT, PHASES
from .support.floating_point import calls

HALF = [np.float16]
with contextlib.suppress(ImportError):  # names without it are then missing
    from ml_dtypes import bfloat16

    HALF.append(bfloat16)


def problems(dtype):
    """Yield names and results by phase, of the table of cases and of elementwise functions."""
    for case in dict.fromkeys([*CASES, *EVERY_VARIANT]):
        problem = case.problem().map(lambda a: a.astype(dtype))
        yield str(case), [problem.run(phase) for phase in PHASES]
    for pair in broadcasts.PAIRS:
        for name in broadcasts.FUNCTIONS:
            problem = broadcasts.problem(name, pair, dtype)
            yield f"{name}-{pair}", [problem.run(phase) for phase in PHASES]
        for name, op in broadcasts.REDUCTIONS.items():
            x = broadcasts.draw(name, broadcasts.PAIRS[pair][0]).astype(dtype)
            for axis in (None, *range(x.ndim)) if x.size else ():
                y = op(x, axis=axis)
                gradients = op.backward(x, y, axis=axis), op.double_backward(x, y, x, axis=axis)
                yield f"{name}-{pair}-{axis}", [(y,), *gradients, (op.jvp(x, x, axis=axis),)]


def other_calls(dtype):
    """Yield names and results of attention weights, gradients per sample and saved results."""
    for case in EVERY_VARIANT:
        problem = case.problem().map(lambda a: a.astype(dtype))
        for what, (phase, keywords) in calls(problem).items():
            if keywords:
                yield f"{case}-{np.dtype(dtype)}-{what}", problem.run(phase, **keywords)


def in_half_precision(dtype):
    """Yield names and results by phase of variants and elementwise functions."""
    for case in EVERY_VARIANT:
        problem = case.problem().map(lambda a: a.astype(dtype))
        yield f"{case}-{np.dtype(dtype)}", [problem.run(phase) for phase in PHASES]
    for name in broadcasts.FUNCTIONS:
        problem = broadcasts.problem(name, "bias", dtype)
        yield f"{name}-bias-{np.dtype(dtype)}", [problem.run(phase) for phase in PHASES]


def digest_of(results):
    """Return a digest of arrays in nested sequences, of which some may be None."""
    digest = hashlib.sha256()

    def add(result):
        if isinstance(result, (tuple, list)):
            for part in result:
                add(part)
        else:
            digest.update(b"none" if result is None else np.asarray(result).tobytes())

    add(results)
    return digest.hexdigest()[:16]


def digests():
    """Return a digest of all results of each problem in a precision, by name."""
    found = {}
    for dtype in np.float32, np.float64:
        for name, phases in problems(dtype):
            found[f"{name}-{np.dtype(dtype)}"] = digest_of(phases)
    for dtype in np.float32, np.float64:
        found |= {name: digest_of(results) for name, results in other_calls(dtype)}
    for dtype in HALF:
        found |= {name: digest_of(results) for name, results in in_half_precision(dtype)}
    return found


def every_level():
    """Return the digests of each variant of the library that this processor can run."""
    found = {}
    for level in searched() or [""]:
        environment = os.environ | {"GLIBC_TUNABLES": TUNABLES.get(level, "")}
        if level and loaded(environment)[0] != level:
            sys.exit(f"digests: the loader did not take {level}")
        command = sys.executable, "-m", "tests.digests"
        found[level] = json.loads(subprocess.check_output(command, env=environment))
    return found


def main():
    if len(sys.argv) == 1:
        pyops.set_num_threads(2)
        print(json.dumps(digests()))
        return 0
    path, found = Path(sys.argv[1]), every_level()
    count = sum(map(len, found.values()))
    if not path.exists():
        path.write_text(json.dumps(found, indent=0))
        print(f"digests: wrote {count} to {path}")
        return 0
    before = json.loads(path.read_text())
    differ = [
        f"{level} {name}"
        for level, some in before.items()
        for name, digest in some.items()
        if found.get(level, {}).get(name) != digest
    ]
    print("\n".join(differ[:40]))
    print(f"digests: {len(differ)} of {sum(map(len, before.values()))} differ or are missing")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
