"""Errors of the operators beneath, in the names of the call that the caller made."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..._compound import COMPOUNDS
from ..._operator import OPERATORS

Function = TypeVar("Function", bound=Callable[..., Any])
REFUSALS = TypeError, ValueError, IndexError, OverflowError, NotImplementedError, MemoryError
KNOWN = "|".join(["Graph", *OPERATORS, *COMPOUNDS])
BENEATH = re.compile(rf"(?:{KNOWN})(?:\.\w+)?: (?:(?:out: )?(\w+): )?")
LIKE = re.compile(r"\blike (\w+)")


def in_names_of_call(names: Mapping[str, str]) -> Callable[[Function], Function]:
    """What pyops refuses is refused by the function, of whose arguments the names are told."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            try:
                return function(*arguments, **keywords)
            except REFUSALS as error:
                text = str(error)
                found = BENEATH.match(text)
                if not found or type(error) not in REFUSALS:
                    raise
                rest = LIKE.sub(lambda m: f"like {names.get(m[1], m[1])}", text[found.end() :])
                argument = f"{names.get(found[1], found[1])}: " if found[1] else ""
                refusal = type(error)(f"{function.__name__}: {argument}{rest}")
            raise refusal from None

        return call  # type: ignore[return-value]

    return decorate
