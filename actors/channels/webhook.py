"""A channel over HTTP: replies are posted to an address, and messages come in by a request that the service hands over.

Out: one POST of JSON for each reply, with the delivery id in `webhook-id`, the same each time. 2xx takes it; 429 and 503 may say
when to come again; 400, 410, 413 and 422 mean that no further try would help. In: `receive(headers, body)`, whatever server got
them; `POST /v1/channels/NAME` of the service is one. With a secret both ways are signed (`signing.py`).

    out  {"delivery": "...", "route": {"channel": ..., "chat": ...}, "text": "...", "agent": "...", "turn": 3}
    in   {"chat": "...", "text": "...", "thread"?: ..., "message"?: ..., "sender"?: ..., "id"?: ...}
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time as unix_time
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import Struct

from ...storage.errors import DeliveryFailed, InputRefused, ServiceError, UsageError
from .channel import Channel
from .inbound import ChannelInbound
from .signing import check, key_of, signed_headers

if TYPE_CHECKING:
    from ..agent import Agent
    from ..values import Delivery, Inbound, Receipt

FINAL = frozenset({400, 410, 413, 422})
"""Answers that another try would not change."""


class Posted(Struct, frozen=True):
    """A message as it comes in."""

    chat: str
    text: str
    thread: str | None = None
    message: str | None = None
    sender: str | None = None
    id: str | None = None

    @property
    def route(self) -> dict[str, str]:
        """The route in it."""
        fields = {"chat": self.chat, "thread": self.thread, "message": self.message}
        return {name: value for name, value in fields.items() if value is not None}


_decoder = msgspec.json.Decoder(Posted)


class WebhookChannel(Channel):
    """Post replies to `url`; take messages through `receive`."""

    def __init__(
        self,
        agent: Agent[Any, Any] | None = None,
        *,
        url: str | None = None,
        secret: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        transport: Any = None,
    ) -> None:
        """A webhook.

        Args:
            agent: the definition behind its chats; None if it only sends.
            url: where replies are posted; None if it only receives, and then replies fail for good.
            secret: signs what goes out, and what comes in must be signed with it; `whsec_...` or any text.
            headers: sent with each reply (an Authorization, say).
            transport: an httpx transport in the place of the network, for tests.
        """
        self.agent, self.url = agent, url
        self._key = None if secret is None else key_of(secret)
        self._headers, self._transport = dict(headers or {}), transport
        self._inbound: ChannelInbound | None = None
        self._client: Any = None
        self._came = trio.lowlevel.ParkingLot()

    def __repr__(self) -> str:
        return f"<WebhookChannel {self.name!r}>"

    @property
    def signed(self) -> bool:
        """Whether `receive` itself checks who sends; else whoever calls it has to."""
        return self._key is not None

    async def wait_there(self) -> None:
        """Return when `receive` takes messages."""
        while self._inbound is None:
            await self._came.park()
        await trio.lowlevel.checkpoint()

    async def run(self, inbound: Inbound) -> None:
        """Be there, with one pool of connections."""
        assert isinstance(inbound, ChannelInbound), "the switchboard made it"
        async with _client(self.timeout_s, self._transport) as self._client:
            self._inbound = inbound
            inbound.ready()
            self._came.unpark_all()
            try:
                await trio.sleep_forever()
            finally:
                self._inbound = None

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Take a request's message, on disk on return. The same id again is acknowledged again.

        Raises:
            InputRefused: the body is not what it should be, or a plugin or a limit refused the message.
            InboxFull: too many wait; send it again later.
            Unauthorized: the channel has a secret, and this is not signed with it.
            ServiceError: the channel is not there now.
        """
        posted = accept(headers, body, key=self._key, now=unix_time())
        if self._inbound is None:
            raise ServiceError(f"the channel {self.name!r} is not running; send it again")
        return await self._inbound.accept(posted.text, route=posted.route, sender=posted.sender, message_id=posted.id)

    async def deliver(self, entry: Delivery) -> None:
        """Post it.

        Raises:
            DeliveryFailed: the other side did not take it.
        """
        if self.url is None:
            raise DeliveryFailed(f"the channel {self.name!r} has no url to post replies to", final=True)
        body = encoded(entry)
        headers = {
            "content-type": "application/json",
            **self._headers,
            **signed_headers(self._key, entry.delivery, int(unix_time()), body),
        }
        response = await self._client.post(self.url, content=body, headers=headers)
        judge(response.status_code, response.headers.get("retry-after"))


def _client(timeout_s: float, transport: Any) -> Any:
    try:
        import httpx
    except ImportError as error:
        raise UsageError('WebhookChannel needs httpx: install "callboard[webhook]"') from error
    # A connection serves one reply: a peer that answers twice leaves an answer behind, which would pass for that to the next one.
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=timeout_s, transport=transport, follow_redirects=False, limits=limits)


# -- pure


def encoded(entry: Delivery) -> bytes:
    """A reply as it is posted; media are named by address or digest, not sent."""
    blocks = [msgspec.structs.replace(block, data=None) if getattr(block, "data", None) else block for block in entry.content]
    fields = {
        "delivery": entry.delivery,
        "route": dict(entry.route),
        "text": entry.text,
        "agent": entry.agent,
        "turn": entry.turn,
        "content": blocks,
    }
    return msgspec.json.encode(fields)


def accept(headers: Mapping[str, str], body: bytes, *, key: bytes | None, now: float) -> Posted:
    """The message in a request.

    Raises:
        Unauthorized, InputRefused: it is not signed with the key, or holds no message.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    id = check(key, lower, body, now=now) if key is not None else lower.get("webhook-id")
    try:
        posted = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputRefused(f'the body is no message: {error}; send {{"chat": "...", "text": "..."}}') from None
    if not posted.chat:
        raise InputRefused("the message names no chat")
    return msgspec.structs.replace(posted, id=posted.id or id or None)


def judge(status: int, retry_after: str | None) -> None:
    """What an answer to a reply means.

    Raises:
        DeliveryFailed: it was not taken.
    """
    if not 200 <= status < 300:
        after = _seconds(retry_after)
        raise DeliveryFailed(f"the webhook answered {status}", retry_after_s=after, final=status in FINAL)


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - unix_time())
    except ValueError:
        return None
