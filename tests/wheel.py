"""Builds dist/ and tests its wheel in a separate environment: `./run wheel`.

`--repair WHEEL FOLDER` only adds the Fortran libraries to a wheel, for cibuildwheel.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE, STDOUT

from . import ROOT

GRADIENT_BY_JAX = """
import jax, pyops.jax
gradient = jax.jit(jax.grad(lambda x: pyops.jax.exp(x).sum()))(jax.numpy.zeros(3))
assert gradient.tolist() == [1, 1, 1], gradient
"""
WITHOUT_COMPILER = """
import shutil
found = {name: shutil.which(name) for name in "cc gcc g++ clang gfortran flang ld as ninja".split()}
assert not any(found.values()), found
import numpy as np, pyops
graph, x = pyops.Graph([0, 1, 2, 0], [1, 2, 0, 2]), np.eye(3)
y = pyops.aggregate(graph, x)
assert y.tolist() == [[0, 0, 1], [1, 0, 0], [1, 1, 0]], y
gradient, *others = pyops.aggregate.backward(graph, x, gy=np.ones_like(y))
assert gradient.tolist() == [[2] * 3, [1] * 3, [1] * 3], gradient
"""


def say(message):
    print("wheel:", message, file=sys.stderr, flush=True)


def run(*command, cwd=ROOT, **environment):
    """Return the output of a command; if it fails, print it and exit."""
    words = [str(word) for word in command]
    environment = os.environ | {name: str(value) for name, value in environment.items()}
    done = subprocess.run(words, cwd=cwd, env=environment, text=True, stdout=PIPE, stderr=STDOUT)
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(words)}")
    return done.stdout


def vendor_openmp(wheel, folder):
    """Bundle libgomp.so.1 beside libpyops under its original name, shared by the process.

    auditwheel would rename the bundled library.
    """
    run(sys.executable, "-m", "wheel", "unpack", "--dest", folder, wheel)
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    lib = unpacked / "pyops" / "lib"
    libgomp = run(os.environ.get("FC", "gfortran"), "-print-file-name=libgomp.so.1").strip()
    shutil.copy(libgomp, lib / "libgomp.so.1")
    for libpyops in lib.rglob("libpyops.so"):
        back = os.path.relpath(lib, libpyops.parent)
        run("patchelf", "--set-rpath", f"$ORIGIN/{back}", libpyops)
    wheel.unlink()
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", wheel.parent, unpacked)
    return wheel


def repair(wheel, folder, dist):
    """Write the wheel with the Fortran libraries into dist; folder may be written to."""
    wheel = vendor_openmp(Path(shutil.copy(wheel, folder)), folder)
    run("auditwheel", "repair", "--exclude", "libgomp.so.1", "--wheel-dir", dist, wheel)


def build(folder, dist):
    """Build the sdist and, from it, a wheel that depends on NumPy alone."""
    say("building sdist and wheel")
    run(sys.executable, "-m", "build", "--outdir", folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    say("adding the Fortran libraries to the wheel")
    shutil.rmtree(dist, ignore_errors=True)
    (folder / "repair").mkdir()
    repair(wheel, folder / "repair", dist)
    (wheel,) = dist.glob("*.whl")
    return Path(shutil.copy(sdist, dist)), wheel


def archive_for_fpm(sdist, folder):
    """Build the package for fpm beside the sdist."""
    say("writing the package for fpm")
    version = sdist.name.removesuffix(".tar.gz").rpartition("-")[2]
    name = f"pyops-{version}-fpm"
    run("meson", "setup", folder / "fpm", ROOT, "-Dpython=disabled")
    run("meson", "compile", "-C", folder / "fpm", "fpm")
    (folder / "fpm" / "fpm").rename(folder / name)
    return Path(shutil.make_archive(sdist.parent / name, "gztar", folder, name))


def write_index(files, folder):
    """Copy distributions into an index as PyPI is one (PEP 503); return its address."""
    for file in files:
        project = folder / re.sub(r"[-_.]+", "-", file.name.partition("-")[0]).lower()
        project.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, project)
        with open(project / "index.html", "a") as page:
            page.write(f'<a href="{file.name}">{file.name}</a>\n')
    return folder.as_uri()


def environment(folder):
    """Make a virtual environment; return its interpreter."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--upgrade", "pip>=25.1")
    return python


def download(sdist, wheel, folder):
    """Download what pip selects from an index that has both; return the folder."""
    say("downloading from an index of these")
    python = environment(folder / "downloading")
    run(python, "-m", "pip", "download", "--dest", folder / "peers", "jax")
    index = write_index([sdist, wheel, *folder.glob("peers/*.whl")], folder / "index")
    downloaded = folder / "downloaded"
    source = "--isolated", "--index-url", index, "--dest", downloaded
    run(python, "-m", "pip", "download", *source, "pyops-kernels[jax]")
    assert (downloaded / wheel.name).is_file(), f"pip prefers {[*downloaded.iterdir()]}"
    return downloaded


def check(sdist, wheel, folder, arguments):
    """Run the tests of the sdist against the wheel, outside the checkout."""
    downloaded = download(sdist, wheel, folder)
    install = "-m", "pip", "install", "--isolated", "--no-index", "--find-links", downloaded
    say(f"installing {wheel.name} with JAX")
    python = environment(folder / "jax")
    run(python, *install, "pyops-kernels[jax]")
    run(python, "-c", GRADIENT_BY_JAX, cwd=folder)
    say(f"installing {wheel.name} beside nothing but NumPy")
    python = environment(folder / "venv")
    run(python, *install, "pyops-kernels")
    say("trying it where no compiler is found")
    for command in (
        ["-c", WITHOUT_COMPILER],
        [ROOT / "tests" / "support" / "installed.py"],
        ["-m", "pyops"],
    ):
        print(run(python, *command, cwd=folder, PATH=python.parent), end="", flush=True)

    shutil.unpack_archive(sdist, folder)
    tree = folder / sdist.name.removesuffix(".tar.gz")
    (tree / "pyops" / "__init__.py").unlink()  # no longer shadows the installed package
    say("installing what the tests need")
    run(python, "-m", "pip", "install", "--group", "test", cwd=tree)
    return subprocess.run([python, "-m", "pytest", *arguments], cwd=tree).returncode


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if sys.argv[1:2] == ["--repair"]:
            wheel, dist = sys.argv[2:]
            return repair(wheel, folder, dist)
        (folder / "raw").mkdir()
        sdist, wheel = build(folder / "raw", ROOT / "dist")
        archive_for_fpm(sdist, folder)
        failed = check(sdist, wheel, folder, sys.argv[1:])
    say("failed" if failed else f"{wheel.relative_to(ROOT)} and {sdist.relative_to(ROOT)} are good")
    return failed


if __name__ == "__main__":
    sys.exit(main())
