"""Section 7 of the conformance cases: what a request is built from, and that the log alone can build it again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import trio
from helpers import check, events, make, opened, order, records, say, scripted
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from callboard.actors import Agent, Plugin, Proposal, Replace, System, tool
from callboard.actors.answers import Position
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import events as e
from callboard.storage.digest import header_line, request_digest
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.folds import Surface
from callboard.storage.messages import Chunk, Header, Message, Request, Settings, TextBlock, UserSource
from callboard.storage.records import UnknownEvent

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi)"


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


@tool
async def other() -> str:
    """Another tool."""
    return "other"


class Compacts(Plugin):
    """Rewrites the whole view by one message, each time it is armed."""

    def __init__(self) -> None:
        self.armed = False

    async def compact(self, ctx: SeamContext, position: Position, next: Next[Position, Replace | None]) -> Replace | None:
        if not self.armed or not position.entries:
            return await next(position)
        self.armed = False
        return Replace(Message(f"summary-{ctx.turn}", "user", (TextBlock("what was"),), UserSource()), cause="test")


async def rebuilt(store: Any, agent: str = "a") -> list[tuple[list[Message], Header, str]]:
    """Each request that was sent, from the records up to its `upto` and the header in force: messages, header, digest."""
    log = [r for r in await records(store, agent) if not isinstance(r.event, UnknownEvent)]
    known: dict[str, Header] = {}
    found: list[tuple[list[Message], Header, str]] = []
    digest = ""
    for record in log:
        if isinstance(record.event, e.RequestHeader):
            digest = record.event.digest
            known[digest] = record.event.header or known[digest]
        elif isinstance(record.event, e.RequestSent):
            surface = Surface()
            for earlier in log[: record.event.upto + 1]:
                surface.apply(earlier.seq, earlier.time, earlier.event)  # type: ignore[arg-type]
            found.append((list(surface.messages()), known[digest], record.event.digest))
    return found


ACTIONS = ("say", "tool", "prompt", "temperature", "compact", "restart", "tools")


@settings(max_examples=40)
@given(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=8))
def test_c098_every_request_can_be_rebuilt_from_the_log(actions: list[str]) -> None:
    trio.run(_rebuild, actions)


async def _rebuild(actions: list[str]) -> None:
    store, compacts, sent = MemoryStore(), Compacts(), list[Request]()
    agent = make(_endless(sent), tools=[echo], plugins=[compacts], temperature=0, system="one")
    for part in _lives(actions):
        for action in part[:1]:
            agent = _changed(agent, action)
        async with opened(agent, store) as (_, ref):
            for place, action in enumerate(part):
                compacts.armed = action == "compact"
                await say(ref, "use a tool" if action == "tool" else action, message_id=f"{len(sent)}-{place}")
    again = await rebuilt(store)
    assert len(again) == len(sent)
    for request, (messages, header, digest) in zip(sent, again, strict=True):
        assert list(request.messages) == messages
        assert (request.provider, request.model, request.system) == (header.provider, header.model, header.system)
        assert (request.settings, request.tools) == (header.settings, header.tools)
        assert digest == request_digest(messages, header)


def _lives(actions: list[str]) -> list[list[str]]:
    """What is done in one life of the system each; a changed definition comes with the next life."""
    lives: list[list[str]] = [[]]
    for action in actions:
        if action in ("prompt", "temperature", "restart", "tools"):
            lives.append([])
        lives[-1].append(action)
    return lives


def _changed(agent: Agent[Any, Any], action: str) -> Agent[Any, Any]:
    changes: Mapping[str, Mapping[str, Any]] = {
        "prompt": {"system": "two" if agent.system == "one" else "one"},
        "temperature": {"temperature": 1 if agent.temperature == 0 else 0},
        "tools": {"tools": [echo] if len(agent.tools) == 2 else [other, echo]},
    }
    return agent.replace(**changes.get(action, {}))


def _endless(sent: list[Request]) -> ScriptedModel:
    def answer(request: Request) -> Reply:
        sent.append(request)
        if request.messages[-1].text == "use a tool":
            return Reply.tools((f"c{len(sent)}", "echo", {"text": "x"}))
        return Reply.text(f"answer {len(sent)}")

    return ScriptedModel(answer)


async def test_c099_a_header_is_written_when_it_changes_and_only_then() -> None:
    agent = make(scripted(*"abcdef"), system="one", tools=[echo])
    reasons: list[list[str]] = []
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        changes: list[dict[str, Any]] = [{}, {"system": "two"}, {"tools": [echo, other]}, {"temperature": 0.5}, {}]
        for n, change in enumerate(changes):
            agent = agent.replace(**change)
            system.define(agent)
            before = len(await records(system.store)) - 1
            await say(ref, f"m{n}")
            reasons.append([x for x in (await order(system.store, after=before)).split() if x.startswith(("H", "X"))])
    assert reasons == [[], ["H{change}"], ["H{change}"], ["H{change}"], []]


async def test_c099_an_open_turn_takes_a_replaced_definition_at_its_next_boundary() -> None:
    @tool
    async def rewrite() -> str:
        """Replaces the definition of the agent that runs it."""
        held[0].define(agent.replace(system="two", tools=[rewrite, echo]))
        return "done"

    script = scripted(Reply.tools(("c1", "rewrite", {}), ("c2", "echo", {})), Reply.tools(("c3", "echo", {})), "done")
    agent = make(script, system="one", tools=[rewrite])
    async with opened(agent) as (system, ref):
        held = [system]
        await say(ref, "hi")
        assert [request.system for request in script.requests] == ["one", "two", "two"]
        assert await order(system.store) == (
            f"{OPEN} H{{initial}} X Q1 C* A call(c1) res(c1) call(c2) res(c2!UNKNOWN_TOOL) SE "
            "SS1.2 H{change} Q1 C* A call(c3) res(c3) SE SS1.3 Q1 C* A SE TE1{completed}"
        )


async def test_c100_a_header_that_comes_back_is_written_by_its_digest() -> None:
    agent = make(scripted(*"abc"), system="one")
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        for n, prompt in enumerate(("two", "one")):
            system.define(agent.replace(system=prompt))
            await say(ref, f"m{n}")
        headers = await events(system.store, e.RequestHeader)
        assert [h.reason for h in headers] == ["initial", "change", "change"]
        assert [h.header.system if h.header else None for h in headers] == ["one", "two", None]
        assert headers[0].digest == headers[2].digest != headers[1].digest


class Elsewhere(Plugin):
    """Proposes other things where a test says so, by turn and step; keeps what it was given."""

    def __init__(self, proposals: Mapping[tuple[int, int], tuple[str, str] | Settings]) -> None:
        self.proposals = proposals
        self.seeds: list[Proposal] = []

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
        self.seeds.append(proposal)
        other = self.proposals.get((ctx.turn, ctx.step))
        if isinstance(other, Settings):
            return await next(Proposal(proposal.provider, proposal.model, other))
        return await next(proposal if other is None else Proposal(*other, proposal.settings))


async def test_c101_a_default_belongs_to_its_model_and_an_explicit_setting_to_the_agent() -> None:
    large = ScriptedModel([Reply.tools(("c1", "echo", {}))], defaults={"max_tokens": 1000})
    small = ScriptedModel([Reply.text("done"), Reply.text("more")], provider="p", name="small", defaults={"max_tokens": 50})
    plugin = Elsewhere({(1, 2): ("p", "small"), (2, 1): ("p", "small")})
    agent = make(large, tools=[echo], plugins=[plugin], temperature=0.5)
    async with opened(agent, models={"p": small}) as (system, ref):
        await say(ref, "hi")
        headers = [h.header for h in await events(system.store, e.RequestHeader) if h.header]
        assert [(h.model, h.settings.max_tokens, h.defaulted, h.settings.temperature) for h in headers] == [
            ("demo", 1000, ("max_tokens",), 0.5),
            ("small", 50, ("max_tokens",), 0.5),
        ]
        system.define(agent.replace(max_tokens=7))
        await say(ref, "on")
        last = (await events(system.store, e.RequestHeader))[-1].header
        assert last is not None
        assert (last.model, last.settings.max_tokens, last.defaulted) == ("small", 7, ())
        assert await order(system.store) == (
            f"{OPEN} H{{initial}} X Q1 C* A call(c1) res(c1) SE SS1.2 H{{change}} X Q1 C* A SE TE1{{completed}} "
            "put[t](on) TS2 claim(on) SS2.1 U(on) H{change} Q1 C* A SE TE2{completed}"
        )


async def test_c101_what_the_seam_changed_is_the_seed_of_the_next_step_and_not_of_the_next_turn() -> None:
    plugin = Elsewhere({(1, 1): Settings(temperature=0.9)})
    script = scripted(Reply.tools(("c1", "echo", {})), "done", "more")
    async with opened(make(script, tools=[echo], plugins=[plugin], temperature=0.1)) as (system, ref):
        await say(ref, "hi")
        await say(ref, "on")
        assert [seed.settings.temperature for seed in plugin.seeds] == [0.1, 0.9, 0.1]
        assert [request.settings.temperature for request in script.requests] == [0.9, 0.9, 0.1]
        assert [h.reason for h in await events(system.store, e.RequestHeader)] == ["initial", "change"]


class Mutates(Plugin):
    """Tries to change what it was handed, at `request` or at `stream`."""

    def __init__(self, at: str) -> None:
        self.at = at

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
        if self.at == "stream, its own":
            return Proposal(proposal.provider, proposal.model, Settings(extra={"anthropic": {"thinking": {}}}))
        answer = await next(proposal)
        if self.at == "request":
            setattr(answer.settings, "temperature", 2)  # noqa: B010
        if self.at == "request, deep":
            assert answer.settings.extra is not None
            answer.settings.extra["anthropic"]["thinking"]["budget"] = 2
        return answer

    async def stream(
        self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]]
    ) -> AsyncIterator[Chunk]:
        if self.at == "stream":
            setattr(request, "system", "other")  # noqa: B010
        if self.at.startswith("stream, "):
            assert request.settings.extra is not None
            request.settings.extra["anthropic"]["thinking"].update(budget=2)
        async for chunk in next(request):
            yield chunk


async def test_c102_settings_and_requests_are_frozen_and_the_error_names_the_field() -> None:
    refused, sent = f"{OPEN} SE TE1{{error}}", f"{OPEN} H{{initial}} X Q1 F1{{raise}} SE TE1{{error}}"
    cases = [
        ("request", "Settings.temperature", refused),
        ("request, deep", "Settings.extra is frozen at 'budget'", refused),
        ("stream", "Request.system", sent),
        ("stream, deep", "Settings.extra is frozen", sent),
        ("stream, its own", "Settings.extra is frozen", sent),
    ]
    extra = {"anthropic": {"thinking": {"budget": 1}}}
    for at, says, expected in cases:
        async with opened(make(scripted("done"), plugins=[Mutates(at)], settings=extra)) as (system, ref):
            await say(ref, "hi")
            assert await order(system.store) == expected
            (end,) = await events(system.store, e.TurnEnd)
            assert isinstance(end.reason, e.Errored)
            assert says in end.reason.error.message
    assert extra == {"anthropic": {"thinking": {"budget": 1}}}


async def test_c103_an_agent_without_a_model_says_what_to_set() -> None:
    async with opened(Agent("demo", plugins=())) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} SE TE1{{error}}"
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored)
        assert "Agent(model='provider:name')" in end.reason.error.message


async def test_c103_the_request_seam_may_name_the_model() -> None:
    model = ScriptedModel([Reply.text("done")], provider="p", name="small")
    plugin = Elsewhere({(1, 1): ("p", "small")})
    async with opened(Agent("demo", plugins=[plugin]), models={"p": model}) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} H{{initial}} X Q1 C* A SE TE1{{completed}}"


async def test_c261_passivation_writes_no_header_and_a_new_owner_repeats_it_by_digest(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    agent = make(scripted(*"abcd"))
    async with System.open(store, agents=[agent], idle_after=10) as system:
        ref = await system.spawn(agent, id="a")
        await say(ref, "hi")
        await trio.sleep(100)
        assert system.statistics()["agents"] == 0
        await say(ref, "on")
        assert system.statistics()["opened"] == 1
        assert await order(store) == (
            f"{OPEN} H{{initial}} X Q1 C* A SE TE1{{completed}} put[t](on) TS2 claim(on) SS2.1 U(on) Q1 C* A SE TE2{{completed}}"
        )
    before = len(await records(store)) - 1
    async with opened(agent, store) as (_, ref):
        await say(ref, "new")
        assert await order(store, after=before) == ("put[t](new) TS3 claim(new) SS3.1 U(new) H{resume} Q1 C* A SE TE3{completed}")
        header = (await events(store, e.RequestHeader))[-1]
        assert (header.reason, header.header) == ("resume", None)
        fork = await ref.fork(id="b")
        await say(fork, "forked")
        at = (await records(store, "a"))[-1].seq
        assert await order(store, "b", after=at) == (
            "forked put[t](forked) TS4 claim(forked) SS4.1 U(forked) H{resume} Q1 C* A SE TE4{completed}"
        )
        assert (await events(store, e.RequestHeader, "b"))[-1].header is None
    await check(store)


async def test_c262_the_view_that_counts_is_that_of_dispatch() -> None:
    """A seam that injects a rewrite between the proposal and the dispatch: the request holds the rewritten view."""

    class Rewrites(Plugin):
        async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
            if ctx.turn == 2:
                cut = e.SurfaceReplace(start=old[0], end=old[1], message=None, cause="test")
                append(cut)
            return await next(proposal)

    script = scripted("one", "two")
    async with opened(make(script, plugins=[Rewrites()])) as (system, ref):
        append: Any = system._runtime.registry.peek("a").log.append  # type: ignore[union-attr]  # pyright: ignore
        await say(ref, "hi")
        old = [r.seq for r in await records(system.store) if isinstance(r.event, e.UserMessage | e.AssistantMessage)]
        await say(ref, "on")
        assert [m.text for m in script.requests[1].messages] == ["on"]
        assert await order(system.store) == (
            f"{OPEN} H{{initial}} X Q1 C* A SE TE1{{completed}} "
            f"put[t](on) TS2 claim(on) SS2.1 U(on) cut({old[0]}..{old[1]}) Q1 C* A SE TE2{{completed}}"
        )
        (_, second) = await rebuilt(system.store)
        assert [m.text for m in second[0]] == ["on"]
        assert header_line(second[1])
