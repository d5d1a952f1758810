"""Build the kernels that pyops.torch loads, or the library for programs without Python.

The library, or its sources, are written to a folder if one is given.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from .sources import build, build_for_python, write_sources


def main() -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m pyops.torch.cpp", description=__doc__)
    parser.add_argument("folder", nargs="?", help="folder of the library and its sources")
    parser.add_argument(
        "--sources", action="store_true", help="write the sources alone, with a CMakeLists.txt"
    )
    given = parser.parse_args()
    if given.sources:
        if given.folder is None:
            parser.error("--sources: expected a folder")
        write_sources(given.folder)
        return 0
    try:
        print(build_for_python() if given.folder is None else build(given.folder))
    except FileNotFoundError as error:
        sys.exit(f"pyops.torch.cpp: expected a C and a C++ compiler (CC, CXX), got {error}")
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
