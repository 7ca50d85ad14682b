"""Section 1 of the conformance cases: the order of the records of turns and steps that nothing disturbs."""

from __future__ import annotations

from typing import Any

import trio
from helpers import events, history, make, opened, order, records, say, scripted

from callboard.actors import Agent, LimitReached, Plugin, Resend, tool
from callboard.actors.answers import Failed
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.messages import Chunk, TextDelta, Usage

FIRST = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed}"
"""The full order of a first turn."""


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


class Statuses(Plugin):
    """Keeps what it is told of the status."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_status(self, ctx: SeamContext, status: str) -> None:
        self.seen.append(status)


async def test_c001_the_first_turn_has_its_full_order() -> None:
    model = scripted("hello")
    async with opened(make(model)) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == FIRST
        assert await history(ref) == ["user hi", "assistant hello"]
        (answer,) = await events(system.store, e.AssistantMessage)
        assert answer.usage == Usage(input=1, output=1)
        model.assert_used_up()


async def test_c001_the_types_in_full() -> None:
    async with opened(make(scripted("hello"))) as (system, ref):
        await say(ref, "hi")
        assert [record.type for record in await records(system.store)] == [
            "log/created",
            "inbox/put",
            "turn/start",
            "inbox/claim",
            "step/start",
            "user/message",
            "request/header",
            "request/context",
            "request/sent",
            *["assistant/chunk"] * 5,
            "assistant/message",
            "step/end",
            "turn/end",
        ]


async def test_c002_a_second_turn_has_no_header_and_no_context() -> None:
    model = scripted("one", "two")
    async with opened(make(model)) as (system, ref):
        await say(ref, "hi")
        await say(ref, "on")
        second = "put[t](on) TS2 claim(on) SS2.1 U(on) Q1 C* A SE TE2{completed}"
        assert await order(system.store) == f"{FIRST} {second}"
        first, then = model.requests
        assert list(then.messages)[:1] == list(first.messages)
        assert [m.text for m in then.messages] == ["hi", "one", "on"]


async def test_c003_three_deltas_are_seven_chunks() -> None:
    async with opened(make(scripted(Reply.text("abc", parts=3)))) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == FIRST
        log = await records(system.store)
        seqs = [r.seq for r in log if r.type == "assistant/chunk"]
        chunks = [event.chunk for event in await events(system.store, e.AssistantChunk)]
        kinds = [str(chunk.__struct_config__.tag) for chunk in chunks]
        assert kinds == ["block-start", "text-delta", "text-delta", "text-delta", "block-end", "usage", "finish"]
        assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta)) == "abc"
        (answer,) = await events(system.store, e.AssistantMessage)
        assert answer.sources == tuple(seqs)
        assert answer.message.text == "abc"


async def test_c004_one_tool_makes_two_steps() -> None:
    model = scripted(Reply.tools(("c1", "echo", {"text": "x"})), "done")
    async with opened(make(model, tools=[echo])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A call(c1) res(c1) SE SS1.2 Q1 C* A SE TE1{completed}"
        )
        assert len(model.requests) == 2
        result = model.requests[1].messages[-1]
        assert result.results == {"c1": "echo x"}
        assert not any(getattr(block, "is_error", False) for block in result.content)


async def test_c005_eight_sends_in_a_burst_are_eight_turns_of_one_activity() -> None:
    seen = Statuses()
    async with opened(make(scripted(*"abcdefgh"), plugins=[seen])) as (system, ref):
        async with trio.open_nursery() as nursery:
            for n in range(1, 9):
                nursery.start_soon(say, ref, f"m{n}")
        starts = await events(system.store, e.TurnStart)
        assert [start.turn for start in starts] == list(range(1, 9))
        entered = [event.message.text for event in await events(system.store, e.UserMessage)]
        puts = [event.message.text for event in await events(system.store, e.InboxPut)]
        assert entered == puts
        assert sorted(puts) == [f"m{n}" for n in range(1, 9)]
    assert seen.seen == ["running", "idle"]


async def test_c006_a_finish_without_a_block_is_an_empty_answer() -> None:
    async with opened(make(scripted(Reply.chunks([c.finish("stop")])))) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == FIRST
        (answer,) = await events(system.store, e.AssistantMessage)
        assert answer.message.content == ()
        assert await history(ref) == ["user hi"]


async def test_c007_a_stream_without_a_finish_is_a_normal_one() -> None:
    chunks: list[Chunk] = [c.block_start(0, "text"), c.text_delta(0, "well"), c.block_end(0)]
    async with opened(make(scripted(Reply.chunks(chunks)))) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == FIRST
        (answer,) = await events(system.store, e.AssistantMessage)
        assert (answer.finish, answer.message.text) == ("stop", "well")


async def test_c008_a_stream_without_a_chunk_is_an_empty_answer() -> None:
    async with opened(make(scripted(Reply.chunks([])))) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == FIRST.replace("C* ", "")
        (answer,) = await events(system.store, e.AssistantMessage)
        assert (answer.message.content, answer.sources) == ((), ())


async def test_c009_a_finish_of_tool_calls_without_a_call_completes() -> None:
    chunks: list[Chunk] = [c.block_start(0, "text"), c.text_delta(0, "well"), c.block_end(0), c.finish("tool-calls")]
    async with opened(make(scripted(Reply.chunks(chunks)), tools=[echo])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == FIRST


async def test_c010_a_normal_finish_with_a_call_runs_it() -> None:
    chunks: list[Chunk] = [*Reply.tools(("c1", "echo", {})).opening, c.finish("stop")]
    async with opened(make(scripted(Reply.chunks(chunks), "done"), tools=[echo])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A call(c1) res(c1) SE SS1.2 Q1 C* A SE TE1{completed}"
        )


class Again(Plugin):
    """Sends every failed request again, at once."""

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
        return Resend()


async def test_c016_the_usage_of_a_turn_is_that_of_all_its_attempts() -> None:
    script = scripted(
        Reply.fail("SERVER", usage=Usage(input=10)),
        Reply.fail("SERVER"),
        Reply.tools(("c1", "echo", {}), usage=Usage(input=20, output=2)),
        Reply.text("done", usage=Usage(input=40, output=4)),
    )
    async with opened(make(script, tools=[echo], plugins=[Again()])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* F1{retry} Q2 F2{retry} Q3 C* A call(c1) res(c1) SE "
            "SS1.2 Q1 C* A SE TE1{completed}"
        )
        (end,) = await events(system.store, e.TurnEnd)
        assert end.usage == Usage(input=70, output=6)
        failed = await events(system.store, e.RequestFailed)
        assert [event.usage for event in failed] == [Usage(input=10), None]


async def test_c248_the_end_of_a_turn_says_how_it_went() -> None:
    async with opened(make(scripted("one"))) as (system, ref):
        await say(ref, "hi")
        (end,) = await events(system.store, e.TurnEnd)
        assert (end.turn, end.reason, end.usage) == (1, e.Completed(), Usage(input=1, output=1))
        assert (end.park, end.delivery) == (False, "none")
        assert end.latency_ms >= 0
        assert [entry.state for entry in end.trace] == ["RESTORE", "COMPACT", "COMMAND", "BUILD", "RUN", "SAVE", "RESPOND"]


class Limit(Plugin):
    """Ends every turn with a limit."""

    async def request(self, ctx: SeamContext, proposal: Any, next: Any) -> Any:
        raise LimitReached("steps", "enough")


async def test_c248_only_error_and_limit_park_and_only_if_the_agent_says_so() -> None:
    parks: dict[str, list[bool]] = {}
    for after_error in ("park", "continue"):
        for options in ({"plugins": [Limit()]}, {}):
            agent: Agent[Any, Any] = make(scripted(Reply.fail("QUOTA")), after_error=after_error, **options)
            async with opened(agent) as (system, ref):
                await say(ref, "hi")
                (end,) = await events(system.store, e.TurnEnd)
                parks.setdefault(after_error, []).append(end.park)
                assert end.reason.kind == ("limit" if options else "error")
    assert parks == {"park": [True, True], "continue": [False, False]}
    async with opened(make(scripted(Reply.max_tokens("half")))) as (system, ref):
        await say(ref, "hi")
        (end,) = await events(system.store, e.TurnEnd)
        assert (end.reason.kind, end.park) == ("max-tokens", False)


async def test_a_turn_with_a_route_puts_its_answer_behind_its_end() -> None:
    async with opened(make(scripted("hello"))) as (system, ref):
        await say(ref, "hi", route={"channel": "irc", "chat": "1"})
        assert await order(system.store) == f"{FIRST} out"
