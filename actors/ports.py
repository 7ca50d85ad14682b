"""Ports: what the runtime does for a plugin's context and for a tool's, and nothing more.

Plugins and tools see small contexts; behind each stands a port that knows the actor. So both can be tested with ports that only
record, and neither can reach into the turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ..mailbox.addresses import letter_id, reply_delivery_id
from ..storage.errors import ModelError, UsageError
from ..storage.events import Event, InboxPut, Note, OutboxPut, Route
from ..storage.folds.handoffs import HANDOFF
from ..storage.folds.outbox import COUNTED
from ..storage.messages import Message, ModelSource, Request, Settings
from .answers import Position, Replace, Why
from .content import Content, mint_id, to_message, to_route
from .models.assembler import DECLINED, Assembler
from .models.media import with_media
from .models.model import Model
from .models.streaming import read_stream
from .seam_context import Way
from .sizes import accepted
from .tools.context import LoopRunner, ToolContext
from .turns.surfacing import offer_view, position_of

if TYPE_CHECKING:
    from ..storage.records import Record
    from .actor import Actor
    from .turns.pipeline import Slot


class AgentPort:
    """A `SeamContext`'s way to its agent."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    @property
    def id(self) -> str:
        """The agent's id."""
        return self._actor.id

    @property
    def labels(self) -> Mapping[str, str]:
        """The agent's labels."""
        return self._actor.labels

    @property
    def turn(self) -> int:
        """The open turn, or the last one."""
        return self._actor.position.turn

    @property
    def step(self) -> int:
        """The step within it."""
        return self._actor.position.step

    @property
    def route(self) -> Route | None:
        """Where the turn's answer goes."""
        return self._actor.route

    @property
    def sender(self) -> str | None:
        """Who sent the message that the turn answers: its prompt, or what was steered in last."""
        turn, at = self._actor.turn, self._actor.position
        if turn is not None and turn.prompt is not None and turn.prompt.id not in at.claimed:
            return turn.prompt.sender
        return at.sender if at.open else None

    @property
    def deps(self) -> Any:
        """What the system was opened with."""
        return self._actor.runtime.deps

    @property
    def agent(self) -> Any:
        """The agent's own handle."""
        return self._actor.runtime.ref(self._actor.id)

    def peer(self, id: str) -> Any:
        """Another agent's handle."""
        return self._actor.runtime.ref(id)

    @property
    def requests(self) -> int:
        """Model calls that the turn has sent."""
        return self._actor.position.sent

    def owner_of(self, plugin: Any) -> str:
        """The topmost agent that carries the plugin."""
        actor = self._actor
        return actor.runtime.policies.owner(plugin, actor.id, actor.agent, actor.ancestors)

    def now(self) -> datetime:
        """The wall clock."""
        return datetime.fromtimestamp(self._actor.runtime.now(), UTC).astimezone()

    def note(self, kind: str, data: Any) -> None:
        """Append a note."""
        self._actor.log.append(_note(kind, data))

    def choice(self, name: str) -> Any:
        """What was chosen last."""
        return self._actor.state.choices.get(name)

    @property
    def model_name(self) -> str | None:
        """The model of the definition."""
        model = self._actor.agent.model
        return f"{model.provider}:{model.name}" if isinstance(model, Model) else model

    def find_model(self, name: str) -> str | None:
        """Whether an adapter answers for `provider:name`."""
        agent, models = self._actor.agent, self._actor.runtime.models
        route = models.resolve(name)
        own = agent.model if isinstance(agent.model, Model) else None
        return str(route) if models.find(route.provider, route.name, own=own) is not None else None

    def model_names(self) -> tuple[str, ...]:
        """What the system was given by name."""
        return self._actor.runtime.models.names()

    async def compact(self) -> Replace | None:
        """Offer the view to the `compact` seam."""
        return await offer_view(self._actor, self._actor.context, why="command")

    def position(self, why: Why) -> Position:
        """What the `compact` seam would be given."""
        return position_of(self._actor, why=why)

    def beside(self, call: Callable[[], Awaitable[None]]) -> None:
        """A task that keeps the agent open."""
        actor = self._actor
        actor.runtime.start_task(_beside, actor, call, name=f"beside {actor.id}")

    @property
    def compacts(self) -> bool:
        """Whether any plugin would look at it."""
        return self._actor.chains.has("compact")

    @property
    def way(self) -> Way | None:
        """Nothing is being sent."""
        return None

    async def notes(self, kind: str) -> list[Any]:
        """The data of all notes of a kind, from disk and from what is not there yet."""
        records = await self.records({"note"}, None)
        return [record.event.data for record in records if isinstance(record.event, Note) and record.event.kind == kind]

    async def records(self, types: Collection[str], id: str | None) -> list[Record]:
        """All records of these types, once everything appended so far is on disk."""
        runtime = self._actor.runtime
        actor = self._actor if id is None else runtime.registry.peek(id)
        if actor is not None and actor.log.dirty:
            await actor.log.commit()
        return [record async for record in runtime.store.read(id or self._actor.id, types=types)]

    async def _blob(self, digest: str) -> bytes:
        """The bytes under a digest, also of a message that is not on disk yet."""
        if self._actor.log.dirty:
            await self._actor.log.commit()
        return await self._actor.runtime.store.blob(digest)

    async def call_model(self, messages: str | Sequence[Message], options: Mapping[str, Any]) -> Message:
        """One model call beside the dialogue; leaves a note that counts as usage."""
        actor = self._actor
        provider, name, model = actor.runtime.route_of(options.get("model") or actor.agent.model)
        if model is None:
            raise UsageError("no model to ask: name one, as in ctx.model(..., model='provider:name')", agent=actor.id)
        listed = (to_message(messages, id=mint_id()),) if isinstance(messages, str) else tuple(messages)
        settings = Settings(max_tokens=options.get("max_tokens"))
        prepared = model.prepare(Request(provider, name, settings, options.get("system") or "", (), listed))
        assembler, limits = Assembler(), actor.agent.limits
        within = {"connect_s": limits.connect_s, "first_s": limits.first_chunk_s, "gap_s": limits.chunk_gap_s}
        async with actor.runtime.model_slots.held(provider, actor.family):
            terminal = await with_media(prepared.request, model.stream, self._blob)
            chunks = actor.chains.stream(actor.context, prepared.request, terminal)
            await read_stream(chunks, assembler.feed, **within)
        result = assembler.result()
        usage = None if result.usage is None else msgspec.to_builtins(result.usage)
        actor.log.append(Note(kind="model-call", data={"provider": provider, "model": name, "usage": usage}))
        if result.failure is not None:
            raise ModelError(result.failure.code, result.failure.message, status=result.failure.status)
        if result.finish in DECLINED:  # words of a refusal are no answer to what was asked
            raise ModelError(DECLINED[result.finish], f"{provider}:{name} declined to answer")
        return Message(mint_id(), "assistant", result.content, ModelSource(provider, name))


