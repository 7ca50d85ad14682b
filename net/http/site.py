"""The HTTP side of a service: one request after another, each to its route, with whatever fails answered.

A handler that throws costs one answer with status 500. The order of what is asked of a request is: is there such a path, may one
come under this name and from that origin, what does the token allow, and only then is its body read.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import trio

from ...storage.errors import CallboardError, Unauthorized
from ..access import EVERYTHING, Access, Grant
from ..handlers import Caller
from ..limits import ServiceLimits
from .failures import Refused, response_to, stays_out
from .health import State
from .line import Gone, Line
from .messages import HTML, Request, Response
from .router import Route, Router, Visit, decoded

NO_BODY = 64 * 1024
"""The most bytes of a body that nobody reads."""
_ORIGIN = re.compile(r"[!-~]+")
_NAMES = re.compile(r"[A-Za-z0-9, -]+")
"""What may be said back to a browser of what it said."""
_Value = TypeVar("_Value")
_log = logging.getLogger("callboard.service")
_ASKED_AGAIN = ("vary", "origin")


class Site:
    """The routes of a service, and who may take them."""

    def __init__(self, access: Access, limits: ServiceLimits, routes: Sequence[Route]) -> None:
        self._access, self._limits = access, limits
        self.router = Router(routes)
        self.state: State = "recovering"
        """What is not `ready` answers probes alone."""
        self.requests = 0
        """Requests at their handlers, and answers on their way."""
        self.waiting: set[trio.CancelScope] = set()
        """Those of them that wait for an agent."""
        self.answered: Counter[tuple[str, int]] = Counter()
        """Answers by route and status; no route has the empty name."""

    @property
    def draining(self) -> bool:
        """Whether connections end with the answer under way."""
        return self.state == "draining"

    async def serve(self, line: Line, request: Request | None) -> None:
        """Answer this request, and those that follow it, until the connection ends."""
        try:
            while request is not None:
                stay = await self._exchange(line, request)
                if not (line.next() and stay) or self.draining:
                    await line.linger()
                    return
                request = await line.head()
        except Refused as refused:  # the next head: no HTTP, too long, too slow
            await self.refuse(line, refused)
        except Gone:
            return

    def let_go(self) -> None:
        """Answer those who wait for an agent with 503: what they sent goes on without them."""
        self.state = "draining"
        for scope in self.waiting:
            scope.cancel()

    async def refuse(self, line: Line, refused: Refused) -> None:
        """Say why there is no answer, and end the connection."""
        try:
            await line.answer(response_to(refused), last=True)
            await line.linger()
        except Gone:
            return

    async def _exchange(self, line: Line, request: Request) -> bool:
        """Answer one request; whether the connection stays.

        Raises:
            Gone: nobody is there to read the answer.
        """
        try:
            if request.method == "OPTIONS":
                return await self._answer(line, request, self._preflight(request))
            route, path = self.router.find(request.method, request.path)
        except Refused as refused:
            return await self._answer(line, request, response_to(refused))
        visit = await self._or_error(route, request, self._visit(line, request, route, path))
        if isinstance(visit, Response):
            return await self._answer(line, request, visit, route)
        if not route.waits:
            return await self._run(line, route, visit)
        stay = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, line, visit.caller, nursery.cancel_scope)
            stay = await self._run(line, route, visit)
            nursery.cancel_scope.cancel()
        return stay

    async def _visit(self, line: Line, request: Request, route: Route, path: Mapping[str, str]) -> Visit | Response:
        """The request at its handler's door."""
        grant = self._grant(route, request)
        if grant is None:
            return Response(b"", 303, HTML, (("location", "/login"),))
        if self.state != "ready" and not route.probe:
            raise _not_now(self.state)
        if route.door != "public":
            line.waits_since = None
        most = NO_BODY if route.body is None else self._limits.body_bytes if route.most is None else route.most
        request = await line.body(request, min(most, self._limits.body_bytes))
        return Visit(request, grant, path, decoded(route, request))

    async def _run(self, line: Line, route: Route, visit: Visit) -> bool:
        """Let the handler answer. When the service lets go, who waits for an answer has 503, and one that is poured is cut."""
        response: Response | None = None
        self.requests += 1
        with trio.CancelScope() as scope:
            if route.waits:
                self.waiting.add(scope)
            try:
                response = await self._or_error(route, visit.request, route.handler(visit))
                return await self._answer(line, visit.request, response, route)
            finally:
                self.waiting.discard(scope)
                self.requests -= 1
        if response is not None:
            return False
        return await self._answer(line, visit.request, response_to(_not_now(self.state), route.dialect), route)

    async def _or_error(self, route: Route, request: Request, work: Awaitable[_Value]) -> _Value | Response:
        """What the work gives, or an answer that says why it gives nothing."""
        try:
            return await work
        except Gone:
            raise
        except (Refused, CallboardError) as error:
            return response_to(error, route.dialect)
        except Exception as error:  # one request's failure is its own: the connection and the service go on
            _log.error("%s %s failed", request.method, route.path, exc_info=error)
            return response_to(error, route.dialect)

    async def _answer(self, line: Line, request: Request, response: Response, route: Route | None = None) -> bool:
        """Send it; whether it was sent to its end."""
        self.answered["" if route is None else route.path, response.status] += 1
        try:
            signed = self._signed(request, response)
            await line.answer(signed, head_only=request.method == "HEAD", last=self.draining)
        except Gone:
            return False
        except Exception as error:  # a body that is poured failed: what was sent of it cannot be taken back
            _log.error("the answer to %s %s was cut", request.method, request.path, exc_info=error)
            return False
        return True

    # -- may they?

    def _grant(self, route: Route, request: Request) -> Grant | None:
        """What the request may do; None: it comes from a browser, which should be shown the login.

        Raises:
            Refused, Unauthorized: nothing.
        """
        if not self._access.host_fits(request.headers.get("host", "")):
            raise Refused(421, "without tokens the service is reached as localhost alone")
        if route.door == "public":
            return EVERYTHING
        try:
            grant = self._access.admit(request.raw, safe=request.method in ("GET", "HEAD"), peer=request.peer)
        except Unauthorized as error:
            if route.door == "page" and "text/html" in request.headers.get("accept", ""):
                return None
            raise stays_out(error) from error
        if route.door != "page":
            grant.check_scope(route.door, f"{route.method} {route.path}")
        return grant

    def _preflight(self, request: Request) -> Response:
        methods = self.router.allowed(request.path)
        asked = request.headers.get("access-control-request-headers", "")
        allowed = (
            ("allow", methods),
            ("access-control-allow-methods", methods),
            ("access-control-allow-headers", asked if _NAMES.fullmatch(asked) else "*"),
            ("access-control-max-age", "600"),
        )
        return Response(b"", 204, headers=allowed)

    def _signed(self, request: Request, response: Response) -> Response:
        """With the word that lets a page of another origin read it, if it may. Its cookies never count."""
        origin = request.headers.get("origin")
        if (
            origin is None
            or not _ORIGIN.fullmatch(origin)
            or not self._access.origin_fits(origin, request.headers.get("host", ""))
        ):
            return response
        return response.with_headers(("access-control-allow-origin", origin), _ASKED_AGAIN)


def _not_now(state: State) -> Refused:
    text = "what was accepted goes on" if state == "draining" else "an earlier one left something to take up"
    return Refused(503, f"the service is {state}: {text}; try again", ("retry-after", "1"))


async def _watch(line: Line, caller: Caller, scope: trio.CancelScope) -> None:
    """Cancel what a client waits for when it has left."""
    with suppress(Gone):  # the same, less politely
        await line.wait_gone()
    caller.gone = True
    scope.cancel()
