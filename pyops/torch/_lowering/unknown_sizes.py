"""Numbers of rows and columns that are not known before a model is called."""

from __future__ import annotations

from typing import NoReturn

from .builder import Ref, UnsupportedError


class Unknown:
    """Number of rows or columns of a value, which is not known before the model is called."""

    def __init__(self, ref: Ref) -> None:
        self.ref = ref

    def _unknown(self, *_: object) -> NoReturn:
        raise UnsupportedError("expected no arithmetic or comparison with a number of rows")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown
    __bool__ = __int__ = __index__ = __float__ = _unknown
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unknown
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _unknown
    __hash__ = None  # type: ignore[assignment]


class Rows(Unknown):
    """Number of rows of a value."""
