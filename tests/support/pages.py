"""Code blocks of the documents, and a program that runs those of one page in order.

    python tests/support/pages.py PAGE          in the current folder
    python tests/support/pages.py MODULE ...    the pages that standard input names, see `Server`

All blocks of a page share a folder and one interpreter. A comment before a fence, which readers do
not see, states what else is done with the block:

    <!-- file: NAME -->         stored in the folder, for later blocks
    <!-- output -->             compared with what the block before it printed; ... matches any text
    <!-- needs: NAME ... -->    skipped if there is no such command or Python package
    <!-- not run: REASON -->    not run

Values that a Python block prints are compared with the comments after `print`. A block that
imports a package which is not installed is skipped, as are those that use its names.

Processes run this file by its path, so it is one module.
"""

import ast
import contextlib
import doctest
import importlib
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import traceback
import types
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FRAMEWORKS = {"torch", "jax", "cupy"}
OPTIONAL = FRAMEWORKS | {"ase", "matplotlib", "meshio", "mpi4py", "neuralop", "networkx", "scipy"}
OPTIONAL |= {"safetensors", "threadpoolctl", "torch_geometric"}
"""Packages without which a block is skipped."""
RUN = {"python", "pycon", "fortran", "c", "sh"}
STORED = {"cmake", "make", "meson", "toml"}
SHOWN = {"text", "json", "yaml", "docker", "rst", "bibtex", "cpp"}
"""Languages of blocks that show something."""
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?"
    r"(?P<fence>`{3,})(?P<language>[^`\n]*)\n(?P<code>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: `line` is the number of its first line, `mark` and `value` its comment."""

    language: str
    code: str
    line: int
    mark: str = ""
    value: str = ""


def blocks(path):
    """Yield the fenced blocks of a page, other than directives of MyST."""
    text = path.read_text()
    for found in FENCE.finditer(text):
        mark, _, value = (found["mark"] or "").partition(":")
        language = found["language"].removeprefix("{code-block}").strip()
        line = text.count("\n", 0, found.start("code")) + 1
        if not language.startswith("{"):
            yield Block(language, found["code"], line, mark.strip(), value.strip())


def is_run(block):
    return block.language in RUN and block.mark not in ("file", "not run")


@cache
def is_installed(name):
    """Return whether there is a package, for CuPy with a device, or a command of this name."""
    if name == "cupy" and importlib.util.find_spec("cupy"):
        try:
            import cupy

            return cupy.cuda.runtime.getDeviceCount() > 0
        except Exception:  # of several types, by what is missing
            return False
    if name in OPTIONAL:
        return importlib.util.find_spec(name) is not None
    return shutil.which(name) is not None