class SendPort(AgentPort):
    """The way to its agent of a `SeamContext` at `accept`: of a message that is being sent, beside whatever turn runs."""

    def __init__(self, actor: Actor, put: InboxPut, *, replaces: bool) -> None:
        super().__init__(actor)
        self._put, self._replaces = put, replaces

    @property
    def route(self) -> Route | None:
        """Where an answer to the message goes."""
        return self._put.route

    @property
    def sender(self) -> str | None:
        """Who sends the message."""
        return self._put.sender

    @property
    def way(self) -> Way | None:
        """How it is sent."""
        if self._replaces:
            return "replace"
        if self._put.lane == "next-turn":
            return "followup"
        return "steer" if self._put.wake else "inject"


async def _beside(actor: Actor, call: Callable[[], Awaitable[None]]) -> None:
    with actor.held(), trio.CancelScope() as scope:
        actor.asides.add(scope)
        try:
            await call()
        finally:
            actor.asides.discard(scope)


class CallPort:
    """A `ToolContext`'s way to the system."""

    def __init__(self, slot: Slot) -> None:
        self._slot, self._actor = slot, slot.turn.actor

    @property
    def loop(self) -> LoopRunner | None:
        """How to run on an asyncio loop, if there is one."""
        loop = self._actor.runtime.loop
        return None if loop is None else loop.run

    def now(self) -> datetime:
        """The wall clock."""
        return datetime.fromtimestamp(self._actor.runtime.now(), UTC).astimezone()

    def note(self, kind: str, data: Any) -> None:
        """Append a note."""
        self._actor.log.append(_note(kind, data))

    def progress(self, text: str) -> None:
        """A note that followers show as progress."""
        self._actor.log.append(Note(kind="progress", data={"call_id": self._slot.call.id, "text": text}))

    async def send(self, to: str, content: Content, message_id: str, *, minted: bool) -> Any:
        """A follow-up to another agent."""
        id, fresh = self._letter(message_id, minted)
        return await self._actor.runtime.mail.send(self._actor, to, content, id, "followup", fresh=fresh)

    async def ask(self, to: str, content: Content, message_id: str, timeout: float | None, *, minted: bool) -> Any:
        """Send and wait for the outcome."""
        id, fresh = self._letter(message_id, minted)
        return await self._actor.runtime.mail.ask(self._actor, to, content, id, timeout, fresh=fresh)

    def _letter(self, message_id: str, minted: bool) -> tuple[str, bool]:
        """The id of a letter, and whether nobody can have sent it before."""
        return (letter_id(message_id, self._actor.position.started), self._slot.runs == 1) if minted else (message_id, False)

    async def reply(self, content: Content, route: Mapping[str, Any] | Route | None, delivery: str) -> Any:
        """Answer a route from inside the turn."""
        turn, actor = self._slot.turn, self._actor
        goal = to_route(route) or actor.route
        if goal is None:
            raise UsageError("this turn has no route to reply to; pass route={'channel': ..., 'chat': ...}", agent=actor.id)
        at = actor.position
        delivery = reply_delivery_id(delivery, at.started)
        if delivery not in at.deliveries:  # a body that runs again after a crash has answered already
            message, blobs = accepted(to_message(content, id=delivery), actor.agent.limits, agent=actor.id)
            latency_ms = max(0, actor.runtime.now_ms() - at.started)
            put: Event = OutboxPut(
                delivery=delivery, route=goal, content=message.content, turn=turn.number, step=at.step, latency_ms=latency_ms
            )
            actor.log.append(put, blobs=blobs)
        await actor.log.commit()

    async def spawn(self, agent: Any, id: str) -> Any:
        """A child of this agent."""
        return await self._actor.runtime.children.spawn(self._actor, agent, id)


