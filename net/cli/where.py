"""What the first word names: a store's folder, or a running service by its URL."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..client import Client

TOKEN = "CALLBOARD_TOKEN"


def is_url(where: str) -> bool:
    """Whether this names a service: by its socket, or by the address of its page, as a browser shows it."""
    return where.startswith(("ws://", "wss://", "http://", "https://"))


@asynccontextmanager
async def connected(url: str, token: str | None, *, patience: float | None = 60) -> AsyncGenerator[Client]:
    """A client of the service; without `--token` the one in the environment."""
    from ..client import connect

    # http → ws and https → wss: it is one port.
    socket = f"ws{url.removeprefix('http')}" if url.startswith("http") else url
    async with connect(socket, token or os.environ.get(TOKEN), patience=patience) as client:
        yield client
