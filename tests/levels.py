"""Runs the tests with each variant of libpyops that this processor can run: `./run test-levels`."""

import os
import re
import subprocess
import sys

# CPU features to hide from the loader so that it selects a lower variant.
TUNABLES = {
    "x86-64-v4": "",
    "x86-64-v3": "glibc.cpu.hwcaps=-AVX512F",
    "x86-64-v2": "glibc.cpu.hwcaps=-AVX512F,-AVX2",
}
LIBRARY = "from pyops.__main__ import library; print(library())"


def searched():
    """Return the levels that the loader knows for this processor, best first; x86-64 only."""
    loader = "/lib64/ld-linux-x86-64.so.2"
    if not os.path.exists(loader):
        return []
    listing = subprocess.run([loader, "--help"], capture_output=True, text=True).stdout
    return re.findall(r"(x86-64-v\d) \(supported, searched\)", listing)


def loaded(environment):
    """Return the level and the path of the loaded variant."""
    command = sys.executable, "-c", LIBRARY
    path = subprocess.check_output(command, env=environment, text=True).splitlines()[-1]
    folder = re.search(r"/glibc-hwcaps/([^/]+)/", path)
    return folder[1] if folder else "x86-64-v2", path


def main():
    """Run all levels, best last; --below omits the best, which other test runs use."""
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
