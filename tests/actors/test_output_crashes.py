"""Typed output after a crash: at every prefix of the log the turn comes to the same value, and what was refused stays counted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from crashing import image, live
from helpers import events, make, opened, scripted

from callboard.actors.agent import Agent
from callboard.actors.answers import Allow, Answer, Boundary, Command, Enter, Reject, Replace, ToolCall, Verdict
from callboard.actors.delegation import delegate
from callboard.actors.limits import Limits
from callboard.actors.plugins import Invariants
from callboard.actors.ref import AgentRef
from callboard.actors.seams import Next, Plugin, SeamContext
from callboard.actors.system import System
from callboard.actors.testing import Reply, ScriptedModel, every_crash
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import PluginSource, Request
from callboard.storage.store import Store


class Trip(msgspec.Struct):
    city: str
    nights: int


OSLO = Trip("Oslo", 3)
BOTH = pytest.mark.parametrize("schema", [False, True], ids=["tool", "schema"])
WRONG = pytest.mark.parametrize("wrong", [Reply.text("Oslo"), Reply.output({"city": "Oslo"})], ids=["text", "value"])


async def ask(ref: AgentRef[Any]) -> None:
    await ref.ask("where?", message_id="m")


@BOTH
@WRONG
async def test_at_every_prefix_the_turn_comes_to_its_value(schema: bool, wrong: Reply) -> None:
    def agent() -> Agent[Any, Any]:
        model = ScriptedModel(lambda request: wrong if len(request.messages) == 1 else Reply.output(OSLO), schema=schema)
        return make(model, output=Trip, limits=Limits(output_retries=1))

    life = await live(agent(), ask)
    for end in life.ends:
        store = await image(life.records, end)
        async with opened(agent(), store) as (_, ref):
            assert (await ref.ask("where?", message_id="m")).result() == OSLO, end
            told = [u for u in await events(store, e.UserMessage) if u.message.source == PluginSource("output")]
            assert len(told) == (schema or wrong.value is None), end


@BOTH
@WRONG
async def test_at_every_prefix_a_model_that_never_learns_has_as_many_tries(schema: bool, wrong: Reply) -> None:
    def agent() -> Agent[Any, Any]:
        return make(ScriptedModel(lambda request: wrong, schema=schema), output=Trip)

    life = await live(agent(), ask)
    for end in life.ends:
        store = await image(life.records, end)
        async with opened(agent(), store) as (_, ref):
            reason = (await ref.ask("where?", message_id="m")).reason
            assert isinstance(reason, e.Errored) and reason.error.code == "OUTPUT_INVALID", end
            assert len(await events(store, e.StepStart)) == 3, end


@BOTH
@pytest.mark.parametrize("background", [False, True])
async def test_a_parent_that_was_killed_reads_the_value_of_its_child(schema: bool, background: bool) -> None:
    async def scenario(store: Store) -> list[str]:
        answers = ScriptedModel(lambda request: Reply.output(OSLO), schema=schema)
        child = make(answers, output=Trip).replace(name="child")
        agent = make(ScriptedModel(script), tools=[delegate(child, background=background)])
        async with System.open(store, agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            await ref.ask("plan", message_id="m")
            await ref.wait_idle()
            return [m.text for m in await ref.messages() if "Oslo" in m.text]

    def script(request: Request) -> Reply:
        return Reply.text("ok") if len(request.messages) > 1 else Reply.tools(("c1", "child", {"task": "where?"}))

    async for crash in every_crash(scenario):
        assert crash.result == ['{"city":"Oslo","nights":3}'], crash


# -- what plugins do to it


class Longer(Plugin):
    """Every trip takes a week."""

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict], /) -> Verdict:
        return Allow({**call.args, "nights": 7})


async def test_the_value_is_what_a_plugin_made_of_it_also_from_the_log() -> None:
    store, agent = MemoryStore(), make(scripted(Reply.output(OSLO)), output=Trip, plugins=[Longer()])
    for _ in range(2):
        async with opened(agent, store) as (_, ref):
            assert (await ref.ask("where?", message_id="m")).result() == Trip("Oslo", 7)


class Adding(Plugin):
    """Steers while the first step runs, so that there is more to do when it is over."""

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject], /) -> Enter | Reject:
        if boundary.step == 1:
            await ctx.agent.steer("by train!", message_id="by train!")
        return await next(boundary)


@BOTH
async def test_steering_goes_before_a_correction(schema: bool) -> None:
    model = ScriptedModel([Reply.text("Oslo"), Reply.output(OSLO)], schema=schema)
    async with opened(make(model, output=Trip, plugins=[Adding()])) as (_, ref):
        assert (await ref.ask("where?")).result() == OSLO
        assert [m.text for m in model.requests[1].messages] == ["where?", "Oslo", "by train!"]


class Helping(Plugin):
    async def command(
        self, ctx: SeamContext, command: Command, next: Next[Command, Answer | Replace | None], /
    ) -> Answer | Replace | None:
        return Answer("ask me where") if command.text == "/help" else await next(command)


async def test_a_command_is_answered_with_its_text() -> None:
    store, agent = MemoryStore(), make(scripted(), output=Trip, plugins=[Helping()])
    for _ in range(2):
        async with opened(agent, store) as (_, ref):
            outcome = await ref.ask("/help", message_id="m")
            assert outcome.ok and outcome.output is None and outcome.unfit is None and outcome.text == "ask me where"


class Loose(Plugin):
    """Takes the schema out behind the log's back."""

    def stream(self, ctx: SeamContext, request: Request, next: Any, /) -> Any:
        return next(msgspec.structs.replace(request, output=None))


async def test_invariants_see_a_schema_that_was_taken_out() -> None:
    model = ScriptedModel([Reply.output(OSLO)], schema=True)
    async with opened(make(model, output=Trip, plugins=[Loose(), Invariants()])) as (_, ref):
        reason = (await ref.ask("where?")).reason
        assert isinstance(reason, e.Errored) and "its output is not that of the header" in reason.error.message
