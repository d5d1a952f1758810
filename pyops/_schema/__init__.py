"""Schema of the operators: what follows from a declaration alone, at build and run time.

Imports nothing of pyops. Declarations are read as text, by the build from their source and at run
time from the annotations of the function.
"""

from .declaration import (
    ANY,
    Between,
    Indexed,
    Input,
    Option,
    Shape,
    Signature,
    Size,
    parse_shape,
    show_shape,
)
from .interface import (
    HALVES,
    INDEX_ARRAYS,
    Argument,
    Procedure,
    elementwise,
    half_arrays,
    interfaces,
    procedures,
    variants,
)
from .solving_order import solving_order

__all__ = [
    "ANY",
    "HALVES",
    "INDEX_ARRAYS",
    "Argument",
    "Between",
    "Indexed",
    "Input",
    "Option",
    "Procedure",
    "Shape",
    "Signature",
    "Size",
    "elementwise",
    "half_arrays",
    "interfaces",
    "parse_shape",
    "procedures",
    "show_shape",
    "solving_order",
    "variants",
]
