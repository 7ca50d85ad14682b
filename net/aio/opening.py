"""`System` and `connect` for asyncio: what each opens lives in a trio thread of its own, for the length of a block."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Any

from ...actors.system import System as TrioSystem
from ...actors.tools.loops import LoopHost, opening_on
from ..client import connect as trio_connect
from .handles import Client, Handle
from .host import Host, hosted
from .tools import Loop


class System(Handle):
    """A running system in a trio thread: the methods of `callboard.System`, on a loop. Made by `System.open` alone."""

    __slots__ = ()

    @staticmethod
    @asynccontextmanager
    async def open(store: Any, **options: Any) -> AsyncGenerator[System]:
        """Open a system for the length of a block; the options are those of `callboard.System.open`.

        Functions that it is given (`resolve`, the bare `deliver` of a channel) are called on this loop, as are the bodies of
        `@tool(loop="asyncio")`. Plugins, adapters, channels with a `run`, and other tools are trio's: they run in its thread.

        Raises:
            as `callboard.System.open`; and what ends the system while the block runs, which cancels the block.
        """
        host = Host(f"the system on {store!r}")
        loop = Loop(host)
        given = {name: _on_loop(loop, name, value) for name, value in options.items()}
        async with hosted(_opened(loop, store, given), host) as system:
            yield System(host, system)


@asynccontextmanager
async def _opened(loop: LoopHost, store: Any, options: Mapping[str, Any]) -> AsyncGenerator[TrioSystem]:
    """In trio: the system, with the loop that its tools may run on."""
    token = opening_on.set(loop)
    async with TrioSystem.open(store, **options) as system:
        opening_on.reset(token)
        yield system


def _on_loop(loop: LoopHost, name: str, value: Any) -> Any:
    """What is given as functions of asyncio, to be called there."""
    if name == "resolve" and value is not None:
        return _called_on(loop, value)
    if name == "channels" and value is not None:
        return {key: _called_on(loop, one) if inspect.iscoroutinefunction(one) else one for key, one in dict(value).items()}
    return value


def _called_on(loop: LoopHost, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(function)
    async def call(*arguments: Any, **options: Any) -> Any:
        return await loop.run(partial(function, *arguments, **options))

    return call


@asynccontextmanager
async def connect(url: str, token: str | None = None, **options: Any) -> AsyncGenerator[Client]:
    """A client of the service at `url`, for the length of a block; the options are those of `callboard.net.connect`.

    Raises:
        as `callboard.net.connect`.
    """
    host = Host(f"the client of {url}")
    async with hosted(trio_connect(url, token, **options), host) as client:
        yield Client(host, client)
