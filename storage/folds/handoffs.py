"""Handoffs: under which definition a log goes on. No fold: who keeps the name of an agent asks here what a record makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..events import Event, Note

HANDOFF = "callboard/handoff"
"""The kind of note that hands a log over, in one append with the result of the call that did; `to` is the definition's name."""


def handed_to(event: Event) -> str | None:
    """The name of the definition that a record hands the log to; None if it is no such record, or makes no sense."""
    if not isinstance(event, Note) or event.kind != HANDOFF:
        return None
    data: Any = event.data
    to: Any = cast("Mapping[str, Any]", data).get("to") if isinstance(data, Mapping) else None
    return to if isinstance(to, str) and to else None
