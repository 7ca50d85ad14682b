"""The table of routes: which handler has a path and a method, what it takes, and what a token must allow.

The table is data. The service finds handlers in it, `/openapi.json` is drawn from it, and the tests that throw rubbish at a
service read there what to throw. A path is a list of segments; `{name}` stands for one, `{name...}`, at the end, for all that
are left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from ..access import EVERYTHING, Grant
from ..handlers import Caller
from ..wire.methods import Scope
from .failures import Dialect, Refused
from .messages import JSON, Request, Response

Door = Literal["public", "page"] | Scope
"""Who may come: anybody; whoever has any token (a browser without one is sent to the login); or a token with this scope."""


class Visit(Struct, frozen=True):
    """A request at its handler: what the path's placeholders stand for, what its token allows, its body, decoded,
    and whether its client is still there."""

    request: Request
    grant: Grant = EVERYTHING
    path: Mapping[str, str] = {}
    body: Any = None
    caller: Caller = msgspec.field(default_factory=Caller)


Handler = Callable[[Visit], Awaitable[Response]]


class Route(Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    path: str
    handler: Handler
    door: Door
    text: str
    """One sentence, for the documentation."""
    body: Any = None
    """The type of a JSON body; None if there is none, `bytes` for one that the handler reads itself."""
    result: Any = None
    """The type of a JSON answer; None if it is none."""
    statuses: tuple[int, ...] = (200,)
    """What it answers when nothing is wrong with the request."""
    dialect: Dialect = "callboard"
    most: int | None = None
    """The most bytes of its body, where that is less than what the service takes."""
    waits: bool = False
    """Whether it waits for an agent: then a client that goes away ends the wait."""
    probe: bool = False
    """Whether it answers also while the service recovers or drains."""


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._table = [(route.path.strip("/").split("/"), route) for route in self.routes]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route, and what its placeholders stand for. HEAD is a GET whose body is not sent.

        Raises:
            Refused: 404 for the path, 405 for the method.
        """
        segments, wanted = _segments(path), "GET" if method == "HEAD" else method
        allowed: set[str] = set()
        for pattern, route in self._table:
            found = _match(pattern, segments)
            if found is None:
                continue
            if route.method == wanted:
                return route, found
            allowed.add(route.method)
        if allowed:
            raise Refused(405, f"{path} takes {_methods(allowed)}, not {method[:20]}", ("allow", _methods(allowed)))
        raise Refused(404, f"there is nothing at {path[:200]}")

    def allowed(self, path: str) -> str:
        """The methods of a path, as a header lists them.

        Raises:
            Refused: 404: it has none.
        """
        segments = _segments(path)
        found = {route.method for pattern, route in self._table if _match(pattern, segments) is not None}
        if not found:
            raise Refused(404, f"there is nothing at {path[:200]}")
        return _methods(found)


def decoded(route: Route, request: Request) -> Any:
    """The body as the route's type.

    Raises:
        Refused: 415 for another media type, 400 for what is no JSON, 422 for JSON of another shape.
    """
    if route.body is None:
        return None
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise Refused(415, f"the body comes as {coding[:100]}; send it as it is")
    if route.body is bytes:
        return request.body
    if request.media_type != JSON:
        raise Refused(415, f"{route.path} takes {JSON}, not {request.media_type[:100] or 'a body without a content-type'}")
    try:
        return msgspec.json.decode(request.body, type=route.body)
    except msgspec.ValidationError as error:
        raise Refused(422, f"the body does not fit: {error}") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON: {error}") from error


def _segments(path: str) -> list[str]:
    """The path's segments, their escapes undone; they may hold anything that a client can think of."""
    return [unquote(segment) for segment in path.strip("/").split("/")]


def _match(pattern: list[str], segments: list[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for place, part in enumerate(pattern):
        if part.endswith("...}"):
            found[part[1:-4]] = "/".join(segments[place:])
            return found if found[part[1:-4]] else None
        if place >= len(segments) or (not part.startswith("{") and part != segments[place]):
            return None
        if part.startswith("{"):
            if not segments[place]:
                return None
            found[part[1:-1]] = segments[place]
    return found if len(pattern) == len(segments) else None


def _methods(methods: set[str]) -> str:
    more = {"HEAD", "OPTIONS"} if "GET" in methods else {"OPTIONS"}
    return ", ".join(sorted(methods | more))
