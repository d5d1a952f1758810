"""Figures of README, and what the site says of its benchmarks, are those of the stored results."""

import json
import re
import sys
from statistics import median

import pytest

from .. import ROOT
from ..support.site import load

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
    """README has the range over the phases, on one thread."""
    found = [g for g in groups if g["pyops"].case.title.startswith("kernel_conv, diagonal")]
    found = [group for group in found if group["pyops"].threads == 1]
    times = [1 / compared(report, group)["torch_compile"] for group in found]
    shown = re.search(r"`kernel_conv` takes (\S+) to (\S+) times the time of torch.compile", README)
    assert shown.groups() == (f"{min(times):.1f}", f"{max(times):.1f}")


@pytest.fixture(scope="module")
def measurements(report):
    return load("measurements")


def test_faster_peers(report, groups, measurements):
    """The comparison has the least ratio of each peer that is faster, and counts other cases."""
    text = (RESULTS.parent / "explanation" / "comparison.md").read_text()
    section = text.partition("\n## Where a peer is faster\n")[2].partition("\n## ")[0]
    level = measurements.LEVEL
    slower = []
    for group in groups:
        case = group["pyops"].case
        name = "IntegralTransform" if case.operator == "integral_transform" else case.operator
        for peer, ratio in compared(report, group).items():
            if ratio < level:
                assert group["pyops"].threads == 1, "the text says that all are on one thread"
                slower.append((name, report.NAMES[peer], ratio))
    rows = re.findall(r"^\| (.*?) \|.*\| (.*) \|$", section, re.MULTILINE)
    rows = [(re.findall(r"`(\w+)`", names), peers) for names, peers in rows]
    assert {name for names, _ in rows for name in names} == {name for name, _, _ in slower}
    for names, peers in (row for row in rows if row[0]):
        found = sorted(((p, r) for name, p, r in slower if name in names), reverse=True)
        least = {peer: f"{ratio:.2f}" for peer, ratio in found}  # the last of each peer
        assert dict(re.findall(r"([\w.]+) ([\d.]+)", peers)) == least, names

    lines = measurements.lines_of(measurements.read("operators"))
    calls = {(row[0], row[2]) for row in measurements.slower_functions(lines)}
    assert f"NumPy or torch in {len(calls)} of {len(lines)} calls" in section


def test_faster_peers_by_front_end(measurements):
    """The comparison counts the measurements in which a peer is faster, by size and front end."""
    text = (RESULTS.parent / "explanation" / "comparison.md").read_text()
    found = measurements.read("table")["cells"]
    front_ends = "NumPy", "torch", "torch.compile", "jax.jit"
    assert f"| edges | {' | '.join(front_ends)} |" in text
    for edges in sorted({cell["edges"] for cell in found}):
        shown = []
        for front_end in front_ends:
            ratios = [cell["ratios"][front_end] for cell in found if cell["edges"] == edges]
            ratios = [ratio for ratio in ratios if ratio]
            lost = sum(ratio < measurements.LEVEL for ratio in ratios)
            shown.append(f"{lost} of {len(ratios)}, {median(ratios):.2g}")
        assert f"| {edges:,} | {' | '.join(shown)} |" in text
    large = max(cell["edges"] for cell in found)
    lost = {
        cell["operator"]
        for cell in found
        for ratio in cell["ratios"].values()
        if cell["edges"] == large and ratio and ratio < measurements.LEVEL
    }
    words = " ".join(text.split())
    sentence = words.partition(f"At {large:,} edges a peer is faster")[2].partition(". ")[0]
    assert {*re.findall(r"`(\w+)`", sentence)} == lost


def test_time_of_a_call(measurements):
    """Pages have the range over most operators on a graph."""
    found = measurements.read("operators")["overhead"]
    more = re.compile("edge_to_edge|dimenet|elem_scale|[lo]no_|orthonormalize|.*_basis|spherical")
    times = [1e6 * phases["forward"] for name, phases in found.items() if not more.match(name)]
    shown = f"{min(times):.0f} to {max(times):.0f}"
    for page in "guide/limits.md", "design/measurements.md", "design/calls.md":
        assert shown in (RESULTS.parent / page).read_text(), page


