"""Writes the pages of benchmarks from the JSON of `./run bench` and `./run layers`."""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from docstrings import title, write_changed
from operators import table

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import report  # noqa: E402 (found by the path)
from benchmarks import table as table_of_all  # noqa: E402
from benchmarks.operators import elementwise  # noqa: E402
from benchmarks.peers import NAMES, PEERS  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx

    from benchmarks.row import Row

FOLDER = ROOT / "docs" / "benchmarks"
Line = elementwise.Line
LIBRARIES = [name for name in elementwise.PEERS if name != "triad"]
LEVEL = 0.95
"""Ratio of times below which a peer is marked as faster."""
INTRODUCTION = """\
Written by ``./run bench`` on the machine below. Phases add up: forward; forward and backward;
these and double backward. For pyops: the median time of a call and the additional memory at its
peak. For a peer: how many times the time of pyops it takes, and its memory. "Of the limit": the
least time for the multiply-adds of the algorithm at the peak of the machine (fma), for the
compulsory traffic at its copy rate (copy) or for the rows of neighbours at the rate of gathering
as many (gather), whichever is longest, over the shortest time measured.

"""
ADDED = {"forward": "forward", "backward": "+ backward", "double_backward": "+ double backward"}


def read(name: str) -> dict:
    """Return the measurements of a file."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def rates_of(found: dict) -> report.Rates:
    """Return the limits by the number of threads."""
    return {int(threads): rates for threads, rates in found["limits"].items()}


def ratio(value: float) -> str:
    """Return how many times the time of pyops a peer takes, with a mark if that is less."""
    text = f"{report.figure(value)}x"
    return f":slower:`{text}`" if value < LEVEL else text


def peer(row: Row | None, base: Row) -> str:
    """Return the cell of a peer."""
    if row is None:
        return ""
    if row.failure:
        return row.failure[:60]
    return f"{ratio(median(report.ratios(row, base)))}, {report.memory_of(row)}"


def groups(rows: Iterable[Row]) -> Iterator[dict[str, Row]]:
    """Yield the rows of each measurement by peer, if pyops took part."""
    for found in report.groups(rows):
        if "pyops" in found and found["pyops"].seconds:
            yield found


def case_table(rows: list[Row], rates: report.Rates) -> str:
    """Return the table of cases that differ in their size alone."""
    peers = [p for p in PEERS[1:] if any(row.peer == p for row in rows)]
    head = ["nodes", "phases", "threads", "pyops", "of the limit", *(NAMES[p] for p in peers)]
    lines = []
    for found in groups(rows):
        base = found["pyops"]
        start = [f"{base.case.nodes:,}", ADDED[base.phase], str(base.threads)]
        start += [f"{report.time_of(base)}, {report.memory_of(base)}", report.share(base, rates)]
        lines.append([*start, *(peer(found.get(p), base) for p in peers)])
    return table(head, lines)


def slower(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Yield the measurements in which a peer is faster."""
    by_case = groupby(rows, key=lambda row: row.case)
    for found in (found for _, group in by_case for found in groups(group)):
        base = found["pyops"]
        for name, row in found.items():
            value = median(report.ratios(row, base)) if row.seconds else 1
            if value < LEVEL:
                what = [base.case.title, ADDED[base.phase], str(base.threads)]
                yield [*what, NAMES[name], ratio(value)]


def facts(*parts: dict) -> str:
    """Return the table of machine and software."""
    return table(("", ""), [pair for part in parts for pair in report.pairs(part)])


def losses(rows: list[list[str]], *head: str) -> str:
    """Return the section that says where a peer is faster."""
    text = title("Where a peer is faster", "-")
    return text + (table(head, rows) if rows else "In no measurement of this run.\n\n")


def operators_page(found: dict, rows: list[Row], rates: report.Rates) -> str:
    """Return the page of `./run bench`."""
    lines = [
        Line(line["title"], line["threads"], {}, line["moved"], line["seconds"])
        for line in found.get("elementwise", [])
    ]
    text = ".. role:: slower\n\n" + title("Operators")
    text += INTRODUCTION
    text += facts(found["machine"], found["versions"], found["settings"])
    lost = [*slower(rows), *slower_functions(lines)]
    text += losses(lost, "case", "phases", "threads", "peer", "its time over that of pyops")
    for name in dict.fromkeys(row.case.operator for row in rows):
        text += title(name, "-")
        if (FOLDER / f"plot-{name}.svg").exists():
            text += f".. image:: plot-{name}.svg\n   :alt: time and memory over edges\n\n"
        several = [row for row in rows if row.case.operator == name]
        for heading in dict.fromkeys(row.case.title for row in several):
            text += f"**{heading}**\n\n"
            text += case_table([row for row in several if row.case.title == heading], rates)
    if lines:
        text += title("Elementwise functions and reductions", "-") + functions(lines)
    return text


