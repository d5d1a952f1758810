"""The operators in C++: for faster calls of compiled functions, and for programs without Python.

``python -m pyops.torch.cpp`` builds kernels that `pyops.torch` loads from then on. With a folder it
writes the sources of a library there and builds it. A program linked to it runs packages of
AOTInductor and traced modules that call pyops.
"""

from .sources import build, build_for_python, write_sources

__all__ = ["build", "build_for_python", "write_sources"]
