"""Expand a source for one precision: expand.py KIND FREE[/HALF] FYPP OPTION... SOURCE OUTPUT

Sources have plain names and reals of kind `wp`; rows of features have kind `xp`. In the expansion
both are c_float or c_double, and the names of modules and of bindings end in _r4 or _r8. In
expansions for rows of half precision wp is c_float, rows are integers of 16 bits, and names end in
_bf16. FREE lists the modules, separated by commas, that do not depend on the kind, HALF
those that have such expansions; the others are used as _r4. Names that already end in _r8 are kept.
"""

import re
import subprocess
import sys
from pathlib import Path

KINDS = {"r4": "c_float", "r8": "c_double"}
INTERFACES = re.compile(r"^ *interface\n.*?^ *end interface\n", re.DOTALL | re.MULTILINE)


def expand(text: str, kind: str, free: set[str], half: set[str]) -> str:
    narrow = kind not in KINDS

    def suffixed(match: re.Match[str]) -> str:
        if match[2] in free or match[2].endswith(tuple(f"_{k}" for k in KINDS)):
            return match[0]
        return f"{match[0]}_{'r4' if narrow and match[2] not in half else kind}"

    interfaces = iter(INTERFACES.findall(text))
    text = INTERFACES.sub("@interface@", text)
    name = KINDS.get(kind, "c_float")
    names = f"{name}, wp => {name}{', c_int16_t' * narrow}"
    text = text.replace("use pyops_precision, only: wp\n", f"use iso_c_binding, only: {names}\n")
    text = text.replace("real(wp", f"real({name}")
    text = text.replace("real(xp", "integer(c_int16_t" if narrow else f"real({name}")
    text = re.sub(r"\b((?:module|use) pyops_)(\w+)", suffixed, text)
    text = re.sub(r'\bname="pyops_\w+', rf"\g<0>_{kind}", text)
    return re.sub("@interface@", lambda _: next(interfaces), text)


def store(output: str, text: str) -> None:
    """Write a file unless it has this text, so that nothing is compiled again."""
    path = Path(output)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    kind, modules, *fypp, source, output = sys.argv[1:]
    free, _, half = modules.partition("/")
    command = *fypp, f'-DKIND="{kind}"', source, "-"
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    store(output, expand(made, kind, set(free.split(",")), set(half.split(","))))
