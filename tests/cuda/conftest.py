"""`python -m pytest tests/cuda --device`: the table of rooms on a real device, with CuPy."""

import pytest

from . import host, rooms

REAL = "test_rooms", "test_attention", "test_compat", "test_device"
"""The files that a device runs; the others are about this machine."""


def pytest_addoption(parser):
    parser.addoption("--device", action="store_true", help="run the rooms on a CUDA device")


def pytest_configure(config):
    if config.getoption("--device", default=False):
        rooms.DEVICE = True
        host.COMPILER = host.COMPILER or "not needed"


def pytest_collection_modifyitems(items):
    for item in items:
        name = item.path.stem
        if rooms.DEVICE and name not in REAL:
            item.add_marker(pytest.mark.skip(reason="about this machine"))
        elif not rooms.DEVICE and name == "test_device":
            item.add_marker(pytest.mark.skip(reason="no --device"))
