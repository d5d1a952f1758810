"""Builds pyops for other platforms and runs it in emulators: `./run cross`, in build/cross.

aarch64: the wheel, installed for Debian's Python, under QEMU. Windows: the library for Fortran and
C, under Wine.
Arguments go to pytest and replace its selection of tests.
"""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from . import ROOT
from .wheel import repair, run

FOLDER = ROOT / "build" / "cross"
ARM = FOLDER / "aarch64"
WINDOWS = FOLDER / "windows"
SYSROOT = FOLDER / "sysroot"
CROSS_FILES = ROOT / "fortran" / "packaging" / "cross"
QEMU = "qemu-aarch64", "-L", SYSROOT
ARM_FC = "aarch64-linux-gnu-gfortran"
MINGW_FC = "x86_64-w64-mingw32-gfortran-posix"
WINE = "/usr/lib/wine/wine64"
# Packages that the tests and examples import.
PACKAGES = "numpy", "pytest", "hypothesis", "autograd", "matplotlib", "scikit-fem", "scipy"
PACKAGES += "threadpoolctl", "tqdm"
# Every operator against its reference, by each argument; emulation is slow.
TESTS = "operators/test_forward.py", "families/test_known_values.py"
TESTS += "families/test_reductions.py", "operators/test_partials.py"


def say(message):
    print("cross:", message, file=sys.stderr, flush=True)


def unpack_python():
    """Unpack Debian's Python for aarch64 into SYSROOT; the system's packages stay as they are."""
    if SYSROOT.is_dir():
        return
    say("unpacking Python for aarch64")
    state, temporary = FOLDER / "apt", FOLDER / "unpacking"
    for folder in "lists/partial", "archives/partial":
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").write_text("")
    (state / "apt.conf").write_text(
        'APT::Architecture "arm64";\nAPT::Architectures { "arm64"; };\n'
        f'Dir::State "{state}";\nDir::State::status "{state}/status";\nDir::Cache "{state}";\n'
    )
    os.environ["APT_CONFIG"] = str(state / "apt.conf")
    run("apt-get", "update")
    download = "install", "--download-only", "--yes", "--no-install-recommends"
    run("apt-get", *download, "python3", "libpython3-dev", "libstdc++6")
    for package in (state / "archives").glob("*.deb"):
        run("dpkg-deb", "--extract", package, temporary)
    temporary.rename(SYSROOT)


def check_version():
    """Exit unless this interpreter has the version of the one in SYSROOT, as tags depend on it."""
    debian = (SYSROOT / "usr" / "bin" / "python3").resolve().name
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if here != debian:
        sys.exit(f"cross: Debian's Python for aarch64 is {debian}: set PYTHON to such a one")


def library_folders(compiler, *files):
    """Return the folders of libraries of a compiler."""
    found = (run(compiler, f"-print-file-name={file}").strip() for file in files)
    return [str(Path(path).resolve().parent) for path in found]


def build_wheel():
    """Cross-compile the wheel, add the Fortran libraries and return its path."""
    say("building the wheel for aarch64")
    (more,) = SYSROOT.glob("usr/lib/python3.*/_sysconfigdata__aarch64-linux-gnu.py")
    (ARM / "sysconfig").mkdir(parents=True, exist_ok=True)
    shutil.copy(more, ARM / "sysconfig")
    python = ARM / "python.ini"
    python.write_text(
        f"[properties]\nsys_root = '{SYSROOT}'\n"
        f"pkg_config_libdir = '{SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig'\n"
    )
    cross_files = CROSS_FILES / "aarch64-linux-gnu.ini", python
    for folder in "raw", "repair", "dist":
        shutil.rmtree(ARM / folder, ignore_errors=True)
    run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", ARM / "raw"),
        *(f"--config-setting=setup-args=--cross-file={file}" for file in cross_files),
        f"--config-setting=build-dir={ARM / 'build'}",
        # Debian's pyconfig.h includes that of the architecture by its path beneath usr/include.
        f"--config-setting=setup-args=-Dc_args=-idirafter{SYSROOT}/usr/include",
        # What CPython's own sysconfig reads when it is cross-compiled.
        _PYTHON_HOST_PLATFORM="linux-aarch64",
        _PYTHON_SYSCONFIGDATA_NAME=more.stem,
        PYTHONPATH=ARM / "sysconfig",
    )
    (wheel,) = (ARM / "raw").glob("*.whl")
    (ARM / "repair").mkdir()
    os.environ["FC"] = ARM_FC
    os.environ["AUDITWHEEL_LD_LIBRARY_PATH"] = ":".join(
        library_folders(ARM_FC, "libgfortran.so.5", "libc.so.6")
    )
    repair(wheel, ARM / "repair", ARM / "dist")
    (wheel,) = (ARM / "dist").glob("*.whl")
    return wheel


def make_environment():
    """Make a virtual environment of the emulated Python once; return its interpreter's command."""
    venv = ARM / "venv"
    if not (venv / "complete").is_file():
        say("installing what the tests need")
        shutil.rmtree(venv, ignore_errors=True)
        run(*QEMU, SYSROOT / "usr" / "bin" / "python3", "-m", "venv", "--without-pip", venv)
        (site,) = venv.glob("lib/python3.*/site-packages")
        options = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 24, 26, 27, 28)]
        options += ["--only-binary=:all:", "--no-compile", "--quiet", "--target", site]
        run(sys.executable, "-m", "pip", "install", *options, *PACKAGES)
        (venv / "complete").touch()
    return *QEMU, venv / "bin" / "python"


