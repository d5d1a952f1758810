"""Build the C++ library that registers the operators with PyTorch, or write its sources."""

from __future__ import annotations

import argparse
import subprocess
import sys

from .sources import build, write_sources


def main() -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m pyops.torch.cpp", description=__doc__)
    parser.add_argument("folder", help="folder for the sources and the library")
    parser.add_argument(
        "--sources", action="store_true", help="write the sources alone, with a CMakeLists.txt"
    )
    given = parser.parse_args()
    if given.sources:
        write_sources(given.folder)
        return 0
    try:
        print(build(given.folder))
    except FileNotFoundError as error:
        sys.exit(f"pyops.torch.cpp: expected a C and a C++ compiler (CC, CXX), got {error}")
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
