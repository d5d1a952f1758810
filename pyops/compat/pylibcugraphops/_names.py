"""Errors of the underlying operators, translated to the argument names of the calls."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from ..._call.compound import COMPOUNDS
from ..._call.operator import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REFUSALS = TypeError, ValueError, IndexError, OverflowError, NotImplementedError, MemoryError
KNOWN = "|".join(["Graph", *OPERATORS, *COMPOUNDS])
BENEATH = re.compile(rf"(?:{KNOWN})(?:\.\w+)?: (?:(?:out: )?(\w+): )?")
OTHERS = re.compile(r"\blike (\w+)|\b(\w+)(?=-1=)")


@contextlib.contextmanager
def names_of_call(caller: str, names: Mapping[str, str]) -> Iterator[None]:
    """Raise errors of pyops again as the caller's, with the caller's argument names."""
    try:
        yield
    except REFUSALS as error:
        text = str(error)
        found = BENEATH.match(text)
        if not found or type(error) not in REFUSALS:
            raise
        rest = OTHERS.sub(
            lambda m: f"like {names.get(m[1], m[1])}" if m[1] else names.get(m[2], m[2]),
            text[found.end() :],
        )
        argument = f"{names.get(found[1], found[1])}: " if found[1] else ""
        refusal = type(error)(f"{caller}: {argument}{rest}")
    else:
        return
    raise refusal from None
