"""Checks of an installed wheel, run by the interpreter it is installed for."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pyops

package = Path(pyops.__file__).parent
mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
libraries = sorted(filter(re.compile(r"/lib(pyops|gomp|gfortran|quadmath)").search, mapped))
outside = [path for path in libraries if not Path(path).is_relative_to(sys.prefix)]
assert not outside, f"needs the system's {outside}"
assert str(package / "lib" / "libgomp.so.1") in libraries, f"libgomp was renamed: {libraries}"

best = package / "lib"
if (best / "glibc-hwcaps").is_dir():
    # The loader lists the instruction sets of this machine, best first.
    loader = ["/lib64/ld-linux-x86-64.so.2", "--help"]
    listing = subprocess.run(loader, capture_output=True, text=True, check=True).stdout
    levels = re.findall(r"(x86-64-v\d) \(supported, searched\)", listing)
    folders = [best / "glibc-hwcaps" / level for level in levels]
    best = next(filter(Path.is_dir, folders), best)
assert str(best / "libpyops.so") in libraries, f"not the library in {best}: {libraries}"

for name in "py.typed", "__init__.pyi", "torch/__init__.pyi", "jax/__init__.pyi":
    assert (package / name).is_file(), f"{name} is missing"
requirements = importlib.metadata.requires("pyops-kernels")
needs = [need for need in requirements if "extra ==" not in need]
assert [re.match(r"[\w-]+", need).group() for need in needs] == ["numpy"], needs

print(*(Path(path).relative_to(sys.prefix) for path in libraries), sep="\n")
