"""Writes the pages of benchmarks from the JSON of `./run bench` and `./run layers`.

All pages share the cells, marks and captions of their tables, so this is one module.
"""

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
from benchmarks.layers import __main__ as layers  # noqa: E402
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
SPREAD = 2
"""Factor between the samples of a cell from which on it is marked."""
MARK = "†"
NONE = "n/a"
ALIKE = "nodes", "edges", "width", "threads"
"""Columns that are left out of a table in which they have one value."""
INTRODUCTION = f"""\
Written by ``./run bench`` on the machine below. Phases add up: forward; forward and backward;
these and double backward. For pyops: the median time of a call and the additional memory at its
peak. For a peer: how many times the time of pyops it takes, and its memory. "Of the limit": the
least time for the multiply-adds of the algorithm at the peak of the machine (fma), for the
compulsory traffic at its copy rate (copy) or for the rows of neighbours at the rate of gathering
as many (gather), whichever is longest, over the shortest time measured.

{MARK} marks a cell whose samples differ by more than a factor of {SPREAD}: other programs ran on
the same processor, see "load" below. Such times may be too long, and such a ratio near 1 shows
nothing.

"""
ADDED = {"forward": "forward", "backward": "+ backward", "double_backward": "+ double backward"}


def read(name: str) -> dict:
    """Return the measurements of a file."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def lines_of(found: dict) -> list[Line]:
    """Return the calls of elementwise functions and reductions."""
    return [
        Line(line["title"], line["threads"], {}, line["moved"], line["seconds"])
        for line in found.get("elementwise", [])
    ]


def rates_of(found: dict) -> report.Rates:
    """Return the limits by the number of threads."""
    return {int(threads): rates for threads, rates in found["limits"].items()}


def ratio(value: float) -> str:
    """Return how many times the time of pyops a peer takes, with a mark if that is less."""
    text = f"{report.figure(value)}x"
    return f":slower:`{text}`" if value < LEVEL else text


def spread(samples: Iterable[float]) -> str:
    """Return the mark of a cell whose samples differ, with a space, or nothing."""
    samples = [*samples]
    return f" {MARK}" if max(samples) > SPREAD * min(samples) else ""


def ratio_of(samples: list[float]) -> str:
    """Return the cell of the median of ratios within rounds."""
    return ratio(median(samples)) + spread(samples)


def peer(row: Row | None, base: Row) -> str:
    """Return the cell of a peer."""
    if row is None:
        return ""
    if row.failure:
        return row.failure[:60]
    return f"{ratio_of(report.ratios(row, base))}, {report.memory_of(row)}"


def groups(rows: Iterable[Row]) -> Iterator[dict[str, Row]]:
    """Yield the rows of each measurement by peer, if pyops took part."""
    for found in report.groups(rows):
        if "pyops" in found and found["pyops"].seconds:
            yield found


def alike(head: list[str], lines: list[list[str]]) -> dict[str, str]:
    """Return the columns of `ALIKE` that have one value, which tables leave out."""
    columns = dict(zip(head, zip(*lines, strict=True), strict=True))
    return {n: columns[n][0] for n in ALIKE if n in columns and len({*columns[n]}) == 1}


def without(names: Iterable[str], head: list[str], lines: list[list[str]]) -> str:
    """Return a table without these columns."""
    places = [place for place, name in enumerate(head) if name not in names]
    return table([head[p] for p in places], [[line[p] for p in places] for line in lines])


def caption(columns: dict[str, str]) -> str:
    """Return the text before a table that has lost these columns."""
    return "; ".join(f"{name} {value}" for name, value in columns.items())


def case_table(rows: list[Row], rates: report.Rates) -> str:
    """Return the table of cases that differ in their size alone."""
    peers = [p for p in PEERS[1:] if any(row.peer == p for row in rows)]
    head = ["nodes", "phases", "threads", "pyops", "of the limit", *(NAMES[p] for p in peers)]
    lines = []
    for found in groups(rows):
        base = found["pyops"]
        start = [f"{base.case.nodes:,}", ADDED[base.phase], str(base.threads)]
        took = f"{report.time_of(base)}{spread(base.seconds)}, {report.memory_of(base)}"
        start += [took, report.share(base, rates)]
        lines.append([*start, *(peer(found.get(p), base) for p in peers)])
    same = alike(head, lines)
    return (f"{caption(same).capitalize()}.\n\n" if same else "") + without(same, head, lines)


def slower(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Yield the measurements in which a peer is faster."""
    by_case = groupby(rows, key=lambda row: row.case)
    for found in (found for _, group in by_case for found in groups(group)):
        base = found["pyops"]
        for name, row in found.items():
            samples = report.ratios(row, base) if row.seconds else []
            if samples and median(samples) < LEVEL:
                what = [base.case.title, ADDED[base.phase], str(base.threads)]
                yield [*what, NAMES[name], ratio_of(samples)]


def run(found: dict) -> str:
    """Return the day and the commit of a run."""
    machine = found["machine"]
    text = f"Measured on {machine['date'].partition('T')[0]}"
    if machine.get("commit", "unknown") == "unknown":
        return f"{text}.\n\n"
    return f"{text} at commit ``{machine['commit']}``: kernels may have changed since.\n\n"


