"""Reports the rows as Markdown tables, readable on a terminal, and as JSON."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from itertools import groupby
from statistics import median, quantiles

from benchmarks.cases import PHASES, Case
from benchmarks.limits import GATHERS
from benchmarks.peers import NAMES, PEERS
from benchmarks.problem import operator_module
from benchmarks.products import OURS, TILE, Timing
from benchmarks.row import Row

Rates = dict[int, dict[str, float]]
Overhead = dict[str, dict[str, float]]
PREAMBLE = """\
Phases add up: forward; forward and backward; these and double backward. In each cell: the median
time of a call, how many times pyops's time that is (median of the ratios within a round, with half
the distance between their quartiles), and the extra memory at the peak of a call. "Speed-up": the
time of pyops on the fewest threads over this one, in the same way. "Of the limit": the least time
for the factored algorithm's multiply-adds at the machine's peak (fma), or for the compulsory
traffic at its copy rate (copy), or for the rows of neighbours at the rate of gathering as many
(gather), whichever is longest, over the shortest time measured. A peer whose results differ from
the others' is not timed. Arrays begin with a line of the cache, as frameworks allocate them, but
where a title says otherwise: those of NumPy begin 16 bytes behind one."""
OVERHEAD = """\
One call of pyops, each phase by itself, on 5 nodes with 2 edges each or 3 samples: Python, checks,
wrapper."""
PRODUCTS = """\
Small products on one thread: the best rate and its share of the multiply-add peak; of the ways to
take a sum, whole or 256 terms at a time, the faster one. The kernels pack a weight once for all
rows. The first OpenBLAS has the kernels it chooses itself, the others those of an
OPENBLAS_CORETYPE. Last, the shortest time of any library as a multiple of the tile's."""


def limit(row: Row, rates: Rates) -> tuple[float, str]:
    """Return the least seconds of a row's phases, and the limit that determines them."""
    operator = operator_module(row.case)
    phases = PHASES[: PHASES.index(row.phase) + 1]
    rate = rates[row.threads]
    counts = operator.multiply_adds(row.case)
    limits = [(sum(2 * counts[p] for p in phases) / rate[row.case.dtype], "fma")]
    if hasattr(operator, "elements_moved"):
        moved, size = operator.elements_moved(row.case), int(row.case.dtype[5:]) // 8
        limits.append((size * sum(moved[p] for p in phases) / rate["copy, 64 MB"], "copy"))
    if hasattr(operator, "elements_gathered"):
        gathered, size = operator.elements_gathered(row.case), int(row.case.dtype[5:]) // 8
        table = size * gathered["forward"] // row.case.degree
        name = min(GATHERS, key=lambda name: abs(math.log(GATHERS[name] / table)))
        limits.append((size * sum(gathered[p] for p in phases) / rate[name], "gather"))
    return max(limits)


def ratios(row: Row, base: Row) -> list[float]:
    return [mine / its for mine, its in zip(row.seconds, base.seconds, strict=True)]


def times(row: Row, base: Row) -> str:
    values = ratios(row, base)
    middle = median(values)
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return f"{figure(middle)}x ±{50 * (high - low) / middle:.0f}%"


def figure(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}" if value < 1 else f"{value:.3g}"


def time_of(row: Row) -> str:
    value = median(row.seconds)
    return f"{figure(1e3 * value)} ms" if value < 1 else f"{value:.2f} s"


def memory_of(row: Row) -> str:
    megabytes = row.extra_bytes / 1e6
    return f"{megabytes:.2g} MB" if megabytes < 9.5 else f"{megabytes:,.0f} MB"


def cell(row: Row | None, base: Row | None) -> str:
    if row is None:
        return ""
    if row.failure:
        return row.failure[:60]
    compared = base and base.seconds and row is not base
    return ", ".join([time_of(row), *([times(row, base)] if compared else []), memory_of(row)])


def share(row: Row | None, rates: Rates) -> str:
    if row is None or not row.seconds or not rates:
        return ""
    seconds, name = limit(row, rates)
    return f"{100 * seconds / min(row.seconds):.0f} % {name}"


def best(rows: dict[str, Row], base: Row | None) -> str:
    others = [row for row in rows.values() if row is not base and row.seconds]
    if not others or base is None or not base.seconds:
        return ""
    return f"{figure(min(median(ratios(row, base)) for row in others))}x"


def line(cells: list[str], widths: list[int]) -> str:
    return "| " + " | ".join(map(str.ljust, cells, widths)) + " |"


