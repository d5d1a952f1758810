"""Digests of the results of every operator, to compare builds bit for bit: `./run digests FILE`.

The first call writes the file, later calls compare with it. Results depend on the processor and its
mathematical library, so a file is valid on one machine only.
"""

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


def digests():
    """Return a digest of all results of each problem in a precision, by name."""
    found = {}
    for dtype in np.float32, np.float64:
        for name, phases in problems(dtype):
            digest = hashlib.sha256()
            for result in (r for results in phases for r in results):
                digest.update(b"none" if result is None else np.asarray(result).tobytes())
            found[f"{name}-{np.dtype(dtype)}"] = digest.hexdigest()[:16]
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
