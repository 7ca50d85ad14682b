"""Turns of agents with an output: they complete only with a valid value, by a schema or by the tool `answer`.

Both ways are walked by the same scripts where they can be: `Reply.output` says the value in whichever way it was asked for.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from helpers import events, make, opened, order, say, scripted

from callboard.actors.agent import Agent
from callboard.actors.answers import Assembly, Boundary, Deny, Enter, Reject, ToolCall, Verdict
from callboard.actors.delegation import delegate
from callboard.actors.limits import Limits
from callboard.actors.seams import Next, Plugin, SeamContext
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.actors.tools.output import ToolOutput
from callboard.actors.tools.tool import tool
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import TurnFailed
from callboard.storage.messages import PluginSource


class Trip(msgspec.Struct):
    city: str
    nights: int


OSLO = Trip("Oslo", 3)
BOTH = pytest.mark.parametrize("schema", [False, True], ids=["tool", "schema"])


def script(schema: bool, *replies: Any) -> ScriptedModel:
    return ScriptedModel([Reply.text(r) if isinstance(r, str) else r for r in replies], schema=schema)


def typed(model: ScriptedModel, **options: Any) -> Agent[Any, Any]:
    return make(model, output=Trip, **options)


# -- the two ways


async def test_the_tool_concludes_the_turn() -> None:
    model = script(False, Reply.output(OSLO))
    async with opened(typed(model)) as (system, ref):
        outcome = await ref.ask("where?", message_id="where?")
        assert outcome.result() == OSLO and outcome.text == '{"city":"Oslo","nights":3}'
        assert await order(system.store) == (
            "put[t](where?) TS1 claim(where?) SS1.1 U(where?) H{initial} X Q1 C* A call(answer) res(answer) SE TE1{completed}"
        )
        (request,) = model.requests
        assert request.output is None and [t.name for t in request.tools] == ["answer"]


async def test_the_schema_needs_no_tool() -> None:
    model = script(True, Reply.output(OSLO))
    async with opened(typed(model)) as (system, ref):
        outcome = await ref.ask("where?", message_id="where?")
        assert outcome.result() == OSLO
        assert await order(system.store) == (
            "put[t](where?) TS1 claim(where?) SS1.1 U(where?) H{initial} X Q1 C* A SE TE1{completed}"
        )
        (request,) = model.requests
        assert request.tools == () and request.output is not None and request.output["required"] == ["city", "nights"]
        (header,) = await events(system.store, e.RequestHeader)
        assert header.header is not None and header.header.output == request.output


@BOTH
async def test_tools_run_on_the_way(schema: bool) -> None:
    @tool(replay="safe")
    async def look(city: str) -> str:
        """Look."""
        return f"{city} is fine"

    model = script(schema, Reply.tools(("c1", "look", {"city": "Oslo"})), Reply.output(OSLO))
    async with opened(typed(model, tools=[look])) as (_, ref):
        assert (await ref.ask("where?")).result() == OSLO
        assert model.requests[1].messages[-1].results == {"c1": "Oslo is fine"}


async def test_an_agent_without_an_output_has_the_requests_it_had() -> None:
    model = script(True, "hello")
    async with opened(make(model)) as (_, ref):
        outcome = await ref.ask("hi")
        assert outcome.output is None and outcome.result() == "hello"
        assert model.requests[0].output is None and model.requests[0].tools == ()


# -- what is wrong is told


async def test_an_invalid_answer_is_an_error_the_model_reads() -> None:
    model = script(False, Reply.output({"city": "Oslo"}), Reply.output(OSLO))
    async with opened(typed(model)) as (system, ref):
        assert (await ref.ask("where?", message_id="where?")).result() == OSLO
        assert await order(system.store) == (
            "put[t](where?) TS1 claim(where?) SS1.1 U(where?) H{initial} X Q1 C* A call(answer) res(answer!INVALID_ARGUMENTS) SE "
            "SS1.2 Q1 C* A call(answer) res(answer) SE TE1{completed}"
        )
        assert "required field `nights`" in model.requests[1].messages[-1].results["answer"]


@BOTH
async def test_plain_text_where_a_value_is_due_is_one_more_message(schema: bool) -> None:
    model = script(schema, "Oslo, three nights", Reply.output(OSLO))
    async with opened(typed(model)) as (_, ref):
        assert (await ref.ask("where?")).result() == OSLO
        told = model.requests[1].messages[-1]
        assert told.role == "user" and told.source == PluginSource("output")
        assert "valid Trip" in told.text and ("the tool answer" in told.text) is not schema


async def test_by_schema_a_value_that_does_not_fit_is_one_more_message() -> None:
    model = script(True, Reply.output({"city": "Oslo"}), Reply.output(OSLO))
    async with opened(typed(model)) as (system, ref):
        assert (await ref.ask("where?", message_id="where?")).result() == OSLO
        assert await order(system.store) == (
            "put[t](where?) TS1 claim(where?) SS1.1 U(where?) H{initial} X Q1 C* A SE SS1.2 "
            "U(Your answer is no valid Trip: Object missing required field `nights`. Answer with one JSON object that fits the "
            "schema, and nothing else.) Q1 C* A SE TE1{completed}"
        )


@BOTH
async def test_a_refusal_is_no_value(schema: bool) -> None:
    model = script(schema, Reply.refusal("no"), Reply.output(OSLO))
    async with opened(typed(model)) as (_, ref):
        assert (await ref.ask("where?")).result() == OSLO


async def test_a_tool_of_the_users_that_concludes_gives_no_value() -> None:
    @tool(replay="safe")
    async def stop() -> ToolOutput:
        """Stop."""
        return ToolOutput("stopped", concludes=True)

    model = script(False, Reply.tools(("c1", "stop", {})), Reply.output(OSLO))
    async with opened(typed(model, tools=[stop])) as (_, ref):
        assert (await ref.ask("where?")).result() == OSLO
        assert model.requests[1].messages[-1].source == PluginSource("output")


# -- how often


@BOTH
@pytest.mark.parametrize("wrong", [Reply.text("Oslo"), Reply.output({"city": "Oslo"})], ids=["text", "value"])
@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_after_so_many_retries_the_turn_ends_output_invalid(schema: bool, wrong: Reply, retries: int) -> None:
    model = script(schema, *[wrong] * (retries + 1), Reply.output(OSLO))
    async with opened(typed(model, limits=Limits(output_retries=retries))) as (_, ref):
        outcome = await ref.ask("where?")
        assert isinstance(outcome.reason, e.Errored) and outcome.reason.error.code == "OUTPUT_INVALID"
        assert outcome.output is None and len(model.requests) == retries + 1
        with pytest.raises(TurnFailed, match=r"OUTPUT_INVALID: the model gave no valid Trip: .*Limits.output_retries"):
            outcome.result()


@BOTH
async def test_the_retries_of_one_turn_are_not_those_of_the_next(schema: bool) -> None:
    model = script(schema, "a", "b", Reply.output(OSLO), "a", "b", Reply.output(OSLO))
    async with opened(typed(model)) as (_, ref):
        assert (await ref.ask("where?")).ok
        assert (await ref.ask("where?")).ok


@BOTH
async def test_max_tokens_is_its_own_end(schema: bool) -> None:
    model = script(schema, Reply.max_tokens("Os"))
    async with opened(typed(model)) as (_, ref):
        outcome = await ref.ask("where?")
        assert outcome.reason.kind == "max-tokens" and outcome.output is None and outcome.text == "Os"


# -- plugins


class Steering(Plugin):
    """Steers once, when the turn is about to stop; notes what it would have said."""

    def __init__(self) -> None:
        self.saw: list[str] = []

    async def turn_stopping(self, ctx: SeamContext, stopping: Any, /) -> None:
        self.saw.append(stopping.text)
        if len(self.saw) == 1:
            await ctx.agent.steer("longer!", message_id="longer!")


@BOTH
async def test_the_last_step_gives_the_value(schema: bool) -> None:
    longer = Trip("Oslo", 5)
    model, steering = script(schema, "hm", Reply.output(OSLO), Reply.output(longer)), Steering()
    async with opened(typed(model, plugins=[steering])) as (_, ref):
        outcome = await ref.ask("where?", message_id="m")
        assert outcome.result() == longer
        assert await ref.outcome("m") == outcome
        assert steering.saw == ['{"city":"Oslo","nights":3}', '{"city":"Oslo","nights":5}']


class Deaf(Plugin):
    """Lets nothing of the runtime's own reach the model."""

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject], /) -> Enter | Reject:
        kept = tuple(m for m in boundary.messages if m.source != PluginSource("output"))
        return await next(msgspec.structs.replace(boundary, messages=kept))


