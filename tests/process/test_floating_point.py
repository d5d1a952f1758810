"""No kernel raises a floating-point exception on data whose results are finite.

Programs that trap exceptions would be terminated. Compiled loops differ between instruction sets,
as do the unused lanes of vectors: `./run test-levels` runs this with each.
"""

import os
import subprocess
import sys

import pytest

from .. import ROOT
from ..support.floating_point import FLAGS

pytestmark = [
    pytest.mark.bare,
    pytest.mark.skipif(not FLAGS, reason="no bits of <fenv.h> are known here"),
]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """Return a library that fills memory and stack with signalling NaN."""
    target = tmp_path_factory.mktemp("scratch") / "scratch.so"
    source = ROOT / "tests" / "support" / "scratch.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", target], check=True)
    return str(target)


def test_exceptions(scratch):
    environment = {"LD_PRELOAD": scratch}
    command = sys.executable, "-m", "tests.support.floating_point"
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout[:5000] + done.stderr[-2000:]
    assert int(done.stderr.split()[-2]) > 9_000  # calls