def compared(line: Line) -> dict[str, float]:
    """Return how many times the time of pyops each library takes for a call."""
    return {name: line.ratio(name) for name in LIBRARIES if name in line.seconds}


def functions(lines: list[Line]) -> str:
    """Return the table of elementwise functions."""
    names = [name for name in LIBRARIES if any(name in line.seconds for line in lines)]
    rows = []
    for line in lines:
        found = compared(line)
        cells = [ratio(found[name]) if name in found else "" for name in names]
        time = f"{report.figure(1e3 * median(line.seconds['pyops']))} ms"
        rows.append([line.title, str(line.threads), time, *cells])
    return table(["call", "threads", "pyops", *names], rows)


def slower_functions(lines: list[Line]) -> Iterator[list[str]]:
    """Yield the calls of functions in which a library is faster."""
    for line in lines:
        for name, value in compared(line).items():
            if value < LEVEL:
                yield [line.title, "", str(line.threads), name, ratio(value)]


def layers_page() -> str:
    """Return the page of `./run layers`."""
    found = read("layers")
    text = ".. role:: slower\n\n" + title("Layers")
    text += "Written by ``./run layers``: layers of ``pyops.torch.nn`` beside their originals of "
    text += "PyTorch Geometric and neuraloperator, forward and backward, gradients of inputs and "
    text += "parameters. Time and memory: how many times those of pyops the original takes.\n\n"
    text += facts(found["machine"], found["versions"], found["settings"])
    head = list(found["rows"][0])
    rows, lost = [], []
    for row in found["rows"]:
        values = {k: float(row[k].replace(",", "")[:-1]) for k in ("time", "memory")}
        marked = row | {k: ratio(value) for k, value in values.items()}
        rows.append([marked[k] for k in head])
        lost += [[row["layer"], row["sizes"], k, marked[k]] for k in values if values[k] < LEVEL]
    text += losses(lost, "layer", "sizes", "of", "the original over pyops")
    return text + title("All layers", "-") + table(head, rows)


def slower_cells(cells: list[table_of_all.Cell]) -> Iterator[list[str]]:
    """Yield in how many cells of an operator a peer is faster, and the least ratio."""
    for name, group in groupby(sorted(cells, key=lambda c: c.operator), lambda c: c.operator):
        found = [r for cell in group for r in cell.ratios.values() if r is not None]
        lost = sum(r < LEVEL for r in found)
        if lost:
            yield [name, f"{lost} of {len(found)}", ratio(min(found))]


def front_ends_page() -> str:
    """Return the page of `./run bench table`."""
    found = read("table")
    cells = [table_of_all.Cell(**cell) for cell in found["cells"]]
    text = ".. role:: slower\n\n" + title("Front ends")
    text += "Written by ``./run bench table``. " + table_of_all.PREAMBLE.replace(
        "**Bold**", "Marked"
    )
    text += "\n\n" + facts(found["machine"], found["versions"])
    text += losses([*slower_cells(cells)], "operator", f"ratios below {LEVEL}", "least")
    for name in dict.fromkeys(cell.operator for cell in cells):
        text += title(name, "-")
        rows = []
        for cell in (cell for cell in cells if cell.operator == name):
            *start, took, limit = cell.texts()[1 : -len(cell.ratios)]
            ratios = ["" if r is None else ratio(r) for r in cell.ratios.values()]
            rows.append([*start, took, limit, *ratios])
        text += table(table_of_all.HEAD[1:], rows)
    return text


def write() -> None:
    """Write all pages, and plot the series over the number of edges."""
    import matplotlib as mpl

    mpl.use("Agg")
    from benchmarks.plot import draw

    found = read("operators")
    rows, rates = [report.row_of(entry) for entry in found["rows"]], rates_of(found)
    draw(rows, rates, FOLDER)
    operators = operators_page(found, rows, rates)
    pages = {"operators": operators, "table": front_ends_page(), "layers": layers_page()}
    write_changed(FOLDER, pages)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension with Sphinx."""
    app.connect("builder-inited", lambda _: write())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