async def test_a_model_that_is_not_told_ends_the_turn() -> None:
    async with opened(typed(script(True, "Oslo"), plugins=[Deaf()])) as (_, ref):
        outcome = await ref.ask("where?")
        assert isinstance(outcome.reason, e.Errored) and outcome.reason.error.code == "OUTPUT_INVALID"


class Strict(Plugin):
    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict], /) -> Verdict:
        return Deny("not now")


async def test_answers_that_are_denied_count() -> None:
    model = script(False, *[Reply.output(OSLO)] * 3)
    async with opened(typed(model, plugins=[Strict()])) as (_, ref):
        outcome = await ref.ask("where?")
        assert isinstance(outcome.reason, e.Errored) and outcome.reason.error.code == "OUTPUT_INVALID"
        model.assert_used_up()


class Shadow(Plugin):
    async def assemble(self, ctx: SeamContext, assembly: Assembly, next: Next[Assembly, Assembly], /) -> Assembly:
        @tool
        async def answer() -> str:
            """Not that of the output."""
            return ""

        return await next(msgspec.structs.replace(assembly, tools=(answer,)))


@BOTH
async def test_a_plugins_tool_of_the_same_name_is_an_error(schema: bool) -> None:
    async with opened(typed(script(schema), plugins=[Shadow()])) as (_, ref):
        outcome = await ref.ask("where?")
        assert isinstance(outcome.reason, e.Errored) and "a plugin offers a tool named 'answer'" in outcome.reason.error.message


