"""Prints records as lines, and the targets."""

import json

from benchmarks.cuda.cases import CASES, PEERS, TARGETS

BOUND = 1e-3
"""Least relative differences of float32 results that rounding does not explain."""


class Report:
    """All records so far; lines are printed as they arrive."""

    def __init__(self, path=None, cases=CASES):
        self.records, self.path, self.cases, self.titled = [], path, cases, None

    def add(self, record):
        self.records.append(record)
        if "title" in record and record["case"] != self.titled:
            self.titled = record["case"]
            say(f"\n{record['title']}, {record['nodes']} nodes")
        for line in LINES[record["what"]](self, record):
            say(line)

    def of(self, case, what, **more):
        """Return the records of a case."""
        wanted = {"case": case, "what": what, **more}
        return [r for r in self.records if all(r.get(k) == v for k, v in wanted.items())]

    def time(self, case, phase, who="pyops"):
        """Return seconds, or None."""
        found = self.of(case, "time", phase=phase, who=who)
        return found[0]["seconds"] if found else None

    def best(self, case, phase):
        """Return the fastest peer and its time, or None."""
        times = {peer: self.time(case, phase, peer) for peer in PEERS}
        times = {peer: took for peer, took in times.items() if took is not None}
        return min(times.items(), key=lambda item: item[1]) if times else None

    def compare(self, case):
        """Compare each phase of a case with its best peer."""
        for phase in self.cases[case].phases:
            mine, best = self.time(case, phase), self.best(case, phase)
            if mine and best:
                say(f"  {phase}: {best[1] / mine:.2f} times faster than the best peer, {best[0]}")

    def finish(self, numbers):
        """Print the targets of the requested cases."""
        results = [
            self.reached(number, target)
            for target in TARGETS
            for number in numbers
            if target.operator == self.cases[number].operator
            and target.phase in self.cases[number].phases
        ]
        say("\nTargets")
        for result in results:
            say("  {reached:<12} {found:>8}  {target} ({nodes} nodes{note})".format(**result))
        if not results:
            say("  none of their operators was asked for")
        self.save(results)

    def reached(self, case, target):
        """Return whether a target was reached in a case."""
        mine, ratio, note = self.time(case, target.phase), None, ""
        if target.most:
            gather = self.of(case, "gather")
            if mine and gather:
                ratio = mine / (2 * gather[0]["seconds"])
            good = ratio is not None and ratio <= target.most
        else:
            best = self.best(case, target.phase)
            missing = [p for p in PEERS if self.time(case, target.phase, p) is None]
            if mine and best:
                ratio, note = best[1] / mine, f", best: {best[0]}"
            note += f", without {', '.join(missing)}" if missing else ""
            good = ratio is not None and ratio >= target.least
        return {
            "target": str(target),
            "nodes": self.cases[case].nodes,
            "note": note,
            "ratio": ratio,
            "found": "none" if ratio is None else f"{ratio:.2f}",
            "reached": "not measured" if ratio is None else "reached" if good else "NOT REACHED",
        }

    def save(self, results=()):
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"records": self.records, "targets": list(results)}, indent=1)
            self.path.write_text(text + "\n")


def say(line):
    print(line, flush=True)


def milliseconds(seconds):
    return f"{1e3 * seconds:.3f} ms"


def machine(report, record):
    for name, value in record.items():
        if name != "what":
            yield f"{name}: {value}"


def limits(report, record):
    yield f"copy: {record['copy'] / 1e12:.2f} TB/s read and written"
    for name, rate in record.items():
        if name not in ("what", "copy"):
            yield f"product, {name}: {rate / 1e12:.1f} TFLOP/s"


def gather(report, record):
    way = min(record["ways"], key=record["ways"].get)
    yield f"  one gather of the rows: {milliseconds(record['seconds'])} by {way}"
    ours = milliseconds(record["ways"]["pyops.aggregate"])
    yield f"    pyops.aggregate: {ours}"
    for rates in (r for r in report.records if r["what"] == "limits"):
        yield f"    at the rate of a copy: {milliseconds(record['bytes'] / rates['copy'])}"


def time(report, record):
    who, phase, case = record["who"], record["phase"], record["case"]
    size = record["bytes"]
    line = (
        f"  {phase}: {who} {milliseconds(record['seconds'])}, "
        f"{milliseconds(record['launch'])} of the host, first call {record['first']:.1f} s, "
        f"{'memory unknown' if size is None else f'{size / 1e6:.0f} MB'}"
    )
    mine = report.time(case, phase)
    if who != "pyops":
        if mine:
            line += f"; {record['seconds'] / mine:.2f} times ours"
        if record["apart"] is not None:
            line += f", answers {record['apart']:.1e} apart"
    yield line
    found = report.of(case, "gather")
    if who == "pyops" and phase != "forward" and found:
        yield f"    {record['seconds'] / (2 * found[0]['seconds']):.2f} times two gathers"
    if who in PEERS and record["apart"] is not None and not record["apart"] <= BOUND:
        yield f"  !!! THE ANSWERS OF {who} DIFFER FROM OURS: {record['apart']:.1e} > {BOUND:.0e}"


def failure(report, record):
    phase = f"{record['phase']}: " if "phase" in record else ""
    yield f"  {phase}{record['who']}: {record['why']}"


LINES = {
    "machine": machine,
    "limits": limits,
    "gather": gather,
    "time": time,
    "failure": failure,
}
