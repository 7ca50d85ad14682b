"""Shared by the conformance tests: a log in the short notation of the cases, a small system, and `verify` at the end.

`order` writes a whole log in one line, so that a test compares all of it:
`put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed}`.
Messages are called by their texts, not by their ids, which may be minted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from callboard.actors.agent import Agent
from callboard.actors.models.model import Model
from callboard.actors.ref import AgentRef
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.actors.values import Receipt
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.records import Record
from callboard.storage.store import Store
from callboard.storage.verify import verify

E = TypeVar("E", bound=e.Event)


def scripted(*replies: Any) -> ScriptedModel:
    """A model that plays these replies; a text is one that says it."""
    return ScriptedModel([Reply.text(reply) if isinstance(reply, str) else reply for reply in replies])


def make(model: Model, **options: Any) -> Agent[Any, Any]:
    """An agent of this model without any plugin."""
    return Agent("demo", model=model, plugins=()).replace(**options)


@asynccontextmanager
async def opened(
    agent: Agent[Any, Any], store: Store | None = None, **options: Any
) -> AsyncGenerator[tuple[System, AgentRef[Any]]]:
    """A system with one agent `a`; everything in its store is verified when it has closed."""
    kept = MemoryStore() if store is None else store
    async with System.open(kept, agents=[agent], **options) as system:
        yield system, await system.spawn(agent, id="a")
    await check(kept)


async def check(store: Store) -> None:
    """Every log of the store keeps all rules, and each request can be rebuilt."""
    report = await verify(store)
    assert report.ok, "\n".join(map(str, report.problems))


async def records(store: Store, agent: str = "a", after: int = -1) -> list[Record]:
    """The committed records of an agent."""
    return [record async for record in store.read(agent, after)]


async def order(store: Store, agent: str = "a", after: int = -1) -> str:
    """The committed log in short notation, from behind seq `after`; without `log/created`."""
    return notation(await records(store, agent), after)


async def events(store: Store, type: type[E], agent: str = "a") -> list[E]:
    """The committed events of one type, in order."""
    return [record.event for record in await records(store, agent) if isinstance(record.event, type)]


async def say(ref: AgentRef[Any], text: str, **options: Any) -> Receipt:
    """Send a prompt and wait until the agent is idle; the message's id is its text."""
    options.setdefault("message_id", text)
    receipt = await ref.followup(text, **options)
    await ref.wait_idle()
    return receipt


async def history(ref: AgentRef[Any]) -> list[str]:
    """What the model would see, as `role text` lines."""
    return [f"{message.role} {message.text}" for message in await ref.messages()]


def notation(log: Sequence[Record], after: int = -1) -> str:
    """These records in short notation; runs of chunks are one `C*`."""
    texts = {r.event.message.id: r.event.message.text for r in log if isinstance(r.event, e.InboxPut)}
    short = [_short(record.event, texts) for record in log if record.seq > after]
    return " ".join(s for place, s in enumerate(short) if s and not (s == "C*" and place and short[place - 1] == "C*"))


def _short(event: Any, texts: dict[str, str]) -> str:
    def ids(names: Sequence[str]) -> str:
        return f"({','.join(texts.get(name, name) for name in names)})" if names else ""

    match event:
        case e.LogCreated():
            return ""
        case e.InboxPut(message=message, lane=lane):
            return f"put[{'t' if lane == 'next-turn' else 's'}]({message.text})"
        case e.InboxClaim():
            return f"claim{ids(event.ids)}"
        case e.InboxDrop():
            return f"drop{ids(event.ids)}{{{event.why}}}"
        case e.TurnStart():
            return f"TS{event.turn}"
        case e.TurnCancel():
            return f"TC{event.turn or ''}{ids(event.ids)}"
        case e.TurnSuspend():
            return f"TZ{event.turn}"
        case e.TurnResume():
            return f"TR{event.turn}"
        case e.TurnEnd(reason=reason):
            cause = f" {reason.cause.kind}" if isinstance(reason, e.Aborted) else ""
            return f"TE{event.turn}{{{reason.kind}{cause}}}"
        case e.StepStart():
            return f"SS{event.turn}.{event.step}"
        case e.UserMessage(message=message):
            return f"U({message.text})"
        case _:
            return _short_of_step(event, texts)


def _short_of_step(event: Any, texts: dict[str, str]) -> str:
    match event:
        case e.RequestHeader():
            return f"H{{{event.reason}}}"
        case e.RequestSent():
            return f"Q{event.attempt}"
        case e.RequestFailed():
            return f"F{event.attempt}{{{event.action}}}"
        case e.AssistantMessage():
            return "A{cut}" if event.interrupted else "A"
        case e.ToolCalled():
            return f"call({event.call_id})"
        case e.ToolResult():
            return f"res({event.call_id}{'!' + event.error if event.error else ''})"
        case e.SurfaceReplace():
            return f"cut({event.start}..{event.end})"
        case e.CommandResult():
            return f"cmdres{'{error}' if event.error else ''}"
        case e.MailSent():
            return "mail{dead}" if event.dead else "mail"
        case e.ChildEnded(reason=reason):
            return f"died{{{reason.kind}}}"
        case e.Note():
            return f"note({event.kind})"
        case _:
            return _PLAIN[type(event)]


_PLAIN: dict[type[e.Event], str] = {
    e.AssistantChunk: "C*",
    e.StepEnd: "SE",
    e.RequestContext: "X",
    e.LogForked: "forked",
    e.CommandRun: "cmd",
    e.OutboxPut: "out",
    e.OutboxSent: "sent",
    e.OutboxFailed: "lost",
    e.ChildSpawned: "born",
    e.ApprovalAsked: "asked",
    e.ApprovalAnswered: "answered",
    e.TimerSet: "timer",
    e.TimerFired: "fired",
    e.TimerCancelled: "untimed",
}
