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


def exercise(part, parts):
    """Run a part of every variant on one thread, every operator on two, in both precisions."""
    pyops.set_num_threads(2)
    large = drawn(130, 150, 2000)
    problems = [case.problem() for case in VARIANTS]
    problems += [representative(name).problem(large, hidden=17) for name in OPERATORS]
    for problem in problems[part::parts]:
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


def start(part, parts, file):
    """Start a part of the exercise; memcheck runs one thread of a process at a time."""
    program = "-c", f"from tests.valgrind import exercise; exercise({part}, {parts})"
    command = *COMMAND, f"--xml-file={file}", sys.executable, *program
    environment = {"PYTHONMALLOC": "malloc", "OMP_WAIT_POLICY": "passive"}
    return subprocess.Popen(command, env=os.environ | environment)


def main():
    parts = min(4, len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{part}.xml") for part in range(parts)]
        running = [start(part, parts, file) for part, file in enumerate(files)]
        statuses = [process.wait() for process in running]
        try:
            errors = [error for file in files for error in ElementTree.parse(file).iter("error")]
        except ElementTree.ParseError:
            return f"valgrind: a part ended early; their statuses are {statuses}"
    ours = [error for error in errors if touches(error)]
    for error in ours:
        print(text(error), end="\n\n")
    print(f"valgrind: {len(ours)} reports about pyops, {len(errors) - len(ours)} about others")
    return any(statuses) or bool(ours)


if __name__ == "__main__":
    sys.exit(main())
