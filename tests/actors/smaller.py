"""Makes a failing life smaller: takes away what the failure does not need, piece by piece, until every piece is needed.

A life is structs and tuples of them, so that the pieces are the same for all: an element of a tuple, or a field that could have
its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def smallest(value: T, fails: Callable[[T], bool], tries: int = 300) -> T:
    """The smallest that still fails, or how far so many tries go."""
    left = tries
    going = True
    while going:
        going = False
        for candidate in smaller(value):
            left -= 1
            if left < 0:
                return value
            if fails(candidate):
                value, going = candidate, True
                break
    return value


def smaller(value: Any) -> Iterator[Any]:
    """Everything that has one piece less, the largest pieces first."""
    whole: Any = value
    if isinstance(value, msgspec.Struct):
        yield from _structs(value)
    elif isinstance(value, tuple):
        yield from _tuples(whole)
    elif type(value) is int and value > 1:
        yield from (value // 2, value - 1)


def _structs(value: msgspec.Struct) -> Iterator[Any]:
    for field in msgspec.structs.fields(type(value)):
        now = getattr(value, field.name)
        if field.default is not msgspec.NODEFAULT and now != field.default:
            yield msgspec.structs.replace(value, **{field.name: field.default})
    for field in msgspec.structs.fields(type(value)):
        now = getattr(value, field.name)
        for piece in smaller(now) if now != field.default else ():
            yield msgspec.structs.replace(value, **{field.name: piece})


def _tuples(value: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for place in range(len(value) if len(value) > 1 else 0):
        yield (*value[:place], *value[place + 1 :])
    for place, element in enumerate(value):
        yield from ((*value[:place], piece, *value[place + 1 :]) for piece in smaller(element))
