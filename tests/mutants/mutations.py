"""Generates faults in the executable statements of kernels, macros and nodes."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from .fault_sites import name_of, paths

_PIECE = r"(?:\w|\$\{.*?\}\$)+"  # a name, also one that fypp composes
_ARGS = r"\([^()]*\)"
for _ in range(3):
    _ARGS = rf"\((?:[^()]|{_ARGS})*\)"
_NAME = rf"{_PIECE}(?:{_ARGS})?(?:%{_PIECE}(?:{_ARGS})?)*"
_OPERAND = rf"(?:\d+\.\d*(?:_\w+)?|{_NAME}|{_ARGS})"
_PRODUCT = rf"{_OPERAND}(?:[*/]{_OPERAND})*"
_ITEM = rf"(?:[^,()\[\]\n]|{_ARGS})+"  # an item of a comma-separated list
_START = r"(?<![\w$%.)}/*])"
_BREAK = r"(?:\s*&\n\s*)?"
_AXIS = r"(?:[a-z]\w*|:)"
_INDEX = r"(?:[a-z]|row|unit|panel|column|edge|slot|first|start|stop|last|origin)"
_CALLED = r"(?:min|max|mod|merge|iand|btest|size|real|if)\b"

_TWINS = """
    inward outward, in_features out_features, num_src num_dst, num_edges num_entries, rows columns,
    in_offsets out_offsets, in_nodes out_nodes, in_edges out_edges, nodes edges,
    features features_tangent, weight weight_tangent, layer tangent, layer layer_tangent,
    z z_tangent, gradient first_gradient, p first_p, given wanted, features hfeatures, kappa hkappa,
    coords hcoords, params hparams, weight bias, left right, first last, start stop, hidden dim,
    edge slot, edges slots, rows units, padded units, depth ld, panel unit, i k, i q, i j, f c,
    f h, p q, cdf phi, erfc erf, min max, activate activate_slope, sum_into sum_out,
    activate_slope activate_curvature"""
"""Names that may be confused with each other: widths, directions, phases, indices."""

_RULES = [
    ("sign", r"(?<=\s)\+(?=\s)", "-"),
    ("sign", r"(?<=\s)-(?=\s)", "+"),
    ("sign", r"(?<=[\s(\"])-(?=[\w(])", ""),
    ("factor", rf"{_BREAK}[*/](?![=)]){_OPERAND}", ""),
    ("factor", rf"{_START}{_OPERAND}\*(?=[\w(])", ""),
    ("factor", r"(?<=[\w) ])/(?=[\w(])", "*"),
    ("term", rf"{_BREAK}\s[+-]\s{_PRODUCT}", ""),
    ("term", rf"{_START}{_PRODUCT}{_BREAK}\s\+\s", ""),
    ("index", rf"(?<=[(,:])( ?){_INDEX}(?=[,:)])", r"\g<0> + 1"),
    ("index", rf"(?<=[(,:])( ?){_INDEX}(?=[,:)])", r"\g<0> - 1"),
    ("bound", rf"(?<=do )\w+ = {_ITEM}(?=, )", r"\g<0> + 1"),
    ("bound", rf"(?<=do )\w+ = {_ITEM}, {_ITEM}(?=[,\n])", r"\g<0> - 1"),
    ("bound", rf"(?<=do )\w+ = {_ITEM}, {_ITEM}(?=[,\n])", r"\g<0> + 1"),
    ("transpose", rf"(?<!call )(?<![\w$])(?!{_CALLED})({_PIECE})\(({_AXIS}), ({_AXIS})(?=[,)])",
     r"\1(\3, \2"),
    ("transpose", rf"\[({_ITEM}), ({_ITEM})(?=[],])", r"[\2, \1"),
    ("transpose", rf"(?<=, )({_ITEM}), ({_ITEM})\]", r"\2, \1]"),
    ("condition", rf"(?<=if )({_ARGS})", r"(.not. \1)"),
    ("condition", rf"if {_ARGS}{_BREAK}\s?(?!then)", ""),
    ("condition", r"\.not\. ", ""),
    ("condition", r"\.and\.", ".or."),
    ("condition", r"\.or\.", ".and."),
    ("condition", r"(?<= )==(?= )", "/="),
    ("condition", r"(?<= )/=(?= )", "=="),
    ("condition", r"(?<= )([<>])(?= )", r"\1="),
    ("condition", r"(?<= )([<>])=(?= )", r"\1"),
    ("condition", rf"merge\(({_ITEM}), ({_ITEM}),", r"merge(\2, \1,"),
    ("flag", r"accumulate /= 0|(?<=, )(?:add|second|shared|by_entry)(?=[,)])", ".false."),
    ("flag", r"\.true\.", ".false."),
    ("flag", r"\.false\.", ".true."),
    ("flag", r"(btest\(\w+, )(\d+)\)", r"\1\2 + 1)"),
    ("flag", r"(iand\(\w+, )(\d+)\)", r"\1\2/2)"),
    ("flag", r"(iand\(\w+, )(\d+)\)", r"\1\2 - 1)"),
    ("constant", r"(?<![\w.%:])0(?![\w.])", "1"),
    ("constant", r"(?<![\w.%:])1(?=_c|\b(?!\.))", "2"),
    ("constant", r"(?<![\w.%:])1(?=_c|\b(?!\.))", "0"),
    ("constant", r"(?<![\w.%:])[2-9](?![\w.])", "1"),
    ("constant", r"(?<![\w.])[01](?=\.\d*_)", "2"),
    *(("name", rf"(?<![\w$]){a}(?![\w$])", b)
      for pair in _TWINS.split(",") for a, b in (pair.split(), pair.split()[::-1])),
    ("deletion", rf"\A\s*(?!do |associate|if {_ARGS} then|(?s:.*)allocate \()[\w$!](?s:.*)(?=\n)",
     ""),
]  # fmt: skip
"""Kind of fault, pattern, and replacement."""

_SPARED = [
    r"\s!(?!\$ ).*",  # comments
    r"\bteam(?:_size)? = .*",  # number of threads
    r"\bblock = block_rows.*|\bblock_rows = .*",  # number of rows per cache block
    r"\bslice = .*",  # number of units per work item of a thread
    r"\bwork = .*|.*- before \+ middle\*step\*price < work.*",  # load balance
    # number of rows per block
    r"\bstretch = .*|\bstretch_(?:rows|entries) = .*|\bstop = last_within.*|\bparts = .*",
    # prefetches
    r"(?:\bif \(.*\) )?\bcall prefetch_(?s:.*)",
    r"\b(?:soon|ahead|far|over|(?:edge_)?bytes) = .*",
    rf"\bentries_ahead{_ARGS}|\bif \(p \+ (?:near|ahead) <= known\).*|\bif \(soon > 0.*",
    r"\bif \((?:readings|mod\(transfer\(c_loc\(table)(?s:.*)",  # whether a table is copied
    r"\brow = \$\{bytes\}.*|\br = \(nodes\(p \+ ahead.*",
    r"\bpacked\(top \+ 1:.*",  # vector lanes beyond the last row: computed but unused
    r"\bif \(depth < 1\).*",  # a hint to the vectorizer
    r"\bif \((?:padded == conv%inward|top == lanes.*)\)(?: return)?",  # a shortcut
    r"\"merge\(0\._wp, x, x (<=) 0\)",  # the sign of zero
    r"\bmerge\(y, x, x (< 0)\)",  # y is x all around 0
    r"\.or\. outer == (0)\)",  # whether a buffer that already holds the data is refilled
    # Upper bounds of pointers whose size is not queried.
    rf"\b(?:extent|length) = hidden.*|\bh?params\((:(?:extent{_ARGS}|length [^,]*))\)",
    r"=> h?(?:features|hidden_layer|edge_weight|gy)\((?:.*:, )?:(\w+)\)",
    r"\bh?coords\(:, :(\w+)\)|\b(?:in|out)_edges\(:(\w+)\)|\bout_nodes\(:(\w+)\)",
    # Out of memory; f2py initializes `status` with 0.
    r"\bstatus = 0|\bif \(status [/=]= 0\)(?: return)?\s?|\bstatus == 0 \.and\.|\.or\. status /= 0",
]
"""Code whose faults change no result; only the group, if the pattern has one."""

_EQUAL = [
    r"-> panels = \(rows \+ width\) / width",  # an additional empty panel
    # an additional empty chunk
    r"-> do start = .*\(row \+ 1\)(?: \+ 1| - 0)?, chunk|-> do \w+ = .* \+ 1, (?:chunk|block)$",
    r"-> do part = 1, parts \+ 1",  # a segment beyond the last row
    r"-> entries = merge\(out_features, in_features\*",  # a diagonal has equal widths
    # computes unused results
    r"deletion: if \((?=.*iand)(?=.*status).*\) return",
    r"deletion: if \(\.not\. problem%by_vectors\) return",
    r"-> .*\bshare\(heads, row [-+] 1\)",  # the variable takes the shape of the assigned expression
]
"""Mutations after which every result is the same."""

_NOT_EXECUTABLE = re.compile(
    r"""\s*(?:!\$\ |pure\ )?
    (?: $ | !(?!\$\ ) | \#(?!:set\ .*\b[xy]\b) | \$:(?!set_up|attach|in_tiles)
    | (?:use|implicit|private|public|contains|module|interface|procedure|subroutine|function)\b
    | (?:integer|real|logical|type|select|case|end)\b | else$ )""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Mutant:
    """Template with one fault."""

    family: str
    file: str
    line: int
    kind: str
    before: str
    after: str
    path: Path = field(repr=False)
    span: slice = field(repr=False)
    changed: str = field(repr=False)

    @property
    def text(self) -> str:
        """Return the whole template with the fault."""
        whole = self.path.read_text()
        return whole[: self.span.start] + self.changed + whole[self.span.stop :]

    def __str__(self) -> str:
        after = self.after or "nothing"
        return f"{self.file}:{self.line}: {self.kind}: {self.before} -> {after}"


