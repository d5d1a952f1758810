import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

import pyops
import pyops.__main__

settings.register_profile("pyops", deadline=None, print_blob=True)
settings.load_profile("pyops")
settings.register_profile("some", max_examples=100, derandomize=True, database=None)
settings.register_profile("many", max_examples=10_000)

# The references multiply small matrices; the threads of BLAS would only get in the way.
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
