import os
from contextlib import suppress

import numpy as np
import pytest

import pyops
import pyops.__main__

# Test processes have more threads than there are processors, and one that waits must not keep one
# busy. OpenMP reads this as a process starts: those of xdist, programs and ranks.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Two devices of JAX, which reads this when it creates its first array.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
)

with suppress(ImportError):  # frameworks/cuda has to run where there is pytest alone
    from threadpoolctl import threadpool_limits

    # The references multiply small matrices, for which threads of BLAS do not pay.
    threadpool_limits(1, user_api="blas")


def pytest_report_header():
    return f"libpyops: {pyops.__main__.library()}"


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def default_threads():
    yield
    pyops.set_num_threads(None)
