"""What plugins and tools reach beside the dialogue: a model, a peer, the route, what the system was opened with."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import check, events, make, opened, scripted
from msgspec import Struct

from callboard.actors.agent import Agent
from callboard.actors.answers import Boundary, CallResult, Enter, Reject, ToolCall
from callboard.actors.limits import Limits
from callboard.actors.seams import Next, Plugin, SeamContext
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import ToolContext, tool
from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentDeleted, InboxFull, ModelError, UsageError
from callboard.storage.messages import Failure


class Looks(Plugin):
    """Does something before each step."""

    def __init__(self, look: Any) -> None:
        self.look = look

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        await self.look(ctx)
        return await next(boundary)


async def test_a_plugin_sees_route_and_deps_and_reaches_a_peer() -> None:
    seen: list[Any] = []

    async def look(ctx: SeamContext) -> None:
        seen.extend([ctx.route and ctx.route.chat, ctx.deps, ctx.peer("a") == ctx.agent])
        with pytest.raises(UsageError, match="what JSON cannot carry"):
            ctx.note("bad", object())

    async with opened(make(scripted("hi"), plugins=[Looks(look)]), deps="database") as (_, ref):
        assert (await ref.ask("hello", route={"channel": "desk", "chat": "7"})).ok
    assert seen == ["7", "database", True]


async def test_a_model_beside_the_dialogue_leaves_a_note_that_counts() -> None:
    store, said = MemoryStore(), list[str]()

    async def look(ctx: SeamContext) -> None:
        said.append((await ctx.model("Which?", model="small:x", system="Be short.", max_tokens=5)).text)
        for text in ("slow down", "too late"):
            with pytest.raises(ModelError, match=text):
                await ctx.model("And?", model="small:x")

    late = c.finish("error", failure=Failure("SERVER", "too late"))
    small = scripted("that", Reply.fail("RATE_LIMIT", "slow down"), Reply.chunks([c.usage(input=1, output=1), late]))
    async with opened(make(scripted("hi"), plugins=[Looks(look)]), store, models={"small": small}) as (_, ref):
        turn = (await ref.ask("hello")).usage
        assert (await ref.info()).usage.total == turn.total + 4, "the agent's sum has them"
    assert said == ["that"]
    assert (small.requests[0].system, small.requests[0].settings.max_tokens) == ("Be short.", 5)
    notes = [note for note in await events(store, e.Note) if note.kind == "model-call"]
    assert [note.data["model"] for note in notes] == ["x", "x"]


async def test_an_agent_without_a_model_has_none_to_ask() -> None:
    async def look(ctx: SeamContext) -> None:
        await ctx.model("Which?")

    agent = Agent("demo", plugins=[Looks(look)])
    async with opened(agent) as (_, ref):
        outcome = await ref.ask("hello")
    assert "no model to ask: name one" in str(outcome.reason)


# -- around a body


async def test_the_body_runs_with_the_arguments_that_tool_around_hands_on() -> None:
    class Rewrites(Plugin):
        async def tool_around(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, CallResult]) -> CallResult:
            return await next(call.rewritten({"city": "Bergen"}))

    store = MemoryStore()

    @tool
    async def weather(city: str) -> str:
        """The weather."""
        return f"rain in {city}"

    model = scripted(Reply.tools(("c1", "weather", {"city": "Oslo"})), "done")
    async with opened(make(model, tools=[weather], plugins=[Rewrites()]), store) as (_, ref):
        await ref.ask("hello")
    assert model.requests[1].messages[-1].results == {"c1": "rain in Bergen"}


# -- mail


def receivers(act: Any, **limits: Any) -> tuple[Agent[Any, Any], Agent[Any, Any]]:
    """An agent whose tool does something, and another one to write to."""

    @tool
    async def acting(ctx: ToolContext[Any]) -> str:
        """Act."""
        return str(await act(ctx))

    sender = Agent("sender", model=scripted(Reply.tools(("c1", "acting", "")), "done", "read"), tools=[acting], plugins=())
    other = Agent("other", model=scripted("one", "two"), plugins=())
    return sender, other.replace(limits=Limits(**limits))


async def play(sender: Agent[Any, Any], other: Agent[Any, Any]) -> list[str]:
    """What the call gave."""
    store = MemoryStore()
    async with System.open(store, agents=[sender, other]) as system:
        await system.spawn(other, id="b")
        ref = await system.spawn(sender, id="a")
        await ref.ask("go")
        await ref.wait_idle()
    await check(store)
    return [record.content[0].text for record in await events(store, e.ToolResult)]  # type: ignore[union-attr]


async def test_a_full_inbox_refuses_mail_too() -> None:
    async def act(ctx: ToolContext[Any]) -> str:
        with pytest.raises(InboxFull):
            await ctx.send("b", "hello")
        return "refused"

    assert await play(*receivers(act, pending=0)) == ["refused"]


async def test_an_agent_may_write_to_itself() -> None:
    async def act(ctx: ToolContext[Any]) -> str:
        return str((await ctx.send("a", "later")).message_id)

    (given,) = await play(*receivers(act))
    assert "#1@" in given


async def test_an_ask_to_a_deleted_agent_fails_by_name_and_leaves_a_dead_letter() -> None:
    store = MemoryStore()

    async def act(ctx: ToolContext[Any]) -> str:
        await system.delete("b")
        with pytest.raises(AgentDeleted):
            await ctx.ask("b", "are you there?")
        await ctx.send("b", "good bye")
        return "nobody"

    sender, other = receivers(act)
    async with System.open(store, agents=[sender, other]) as system:
        await system.spawn(other, id="b")
        await (await system.spawn(sender, id="a")).ask("go")
    assert [(mail.kind, mail.dead) for mail in await events(store, e.MailSent)] == [("ask", True), ("followup", True)]
    await check(store)


# -- children that a tool spawns


@pytest.mark.parametrize(("limits", "text"), [({"depth": 0}, "the deepest allowed"), ({"children": 0}, "as many as it may")])
async def test_a_child_too_many_is_refused(limits: dict[str, Any], text: str) -> None:
    store = MemoryStore()

    async def act(ctx: ToolContext[Any]) -> str:
        with pytest.raises(UsageError, match=text):
            await ctx.spawn(other, id="c")
        return "refused"

    sender, other = receivers(act)
    sender = sender.replace(limits=Limits(**limits))
    async with System.open(store, agents=[sender]) as system:
        await (await system.spawn(sender, id="a")).ask("go")
    assert await store.head("c") is None
    await check(store)


# -- arguments


class Picky(Struct):
    """Breaks, as code of one's own may, while it is made."""

    city: str

    def __post_init__(self) -> None:
        raise LookupError("no such city")


async def test_arguments_whose_own_check_breaks_are_the_models_to_correct() -> None:
    @tool
    async def weather(place: Picky) -> str:
        """The weather."""
        raise AssertionError("never reached")

    model = scripted(Reply.tools(("c1", "weather", {"place": {"city": "Oslo"}})), "sorry")
    async with opened(make(model, tools=[weather])) as (_, ref):
        await ref.ask("go")
    (text,) = model.requests[1].messages[-1].results.values()
    assert "do not fit 'weather'" in text
    assert "no such city" in text
