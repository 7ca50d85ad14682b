"""JSON schemas as providers take them for answers: a strict dialect, of which not every schema has a form. Pure.

Both providers want every object closed and every property of it required, and know few keywords. Closing and requiring only
narrows: what the model then answers still fits the agent's schema. A keyword that is left out (a minimum, a pattern) stands in
the description for the model to read, and the runtime checks the answer by the whole schema anyway. What has no strict form, such
as a mapping with free keys, is no error: the agent's loop offers the model a tool instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

_NAMES: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_KEPT = frozenset({"type", "properties", "items", "enum", "anyOf", "$ref", "$defs", "description"})
_HANDLED = frozenset({"required", "additionalProperties", "const", "oneOf", "title", "default", "discriminator", "$schema"})
_IMPOSSIBLE = frozenset({"allOf", "not", "if", "then", "else", "prefixItems", "patternProperties", "dependentSchemas"})


class _NoForm(Exception):
    """The schema has no strict form."""


def strict(schema: Mapping[str, Any], *, recursive: bool) -> dict[str, Any] | None:
    """The schema in the strict dialect; None if it has no form there. `recursive`: whether it may hold itself."""
    try:
        if not recursive and _holds_itself(schema):
            return None
        return _strict(schema)
    except (_NoForm, RecursionError):
        return None


def _strict(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or not schema:
        raise _NoForm  # anything at all: no grammar can hold the model to it
    found = cast("Mapping[str, Any]", schema)
    if _IMPOSSIBLE & found.keys():
        raise _NoForm
    made = {name: found[name] for name in found if name in _KEPT}
    if "oneOf" in found:
        made["anyOf"] = found["oneOf"]
    if "const" in found:
        made["enum"] = [found["const"]]
    for name in ("anyOf", "properties", "$defs", "items"):
        if name in made:
            made[name] = _each(name, made[name])
    if "enum" in made and "type" not in made:
        made["type"] = _type_of(made["enum"])
    if found.get("type") == "object" or "properties" in found:
        _close(made, found)
    if found.get("type") == "array" and "items" not in made:
        raise _NoForm
    _describe(made, {name: found[name] for name in found if name not in _KEPT | _HANDLED})
    return made


def _each(name: str, value: Any) -> Any:
    if name == "anyOf":
        return [_strict(inner) for inner in value]
    return _strict(value) if name == "items" else {key: _strict(inner) for key, inner in value.items()}


def _close(made: dict[str, Any], found: Mapping[str, Any]) -> None:
    free = found.get("additionalProperties", False)
    if not made.get("properties") or (free is not False and free is not True):
        raise _NoForm  # its keys are data
    made["type"] = "object"
    made["required"] = list(made["properties"])
    made["additionalProperties"] = False


def _type_of(values: list[Any]) -> Any:
    kinds: list[type] = [type(value) for value in values]
    names = list(dict.fromkeys(_NAMES.get(kind, "") for kind in kinds))
    if not names or "" in names:
        raise _NoForm
    return names[0] if len(names) == 1 else names


def _describe(made: dict[str, Any], left_out: dict[str, Any]) -> None:
    if left_out and "$ref" not in made:
        rules = ", ".join(f"{name}: {json.dumps(value)}" for name, value in sorted(left_out.items()))
        made["description"] = f"{made.get('description', '')} ({rules})".strip()
    if "$ref" in made:  # nothing may stand beside a reference, but for the definitions at the root
        for name in [n for n in made if n not in ("$ref", "$defs")]:
            del made[name]


def _holds_itself(schema: Mapping[str, Any]) -> bool:
    """Whether a definition leads to itself."""
    defs: Mapping[str, Any] = schema.get("$defs", {})
    leads = {name: _references(inner) for name, inner in defs.items()}
    leads[""] = _references({name: inner for name, inner in schema.items() if name != "$defs"})

    def reaches(start: str, seen: frozenset[str]) -> bool:
        return any(to in seen or reaches(to, seen | {to}) for to in leads.get(start, ()))

    return any(reaches(name, frozenset({name})) for name in leads)


def _references(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        found = cast("Mapping[str, Any]", value)
        own = {str(found["$ref"]).rpartition("/")[2]} if "$ref" in found else set[str]()
        return own.union(*(_references(inner) for inner in found.values()))
    if isinstance(value, list | tuple):
        return set[str]().union(*(_references(inner) for inner in cast("list[Any]", value)))
    return set()
