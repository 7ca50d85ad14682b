"""`/v1/chat/completions` and `/v1/models`: a client of OpenAI talks to an agent.

Each request is a prompt to an agent. Without a session it is one of its own, which remembers what the client says came before;
with one it is the same agent again, and of the conversation only what is new counts. The turn is the agent's: a client that goes
away loses the answer, not the work, unless it asked for that. A request that is repeated under its `Idempotency-Key` has the same
answer, also after a restart, and nothing is done twice.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import trio
from msgspec import Struct

from ...actors.content import mint_id
from ...actors.ref import AgentRef
from ...actors.streams import Follow
from ...actors.values import Outcome, Receipt
from ...storage.errors import CallboardError
from ...storage.events import CommandRun, EndReason, Errored
from ...storage.messages import Block
from ...storage.records import Record
from ..handlers import Desk, check_named
from .dialect import TYPES, ChatRequest, Heading, Telling, check, conversation, failure_of, finish_of
from .failures import Refused, response_to
from .line import Gone
from .messages import EVENTS, Response, Send, to_json
from .router import Visit

SESSION, ON_DISCONNECT = "x-callboard-session", "x-callboard-on-disconnect"
KEY = "idempotency-key"
BEAT_S = 15
"""After so long without a word a comment is sent: whatever stands between must not think that nobody is there."""
_LATER = ("x-should-retry", "false")
"""The turn is over and was tried as often as the agent's policy wants: OpenAI's clients would send it again."""


class Prompted(Struct, frozen=True):
    """A prompt on its way: the agent that has it, and what was promised to the client."""

    ref: AgentRef[Any]
    receipt: Receipt
    heading: Heading
    chat: ChatRequest
    cancels: bool

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Where the answer can be looked at later."""
        return ("x-callboard-agent", quote(self.ref.id, safe="/:@")), ("x-callboard-message", quote(self.receipt.message_id))


class Completions:
    """The handlers."""

    def __init__(self, desk: Callable[[Visit], Desk]) -> None:
        self._desk = desk

    async def models(self, visit: Visit) -> Response:
        """The definitions of the service."""
        names = sorted(self._desk(visit).system.definitions)
        return to_json({"object": "list", "data": [_model(name) for name in names]})

    async def model(self, visit: Visit) -> Response:
        """One definition."""
        return to_json(_model(self._desk(visit).definition(visit.path["name"]).name))

    async def complete(self, visit: Visit) -> Response:
        """The answer of an agent, at once or as it comes."""
        prompted = await self._prompt(visit)
        if prompted.chat.stream:

            async def pour(send: Send) -> None:
                async with _cancelling(prompted, visit):
                    await _pour(prompted, send)

            return Response(media_type=EVENTS, headers=prompted.headers, pour=pour)
        async with _cancelling(prompted, visit):
            outcome = await prompted.ref.outcome(prompted.receipt.message_id)
        if finish_of(outcome.reason) is None:
            status, error = failure_of(outcome.reason)
            return to_json({"error": error}, status).with_headers(*prompted.headers, _LATER, *_retry_after(outcome.reason))
        return to_json(prompted.heading.whole(outcome)).with_headers(*prompted.headers)

    async def _prompt(self, visit: Visit) -> Prompted:
        chat: ChatRequest = visit.body
        desk = self._desk(visit)
        check(chat)
        history, prompt = conversation(chat.messages)
        cancels = _cancels(visit)
        check_named("user and idempotency-key", chat.user, visit.request.headers.get(KEY))
        agent = desk.definition(chat.model)
        id = _agent_of(visit, chat)
        desk.grant.check_agent(id)
        ref = await desk.system.spawn(agent, id=id, history=history)
        receipt = await _send(ref, prompt, visit.request.headers.get(KEY), chat.user)
        heading = Heading(f"chatcmpl-{receipt.message_id}", int(time.time()), chat.model)
        return Prompted(ref, receipt, heading, chat, cancels)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "callboard"}


def _agent_of(visit: Visit, chat: ChatRequest) -> str:
    """The agent that a request is for: the one that is named, the user's own, or a new one."""
    named, prefix = visit.request.headers.get(SESSION), visit.grant.prefix
    if named:
        return unquote(named)
    if chat.user:
        return f"{prefix}{chat.model}/{chat.user}"
    key = visit.request.headers.get(KEY)
    own = mint_id() if key is None else hashlib.sha256(key.encode("latin-1")).hexdigest()[:32]
    return f"{prefix}{chat.model}-{own}"


