"""Write pyops.h: what the generated sources bind to C, in the words of the declarations.

python header.py VERSION pyops.h pyops/ fortran/*.f90
"""

import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "pyops"))
from _functions import CODES, PUBLIC
from declarations import Declaration, read_blocks, read_declaration
from procedures import Procedure, declared_procedures, read_procedures

INTRODUCTION = """
pyops {version}: differentiable graph and neural-operator kernels.

Link with -lpyops; pkg-config and CMake know it as pyops. Every procedure comes for float (_r4) and
double (_r8). Some read features and cotangents of half precision, too, and elementwise ones store
results in it: int16_t holds the bits of bfloat16 (_bf16), all else is float. Arrays are contiguous
in C order, [rows][columns] with the columns side by side; an array that is optional, not wanted,
not given or without elements may be NULL. One that is written may share no memory with any other.
Nothing here checks shapes or indices but pyops_pack_edges and the procedures pyops_model_*.

A backward procedure writes the gradients of <gy, y>. A double_backward procedure writes the
gradients of the sum of <h, gradient> over all first-order gradients; its dgy is the derivative of
y in the direction of the h as well (jvp), and then no gy is needed.

A graph is given by its incoming and outgoing CSR rows, which pyops_pack_edges computes, and by the
entries of each edge, which pyops_pack_ids computes. The latter are required if several entries
share an edge; some procedures, as their arguments state, require them always. Some also take the
positions of entries, which pyops_pack_places computes. The arguments of a procedure list which of
these it takes.

Trained networks are read from files by pyops_model_load: see pyops_model_new.
"""

MEANINGS = {
    "num_src": "Number of source nodes.",
    "num_dst": "Number of destination nodes.",
    "num_edges": "Number of rows of edge arrays.",
    "num_entries": "Number of entries of the graph; num_edges where no edge is shared.",
    "shared_edges": "1 if any edge has several entries, else 0.",
    "threads": "Number of threads, at least 1. The results do not depend on it.",
    "accumulate": "1 to add to the outputs, 0 to overwrite them.",
    "wanted": "Outputs to compute, a sum of bits",
    "given": "Cotangents h that are given and read, a sum of bits",
    "present": "Inputs that are given, a sum of bits",
    "packed": "Inputs that come in the second of their forms, a sum of bits",
    "in_offsets": "[num_dst + 1] Where the entries of each destination begin, from 1.",
    "in_nodes": "[num_entries] Their sources, from 1.",
    "in_edges": "[num_entries] Their edges, from 1.",
    "out_offsets": "[num_src + 1] Where the entries of each source begin, from 1.",
    "out_nodes": "[num_entries] Their destinations, from 1.",
    "out_edges": "[num_entries] Their edges, from 1.",
    "id_offsets": "[num_edges + 1] Where the entries of each edge begin, from 1",
    "id_entries": "[num_entries] Their places along the incoming rows, from 1",
    "in_order": "[num_entries] Entries along the incoming rows, from 1.",
    "in_entries": "[num_entries] Places along the outgoing rows of the entries along the incoming "
    "ones, from 1, made by pyops_pack_places.",
    "out_entries": "[num_entries] Places along the incoming rows of the entries along the outgoing "
    "ones, from 1, likewise.",
    "gy": "Cotangent of y; possibly NULL where double_backward computes dgy alone.",
    "dgy": "Gradient by gy, or the derivative of y along the h.",
    "status": "0, positive if an allocation failed, or PYOPS_INTERRUPTED.",
}
FURTHER = {
    "alpha": "The weights of the entries along the incoming rows.",
    "kept": "Intermediates of forward, which derivatives of the same inputs may take.",
}
BITS = "wanted", "given", "present", "packed"
IDS = "id_offsets", "id_entries"
ELEMENTWISE = {
    "axes": "Number of axes of the iteration space, at least 1.",
    "split": "Axis, from 1, that is divided into parts; 1 is always valid.",
    "piece": "Length of a part along it: about 65536 elements for threads, else its extent.",
    "parts": "Number of parts, extent / piece rounded up.",
    "code": "The function, one of enum pyops_function.",
    "operation": "Reduction of results along axes of stride 0: 1 sum, 2 max, 3 min.",
    "constant": "The number that leaky_relu (negative slope) and share take.",
    "divisor": "Divisor of summed results; 1 for none.",
    "present": "Arrays that the function reads, a sum of bits: 1 x1, 2 x2, 4 gy, 8 hx1, 16 hx2.",
    "layout": "[arrays + 1][axes] Extents, then the strides of each array in the order of the "
    "arguments, in elements; 0 repeats an operand and reduces a result.",
    "x1": "First operand.",
    "x2": "Second operand.",
    "outer": "Number of elements before the axis of a softmax.",
    "length": "Number of elements along it.",
    "inner": "Number of elements after it.",
    "logarithm": "1 for the logarithm of the softmax, else 0.",
    "x": "[outer][length][inner] Operand of a softmax.",
    "hx": "Tangent of x, or cotangent of its gradient; possibly NULL if only gx is wanted.",
    "gx": "Gradient by x.",
    "dx": "Derivative of <hx, gradient> by x.",
}


