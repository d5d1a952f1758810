"""The sources keep the form that ARCHITECTURE.md describes."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from .. import ROOT

pytestmark = pytest.mark.bare
LONG = 300
"""Lines of a source that gives the reason at its head if it is longer."""
KIND = "(module|source|class|file|program)"
REASON = re.compile(
    rf"\bone {KIND}:|\b(so|as|because|most of)\b[^.:]*\bone {KIND}\b"
    rf"|\bone {KIND}, (so|as|because)\b|\bhalf of the module is documentation",
    re.IGNORECASE,
)
"""A clause with the reason, for which "one module" alone is not enough."""
FOLDER = 25
"""Most sources of a folder that has none for each operator or layer."""
BY_NAME = "pyops/ops", "pyops/cuda/ops", "pyops/torch/nn", "fortran/device"
BY_NAME += "tests/reference", "benchmarks/operators"
"""Folders with a source for each operator or layer."""
SCANNED = "pyops", "fortran", "tests", "benchmarks", "examples", "docs"


def sources(*folders, suffixes=(".py", ".fypp", ".c", ".cu", ".f90")):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and not {"__pycache__", "gallery"} & {*path.parts}:
                yield path


def name(path):
    return str(path.relative_to(ROOT))


def head(path):
    """Return the comments and the docstring with which a source begins, as one line."""
    text = path.read_text()
    comments = [
        re.sub(r"^\s*(!+[<>]?|//+|#+|/?\*+)\s*|\s*\*/$", "", line)
        for line in text.splitlines()[:40]
        if re.match(r"\s*(!|//|/?\*|#)", line)
    ]
    if path.suffix == ".py":
        comments.append(ast.get_docstring(ast.parse(text)) or "")
    elif text.startswith("/*"):
        comments.append(text[: text.index("*/")])
    return " ".join(" ".join(comments).split())


@pytest.mark.parametrize("folder", SCANNED)
def test_length(folder):
    for path in sources(folder):
        assert len(path.read_text().splitlines()) <= LONG or REASON.search(head(path)), name(path)


def test_length_of_tasks():
    assert REASON.search(head(ROOT / "run"))


@pytest.mark.parametrize(("document", "most"), [("README.md", 150), ("ARCHITECTURE.md", 200)])
def test_length_of_documents(document, most):
    assert len((ROOT / document).read_text().splitlines()) <= most


def test_folders():
    folders = Counter(name(path.parent) for path in sources(*SCANNED))
    assert {f for f, count in folders.items() if count > FOLDER} <= {*BY_NAME}


def test_templates_are_fortran():
    """Lines with directives or expressions of fypp are few, and none names a precision."""
    text = [line for path in sources("fortran", suffixes=[".fypp"]) for line in path.open()]
    directives = [line for line in text if re.search(r"\$\{|^ *#:|^ *\$:|^ *@:", line)]
    assert len(directives) < 0.12 * len(text)
    assert not [line for line in text if "_${v}$" in line]


@pytest.mark.parametrize("name", ["machine", "tuning"])
def test_constants_are_no_data(name):
    """A library may have these modules twice, so they define no arrays and no variables."""
    text = (ROOT / "fortran" / "runtime" / f"{name}.fypp").read_text()
    code = re.sub(r"!.*", "", text).replace("&", "")
    assert "parameter" in code
    assert not re.search(r"\w+\([\d:, ]+\) *=|dimension|allocatable|save", code)


def test_bits_have_names():
    """Kernels and nodes test the bits of their arguments by the names that bits have."""
    numbered = re.compile(r"\b(btest|iand)\((c%)?(wanted|given|present|reads|transposed), *\d")
    assert not [name(p) for p in sources("fortran") if numbered.search(p.read_text())]


@pytest.mark.parametrize(
    "words", ["ways? back", "going back", "made again", "worked out", "comes back"]
)
def test_terms(words):
    """Texts use the terms of the field: backward pass, recompute, gradient."""
    found, here = re.compile(words, re.IGNORECASE), name(Path(__file__))
    texts = sources("pyops", "fortran", "tests", "benchmarks", "examples")
    assert not [name(p) for p in texts if name(p) != here and found.search(p.read_text())]


def test_verbs_of_identifiers():
    """Identifiers use the verbs of the field: vjp, pack, align, prefetch, gather, store."""
    found = re.compile(r"\b(?:pull|lay|ask|put)_\w+")
    assert not any(found.search(p.read_text()) for p in sources("pyops", "fortran"))


def test_unchecked_types():
    """Few annotations are `Any`, which type checkers do not check."""
    lines = [line for path in sources("pyops", suffixes=[".py"]) for line in path.open()]
    found = [line for line in lines if re.search(r"\bAny\b", line) and "import" not in line]
    assert len(found) < 100
