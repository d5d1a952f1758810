"""Measurements of one peer, and the check of its results."""

from dataclasses import dataclass, field

import numpy as np

from benchmarks.cases import Case
from benchmarks.peers import NAMES, PEERS

TOLERANCE = {"float32": 1e-4, "float64": 1e-12}


@dataclass
class Row:
    """One peer in one case, phase and thread count."""

    case: Case
    phase: str
    threads: int
    peer: str
    seconds: list[float] = field(default_factory=list)
    extra_bytes: int = 0
    error: float | None = None  # relative to another peer
    failure: str = ""

    @property
    def place(self) -> tuple[str, int]:
        return self.peer, self.threads


def check(answers, rows):
    """Flag the rows whose results differ from those of the peer that most others agree with."""
    candidates = sorted(
        (place for place in answers if place[0] in PEERS[1:]),
        key=lambda place: (PEERS.index(place[0]), place[1]),
    )
    errors = {
        reference: {place: distance(answers[place], answers[reference]) for place in answers}
        for reference in candidates
    }
    if not candidates:
        return
    tolerance = TOLERANCE[rows[0].case.dtype]
    chosen = max(candidates, key=lambda place: sum(e <= tolerance for e in errors[place].values()))
    for row in rows:
        if row.place in answers:
            row.error = errors[chosen][row.place]
            if not row.error <= tolerance:
                row.failure = f"wrong: {row.error:.1e} from {NAMES[chosen[0]]}"


def distance(answers, references):
    """Return the largest relative difference of arrays; infinite if shapes differ, NaN for NaN.

    It is relative to the root mean square of the reference, or to a hundredth of the largest one:
    rounding differs where a derivative vanishes.
    """
    if [shape for shape, _ in answers] != [shape for shape, _ in references]:
        return np.inf
    scales = np.array([magnitude(wanted) for _, wanted in references])
    scales = np.maximum(scales, max(0.01 * scales.max(), 1e-300))
    pairs = zip(answers, references, strict=True)
    differences = [magnitude(values - wanted.astype(float)) for (_, values), (_, wanted) in pairs]
    return float(np.max(differences / scales))


def magnitude(values):
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(values, dtype=float)))) if values.size else 0.0