def _retry_after(reason: EndReason) -> tuple[tuple[str, str], ...]:
    """What the provider asked for, if it asked."""
    if not isinstance(reason, Errored) or reason.error.retry_after_s is None:
        return ()
    return (("retry-after", str(math.ceil(reason.error.retry_after_s))),)


def _cancels(visit: Visit) -> bool:
    wanted = visit.request.headers.get(ON_DISCONNECT, "detach")
    if wanted not in ("detach", "cancel"):
        raise Refused(400, f"{ON_DISCONNECT} is detach (the turn goes on) or cancel")
    return wanted == "cancel"


async def _send(ref: AgentRef[Any], prompt: list[Block], key: str | None, sender: str | None) -> Receipt:
    return await ref.followup(prompt, message_id=key, sender=sender)


@asynccontextmanager
async def _cancelling(prompted: Prompted, visit: Visit) -> AsyncGenerator[None]:
    """Cancel the turn if the client leaves and wanted that. A service that closes leaves it to the next start."""
    try:
        yield
    except Gone:
        visit.caller.gone = True
        raise
    finally:
        if prompted.cancels and visit.caller.gone:
            with trio.CancelScope(shield=True):
                await prompted.ref.cancel("user", keep_inbox=True)


# -- as it comes


async def _pour(prompted: Prompted, send: Send) -> None:
    gone: Gone | None = None
    stream = _Stream(prompted, send)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.learn)
        try:
            await stream.tell()
        except Gone as error:  # raised again outside the nursery, which would wrap it
            gone = error
        nursery.cancel_scope.cancel()
    if gone is not None:
        raise gone


class _Stream:
    """One answer as server-sent events. The records tell what to show; the outcome tells what no record of a turn says: that
    the message was dropped, or that it was a command which was answered beside any turn."""

    def __init__(self, prompted: Prompted, send: Send) -> None:
        self._prompted, self._send = prompted, send
        self._telling = Telling(prompted.heading, prompted.receipt.message_id)
        self._outcome: Outcome[Any] | CallboardError | None = None
        self._known = trio.Event()
        self._looking = trio.CancelScope()

    async def learn(self) -> None:
        """Find out how it ended."""
        try:
            self._outcome = await self._prompted.ref.outcome(self._prompted.receipt.message_id)
        except CallboardError as error:
            self._outcome = error
            self._looking.cancel()
        self._known.set()

    async def tell(self) -> None:
        """Send it all."""
        heading = self._prompted.heading
        await self._data(heading.chunk({"role": "assistant", "content": ""}))
        ref, seq = self._prompted.ref, self._prompted.receipt.seq
        records = ref.follow(after=seq - 1, types=TYPES | {"command/run"})
        aside = False
        while self._telling.end is None and not aside and not isinstance(self._outcome, CallboardError):
            record = await self._next(records)
            if record is None:
                continue
            aside = record.seq == seq and isinstance(record.event, CommandRun)
            for piece in self._telling.feed(record):
                await self._data(piece)
        await self._known.wait()
        await self._finish(aside=aside)

    async def _next(self, records: Follow) -> Record | None:
        """The next record; None after a beat without one, or when there will be none."""
        with trio.move_on_after(BEAT_S) as beat:
            with trio.CancelScope() as self._looking:
                return await anext(records)
        if beat.cancelled_caught:
            await self._send(b": waiting\n\n")
        return None

    async def _finish(self, *, aside: bool) -> None:
        heading, outcome = self._prompted.heading, self._outcome
        assert outcome is not None
        if isinstance(outcome, CallboardError):
            await self._send(b"data: " + response_to(outcome, "openai").body + b"\n\n")
            return
        finish = finish_of(outcome.reason)
        if finish is None:
            await self._data({"error": failure_of(outcome.reason)[1]})
            return
        if aside and outcome.text:
            await self._data(heading.chunk({"content": outcome.text}))
        await self._data(heading.chunk({}, finish))
        options = self._prompted.chat.stream_options
        if options is not None and options.include_usage:
            await self._data(heading.usage(outcome.usage))
        await self._send(b"data: [DONE]\n\n")

    async def _data(self, value: Any) -> None:
        await self._send(b"data: " + msgspec.json.encode(value) + b"\n\n")
