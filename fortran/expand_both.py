"""Expand a source of a module that holds both kinds: expand_both.py FYPP OPTION... SOURCE OUTPUT

Blocks `both_kinds` of the source are written for one precision: plain names and reals of kind `wp`.
The expansion has each block twice. There wp is c_float or c_double, and two sorts of names end in
_r4 or _r8: those that the blocks define or import, and those that end in _wp. Components and
bindings stay, and so do the names for real32 that are older than those for real64.
"""

import re
import subprocess
import sys

from expand import KINDS, store

BLOCK = re.compile(r"^!both_kinds\n(.*?)^!end both_kinds\n", re.DOTALL | re.MULTILINE)
PROCEDURE = re.compile(r"^ *(?:\w[\w()]* )*?(?:subroutine|function) (\w+)", re.MULTILINE)
DECLARED = re.compile(r"^  \w[^\n!]*? :: (\w+)", re.MULTILINE)  # a type or variable of the module
IMPORTED = re.compile(r"^  use \w+, only: ((?:.*&\n)*.*)", re.MULTILINE)
OLDER = re.compile(r"array_type|get_partial_\w+")
# Words, after what stays: comments, strings, components; what precedes => is a binding or pointer.
WORD = re.compile(r'!.*|"[^"\n]*"|%\w+|\b\w+\b(?! =>)')


def find_names(text: str) -> set[str]:
    """Return the names that text for one precision defines or imports."""
    imports = (item.strip(" &\n") for names in IMPORTED.findall(text) for item in names.split(","))
    return {*PROCEDURE.findall(text), *DECLARED.findall(text), *imports}


def expand(text: str, names: set[str], kind: str) -> str:
    """Return text for one precision with its names for a kind."""

    def expanded(match: re.Match[str]) -> str:
        word = match[0]
        if word == "wp":
            return KINDS[kind]
        stays = word not in names or (kind == "r4" and OLDER.fullmatch(word))
        return word if stays else f"{word}_{kind}"

    return WORD.sub(expanded, re.sub(r"_wp\b", f"_{kind}", text))


if __name__ == "__main__":
    *fypp, output = sys.argv[1:]
    made = subprocess.run([*fypp, "-"], check=True, stdout=subprocess.PIPE, text=True).stdout
    names = find_names("".join(BLOCK.findall(made)))
    made = BLOCK.sub(lambda block: "".join(expand(block[1], names, kind) for kind in KINDS), made)
    store(output, made)
