"""What the first word names: a store's folder, or a running service by its URL."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from .problems import Refused

if TYPE_CHECKING:
    from ..client import Client

TOKEN = "CALLBOARD_TOKEN"
_PLACE = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}/?")


def is_url(where: str) -> bool:
    """Whether this names a service: by its socket, or by the address of its page, as a browser shows it.

    Raises:
        Refused: it is an address without its beginning, and no folder.
    """
    if _PLACE.fullmatch(where) and not os.path.exists(where):
        raise Refused(f"{where} is no folder; for the service there write ws://{where}")
    return where.startswith(("ws://", "wss://", "http://", "https://"))


@asynccontextmanager
async def connected(url: str, token: str | None, *, patience: float | None = 60) -> AsyncGenerator[Client]:
    """A client of the service; without `--token` the one in the environment."""
    from ..client import connect

    # http → ws and https → wss: it is one port.
    socket = f"ws{url.removeprefix('http')}" if url.startswith("http") else url
    async with connect(socket, token or os.environ.get(TOKEN), patience=patience) as client:
        yield client
