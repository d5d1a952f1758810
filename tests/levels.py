"""The tests with each copy of libpyops that this processor can run: `./run test-levels`."""

import os
import re
import subprocess
import sys

# What the loader must not see of the processor to take a copy that is not the best.
TUNABLES = {
    "x86-64-v4": "",
    "x86-64-v3": "glibc.cpu.hwcaps=-AVX512F",
    "x86-64-v2": "glibc.cpu.hwcaps=-AVX512F,-AVX2",
}
LIBRARY = "from pyops.__main__ import library; print(library())"


def searched():
    """The levels that the loader knows for this processor, the best first; none but on x86-64."""
    loader = "/lib64/ld-linux-x86-64.so.2"
    if not os.path.exists(loader):
        return []
    listing = subprocess.run([loader, "--help"], capture_output=True, text=True).stdout
    return re.findall(r"(x86-64-v\d) \(supported, searched\)", listing)


def loaded(environment):
    """The level of the copy that is taken, and its path."""
    command = sys.executable, "-c", LIBRARY
    path = subprocess.check_output(command, env=environment, text=True).splitlines()[-1]
    folder = re.search(r"/glibc-hwcaps/([^/]+)/", path)
    return folder[1] if folder else "x86-64-v2", path


def main():
    """The best level comes last; --below leaves it out, as other runs of the tests take it."""
    failed = 0
    below = "--below" in sys.argv
    command = sys.executable, "-m", "pytest", *(a for a in sys.argv[1:] if a != "--below")
    for level in reversed(searched()[below:]):
        environment = os.environ | {"GLIBC_TUNABLES": TUNABLES[level]}
        got, path = loaded(environment)
        if got != level:
            sys.exit(f"levels: {level} was asked for, the loader took {path}")
        print(f"levels: {level}", flush=True)
        failed |= subprocess.run(command, env=environment).returncode
    return failed if below or searched() else subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