def packages(tree):
    """Return the optional packages that a program imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {part for name in names for part in re.split(r"\W", name)}
    return found & OPTIONAL


def names(tree, context):
    """Return the names that a program loads, or stores."""
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}
    if context is ast.Store:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                found |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    return found


class Page:
    """Runs the blocks of a page in the current folder."""

    def __init__(self, path):
        self.path = path
        self.module = types.ModuleType("__main__")
        self.undefined = set()
        self.output = None

    def run(self):
        """Run all blocks in order; print the number of those that ran, and why others did not."""
        count = 0
        sys.modules["__main__"] = self.module  # for pickled functions of the page
        for block in blocks(self.path):
            if block.mark == "file":
                Path(block.value).write_text(block.code)
            elif block.mark == "output" and self.output is not None:
                self.compare(block, block.code, self.output)
            elif is_run(block):
                reason = self.reason_to_skip(block)
                self.output = None if reason else self.run_block(block)
                count += not reason
                if reason:
                    print(f"line {block.line}: there is no {reason}")
        print(f"blocks: {count}")

    def reason_to_skip(self, block):
        """Return a package or command that is not there and that the block needs, or ''."""
        needs = block.value.split() if block.mark == "needs" else []
        if block.language in ("python", "pycon"):
            tree = ast.parse(source(block))
            needs += sorted(packages(tree) | names(tree, ast.Load) & self.undefined)
            missing = [n for n in needs if n in self.undefined or not is_installed(n)]
            if missing:
                self.undefined |= names(tree, ast.Store)
            else:
                self.undefined -= names(tree, ast.Store)
        else:
            needs += {"fortran": [compiler()], "c": ["cc"]}.get(block.language, [])
            missing = [name for name in needs if not is_installed(name)]
        return ", ".join(missing)

    def run_block(self, block):
        """Return what a block printed."""
        return getattr(self, f"run_{block.language}")(block)

    def run_python(self, block):
        """Run a program; compare what it prints with its comments, unless an output follows."""
        padding = "\n" * (block.line - 1)  # tracebacks then have the lines of the page
        code = compile(padding + block.code, self.path, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, vars(self.module))
        expected = re.findall(r"^ *print\(.*\) +# (.*)$", block.code, re.MULTILINE)
        if expected:
            self.compare(block, "\n".join(expected), printed.getvalue())
        return printed.getvalue()

    def run_pycon(self, block):
        """Run a session and compare what it shows."""
        test = doctest.DocTestParser().get_doctest(
            block.code, vars(self.module), self.path.name, str(self.path), block.line - 1
        )
        failures = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=OPTIONS)
        runner.run(test, out=failures.write, clear_globs=False)
        vars(self.module).update(test.globs)
        if runner.failures:
            raise SystemExit(failures.getvalue())

    def run_fortran(self, block):
        """Compile and run a program."""
        return compiled([compiler()], "program.f90", block.code)

    def run_c(self, block):
        return compiled(["cc"], "program.c", block.code, "-lm")

    def run_sh(self, block):
        """Run commands."""
        return done(["sh", "-eu", "-c", block.code])

    def compare(self, block, expected, printed):
        if not doctest.OutputChecker().check_output(expected, printed, OPTIONS):
            raise SystemExit(
                f"{self.path}:{block.line}\nexpected:\n{expected}\nprinted:\n{printed}"
            )


def source(block):
    """Return the program of a block or session."""
    if block.language == "python":
        return block.code
    return "".join(e.source for e in doctest.DocTestParser().get_examples(block.code))


def compiler():
    return os.environ.get("FC", "gfortran")


def compiled(command, file, code, *libraries):
    """Return the output of a program in a compiled language."""
    import pyops.__main__

    Path(file).write_text(code)
    done([*command, file, *pyops.__main__.flags(), *libraries, "-o", "program"])
    return done(["./program"])


def done(command):
    """Return the output of a command that must succeed."""
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{shlex.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


class Server:
    """A process that has imported the packages of many pages, and runs each page in a fork."""

    def __init__(self, *modules, **environment):
        self.process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            | {name: str(value) for name, value in environment.items()},
            text=True,
        )

    def run(self, path, folder):
        """Run a page; return the number of blocks that ran, and why others did not."""
        report = Path(folder, "report")
        print(
            json.dumps([str(path), str(folder), str(report)]), file=self.process.stdin, flush=True
        )
        status = self.process.stdout.readline()
        text = report.read_text()
        assert status == "0\n", text
        return int(re.search(r"^blocks: (\d+)$", text, re.MULTILINE)[1]), text

    def close(self):
        self.process.kill()
        self.process.communicate()


def serve():
    """Run the pages that standard input names, and write the exit status of each."""
    for line in sys.stdin:
        path, folder, report = json.loads(line)
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            with open(report, "w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os._exit(run_page(Path(path)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run_page(path):
    """Run a page and return the exit status."""
    status = 1
    try:
        Page(path).run()
        status = 0
    except SystemExit as error:
        print(error, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    # Python and its scripts are those of this interpreter.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    if len(sys.argv) == 2 and sys.argv[1].endswith(".md"):
        sys.exit(run_page(Path(sys.argv[1])))
    for module in sys.argv[1:]:
        if all(is_installed(name) for name in set(module.split(".")) & OPTIONAL):
            importlib.import_module(module)
    serve()
