"""What one peer took, and whether its answers are right."""

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
    error: float | None = None  # relative, against another peer
    failure: str = ""


def check(answers, rows):
    """Mark the rows whose answers are not those of the peer that most others agree with."""
    candidates = [peer for peer in PEERS if peer in answers and peer != "pyops"]
    errors = {
        reference: {peer: distance(answers[peer], answers[reference]) for peer in answers}
        for reference in candidates
    }
    if not candidates:
        return
    tolerance = TOLERANCE[rows[0].case.dtype]
    chosen = max(candidates, key=lambda peer: sum(e <= tolerance for e in errors[peer].values()))
    for row in rows:
        if row.peer in answers:
            row.error = errors[chosen][row.peer]
            if not row.error <= tolerance:
                row.failure = f"wrong: {row.error:.1e} from {NAMES[chosen]}"


def distance(answers, references):
    pairs = zip(answers, references, strict=True)
    return max(difference(*pair) for pair in pairs)


def difference(answer, reference):
    """Relative, in the Euclidean norm; infinite where the shapes differ."""
    (shape, values), (wanted_shape, wanted) = answer, reference
    if shape != wanted_shape:
        return np.inf
    wanted = wanted.astype(float)
    return float(np.linalg.norm(values - wanted) / max(np.linalg.norm(wanted), 1e-300))
