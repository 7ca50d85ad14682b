"""`/blobs/DIGEST`: pictures and files that a log tells of, for those who may read that log.

A blob is asked for by the record that holds it, so a digest opens nothing by itself: whoever may read the record may have its
blobs, and what they are is said by the log. Only pictures of a few kinds that no browser runs anything in are shown as what they
are; everything else is a download without a type. What is in them was written by models and tools, and is theirs alone: no script
of it runs, and no page of another site may show it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, cast
from urllib.parse import quote

from msgspec import Struct

from ...storage.errors import AgentNotFound, StoreError
from ...storage.messages import File, Image
from ..handlers import Desk
from .failures import Refused
from .line import CHUNK
from .messages import Pour, Response, Send
from .router import Visit

_log = logging.getLogger("callboard.service")
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
"""What is shown. SVG is not among them: it may hold scripts and addresses."""
ANYTHING = "application/octet-stream"
AT_ONCE = 256 * 2**20
"""How many bytes are held for those who read them now: a blob is in memory until its reader has it, and readers may be slow."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEADERS = (
    ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "private, max-age=600"),
)


class Blobs:
    """The handler."""

    def __init__(self, desk: Callable[[Visit], Desk]) -> None:
        self._desk = desk
        self._held = 0

    async def show(self, visit: Visit) -> Response:
        """The blob, from the record `seq` of the log of `agent`; both stand in the query.

        Raises:
            Refused: 400: the query names no record; 404: that holds no such blob, or the store does not; 503: too much is being
                read by others.
            Unauthorized: the token is not for this agent.
            AgentNotFound: there is no such agent.
        """
        desk, digest = self._desk(visit), visit.path["digest"]
        agent, seq = visit.request.query.get("agent", ""), visit.request.query.get("seq", "")
        if not agent or not (seq.isascii() and seq.isdecimal() and len(seq) < 19):
            raise Refused(400, "name the record that holds it: /blobs/DIGEST?agent=ID&seq=N")
        block = await _block(desk, agent, int(seq), digest) if _DIGEST.fullmatch(digest) else None
        if block is None:
            raise Refused(404, "the record holds no such blob")
        try:
            data = await desk.system.store.blob(digest)
        except StoreError as error:
            _log.info("a blob of %r was asked for and is not there: %s", agent, error)
            raise Refused(404, "the log tells of this blob, and the store does not have it") from error
        if self._held and self._held + len(data) > AT_ONCE:
            raise Refused(503, "others read as much as is given out at once; try again", ("retry-after", "1"))
        kind = block.media_type.lower()
        shown = kind in PICTURES
        told = f"{'inline' if shown else 'attachment'}; filename*=UTF-8''{_name(block, digest)}"
        size = ("content-length", str(len(data)))
        return Response(
            b"", 200, kind if shown else ANYTHING, (*_HEADERS, ("content-disposition", told), size), self._poured(data)
        )

    def _poured(self, data: bytes) -> Pour:
        """In pieces, so that a slow reader has its time for each of them."""

        async def pour(send: Send) -> None:
            self._held += len(data)
            try:
                for begin in range(0, len(data), CHUNK):
                    await send(data[begin : begin + CHUNK])
            finally:
                self._held -= len(data)

        return pour


async def _block(desk: Desk, agent: str, seq: int, digest: str) -> Image | File | None:
    """The block that tells of the blob; None if the record has none."""
    desk.grant.check_agent(agent)
    store = desk.system.store
    if await store.head(agent) is None:
        raise AgentNotFound(f"there is no agent {agent[:200]!r}", agent=agent)
    async for record in store.read(agent, seq - 1, seq):
        return find(record.event, digest)
    return None


def find(value: Any, digest: str) -> Image | File | None:
    """The first picture or file with this blob anywhere in an event. Free JSON in it (labels, contexts, arguments of calls) is
    what anybody who may send has written: it may look like a block, and is none."""
    left: list[Any] = [value]
    while left:
        part = left.pop()
        if isinstance(part, Image | File):
            if part.blob == digest:
                return part
        elif isinstance(part, Struct):
            left.extend(getattr(part, name) for name in part.__struct_fields__)
        elif isinstance(part, list | tuple):
            left.extend(cast("Sequence[Any]", part))
    return None


def _name(block: Image | File, digest: str) -> str:
    """What a browser calls the file: the end of its name, as a header can carry it."""
    name = re.split(r"[/\\]", getattr(block, "name", None) or "")[-1]
    return quote((name or digest[:16]).encode("utf-8", "replace")[-200:], safe="")
