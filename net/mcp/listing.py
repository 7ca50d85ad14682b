"""What a server says of its tools, looked at before a model is shown any of it.

Schemas and descriptions go to the model as they are: they are the server's to write. What could not work is left out, with the
reason: a schema that is no schema of an object (a provider would refuse the whole request, with all other tools in it), or one
so large that it would crowd out everything else. Pure: the SDK's objects in, small structs out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from ...actors.texts import well_formed

LARGEST = 131_072
"""Bytes of one tool's description and schema, as JSON."""
MOST = 1_000
"""Tools of one server."""
TOGETHER = 1_048_576
"""Bytes of the descriptions and schemas of one server's tools together: all of them go into every request."""


class Listed(Struct, frozen=True):
    """One tool of a server. `repeatable`: the server says that it only reads, or that doing it twice is doing it once."""

    name: str
    description: str
    schema: dict[str, Any]
    reads: bool = False
    repeatable: bool = False


class Refusal(Struct, frozen=True):
    """A tool that is not offered, and why."""

    name: str
    why: str


def look_at(tools: Iterable[Any], only: frozenset[str] | None = None) -> tuple[tuple[Listed, ...], tuple[Refusal, ...]]:
    """The tools that can be offered, by name, and those that cannot; with `only` no others are looked at."""
    listed: dict[str, Listed] = {}
    refused: list[Refusal] = []
    room = TOGETHER
    for tool in tools:
        name = well_formed(str(tool.name))
        if only is not None and name not in only:
            continue
        size, why = _size_of(tool) if len(listed) < MOST else (0, "there are too many tools")
        if name in listed:
            why = why or "the server lists the name twice"
        elif size > room:
            why = why or f"all tools of a server may take {TOGETHER} bytes to describe, and those before it leave {room}"
        if why:
            refused.append(Refusal(name, why))
        else:
            listed[name], room = _listed(name, tool), room - size
    return tuple(listed[name] for name in sorted(listed)), tuple(refused)


def _listed(name: str, tool: Any) -> Listed:
    hints = tool.annotations
    reads = bool(hints is not None and hints.read_only_hint)
    repeatable = reads or bool(hints is not None and hints.idempotent_hint)
    text = tool.description or tool.title or (hints.title if hints is not None else None) or ""
    return Listed(name, well_formed(text), {"type": "object", **tool.input_schema}, reads, repeatable)


def _size_of(tool: Any) -> tuple[int, str]:
    """How many bytes it takes to describe the tool, and why no model can be offered it; empty if one can."""
    schema, text = tool.input_schema, tool.description or ""
    why = _problem(schema)
    if why:
        return 0, why
    try:
        size = len(msgspec.json.encode(schema)) + len(text.encode("utf-8", "replace")) + len(tool.name)
    except (TypeError, ValueError, RecursionError) as error:
        return 0, f"its schema is no JSON: {error}"
    return size, f"it takes {size} bytes to describe, more than {LARGEST}" if size > LARGEST else ""


def _problem(schema: Mapping[str, Any]) -> str:
    if schema.get("type", "object") != "object":
        return f"its schema is of the type {schema.get('type')!r}, not of an object"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(value, dict | bool) for value in _values(properties)):
        return "the properties of its schema are no schemas"
    if not isinstance(required, list) or not all(isinstance(name, str) for name in cast("list[object]", required)):
        return "`required` of its schema is no list of names"
    return ""


def _values(properties: Any) -> Iterable[object]:
    return cast("dict[str, object]", properties).values()
