"""pytest plugin for `./run mutants`: selects the tests that can detect a fault, sharpest first.

Tests of operators that the fault does not reach are deselected. A test that takes more than
`SECONDS` of processor time ends the process by SIGXCPU, whatever the load of the machine.
"""

import os
import re
import resource
import time

import pytest

SECONDS = 120


def pytest_collection_modifyitems(config, items):
    from ..support.cases import OPERATORS

    reached = set(os.environ["REACHED"].split())

    def operator(item):
        """Return the operator in the parameters of a test, if any."""
        words = re.findall(r"\w+", item.callspec.id) if hasattr(item, "callspec") else []
        return next((word for word in words if word in OPERATORS), None)

    def late(item):
        dear = re.search("hubs|thousands|test_nodes", item.name)
        return operator(item) is None, dear is not None

    left_out = [item for item in items if reached and operator(item) not in {None, *reached}]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = sorted((item for item in items if item not in set(left_out)), key=late)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    limit = int(time.process_time()) + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
