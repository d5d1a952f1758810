"""Models in files: written from PyTorch, read without it.

A file of the safetensors format has the tensors of a model and a program, the operators that the
model calls. `load` returns it as a function of NumPy or JAX arrays, differentiable twice.
"""

from ._model import Model as Model
from ._model import load as load
from ._program import Input as Input
from ._save import save as save

__all__ = ["Input", "Model", "load", "save"]
