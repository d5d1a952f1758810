"""Figures of README, and losses that the site names, are those of the stored results."""

import json
import re
import sys
from statistics import median

import pytest

from .. import ROOT

RESULTS = ROOT / "docs" / "benchmarks"
README = (ROOT / "README.md").read_text()
PHASES = "forward", "backward"


@pytest.fixture(scope="module")
def report():
    if not RESULTS.exists():
        pytest.skip("the folder of the results is not there")
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks import report
    finally:
        sys.path.remove(str(ROOT))
    return report


@pytest.fixture(scope="module")
def groups(report):
    """Rows by peer, of each case and phase of `./run bench`."""
    found = json.loads((RESULTS / "operators.json").read_text())
    rows = [report.row_of(entry) for entry in found["rows"]]
    cases = dict.fromkeys(row.case for row in rows)
    return [g for case in cases for g in report.groups(r for r in rows if r.case == case)]


def compared(report, group):
    """Return how many times the time of pyops each peer takes."""
    base = group["pyops"]
    return {
        name: median(report.ratios(row, base))
        for name, row in group.items()
        if row is not base and row.seconds
    }


ROWS = re.findall(
    r"^\| `(\w+)`, ([\d,]+) edges, (.*?) \|(.*?)\|(.*?)\|(.*)\|$", README, re.MULTILINE
)


def test_rows_are_found():
    assert len(ROWS) == 3


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_row_of_readme(row, report, groups):
    """Ratios to the best peer, and its memory in the backward pass beside that of pyops."""
    operator, edges, width, *figures, memory = row
    width = int(re.search(r"(\d+)(?: \w+)?$", width)[1])
    found = {}
    for group in groups:
        case = group["pyops"].case
        size = case.operator, f"{case.edges:,}", case.width
        if size == (operator, edges, width) and case.dtype == "float32" and not case.offset:
            found.setdefault(group["pyops"].phase, group)
    for phase, figure in zip(PHASES, figures, strict=True):
        best = min(compared(report, found[phase]).values())
        assert figure.strip() == (f"{best:.0f}" if best >= 10 else f"{best:.2g}"), phase
    ratios = compared(report, found["backward"])
    peer = found["backward"][min(ratios, key=ratios.get)]
    shown = report.memory_of(peer), report.memory_of(found["backward"]["pyops"])[:-3]
    assert memory.strip().removesuffix(", results included") == " against ".join(shown)


def test_diagonal_kernel(report, groups):
    """README has the range over the phases."""
    found = [g for g in groups if g["pyops"].case.title.startswith("kernel_conv, diagonal")]
    times = [1 / compared(report, group)["torch_compile"] for group in found]
    shown = re.search(r"`kernel_conv` takes (\S+) to (\S+) times the time of torch.compile", README)
    assert shown.groups() == (f"{min(times):.1f}", f"{max(times):.1f}")
