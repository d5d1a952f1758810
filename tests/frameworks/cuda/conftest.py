"""Device operators on a real device, with CuPy: `pytest tests/frameworks/cuda --device`."""

import os
import sys

import numpy as np
import pytest

import pyops
from pyops.cuda import _device

from . import host, on_device

REAL = "test_operators", "test_attention", "test_dimenet", "test_half", "test_nan", "test_compat"
ALONE = "test_device", "test_pages"
"""Files that also run on a real device, and files that run only there."""


def pytest_addoption(parser):
    parser.addoption("--device", action="store_true", help="run the operators on a CUDA device")


def pytest_configure(config):
    if config.getoption("--device", default=False):
        try:
            try_device()
        except Exception as error:
            raise pytest.UsageError(f"--device: {type(error).__name__}: {error}") from error
        on_device.DEVICE = True
        host.COMPILER = host.COMPILER or "not needed"


def try_device():
    """Make one call, so that missing requirements of all tests are reported once."""
    if not _device.platform("tests").count:
        raise RuntimeError("CuPy sees no device")
    import cupy

    x = np.linspace(-1, 1, 1000)
    if not np.allclose(pyops.exp(cupy.asarray(x)).get(), np.exp(x), 1e-14):
        raise RuntimeError("the device does not compute exp")


def pytest_report_header():
    if on_device.DEVICE:
        import cupy

        device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return f"device: {device}, CuPy {cupy.__version__}, {pyops.__file__}"
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        name = item.path.stem
        if on_device.DEVICE and name not in (*REAL, *ALONE):
            item.add_marker(pytest.mark.skip(reason="about this machine"))
        elif not on_device.DEVICE and name in ALONE:
            item.add_marker(pytest.mark.skip(reason="no --device"))


@pytest.fixture(autouse=True)
def device_goes_on(request):
    """End a worker whose device has failed: after an illegal address it is unusable."""
    yield
    if not on_device.DEVICE:
        return
    import cupy

    try:
        cupy.cuda.Device().synchronize()
    except Exception as error:
        text = f"{request.node.nodeid}: the device is lost: {error}"
        if "PYTEST_XDIST_WORKER" not in os.environ:
            pytest.exit(text, returncode=1)
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(text, file=sys.stderr, flush=True)
        os._exit(1)
