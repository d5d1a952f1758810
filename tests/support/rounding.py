"""Rounding error bounds of results: 8 eps sqrt(terms), in units of the sum of magnitudes.

Legendre polynomials of high degree amplify the rounding of directions by their slope. Where the
result depends on the condition of a basis, on a softmax, or on functions of distances and angles
with terms of both signs, the bound is a multiple of the effect of rounding the inputs; triangular
solves lose the condition of the basis once more.
"""

from dataclasses import replace

import numpy as np

from ..reference import reference
from .cases import SELECTING, SOFTMAX, STATISTICS


def bounds(problem, phase, dtype):
    """Return the bound for each element of each result of a phase in a precision."""
    problem = problem.map(np.float64)
    sensitive = problem.arrays.keys() & {"basis", "distances"} or "max_degree" in problem.options
    normalised = problem.op.name in SOFTMAX or problem.options.get("norm") == "layer"
    statistics = problem.options.get("reduce") in STATISTICS
    if sensitive or normalised or statistics:
        return _sensitivities(problem, phase, np.finfo(dtype).eps)
    extreme = problem.options.get("reduce") in SELECTING
    # Excluded pairs are added and subtracted again; angular terms have either sign.
    every = {"exclude": "bound" if "vectors" in problem.arrays else "none"}
    bounding = _bounding(problem, reduce="sum") if extreme else _bounding(problem, **every)
    magnitudes = _sums(bounding, phase)
    counts = _sums(_bounding(problem, reduce="sum", **every).map(np.ones_like), phase)
    if problem.op.name == "degree_normalised":  # which normalizes terms by degrees
        counts = [np.float64(problem.graph.num_entries)] * len(counts)
    unit = 8 * np.finfo(dtype).eps
    if "vectors" in problem.arrays:  # slope l (l + 1)/2 at collinear edges
        last = problem.options["num_spherical"] - 1
        unit *= max(1, last * (last + 1) / 8)
    return [
        None if size is None else unit * np.sqrt(np.maximum(abs(count), 1)) * abs(size)
        for size, count in zip(magnitudes, counts, strict=True)
    ]


def _bounding(problem, **options):
    """Return the problem with activations that bound magnitudes, and other options if known."""
    if problem.options.get("activation", "relu") != "relu":
        options["activation"] = "bound"
    known = {name: value for name, value in options.items() if name in problem.options}
    return replace(problem, options={**problem.options, **known})


def _sums(problem, phase):
    """Return the sums of the magnitudes of terms, which linear operators may also subtract."""
    if not problem.op.signature.linear:
        return _largest([reference(some, phase) for some in _magnitudes(problem)])
    names = [n for n in problem.names(phase) if problem.arrays[n] is not None]
    zeros = problem.having(**{n: np.zeros_like(problem.arrays[n]) for n in names})
    alone = [reference(zeros.having(**{n: abs(problem.arrays[n])}), phase) for n in names]
    return [
        None if a is None else sum(map(abs, (a, *more))) for a, *more in zip(*alone, strict=True)
    ]


def _largest(runs):
    """Return the largest magnitudes of results of several runs."""
    return [
        None if some[0] is None else np.max([abs(a) for a in some], axis=0)
        for some in zip(*runs, strict=True)
    ]


def _magnitudes(problem):
    """Return problems with absolute inputs, of which one has terms of one sign in each result.

    At negative poles and without oscillations exponentials are largest. The second derivatives by
    poles and by frequencies have terms of one sign with tangents of frequencies of either sign.
    """
    problem = problem.map(np.abs)
    poles = {name: -a for name, a in problem.arrays.items() if "poles" in name and a is not None}
    problem = problem.having(**poles)
    if not poles or (frequencies := problem.arrays["frequencies"]) is None:
        return [problem]
    problem = problem.having(frequencies=0 * frequencies)
    return [problem, problem.having(hfrequencies=-problem.arrays["hfrequencies"])]


def _sensitivities(problem, phase, eps, times=40):
    """Return the largest change of each result under relative changes of the inputs by eps."""
    rng = np.random.default_rng(0)
    exact = reference(problem, phase)
    sizes = [0.0 if a is None else abs(a).max(initial=0) for a in exact]
    if "basis" in problem.arrays:
        basis = problem.arrays["basis"]
        condition = np.linalg.cond(basis)
        # A square basis spans the whole space: the error of the solves then cancels only exactly.
        square = basis.shape[0] == basis.shape[1]
        times *= condition if square else np.clip(condition / 10, 1, 3)
    if problem.op.name in SOFTMAX or "vectors" in problem.arrays:
        # Terms as large as the cotangents cancel if a row has equal logits or one entry, and
        # if gradients are parallel to vectors.
        given = [a for a in (problem.arrays[n] for n in problem.names(phase)) if a is not None]
        largest = max(*sizes, *(abs(a).max(initial=0) for a in given))
        entries = problem.graph.num_entries if problem.graph else 0
        width = max(a.shape[-1] for a in given) if problem.op.name in SOFTMAX else 1
        sizes = [np.sqrt((1 + entries) * width) * largest] * len(sizes)
    most = [eps * size for size in sizes]
    for _ in range(5):
        moved = problem.map(lambda a: a * (1 + eps * rng.choice([-1, 1], a.shape)))
        for i, (a, b) in enumerate(zip(reference(moved, phase), exact, strict=True)):
            most[i] = most[i] if a is None else max(most[i], abs(a - b).max(initial=0))
    return [None if a is None else times * m for a, m in zip(exact, most, strict=True)]
