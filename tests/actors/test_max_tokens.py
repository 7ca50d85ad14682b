"""Section 5 of the conformance cases: answers that reached the output cap, tools that conclude, and what the outcome says."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import events, history, make, opened, order, say, scripted

from callboard.actors import Plugin, ToolContext, ToolError, ToolOutput, tool
from callboard.actors.answers import Stopping
from callboard.actors.seams import SeamContext
from callboard.actors.testing import Reply
from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.messages import Chunk, ToolCallBlock, Usage

START = "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 C* A"


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


@tool
async def finish(text: str = "") -> ToolOutput:
    """Conclude."""
    return ToolOutput(f"done {text}", concludes=True)


@tool
async def stumble() -> ToolOutput:
    """Conclude, if it could."""
    raise ToolError("it broke")


class Stops(Plugin):
    """Counts how often a turn is about to end; steers the first time."""

    def __init__(self, steer: str | None = None) -> None:
        self.steer = steer
        self.seen: list[tuple[int, str, str]] = []

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
        self.seen.append((stopping.step, stopping.reason.kind, stopping.text))
        if self.steer is not None:
            text, self.steer = self.steer, None
            await ctx.agent.steer(text, message_id=text)


async def test_c069_max_tokens_does_not_leak_into_the_next_turn() -> None:
    model = scripted(Reply.max_tokens("half"), "whole")
    async with opened(make(model)) as (system, ref):
        await say(ref, "go")
        await say(ref, "on")
        assert await order(system.store) == (
            f"{START} SE TE1{{max-tokens}} put[t](on) TS2 claim(on) SS2.1 U(on) Q1 C* A SE TE2{{completed}}"
        )
        first, second = await events(system.store, e.AssistantMessage)
        assert (first.finish, second.finish) == ("max-tokens", "stop")
    assert len(model.requests) == 2


async def test_c070_a_steer_at_the_stop_of_a_capped_answer() -> None:
    model, stops = scripted(Reply.max_tokens("x"), "y"), Stops("steer")
    async with opened(make(model, plugins=[stops])) as (system, ref):
        await say(ref, "go")
        assert await order(system.store) == (f"{START} SE put[s](steer) claim(steer) SS1.2 U(steer) Q1 C* A SE TE1{{max-tokens}}")
        assert [m.text for m in model.requests[1].messages] == ["go", "x", "steer"]
    assert stops.seen == [(1, "max-tokens", "x"), (2, "max-tokens", "y")]


async def test_max_tokens_is_sticky_in_the_reason_alone() -> None:
    model = scripted(Reply.max_tokens("x"), Reply.tools(("c1", "echo", {})), "y")
    async with opened(make(model, tools=[echo], plugins=[Stops("steer")])) as (system, ref):
        await say(ref, "go")
        assert await order(system.store) == (
            f"{START} SE put[s](steer) claim(steer) SS1.2 U(steer) Q1 C* A call(c1) res(c1) SE SS1.3 Q1 C* A SE TE1{{max-tokens}}"
        )
        assert model.requests[2].messages[-1].results == {"c1": "echo "}


async def test_c071_a_complete_call_at_the_cap_is_not_run() -> None:
    model = scripted(Reply.max_tokens("", ("c1", "echo", {}), usage=Usage(input=1, output=9)), "on")
    async with opened(make(model, tools=[echo])) as (system, ref):
        await say(ref, "go")
        assert await order(system.store) == f"{START} SE TE1{{max-tokens}}"
        (answer,) = await events(system.store, e.AssistantMessage)
        assert (answer.message.content, answer.usage) == ((), Usage(input=1, output=9))
        assert await history(ref) == ["user go"]


async def test_c072_half_a_call_is_cut_and_its_metadata_with_it() -> None:
    chunks: list[Chunk] = [
        c.block_start(0, "text"),
        c.text_delta(0, "well"),
        c.block_end(0, meta={"provider": {"mark": 1}}),
        c.block_start(1, ToolCallBlock("c1", "echo")),
        c.tool_call_delta(1, arguments='{"te'),
        c.block_end(1, meta={"provider": {"mark": 2}}),
        c.finish("max-tokens"),
    ]
    async with opened(make(scripted(Reply.chunks(chunks)), tools=[echo])) as (system, ref):
        await say(ref, "go")
        assert await order(system.store) == f"{START} SE TE1{{max-tokens}}"
        (answer,) = await events(system.store, e.AssistantMessage)
        (block,) = answer.message.content
        assert (answer.message.text, block.meta) == ("well", {"provider": {"mark": 1}})


async def test_c073_a_concluding_tool_ends_the_turn() -> None:
    model = scripted(Reply.tools(("c1", "finish", {"text": "x"})))
    async with opened(make(model, tools=[finish])) as (system, ref):
        await say(ref, "go")
        assert await order(system.store) == f"{START} call(c1) res(c1) SE TE1{{completed}}"
        (result,) = await events(system.store, e.ToolResult)
        assert result.concludes
        assert await history(ref) == ["user go", "assistant ", "tool done x"]
    assert len(model.requests) == 1


@pytest.mark.parametrize("place", [0, 2, 4])
async def test_c074_all_results_of_a_batch_are_there_before_it_concludes(place: int) -> None:
    names = ["finish" if n == place else "echo" for n in range(5)]
    script = scripted(Reply.tools(*((f"c{n}", name, "{}") for n, name in enumerate(names))))
    async with opened(make(script, tools=[echo, finish])) as (system, ref):
        await say(ref, "go")
        calls = " ".join(f"call(c{n}) res(c{n})" for n in range(5))
        assert await order(system.store) == f"{START} {calls} SE TE1{{completed}}"


async def test_c075_a_concluding_tool_that_fails_does_not_conclude() -> None:
    model = scripted(Reply.tools(("c1", "stumble", {})), "sorry")
    async with opened(make(model, tools=[stumble])) as (system, ref):
        await say(ref, "go")
        assert await order(system.store) == f"{START} call(c1) res(c1!TOOL_ERROR) SE SS1.2 Q1 C* A SE TE1{{completed}}"
        assert model.requests[1].messages[-1].results == {"c1": "it broke"}


def queues(kind: str) -> Any:
    """A concluding tool that sends to its own agent first."""

    @tool(name="finish")
    async def body(ctx: ToolContext) -> ToolOutput:
        """Conclude, with something left to do."""
        await getattr(ctx.agent, kind)("more", message_id="more")
        return ToolOutput("done", concludes=True)

    return body


async def test_c076_a_followup_at_a_concluding_tool_is_the_next_turn() -> None:
    script, stops = scripted(Reply.tools(("c1", "finish", {})), "then"), Stops()
    async with opened(make(script, tools=[queues("followup")], plugins=[stops])) as (system, ref):
        await say(ref, "go")
        assert await order(system.store) == (
            f"{START} call(c1) put[t](more) res(c1) SE TE1{{completed}} TS2 claim(more) SS2.1 U(more) Q1 C* A SE TE2{{completed}}"
        )
    assert stops.seen == [(1, "completed", ""), (1, "completed", "then")]


async def test_c077_turn_stopping_is_not_asked_while_steering_is_pending() -> None:
    script, stops = scripted(Reply.tools(("c1", "finish", {})), "then"), Stops()
    async with opened(make(script, tools=[queues("steer")], plugins=[stops])) as (system, ref):
        await say(ref, "go")
        assert await order(system.store) == (
            f"{START} call(c1) put[s](more) res(c1) SE claim(more) SS1.2 U(more) Q1 C* A SE TE1{{completed}}"
        )
    assert stops.seen == [(2, "completed", "then")]


async def test_c078_the_outcome_has_the_last_answer_that_is_not_empty() -> None:
    script = scripted("first", Reply.chunks([c.finish("stop")]))
    async with opened(make(script, plugins=[Stops("more")])) as (system, ref):
        outcome = await ref.ask("go", message_id="go")
        assert await order(system.store) == f"{START} SE put[s](more) claim(more) SS1.2 U(more) Q1 C* A SE TE1{{completed}}"
        assert (outcome.text, outcome.reason.kind, outcome.steps, outcome.turn) == ("first", "completed", 2, 1)
        assert outcome.message_id == "go"
        assert await ref.outcome("go") == outcome
        assert await ref.outcome("more") == outcome.of_message("more")


async def test_c078_the_kind_is_that_of_the_end() -> None:
    async with opened(make(scripted(Reply.max_tokens("half")))) as (_, ref):
        outcome = await ref.ask("go", message_id="go")
        assert (outcome.reason.kind, outcome.text, outcome.ok) == ("max-tokens", "half", False)


@pytest.mark.parametrize("finish_word", ["content-filter", "refusal"])
async def test_c079_a_filtered_answer_completes_and_is_replied(finish_word: Any) -> None:
    chunks: list[Chunk] = [
        c.block_start(0, "text"),
        c.text_delta(0, "I would rather not."),
        c.block_end(0),
        c.block_start(1, ToolCallBlock("c1", "echo")),
        c.tool_call_delta(1, arguments="{}"),
        c.block_end(1),
        c.finish(finish_word),
    ]
    async with opened(make(scripted(Reply.chunks(chunks)), tools=[echo])) as (system, ref):
        await say(ref, "go", route={"channel": "irc", "chat": "1"})
        assert await order(system.store) == f"{START} SE TE1{{completed}} out"
        (answer,) = await events(system.store, e.AssistantMessage)
        assert (answer.finish, answer.message.calls) == (finish_word, ())
        (out,) = await events(system.store, e.OutboxPut)
        assert [getattr(block, "text", None) for block in out.content] == ["I would rather not."]