@pytest.fixture(scope="module")
def operators_page(report, measurements):
    found = measurements.read("operators")
    rows = [report.row_of(entry) for entry in found["rows"]]
    return measurements.operators_page(found, rows, measurements.rates_of(found))


def test_page_of_operators(operators_page, report, measurements):
    """It marks cells whose samples differ, and has the limits, the load and the time of a call."""
    found = measurements.read("operators")
    (row,) = (
        r
        for r in map(report.row_of, found["rows"])
        if (r.case.operator, r.phase, r.peer) == ("segment_softmax", "forward", "pyops")
    )
    steady = max(row.seconds) <= measurements.SPREAD * min(row.seconds)
    shown = f"     - {report.time_of(row)}{'' if steady else ' †'}, {report.memory_of(row)}\n"
    assert shown in operators_page
    assert measurements.spread([1.0, 2.1, 1.5]) == " †"
    assert measurements.spread([1.0, 2.0]) == ""
    for name, *cells in report.overhead_lines(found["overhead"])[1:]:
        assert "".join(["   * - ", name, *(f"\n     - {cell}" for cell in cells)]) in operators_page
    for name, *cells in report.limits_lines(measurements.rates_of(found))[1:]:
        assert "".join(["   * - ", name, *(f"\n     - {cell}" for cell in cells)]) in operators_page
    assert f"{found['machine']['load']:.1f}: mean number" in operators_page


def test_page_of_front_ends(measurements):
    """Columns of one value are in its caption, and the overview has what was measured."""
    page, cells = measurements.front_ends_page(), measurements.read("table")["cells"]
    for name in "edges", "width", "threads":
        values = {cell[name] for cell in cells}
        assert bool(re.search(rf"^   [* ] - {name}$", page, re.M)) == (len(values) > 1), name
        assert (f"{name} {max(values):,}" in page) == (len(values) == 1), name
    edges, widths = (sorted({cell[name] for cell in cells}) for name in ("edges", "width"))
    sizes = f"{' and '.join(f'{e:,}' for e in edges)} edges and width {widths.pop()}"
    assert not widths
    text = " ".join((RESULTS.parent / "benchmarks.md").read_text().split())
    assert sizes in text
    few, many = ({c["operator"] for c in cells if c["edges"] == size} for size in edges)
    assert few == many
    assert not re.search(r"^     -$", page.partition("Where a peer")[2], re.M)


@pytest.mark.parametrize("name", ["operators", "table", "layers"])
def test_pages_name_their_commit(name, operators_page, measurements):
    machine = measurements.read(name)["machine"]
    pages = {"table": measurements.front_ends_page, "layers": measurements.layers_page}
    page = pages[name]() if name in pages else operators_page
    shown = f"Measured on {machine['date'][:10]} at commit ``{machine['commit']}``"
    assert shown in page.partition("list-table")[0]


def test_layers_without_figures(measurements):
    """The guide of layers names those that the stored run leaves out."""
    page = (RESULTS.parent / "guide" / "layers.md").read_text()
    rows = re.findall(r"^\| `[\w.]+` \| (.*) \|$", page.partition("\n## ")[0], re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    measured = {row["layer"] for row in measurements.read("layers")["rows"]}
    sentence = page.partition("has no figure of ")[2].partition(";")[0]
    named = {*re.findall(r"`(\w+)`", sentence)}
    blocks = {n for n in listed if n.startswith("Mesh")}
    parts = {"BesselBasisLayer", "SphericalBasisLayer", "EmbeddingBlock", "OutputPPBlock"}
    parts |= {"ResidualLayer", "InteractionBlock", "GaussianSmearing", "ShiftedSoftplus"}
    assert listed - measured - blocks - parts == named


def test_times_of_models():
    """The table of the guide to models has the times and sizes of `benchmarks.deployment`."""
    found = json.loads((RESULTS / "deployment.json").read_text())
    page = (ROOT / "docs" / "guide" / "models.md").read_text()
    sizes = found.pop("MB beside the model")
    found.pop("machine")
    rows = {"MB beside the model": [f"{sizes[route]:.0f}" for route in sizes]}
    rows |= {name: [f"{own[route]['ms']:.1f}" for route in sizes] for name, own in found.items()}
    for name, cells in rows.items():
        assert f"| {' | '.join([name, *cells])} |" in page, name
