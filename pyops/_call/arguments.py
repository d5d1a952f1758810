"""Arguments by position or by name, for the operators of all front ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .types import Options


def by_position(
    caller: str,
    names: Sequence[str],
    given: tuple[object, ...],
    options: Options,
    needed: Collection[str] = (),
    one_of: Collection[str] = (),
) -> tuple[object, ...]:
    """Orders the arguments of a call, and removes those given by name from `options`.

    If none is given by name, returns `given` as it is; otherwise one value for each of `names`,
    None for those that are absent. Names in `needed` may then not be absent: cotangents of
    results, which may follow fewer inputs than declared if all are given by position. Of
    `one_of`, cotangents or tangents of inputs, at least one must be given.
    """
    named = [name for name in names if name in options]
    if not named:
        return given
    if names.index(named[0]) < len(given):
        raise TypeError(f"{caller}: {named[0]}: expected one value, got it by position and by name")
    left = names[len(given) :]
    for name in needed:
        if name in left and name not in options:
            raise TypeError(f"{caller}: {name}: expected by name, as {named[0]} is, got none")
    if one_of and not any(name in options or name not in left for name in one_of):
        raise TypeError(f"{caller}: expected one of {', '.join(one_of)} by name, got none")
    return *given, *[options.pop(name, None) for name in left]