def tool_context(slot: Slot) -> ToolContext[Any]:
    """The context of one call."""
    turn = slot.turn
    actor = turn.actor
    context: ToolContext[Any] = ToolContext(
        CallPort(slot),
        agent=actor.runtime.ref(actor.id),
        turn=turn.number,
        step=actor.position.step,
        call_id=slot.call.id,
        effect_key=slot.key,
        deps=actor.runtime.deps,
        labels=actor.labels,
        route=actor.route,
        sender=actor.context.sender,
        scope=slot.scope,
    )
    loop = actor.runtime.loop
    return context if loop is None or getattr(slot.tool, "loop", None) is None else loop.context(context)


def _note(kind: str, data: Any) -> Note:
    if kind == COUNTED:
        raise UsageError(f"a note of kind {COUNTED!r} is the runtime's own count of tries; give it another kind")
    if kind == HANDOFF:
        raise UsageError(f"a note of kind {HANDOFF!r} hands the agent over, and only handoff(...) does; give it another kind")
    return Note(kind=kind, data=_plain(data))


def _plain(data: Any) -> Any:
    """The data as JSON builtins, so that what a note holds can be read by anyone."""
    try:
        return msgspec.to_builtins(data)
    except (TypeError, ValueError) as error:
        raise UsageError(f"a note holds what JSON cannot carry: {error}; give plain data") from error
