"""Reading what a provider sent: fields of the kind they have to be, or nothing. Pure.

What comes over the wire was written by others. A field of a wrong type must not become an exception of ours in the middle of an
answer, and no number of theirs may be larger than what can still be counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from ...storage.errors import ModelError
from ...storage.messages import Failure
from .sse import Event

_MOST = 1 << 40
"""More tokens than anybody has bought."""

EMPTY = Failure("EMPTY_RESPONSE", "the model ended its answer and had said nothing")
"""A normal finish without any block: no answer, and another try may bring one."""

Fields = dict[str, Any]


def fields_of(event: Event) -> Fields:
    """The event's data as an object.

    Raises:
        ModelError: BAD_RESPONSE, it is none.
    """
    try:
        found: Any = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ModelError("BAD_RESPONSE", f"the provider sent an event that is no JSON: {event.data[:200]!r}") from error
    if not isinstance(found, dict):
        raise ModelError("BAD_RESPONSE", f"the provider sent an event that is no object: {event.data[:200]!r}")
    return cast("Fields", found)


def text(value: Any) -> str:
    """The value if it is a text; otherwise none."""
    return value if isinstance(value, str) else ""


def fields(value: Any) -> Fields:
    """The value if it is an object; otherwise an empty one."""
    return cast("Fields", value) if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """The value if it is a list; otherwise an empty one."""
    return list(cast("Iterable[Any]", value)) if isinstance(value, list) else []


def count(value: Any) -> int:
    """The value if it counts something; otherwise 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else 0