# -- routes, children, logs


@BOTH
async def test_a_route_gets_the_value_and_nothing_of_the_way_to_it(schema: bool) -> None:
    model = script(schema, "hm", Reply.output(OSLO))
    async with opened(typed(model)) as (system, ref):
        await say(ref, "where?", route={"channel": "irc", "chat": "x"})
        puts = await events(system.store, e.OutboxPut)
        assert ["".join(getattr(b, "text", "") for b in put.content) for put in puts] == ['{"city":"Oslo","nights":3}']


@BOTH
@pytest.mark.parametrize("background", [False, True])
async def test_a_delegation_gives_the_output_as_json(schema: bool, background: bool) -> None:
    child = typed(script(schema, "hm", Reply.output(OSLO))).replace(name="child")
    model = scripted(Reply.tools(("c1", "child", {"task": "where?"})), "asked", "done")
    async with opened(make(model, tools=[delegate(child, background=background)])) as (_, ref):
        await ref.ask("plan")
        await ref.wait_idle()
        heard = [m.text for m in await ref.messages() if "Oslo" in m.text]
        assert heard == ['{"city":"Oslo","nights":3}']


@BOTH
async def test_the_same_message_gives_the_same_value_after_a_restart(schema: bool) -> None:
    agent, store = typed(script(schema, "hm", Reply.output(OSLO))), MemoryStore()
    async with opened(agent, store) as (_, ref):
        first = await ref.ask("where?", message_id="m")
    async with opened(agent, store) as (_, ref):
        assert await ref.ask("where?", message_id="m") == first
        assert (await ref.outcome(turn=1)).result() == OSLO


async def test_a_shape_that_has_changed_since_is_said_and_the_text_is_there() -> None:
    class Stay(msgspec.Struct):
        hotel: str

    store, model = MemoryStore(), script(False, Reply.output(OSLO))
    async with opened(typed(model), store) as (_, ref):
        await ref.ask("where?", message_id="m")
    async with opened(make(model, output=Stay), store) as (_, ref):
        outcome = await ref.ask("where?", message_id="m")
        assert outcome.ok and outcome.output is None and outcome.text == '{"city":"Oslo","nights":3}'
        with pytest.raises(TurnFailed, match="is no valid Stay any more: Object missing required field `hotel`; read its text"):
            outcome.result()


async def test_a_definition_may_be_named_by_a_system_and_typed() -> None:
    agent: Agent[Any, Trip] = Agent("planner", model="acme:large", output=Trip)
    async with System.open(":memory:", agents=[agent], models={"*": scripted(Reply.output(OSLO))}) as system:
        ref = await system.spawn(agent, id="t")
        trip: Trip = (await ref.ask("Two nights in Bergen")).result()
        assert trip.city == "Oslo"