def table(lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    head, *body = (line(cells, widths) for cells in lines)
    return "\n".join([head, rule, *body])


def groups(rows: Iterable[Row]) -> Iterator[dict[str, Row]]:
    """Yield the rows of each size, phase and number of threads by peer."""

    def place(row):
        return row.case.nodes, PHASES.index(row.phase), row.threads

    for _, group in groupby(sorted(rows, key=place), key=place):
        yield {row.peer: row for row in group}


def case_table(rows: list[Row], rates: Rates) -> str:
    """Return a table of cases that differ in the number of nodes alone."""
    peers = [peer for peer in PEERS[1:] if any(row.peer == peer for row in rows)]
    names = [NAMES[peer] for peer in peers]
    fewest = min(row.threads for row in rows)
    lines = [
        ["nodes", "phase", "threads", "pyops", "speed-up", "of the limit", *names, "best peer"]
    ]
    alone = {
        (row.case, row.phase): row for row in rows if row.place == ("pyops", fewest) and row.seconds
    }

    for found in groups(rows):
        row, base = next(iter(found.values())), found.get("pyops")
        start = [f"{row.case.nodes:,}", row.phase, str(row.threads)]
        one = alone.get((row.case, row.phase))
        faster = base and base.seconds and one and base is not one
        start += [cell(base, base), times(one, base) if faster else "", share(base, rates)]
        lines.append([*start, *(cell(found.get(peer), base) for peer in peers), best(found, base)])
    return table(lines)


def limits_lines(rates: Rates) -> list[list[str]]:
    """Return the head and the rows of the table of limits."""
    names = list(next(iter(rates.values())))
    lines = [["limit", *(f"{count} thread{'s' * (count > 1)}" for count in rates)]]
    for name in names:
        unit = "GFLOP/s" if name.startswith("float") else "GB/s"
        label = f"multiply-add, {name}" if name.startswith("float") else name
        lines.append([label, *(f"{rate[name] * 1e-9:.0f} {unit}" for rate in rates.values())])
    return lines


def overhead_lines(overhead: Overhead) -> list[list[str]]:
    """Return the head and the rows of the table of overhead."""
    lines = [["operator", *next(iter(overhead.values()))]]
    for operator, seconds in overhead.items():
        lines.append([operator, *(f"{1e6 * value:.1f} µs" for value in seconds.values())])
    return lines


def products_table(timings: list[Timing]) -> str:
    names = list(dict.fromkeys(timing.name for timing in timings))
    lines = [["product", "m, n, k", "dtype", *names, "best library"]]

    def kind(timing):
        return timing.product, timing.dtype

    for (product, dtype), group in groupby(timings, key=kind):
        found = {t.name: t for t in sorted(group, key=lambda t: t.rate)}
        start = [product.use, f"{product.m}, {product.n}, {product.k}", dtype]
        others = [timing.rate for name, timing in found.items() if name not in OURS]
        fastest = max(others, default=0)
        best = [f"{figure(found[TILE].rate / fastest)}x" if fastest else ""]
        lines.append([*start, *(rate_cell(found.get(name)) for name in names), *best])
    return table(lines)


def rate_cell(timing: Timing | None) -> str:
    if timing is None:
        return ""
    share = f"{100 * timing.rate / timing.peak:.0f} %"
    return timing.failure or f"{figure(timing.rate * 1e-9)} GFLOP/s, {share}"


def markdown(
    facts: dict,
    versions: dict,
    rows: list[Row],
    rates: Rates,
    overhead: Overhead,
    products: list[Timing],
) -> str:
    parts = [
        "# Benchmark",
        PREAMBLE,
        table([["fact", "value"], *map(list, pairs(facts, versions))]),
    ]
    if rates:
        parts.append(table(limits_lines(rates)))
    if overhead:
        parts += ["## Overhead", OVERHEAD, table(overhead_lines(overhead))]
    if products:
        parts += ["## Products", PRODUCTS, products_table(products)]
    titles = dict.fromkeys(row.case.title for row in rows)
    for title in titles:
        parts += [f"## {title}", case_table([r for r in rows if r.case.title == title], rates)]
    return "\n\n".join(parts) + "\n"


def pairs(*facts: dict) -> list[tuple[str, str]]:
    return [(name, str(value)) for part in facts for name, value in part.items()]


def entry(row: Row, rates: Rates) -> dict:
    """Return a row with all samples; of its case, what differs from the defaults."""
    defaults = {field.name: field.default for field in fields(Case)}
    case = {name: value for name, value in vars(row.case).items() if value != defaults[name]}
    found = asdict(row) | {"case": case, "seconds": [float(f"{s:.4g}") for s in row.seconds]}
    if rates:
        found["limit_seconds"], found["limit_by"] = limit(row, rates)
    return found


def row_of(entry: dict) -> Row:
    """Return the row of an entry that was read from JSON."""
    case = {k: tuple(v) if isinstance(v, list) else v for k, v in entry["case"].items()}
    own = {field.name: entry[field.name] for field in fields(Row)}
    return Row(**own | {"case": Case(**case)})


def json_ready(
    facts: dict,
    versions: dict,
    settings: dict,
    rows: list[Row],
    rates: Rates,
    overhead: Overhead,
    products: list[Timing],
) -> dict:
    """Return everything, including all samples."""
    return {
        "machine": facts,
        "versions": versions,
        "settings": settings,
        "limits": rates,
        "overhead": overhead,
        "products": [asdict(timing) for timing in products],
        "rows": [entry(row, rates) for row in rows],
    }


def json_text(everything: dict) -> str:
    """Return JSON with one line for each entry of a list."""
    parts = []
    for name, part in everything.items():
        text = json.dumps(part)
        if isinstance(part, list):
            text = "[\n" + ",\n".join(map(json.dumps, part)) + "\n]"
        parts.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
