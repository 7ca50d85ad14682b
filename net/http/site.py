"""The HTTP side of a service: one request after another, each to its route, with whatever fails answered.

A handler that throws costs one answer with status 500. The order of what is asked of a request is: is there such a path, may one
come under this name and from that origin, what does the token allow, and only then is its body read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

import trio

from ...storage.errors import CallboardError, Unauthorized
from ..access import EVERYTHING, Access, Grant
from ..handlers import Caller
from ..limits import ServiceLimits
from .failures import Refused, response_to
from .line import Gone, Line
from .messages import HTML, Request, Response
from .router import Route, Router, Visit, decoded

_log = logging.getLogger("callboard.service")
_BEARER = ("www-authenticate", "Bearer")
_ASKED_AGAIN = ("vary", "origin")


class Site:
    """The routes of a service, and who may take them."""

    def __init__(self, access: Access, limits: ServiceLimits, routes: Sequence[Route]) -> None:
        self._access, self._limits = access, limits
        self.router = Router(routes)
        self.draining = False
        """Whether only what `drains` is answered."""
        self.waiting: set[trio.CancelScope] = set()
        """Requests at their handlers; those that are cancelled are answered with 503."""

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
        caller = Caller()
        if not route.waits:
            return await self._run(line, request, route, path, caller)
        stay = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, line, caller, nursery.cancel_scope)
            stay = await self._run(line, request, route, path, caller)
            nursery.cancel_scope.cancel()
        return stay

    async def _run(self, line: Line, request: Request, route: Route, path: Mapping[str, str], caller: Caller) -> bool:
        try:
            response = await self._respond(line, request, route, path, caller)
        except Refused as refused:
            response = response_to(refused, route.dialect)
        except Gone:
            return False
        except CallboardError as error:
            response = response_to(error, route.dialect)
        except Exception as error:  # one request's failure is its own: the connection and the service go on
            _log.error("%s %s failed", request.method, route.path, exc_info=error)
            response = response_to(error, route.dialect)
        return await self._answer(line, request, response)

    async def _respond(self, line: Line, request: Request, route: Route, path: Mapping[str, str], caller: Caller) -> Response:
        grant = self._grant(route, request)
        if grant is None:
            return Response(b"", 303, HTML, (("location", "/login"),))
        if self.draining and not route.drains:
            raise _closing()
        request = await line.body(request, self._limits.body_bytes)
        with trio.CancelScope() as scope:
            self.waiting.add(scope)
            try:
                return await route.handler(Visit(request, grant, path, decoded(route, request), caller))
            finally:
                self.waiting.discard(scope)
        raise _closing()

    async def _answer(self, line: Line, request: Request, response: Response) -> bool:
        """Send it; whether it was sent to its end."""
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
            grant = self._access.admit(request.raw, safe=request.method in ("GET", "HEAD"))
        except Unauthorized as error:
            if route.door == "page" and "text/html" in request.headers.get("accept", ""):
                return None
            raise Refused(401, error.message, _BEARER) from error
        if route.door != "page":
            grant.check_scope(route.door, f"{route.method} {route.path}")
        return grant

    def _preflight(self, request: Request) -> Response:
        methods = self.router.allowed(request.path)
        asked = request.headers.get("access-control-request-headers", "")
        allowed = (
            ("allow", methods),
            ("access-control-allow-methods", methods),
            (
                "access-control-allow-headers",
                asked if asked.replace("-", "").replace(",", "").replace(" ", "").isalnum() else "*",
            ),
            ("access-control-max-age", "600"),
        )
        return Response(b"", 204, headers=allowed)

    def _signed(self, request: Request, response: Response) -> Response:
        """With the word that lets a page of another origin read it, if it may. Its cookies never count."""
        origin = request.headers.get("origin")
        if origin is None or not self._access.origin_fits(origin, request.headers.get("host", "")):
            return response
        return response.with_headers(("access-control-allow-origin", origin), _ASKED_AGAIN)


def _closing() -> Refused:
    return Refused(503, "the service is closing; what was accepted goes on", ("retry-after", "1"))


async def _watch(line: Line, caller: Caller, scope: trio.CancelScope) -> None:
    """Cancel what a client waits for when it has left."""
    with suppress(Gone):  # the same, less politely
        await line.wait_gone()
    caller.gone = True
    scope.cancel()