def _matches(pattern: str, text: str) -> Iterator[re.Match]:
    """Return all matches, overlapping ones included."""
    compiled = re.compile(pattern)
    match = compiled.search(text)
    while match:
        yield match
        match = compiled.search(text, match.start() + 1)


def mutants(path: Path, family: str) -> Iterator[Mutant]:
    """Return all mutants of one template."""
    whole = path.read_text()
    for statement in re.finditer(r"(?:.*&\n)*.*\n", whole):
        text = statement[0]
        if _NOT_EXECUTABLE.match(text):
            continue
        spared = [m.span(m.lastindex or 0) for p in _SPARED for m in re.finditer(p, text)]
        seen = {text}
        for kind, pattern, new in _RULES:
            for match in _matches(pattern, text):
                start, stop = match.span()
                left, right = text.rfind("\n", 0, start) + 1, text.find("\n", stop)
                first = stop - len(match[0].lstrip())
                if any(a <= first and stop <= b for a, b in spared):
                    continue
                if kind == "name" and not re.search(rf"(?<![\w$]){new}(?![\w$])", whole):
                    continue
                inserted = match.expand(new)
                changed = text[:start] + inserted + text[stop:]
                mutant = Mutant(
                    family,
                    name_of(path),
                    whole.count("\n", 0, statement.start() + left) + 1,
                    kind,
                    " ".join(text[left:right].split()),
                    " ".join((text[left:start] + inserted + text[stop:right]).split()),
                    path,
                    slice(*statement.span()),
                    changed,
                )
                if changed not in seen and not re.search("|".join(_EQUAL), str(mutant)):
                    seen.add(changed)
                    yield mutant


def _by_turns(mutants: list[Mutant], group: Callable[[Mutant], object]) -> list[Mutant]:
    """Reorder mutants so that the groups alternate."""
    met: Counter[object] = Counter()
    turns = []
    for mutant in mutants:
        turns.append(met[group(mutant)])
        met[group(mutant)] += 1
    return [m for _, m in sorted(zip(turns, mutants, strict=True), key=lambda pair: pair[0])]


def _drawing(mutant: Mutant, seed: int) -> str:
    """Return a random order; mutants of one template do not depend on changes in others."""
    words = seed, mutant.file, mutant.kind, mutant.before, mutant.after
    return hashlib.sha256(repr(words).encode()).hexdigest()


def drawn(families: Iterable[str], seed: int, only: str = "*") -> list[Mutant]:
    """Return mutants of some families in random order, alternating families, files and kinds."""
    found = []
    for family in families:
        templates = [path for path in paths(family) if fnmatch(path.stem, only)]
        some = [mutant for path in templates for mutant in mutants(path, family)]
        some.sort(key=lambda mutant: _drawing(mutant, seed))
        found += _by_turns(some, lambda mutant: (mutant.file, mutant.kind))
    return _by_turns(found, lambda mutant: mutant.family)
