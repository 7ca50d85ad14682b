"""The service: one port, on which clients talk to the agents of a system, over WebSocket and over HTTP.

    async with System.open("state", agents=[support]) as system, trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve, system, port=8000, tokens="tokens.toml"))

Given a system that is not open yet, the service opens it, and says on its port meanwhile that it recovers. When the task is
cancelled, connections are closed with a code and turns go on; they belong to the system. `Server.drain` before that is the
polite way.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import trio

from ..actors.system import System
from ..storage.errors import UsageError
from .access import Access, Tokens
from .guesses import THIS_MACHINE, Guesses
from .http.line import library as h11
from .limits import ServiceLimits
from .server import Server
from .websocket import library

__all__ = ["Server", "serve"]


async def serve(
    system: System | AbstractAsyncContextManager[System],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tokens: Tokens | str | os.PathLike[str] | None = None,
    tls: ssl.SSLContext | tuple[str, str] | None = None,
    origins: Sequence[str] = (),
    proxies: Sequence[str] = THIS_MACHINE,
    limits: ServiceLimits | None = None,
    task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the agents of a system until cancelled; `nursery.start` gives the `Server`, with its `.port`, once it is ready.

    Args:
        system: an open system, which must outlive this task; or `System.open(...)`, which is then opened and closed here, and
            the port says 503 until it is open.
        host: the address to bind. Without tokens only loopback is.
        port: 0 lets the machine choose.
        tokens: `{token: {"scopes": ["read", "send", "admin"], "prefix": "acme/"}}`, or a TOML file of that shape.
        tls: a context, or the paths of a certificate and its key.
        origins: pages of these origins may connect; by default, with tokens any, without them those of this machine.
        proxies: addresses or networks of proxies in front, which are believed when they say for whom they ask
            (`X-Forwarded-For`); by default those on this machine. Wrong tokens are counted by client.
        limits: how much a connection may take.

    Raises:
        UsageError: the tokens cannot be read, others could reach a port that asks for none, or the port cannot be bound.
        StoreError: the system could not be opened.
    """
    library()
    h11()
    limits = limits or ServiceLimits()
    guesses = Guesses(allowed=limits.wrong_tokens, each_s=limits.wrong_token_s)
    access = Access(tokens, origins=origins, proxies=proxies, guesses=guesses)
    access.check_host(host)
    server = Server(None, access, limits)
    context = _context(tls)
    listeners = await _listeners(host, port)
    server.bound(host, int(listeners[0].socket.getsockname()[1]), secure=context is not None)
    doors: list[Any] = listeners if context is None else [trio.SSLListener(door, context) for door in listeners]
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        handlers, scope = await nursery.start(_hold)
        nursery.start_soon(_accept, server, doors, handlers)
        try:
            async with _opened(system) as opened:
                server.attach(opened)
                task_status.started(server)
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await server.close()
        except Exception as error:  # raised again outside the nursery, which would wrap it
            failure = error
        finally:
            scope.cancel()
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@asynccontextmanager
async def _opened(system: System | AbstractAsyncContextManager[System]) -> AsyncGenerator[System]:
    if isinstance(system, System):
        yield system
    else:
        async with system as opened:
            yield opened


async def _listeners(host: str, port: int) -> list[trio.SocketListener]:
    try:
        return await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise UsageError(_unbound(host, port, error)) from error


def _unbound(host: str, port: int, error: OSError) -> str:
    """Why nothing can be bound there, and what to do."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"{host!r} is no address of this machine: bind 127.0.0.1 to serve it alone, or 0.0.0.0 for whoever reaches it"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken by another process: choose another one, or 0 for any that is free"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} of {host} may not be bound by this user: choose one from 1024 on"
    return f"port {port} of {host} cannot be had ({error.strerror or error}): choose another one, or 0 for any that is free"


async def _accept(server: Server, doors: list[Any], handlers: trio.Nursery) -> None:
    await trio.serve_listeners(server.handle, doors, handler_nursery=handlers)


async def _hold(*, task_status: trio.TaskStatus[tuple[trio.Nursery, trio.CancelScope]]) -> None:
    """Where connections live: what cancels the service does not cut them before they are closed."""
    with trio.CancelScope(shield=True) as scope:
        async with trio.open_nursery() as nursery:
            task_status.started((nursery, scope))
            await trio.sleep_forever()


def _context(tls: ssl.SSLContext | tuple[str, str] | None) -> ssl.SSLContext | None:
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    for path in dict.fromkeys(tls):
        _check_readable(path)
    try:
        context.load_cert_chain(*tls, password=partial(_refuse_encrypted, tls[1]))
    except OSError as error:
        reason = getattr(error, "reason", None)  # often the library has none
        what = f"the certificate {tls[0]} with the key {tls[1]} cannot be used{f' ({reason})' if reason else ''}"
        raise UsageError(f"{what}: give both in PEM form, and the key of this certificate") from error
    return context


def _check_readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        text = f"{path} cannot be read ({error.strerror or error}): TLS needs a certificate and its key, in PEM form"
        raise UsageError(text) from error


def _refuse_encrypted(path: str) -> str:
    """In the place of a prompt for a password, at which a service would wait for nobody."""
    raise UsageError(f"the key {path} is encrypted, and nobody is asked for its password: decrypt it, or give a context")
