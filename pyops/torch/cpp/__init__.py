"""C++ library that registers the operators with PyTorch, for programs without Python.

``python -m pyops.torch.cpp FOLDER`` writes its sources to a folder and builds it there. A program
linked to it runs packages of AOTInductor and traced modules that call pyops.
"""

from .sources import build, write_sources

__all__ = ["build", "write_sources"]
