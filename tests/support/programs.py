"""Python programs run in a process of their own."""

import os
import subprocess
import sys
import textwrap

PROBLEM = """
    import resource
    import numpy as np
    import pyops
    rng = np.random.default_rng(0)
    def problem(nodes, degree, hidden, inward, outward, dtype=np.float32):
        src, dst = rng.integers(0, nodes, (2, nodes * degree))
        graph = pyops.Graph(src, dst, nodes)
        length = hidden * 4 + (hidden + 1) * inward * outward
        shapes = (nodes, inward), (nodes * degree, 3), (length,)
        return graph, *(rng.standard_normal(shape, dtype) for shape in shapes)
    def peak():  # of resident memory; ru_maxrss starts with that of the parent
        status = open("/proc/self/status").read()
        return int(status.partition("VmHWM:")[2].split()[0]) * 2**10
"""


def run(program, timeout=300, first=PROBLEM, **environment):
    """Return the output of a program that starts by defining `problem` and `peak`."""
    code = textwrap.dedent(first) + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
