"""Expand a source for one precision: expand.py KIND FREE FYPP OPTION... SOURCE OUTPUT

Sources have plain names and reals of kind `wp`. In the expansion wp is c_float or c_double, and
the names of modules and of bindings end in _r4 or _r8. FREE lists the modules, separated by commas,
that do not depend on the kind. Names that already end in _r8 are kept.
"""

import re
import subprocess
import sys
from pathlib import Path

KINDS = {"r4": "c_float", "r8": "c_double"}
INTERFACES = re.compile(r"^ *interface\n.*?^ *end interface\n", re.DOTALL | re.MULTILINE)


def expand(text: str, kind: str, free: set[str]) -> str:
    def suffixed(match: re.Match[str]) -> str:
        plain = match[2] in free or match[2].endswith(tuple(f"_{kind}" for kind in KINDS))
        return match[0] if plain else f"{match[0]}_{kind}"

    interfaces = iter(INTERFACES.findall(text))
    text = INTERFACES.sub("@interface@", text)
    name = KINDS[kind]
    text = text.replace(
        "use pyops_precision, only: wp\n", f"use iso_c_binding, only: {name}, wp => {name}\n"
    )
    text = text.replace("real(wp", f"real({name}")
    text = re.sub(r"\b((?:module|use) pyops_)(\w+)", suffixed, text)
    text = re.sub(r'\bname="pyops_\w+', rf"\g<0>_{kind}", text)
    return re.sub("@interface@", lambda _: next(interfaces), text)


if __name__ == "__main__":
    kind, free, *fypp, source, output = sys.argv[1:]
    command = *fypp, f'-DKIND="{kind}"', source, "-"
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    Path(output).write_text(expand(made, kind, set(free.split(","))))
