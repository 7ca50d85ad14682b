"""`/openapi.json`: the table of routes as an OpenAPI document, for clients that are made from one.

It is drawn from the table and the types that the routes decode, so it says what is so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from .login import FORM
from .messages import JSON
from .router import Route

_PLACE = re.compile(r"\{(\w+)(\.\.\.)?\}")
_REF = "#/components/schemas/{name}"


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The document."""
    types = [kind for route in routes for kind in (route.body, route.result) if kind not in (None, bytes)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    known = dict(zip(map(id, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(_PLACE.sub(r"{\1}", route.path), {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Callboard", "version": version, "summary": "Agents as a service."},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, known: dict[int, Any]) -> dict[str, Any]:
    places = [name for name, _ in _PLACE.findall(route.path)]
    content = {} if route.result is None else {"content": {JSON: {"schema": known[id(route.result)]}}}
    answers: dict[str, Any] = {str(status): {"description": "As it says.", **content} for status in route.statuses}
    answers["default"] = {
        "description": "What is wrong with the request, or what failed.",
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    found: dict[str, Any] = {"summary": route.text, "responses": answers}
    if places:
        found["parameters"] = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in places]
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": _body(route, known)}
    if route.door != "public":
        found["security"] = [{"bearer": [] if route.door == "page" else [route.door]}]
    return found


def _body(route: Route, known: dict[int, Any]) -> dict[str, Any]:
    if route.body is bytes:
        return {FORM if route.path == "/login" else "*/*": {}}
    return {JSON: {"schema": known[id(route.body)]}}


_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "object", "required": ["message"], "properties": {"message": {"type": "string"}}}},
}
