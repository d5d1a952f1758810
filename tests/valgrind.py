"""Every operator under valgrind's memcheck: `./run valgrind`.

Only reports whose stacks contain pyops count; the interpreter and NumPy have others.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

import pyops

from .support.cases import OPERATORS, PHASES, VARIANTS, representative
from .support.graphs import drawn

OURS = "libpyops", "_kernels"
COMMAND = (
    "valgrind",
    "--quiet",
    "--show-leak-kinds=none",
    "--track-origins=yes",
    "--error-limit=no",
    "--child-silent-after-fork=yes",
    "--xml=yes",
)


def exercise():
    """Run every variant on one thread, every operator on two, in both precisions."""
    pyops.set_num_threads(2)
    large = drawn(130, 150, 2000)
    problems = [case.problem() for case in VARIANTS]
    problems += [representative(name).problem(large, hidden=17) for name in OPERATORS]
    for problem in problems:
        for dtype in np.float32, np.float64:
            for phase in PHASES:
                for result in problem.map(dtype).run(phase):
                    np.any(result)  # branches on every element, so that memcheck reports


def touches(error):
    return any(Path(o.text).name.startswith(OURS) for o in error.iter("obj"))


def text(error):
    """Return a report, one frame per line."""
    lines = [error.findtext("what") or error.findtext("xwhat/text")]
    for part in error:
        if part.tag == "auxwhat":
            lines.append(part.text)
        for frame in part.iter("frame"):
            place = frame.findtext("file", Path(frame.findtext("obj", "?")).name)
            lines.append(f"    {frame.findtext('fn', '?')} ({place}:{frame.findtext('line', '?')})")
    return "\n".join(lines)


def main():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "reports.xml")
        program = "-c", "from tests.valgrind import exercise; exercise()"
        command = *COMMAND, f"--xml-file={file}", sys.executable, *program
        environment = {"PYTHONMALLOC": "malloc", "OMP_WAIT_POLICY": "passive"}
        failed = subprocess.run(command, env=os.environ | environment).returncode
        errors = [*ElementTree.parse(file).iter("error")]
    ours = [error for error in errors if touches(error)]
    for error in ours:
        print(text(error), end="\n\n")
    print(f"valgrind: {len(ours)} reports about pyops, {len(errors) - len(ours)} about others")
    return failed or bool(ours)


if __name__ == "__main__":
    sys.exit(main())