def install_wheel(python, wheel):
    """Install a wheel as aarch64 selects it: by the pip of this machine in the emulated Python."""
    say(f"installing {wheel.name}")
    pip = Path(run(sys.executable, "-c", "import pip; print(pip.__path__[0])").strip())
    options = "--quiet", "--force-reinstall", "--no-deps", "--no-index"
    run(*python, pip, "install", *options, "--find-links", wheel.parent, "pyops-kernels")
    run(*python, pip, "check")


def test_wheel(python, arguments):
    """Run the tests with the installed wheel, outside the checkout."""
    tree = ARM / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for folder in "tests", "examples":
        shutil.copytree(ROOT / folder, tree / folder)
    shutil.copy(ROOT / "pyproject.toml", tree)
    say("testing the wheel under QEMU")
    run(*python, tree / "tests" / "support" / "installed.py", cwd=tree)
    run(*python, "-m", "pyops", cwd=tree)
    output = run(*python, "-m", "pytest", "--quiet", *arguments, cwd=tree)
    return output.splitlines()[-1].strip("= ")


def build_library():
    """Cross-compile the library for Windows and return the folder of its pkg-config file."""
    say("building the library for Windows")
    prefix = WINDOWS / "prefix"
    shutil.rmtree(prefix, ignore_errors=True)
    setup(ROOT, WINDOWS / "build", "x86_64-w64-mingw32", f"--prefix={prefix}", "-Dpython=disabled")
    run("meson", "install", "-C", WINDOWS / "build")
    return prefix / "lib" / "pkgconfig"


def setup(source, build, platform, *options):
    """Configure with meson, again if it was configured."""
    again = ["--reconfigure"] if (build / "build.ninja").is_file() else []
    cross = CROSS_FILES / f"{platform}.ini"
    run("meson", "setup", *again, build, source, "--cross-file", cross, *options)


def build_examples(build, platform, pkg_config):
    setup(ROOT / "examples" / "fortran", build, platform, f"-Dpkg_config_path={pkg_config}")
    run("meson", "compile", "-C", build)


def check_examples(name, start, programs, twin):
    """Run the examples by the command `start`, and training beside its twin in Python."""
    say(f"running the examples for {name}")
    suffix = ".exe" if name == "Windows" else ""
    for example in "gno_conv", "gno_conv_c":
        output = run(*start, programs / f"{example}{suffix}")
        slope, difference = map(float, re.findall(r"-?\d+\.\d+", output.splitlines()[-1]))
        check(abs(slope - difference) <= 1e-6 * abs(difference), output)
    output = run(*start, programs / f"burgers{suffix}", "150", OMP_NUM_THREADS=1)
    plain, helped = map(float, re.search(r"end: +(\S+), +(\S+) with", output).groups())
    check(helped < 0.7 * plain, output)
    script = programs / "darcy.sh"  # what the twin starts, on this machine
    words = shlex.join(map(str, [*start, programs / f"darcy{suffix}"]))
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    sizes = "--steps=24", "--samples=16", "--spacing=0.15", "--layers=2"
    output = run(*twin, script, *sizes)
    check(float(re.search(r"apart by (\S+) in the first", output)[1]) <= 1e-5, output)


def check(good, output):
    if not good:
        sys.exit(f"{output}\ncross: these values differ")


def prepare_wine():
    """Keep what Wine stores inside FOLDER and tell it where the libraries are."""
    folders = library_folders(MINGW_FC, "libgfortran-5.dll", "libwinpthread-1.dll")
    folders.append(str(WINDOWS / "prefix" / "lib"))
    os.environ |= {
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=",  # no installers of .NET and HTML
        "WINEPATH": ";".join("Z:" + folder.replace("/", "\\") for folder in folders),
        "WINEPREFIX": str(FOLDER / "wine"),
    }


def main():
    """Run all checks; the first that fails ends the program."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    unpack_python()
    check_version()
    wheel = build_wheel()
    python = make_environment()
    install_wheel(python, wheel)
    arguments = sys.argv[1:] or [f"tests/{name}" for name in TESTS]
    passed = test_wheel(python, arguments)
    twin = *python, ARM / "tree" / "examples" / "fortran" / "twin.py"
    pkg_config = run(*python, "-m", "pyops", "--pkgconfigdir", cwd=ARM).strip()
    build_examples(ARM / "examples", "aarch64-linux-gnu", pkg_config)
    libraries = Path(library_folders(ARM_FC, "libgfortran.so.5")[0]).parent
    check_examples("aarch64", ("qemu-aarch64", "-L", libraries), ARM / "examples", twin)

    pkg_config = build_library()
    build_examples(WINDOWS / "examples", "x86_64-w64-mingw32", pkg_config)
    prepare_wine()
    check_examples("Windows", (WINE,), WINDOWS / "examples", twin)
    say(f"{wheel.name}: {passed}; examples agree on aarch64 and Windows")


if __name__ == "__main__":
    main()
