"""A web application: one agent for each user, streamed to the browser, which may leave and come back at any time."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve  # pyright: ignore[reportUnknownVariableType]
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, BaseUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from callboard import Agent, System
from callboard.storage import AgentNotFound, InboxFull

assistant = Agent("assistant", model="openai:gpt-5", system=lambda ctx: f"You help {ctx.labels['user']}.")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    """hypercorn runs this in a task of its own: System does not mind that other tasks use it."""
    async with System.open("state", agents=[assistant], grace=20) as system:
        app.state.system = system
        yield


async def say(request: Request) -> Response:
    """POST /say  {"id": "<browser-made uuid>", "text": "..."}"""
    body, user = await request.json(), request.user.id
    ref = await request.app.state.system.spawn(assistant, id=f"web/{user}", labels={"user": user})
    try:
        receipt = await ref.followup(body["text"], message_id=body["id"])  # durable and idempotent: the browser may repeat it
    except InboxFull as e:
        return JSONResponse({"error": str(e)}, 429)
    return JSONResponse({"id": receipt.message_id, "after": receipt.seq}, 202)


async def stream(request: Request) -> Response:
    """GET /stream, EventSource: resumes with Last-Event-ID by itself."""
    ref = await request.app.state.system.get(f"web/{request.user.id}")
    after = int(request.headers.get("last-event-id", "-1"))

    async def events() -> AsyncGenerator[str]:
        async for d in ref.deltas(after=after):  # text | reasoning | tool | discard | end
            yield f"id: {d.seq}\nevent: {d.kind}\ndata: {json.dumps({'turn': d.turn, 'text': d.text})}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")  # browser leaves: the turn goes on


async def stop(request: Request) -> Response:
    """POST /stop"""
    await (await request.app.state.system.get(f"web/{request.user.id}")).cancel("user")
    return JSONResponse({})


async def nothing_yet(request: Request, error: Exception) -> Response:
    """A user who has not said anything has no agent."""
    return JSONResponse({"error": str(error)}, 404)


# -- who is asking: your application knows


class User(BaseUser):
    """A user by name."""

    def __init__(self, id: str) -> None:
        self.id = id

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def display_name(self) -> str:
        return self.id


SESSIONS = {"secret-of-ann": "ann", "secret-of-ben": "ben"}


class Cookies(AuthenticationBackend):
    """The cookie `session` says who it is; an EventSource sends cookies, and no headers of its own."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, User]:
        user = SESSIONS.get(conn.cookies.get("session", ""))
        if user is None:
            raise AuthenticationError("log in first")
        return AuthCredentials(["authenticated"]), User(user)


def refuse(conn: HTTPConnection, error: Exception) -> Response:
    """Nobody we know."""
    return JSONResponse({"error": str(error)}, 401)


app = Starlette(
    lifespan=lifespan,
    routes=[Route("/say", say, methods=["POST"]), Route("/stream", stream), Route("/stop", stop, methods=["POST"])],
    middleware=[Middleware(AuthenticationMiddleware, backend=Cookies(), on_error=refuse)],
    exception_handlers={AgentNotFound: nothing_yet},
)


def config() -> Config:
    """Where to listen: BIND, or hypercorn's own 127.0.0.1:8000."""
    made = Config()
    made.bind = [os.environ.get("BIND", "127.0.0.1:8000")]
    return made


async def told_to_end() -> None:
    """Wait for Ctrl-C, or for the SIGTERM of whoever runs this."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        await anext(signals)


if __name__ == "__main__":
    application: Any = app
    trio.run(partial(serve, application, config(), shutdown_trigger=told_to_end))