def load(machine: dict) -> str:
    """Return the load of a machine, and what it means."""
    value, cores = machine["load"], machine["cores"]
    text = f"{value:.1f}: mean number of threads that ran or waited, in the minute before"
    shared = f"; the run shared its {cores} cores with other programs"
    return text + (shared if value > cores else "")


def facts(*parts: dict) -> str:
    """Return the table of machine and software."""
    parts = tuple(part | {"load": load(part)} if "load" in part else part for part in parts)
    return table(("", ""), [pair for part in parts for pair in report.pairs(part)])


def losses(rows: list[list[str]], *head: str) -> str:
    """Return the section that says where a peer is faster."""
    text = title("Where a peer is faster", "-")
    return text + (table(head, rows) if rows else "In no measurement of this run.\n\n")


def operators_page(found: dict, rows: list[Row], rates: report.Rates) -> str:
    """Return the page of `./run bench`."""
    lines = lines_of(found)
    text = ".. role:: slower\n\n" + title("Operators")
    text += run(found) + INTRODUCTION
    text += facts(found["machine"], found["versions"], found["settings"])
    if rates:
        text += title("Limits of the machine", "-") + table(*headed(report.limits_lines(rates)))
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
    if found.get("overhead"):
        text += title("Calls", "-") + report.OVERHEAD + "\n\n"
        text += table(*headed(report.overhead_lines(found["overhead"])))
    return text


def headed(lines: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table."""
    return lines[0], lines[1:]


def compared(line: Line) -> dict[str, list[float]]:
    """Return how many times the time of pyops each library takes for a call, by round."""
    own = line.seconds["pyops"]
    return {
        name: [theirs / ours for theirs, ours in zip(line.seconds[name], own, strict=True)]
        for name in LIBRARIES
        if name in line.seconds
    }


def functions(lines: list[Line]) -> str:
    """Return the table of elementwise functions."""
    names = [name for name in LIBRARIES if any(name in line.seconds for line in lines)]
    rows = []
    for line in lines:
        found = compared(line)
        cells = [ratio_of(found[name]) if name in found else NONE for name in names]
        own = line.seconds["pyops"]
        time = f"{report.figure(1e3 * median(own))} ms{spread(own)}"
        rows.append([line.title, str(line.threads), time, *cells])
    head = ["call", "threads", "pyops", *names]
    same = alike(head, rows)
    text = f"{NONE}: the library has no such function, or is not compared with this call. "
    text += f"{caption(same).capitalize()}." if same else ""
    return f"{text}\n\n{without(same, head, rows)}"


def slower_functions(lines: list[Line]) -> Iterator[list[str]]:
    """Yield the calls of functions in which a library is faster."""
    for line in lines:
        for name, samples in compared(line).items():
            if median(samples) < LEVEL:
                yield [line.title, "", str(line.threads), name, ratio_of(samples)]


def layers_page() -> str:
    """Return the page of `./run layers`."""
    found = read("layers")
    text = ".. role:: slower\n\n" + title("Layers") + run(found)
    text += "Written by ``./run layers``: layers of ``pyops.torch.nn`` beside their originals of "
    text += f"PyTorch Geometric and neuraloperator. {layers.PREAMBLE}\n\n"
    text += facts(found["machine"], found["versions"], found["settings"])
    head = list(found["rows"][0])
    rows, lost = [], []
    for row in found["rows"]:
        values = {k: float(row[k].replace(",", "")[:-1]) for k in ("time", "memory")}
        marked = row | {k: ratio(value) for k, value in values.items()}
        rows.append([marked[k] for k in head])
        lost += [[row["layer"], row["sizes"], k, marked[k]] for k in values if values[k] < LEVEL]
    text += losses(lost, "layer", "sizes", "of", "the original over pyops")
    text += "``segment`` of few narrow rows, which the run leaves out, takes longer than the "
    text += "original: see :doc:`limits <../guide/limits>`.\n\n"
    same = alike(head, rows)
    text += title("All layers", "-")
    text += f"{caption(same).capitalize()}.\n\n" if same else ""
    return text + without(same, head, rows)


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
    text = ".. role:: slower\n\n" + title("Front ends") + run(found)
    text += "Written by ``./run bench table``. " + table_of_all.PREAMBLE.replace(
        "**Bold**", "Marked"
    )
    head = table_of_all.HEAD
    rows = []
    for cell in cells:
        ratios = [NONE if r is None else ratio(r) for r in cell.ratios.values()]
        rows.append([*cell.texts()[: -len(ratios)], *ratios])
    same = alike(head, rows)
    text += f" {NONE}: no figure, as there is no peer, or a call failed.\n\n"
    text += f"In all tables, {caption(same)}.\n\n" if same else ""
    text += facts(found["machine"], found["versions"])
    text += losses([*slower_cells(cells)], "operator", f"ratios below {LEVEL}", "least")
    for name, group in groupby(rows, key=lambda row: row[0]):
        text += title(name, "-") + without({"operator", *same}, head, [*group])
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