def describe(name: str, declaration: Declaration) -> str:
    """Return the meaning of an argument."""
    own = {**MEANINGS, **(ELEMENTWISE if declaration.name == "elementwise" else {})}
    inputs, stem = declaration.inputs, name[1:]
    if name in inputs or name in declaration.options:
        return declaration.text(name)
    if name in own:
        shape = declaration.shape(declaration.output) if name in ("gy", "dgy") else ""
        return f"{shape} {own[name]}"
    if name in declaration.further:
        return f"{declaration.shape(declaration.further[name])} {FURTHER[name]}"
    if name == "y":
        return f"{declaration.shape(declaration.output)} The result."
    if stem in inputs or (declaration.name == "elementwise" and stem in own):
        shape = declaration.shape(inputs.get(stem, ""))
        role = {
            "g": f"Gradient by {stem}.",
            "h": f"Cotangent of the gradient by {stem}, or tangent of {stem}.",
            "d": f"Second derivative, by {stem}.",
        }
        return f"{shape} {role.get(name[0], '')}"
    return ""


def bits(name: str, procedure: Procedure, declaration: Declaration) -> str:
    """Return the array that each bit of an argument stands for."""
    inputs = [n for n in procedure.names if n in declaration.inputs] or ["x1", "x2"]
    names = {
        "wanted": [a.name for a in procedure.arguments if a.written and a.name != "status"],
        "given": [n for n in procedure.names if n[0] == "h" and n[1:] in inputs],
        "present": inputs,
        "packed": [n for n in inputs if "|" in declaration.inputs.get(n, "")],
    }[name]
    return ", ".join(f"{2**i} {n}" for i, n in enumerate(names))


def operator_text(procedures: list[Procedure], declaration: Declaration) -> str:
    """Return the formula and the arguments of an operator, for all its procedures."""
    meanings: dict[str, list[str]] = {}
    for procedure in procedures:
        for name in procedure.names:
            text = describe(name, declaration) or declaration.size(name)
            if name in IDS:
                unused = all("shared_edges" in p.names for p in procedures if name in p.names)
                text += (
                    "; unused and possibly NULL if shared_edges is 0."
                    if unused
                    else ", made by pyops_pack_ids, whether edges are shared or not."
                )
            found = meanings.setdefault(name, [text])
            if name in BITS and declaration.name + name != "elementwisepresent":
                listed = bits(name, procedure, declaration)
                if name in ("wanted", "given"):
                    phase = procedure.name.removeprefix(f"pyops_{declaration.name}_")
                    listed = f"{phase.rpartition('_')[0]}: {listed}"
                if listed not in found:
                    found.append(listed)
    lines = [*textwrap.wrap(f"{declaration.name}: {procedures[0].module}", 96), ""]
    return "\n".join(lines + table((n, "; ".join(texts)) for n, texts in meanings.items()))


def table(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return names and texts in two columns."""
    rows = list(rows)
    wide = max((len(name) for name, _ in rows), default=0) + 2
    return [
        line
        for name, text in rows
        for line in textwrap.wrap(
            name.ljust(wide) + " ".join(text.split()), 96, subsequent_indent=" " * wide
        )
    ]


def single_text(procedure: Procedure) -> str:
    rows = [(a.name, f"{a.shape} {a.note}") for a in procedure.arguments if a.note]
    return "\n".join(textwrap.wrap(procedure.doc, 96) + ([""] if rows else []) + table(rows))


def comment(text: str) -> str:
    lines = text.strip().replace("*/", "* /").split("\n")
    return "/* " + "\n".join([lines[0], *(f" * {line}".rstrip() for line in lines[1:])]) + " */"


def enumeration(name: str, members: Iterable[str]) -> str:
    lines = ["  "]
    for member in members:
        lines += ["  "] if len(lines[-1]) + len(member) > 96 else []
        lines[-1] += f"{member}, "
    inside = "\n".join(line.rstrip() for line in lines).rstrip(",")
    return f"enum {name} {{\n{inside}\n}};"


def choices(declaration: Declaration) -> list[str]:
    """Return the choices of an operator's options, by number."""
    found = []
    for option, words in declaration.choices.items():
        name = f"pyops_{declaration.name}_{option}"
        members = [f"{name}_{word}".upper() + f" = {i}" for i, word in enumerate(words, start=1)]
        found.append(enumeration(name, members))
    return found


def functions() -> str:
    names = [f.name for f in PUBLIC] + ["positive", "share"]
    members = [f"PYOPS_{name.upper()} = {CODES[name]}" for name in names]
    text = comment("The elementwise functions; positive is x itself, share x / constant.")
    return f"{text}\n{enumeration('pyops_function', members)}"


def statuses(file: Path) -> str:
    """Return the statuses of models, as the errors of the Fortran interface number them."""
    found = re.findall(r"\b([a-z_]+) = (\d+)\b", "\n".join(_public_parameters(file)))
    members = [f"PYOPS_{name.upper()} = {number}" for name, number in found]
    text = comment("Results of the procedures pyops_model_*.")
    return f"{text}\n{enumeration('pyops_status', members)}"


def _public_parameters(file: Path) -> list[str]:
    return re.findall(r"^ *integer\(c_int32_t\), parameter, public :: (.*)", file.read_text(), re.M)


def write_header(version: str, tables: Path, sources: list[Path]) -> str:
    blocks = [
        comment(INTRODUCTION.format(version=version)),
        "#ifndef PYOPS_H\n#define PYOPS_H\n\n#include <stddef.h>\n#include <stdint.h>",
        f'#define PYOPS_VERSION "{version}"',
        "#define PYOPS_INTERRUPTED (-1)\n#define PYOPS_OUT_OF_BOUNDS (-2)",
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        functions(),
        statuses(tables.parent / "fortran" / "nodes" / "errors.fypp"),
    ]
    operators = tables / "ops"
    orders = read_blocks(tables / "blocks.py")
    named: dict[str, list[Path]] = {}
    for source in sources:
        named.setdefault(re.sub(r"_(r[48]|bf16)$", "", source.stem), []).append(source)
    for name in sorted(named, key=lambda name: (operators / f"{name}.py").is_file()):
        texts = [source.read_text() for source in named[name]]
        if declaration := read_declaration(operators, name, orders):
            found = [*declared_procedures(name, operators, texts[0])]
            blocks += [comment(operator_text(found, declaration)), *choices(declaration)]
            blocks += [p.prototype() for p in found]
        else:
            found = [p for text in texts for p in read_procedures(text)]
            blocks += [f"{comment(single_text(p))}\n{p.prototype()}" for p in found]
    blocks.append("#ifdef __cplusplus\n}\n#endif\n\n#endif")
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    version, out, tables, *sources = sys.argv[1:]
    Path(out).write_text(write_header(version, Path(tables), [Path(s) for s in sources]))
