"""Values that nobody should give, at every door: the error reaches whose fault it is, and nobody else notices.

After each case the log can be read as msgpack and as JSON, another agent of the same system still works, and a new system opens
the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from helpers import check, make, records, scripted

from callboard import Agent, Plugin, System, ToolContext, ToolError, tool
from callboard.actors import Allow, Enter, LimitReached, Model, Prepared, ToolOutput
from callboard.actors.answers import CallResult
from callboard.actors.failures import causes
from callboard.actors.testing import Reply
from callboard.storage import AgentNotFound, CallboardError, DefinitionMissing, UsageError
from callboard.storage import chunks as c
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Chunk, FinishChunk, Image, Message, Request, TextBlock, TextDelta, Usage, UsageChunk
from callboard.storage.records import decode_event, encode_event, to_json

HALF = "half \ud83d"
KEYS = {"a": {(1, 2): 3}}
"""JSON has no such keys, msgpack has."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Half(Exception):
    def __str__(self) -> str:
        return HALF


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


async def readable(store: MemoryStore) -> None:
    for head in await store.agents():
        for record in await records(store, head.agent):
            decode_event(encode_event(record))
            assert to_json(record)
    await check(store)


async def survives(agent: Agent[Any, Any]) -> Any:
    """One turn of the agent beside another agent's; both systems and the store are sound after it."""
    store, other = MemoryStore(), Agent("other", model=scripted("fine"), plugins=())
    async with System.open(store, agents=[agent, other]) as system:
        outcome = await (await system.spawn(agent, id="a")).ask("hi")
        assert (await (await system.spawn(other, id="b")).ask("hi")).text == "fine"
    await readable(store)
    async with System.open(store, agents=[make(scripted("again"))]) as system:
        assert not system.report.failed
        assert (await (await system.get("a")).ask("again")).ok
    return outcome


def calling(body: Any, *, plugin: Plugin | None = None) -> Agent[Any, Any]:
    model = scripted(Reply.tools(("c1", body.name, {})), "over")
    return make(model, tools=[body], plugins=() if plugin is None else [plugin])


# -- what is sent


@pytest.mark.parametrize(
    "content",
    [
        [TextBlock(5)],  # type: ignore[arg-type]
        [TextBlock(None)],  # type: ignore[arg-type]
        [TextBlock(b"x")],  # type: ignore[arg-type]
        HALF,
        [TextBlock("x", meta=KEYS)],
        [TextBlock("x", meta={"a": msgspec.msgpack.Ext(5, b"x")})],
        [TextBlock("x", meta=nested(900))],
        [Image("image/png", data="text")],  # type: ignore[arg-type]
        [Image(None)],  # type: ignore[arg-type]
        Message("m", "user", 5),  # type: ignore[arg-type]
        Message(5, "user", (TextBlock("x"),)),  # type: ignore[arg-type]
    ],
    ids=repr,
)
async def test_content_that_cannot_be_kept_is_refused_at_the_door(content: Any) -> None:
    store, agent = MemoryStore(), make(scripted("fine"))
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        with pytest.raises(UsageError):
            await ref.ask(content)
        assert (await ref.ask("hi")).text == "fine"
    await readable(store)


@pytest.mark.parametrize("message_id", [5, b"x", [1], HALF])
async def test_a_message_id_that_is_no_text_is_refused(message_id: Any) -> None:
    agent = make(scripted("fine"))
    async with System.open(MemoryStore(), agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        with pytest.raises(UsageError):
            await ref.followup("hi", message_id=message_id)
        assert (await ref.ask("hi")).ok


@pytest.mark.parametrize("id", [5, b"x", [1], "", HALF, "x" * 1000])
async def test_an_agent_id_that_cannot_be_one_is_refused(id: Any) -> None:
    agent = make(scripted())
    async with System.open(MemoryStore(), agents=[agent]) as system:
        with pytest.raises(UsageError):
            await system.spawn(agent, id=id)
        with pytest.raises(UsageError):
            await system.get(id)


@pytest.mark.parametrize(
    "options",
    [
        {"history": "hello"},
        {"history": [Message("1", "user", (TextBlock("q"),)), Message("2", "user", (TextBlock(5),))]},  # type: ignore[arg-type]
        {"history": [Message("1", "system", (TextBlock("q"),))]},  # type: ignore[arg-type]
        {"labels": "ann"},
        {"labels": {"user": 5}},
    ],
    ids=repr,
)
async def test_an_agent_whose_history_or_labels_cannot_be_kept_is_not_created(options: Any) -> None:
    store, agent = MemoryStore(), make(scripted())
    async with System.open(store, agents=[agent]) as system:
        with pytest.raises(UsageError):
            await system.spawn(agent, id="a", **options)
        with pytest.raises(AgentNotFound):
            await system.get("a")
    assert not await store.agents()


async def test_a_cancel_of_an_unknown_cause_is_refused_and_the_log_stays_readable() -> None:
    @tool
    async def stop(ctx: ToolContext[Any]) -> str:
        """Cancel oneself, with a text that is none."""
        await ctx.agent.cancel("user", text=5)
        return "not reached"

    assert (await survives(calling(stop))).ok


# -- what tools give and raise


@pytest.mark.parametrize(
    "error",
    [Unprintable(), Half(), ToolError(5), ToolError("x", code=HALF), ExceptionGroup("g", [Unprintable()])],  # type: ignore[arg-type]
    ids=lambda error: type(error).__name__,
)
async def test_an_exception_that_cannot_be_told_is_a_result(error: Exception) -> None:
    @tool
    async def broken() -> str:
        """Raise."""
        raise error

    assert (await survives(calling(broken))).ok


@pytest.mark.parametrize("text", [HALF, 5])
async def test_a_limit_that_says_something_odd_ends_its_turn_alone(text: Any) -> None:
    @tool
    async def limited() -> str:
        """Reach a limit."""
        raise LimitReached("odd", text)

    assert (await survives(calling(limited))).reason.kind == "limit"


@pytest.mark.parametrize(
    "output",
    [
        ToolOutput("x", meta=KEYS),
        ToolOutput("x", meta={"a": msgspec.msgpack.Ext(5, b"")}),
        ToolOutput("x", context=5),  # type: ignore[arg-type]
        ToolOutput("x", context=[Message("m", "assistant", (TextBlock("I"),))]),
        ToolOutput("x", context=[Message("m", "user", (TextBlock("one"),)), Message("m", "user", (TextBlock("two"),))]),
        ToolOutput("x", context=[Message("m", "user", 5)]),  # type: ignore[arg-type]
        ToolOutput("x", meta=nested(900)),
    ],
    ids=repr,
)
async def test_what_a_tool_adds_cannot_harm_the_log(output: ToolOutput) -> None:
    @tool
    async def odd() -> Any:
        """Give something odd."""
        return output

    assert (await survives(calling(odd))).ok


# -- what plugins answer


@pytest.mark.parametrize(
    "result",
    [
        CallResult(5),  # type: ignore[arg-type]
        CallResult((TextBlock("x"),), context=5),  # type: ignore[arg-type]
        CallResult((TextBlock("x"),), context=(5,)),  # type: ignore[arg-type]
        CallResult((TextBlock("x"),), meta=KEYS),
        CallResult((TextBlock(HALF),)),
    ],
    ids=repr,
)
async def test_a_misshapen_result_of_a_plugin_is_an_error_result(result: CallResult) -> None:
    class Around(Plugin):
        async def tool_around(self, ctx: Any, call: Any, next: Any) -> Any:
            return result

    @tool
    async def fine() -> str:
        """Work."""
        return "fine"

    assert (await survives(calling(fine, plugin=Around()))).ok


async def test_rewritten_arguments_with_half_a_character_are_mended() -> None:
    class Rewrite(Plugin):
        async def tool_before(self, ctx: Any, call: Any, next: Any) -> Any:
            return Allow(HALF)

    @tool
    async def fine() -> str:
        """Work."""
        return "fine"

    assert (await survives(calling(fine, plugin=Rewrite()))).ok


@pytest.mark.parametrize("seam", ["compact", "assemble", "pre_step", "request", "turn_stopping"])
@pytest.mark.parametrize("error", [Unprintable(), Half(), LimitReached(HALF, HALF)], ids=lambda error: type(error).__name__)
async def test_what_a_seam_throws_ends_its_turn_alone(seam: str, error: Exception) -> None:
    async def throw(self: Plugin, ctx: Any, value: Any, *rest: Any) -> Any:
        raise error

    plugin = type("Throws", (Plugin,), {seam: throw})()
    await survives(make(scripted("hello"), plugins=[plugin]))


async def test_what_enters_a_step_must_be_fit_for_a_request() -> None:
    class Odd(Plugin):
        async def pre_step(self, ctx: Any, boundary: Any, next: Any) -> Any:
            return Enter([Message("m", "user", (TextBlock("x", meta=KEYS),))])

    assert (await survives(make(scripted("hello"), plugins=[Odd()]))).reason.kind == "error"


# -- what adapters do


class Adapter(Model):
    """An adapter that yields these chunks and prepares with these options."""

    provider, name = "odd", "m"

    def __init__(self, *chunks: Chunk, **prepared: Any) -> None:
        self.chunks, self.prepared = chunks, prepared

    def prepare(self, request: Request) -> Prepared:
        return Prepared(request, **self.prepared)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        for chunk in self.chunks:
            yield chunk


@pytest.mark.parametrize(
    "chunk",
    [
        TextDelta(2**65, "a"),
        TextDelta(2**62, "é"),
        UsageChunk(Usage(2**63, 0)),
        c.block_start(0, TextBlock("", meta=KEYS)),
        c.block_start(0, TextBlock("", meta=nested(900))),
    ],
    ids=lambda chunk: str(chunk)[:40],
)
async def test_a_chunk_that_the_log_could_not_keep_fails_the_request(chunk: Chunk) -> None:
    outcome = await survives(make(Adapter(chunk, FinishChunk("stop"))))
    assert outcome.reason.error.code == "BAD_CHUNK"


async def test_a_context_window_that_is_no_number_fails_the_turn() -> None:
    assert (await survives(make(Adapter(context_window="big")))).reason.kind == "error"


async def test_a_stream_that_never_waits_leaves_others_their_time(autojump_clock: trio.testing.MockClock) -> None:
    class Endless(Adapter):
        async def stream(self, request: Request) -> AsyncIterator[Chunk]:
            while True:
                yield TextDelta(0, "x")

    agent, other = make(Endless()), Agent("other", model=scripted("fine"), plugins=())
    async with System.open(MemoryStore(), agents=[agent, other], grace=0) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        assert (await (await system.spawn(other, id="b")).ask("hi")).text == "fine"
        await ref.cancel()
        await ref.wait_idle()


# -- what keeps an agent from being opened


async def test_one_definition_that_cannot_be_resolved_keeps_no_other_from_being_taken_up() -> None:
    store, bad, good = MemoryStore(), make(scripted(Reply.hang())), Agent("good", model=scripted(Reply.hang()), plugins=())
    async with System.open(store, agents=[bad, good], grace=0) as system:
        await (await system.spawn(bad, id="a")).followup("hi")
        await (await system.spawn(good, id="b")).followup("hi")

    async def resolve(name: str, head: Any) -> Any:
        if name == "demo":
            raise Unprintable
        return "no definition"

    async with System.open(store, agents=[good.replace(model=scripted("fine"))], resolve=resolve) as system:
        assert isinstance(system.report.failed["a"], DefinitionMissing)
        assert (await (await system.get("b")).outcome(turn=1)).ok


async def test_a_follower_hears_that_the_system_closed() -> None:
    agent, heard = make(scripted("fine")), list[str]()

    async def follow(ref: Any) -> None:
        with pytest.raises(CallboardError) as caught:
            async for _ in ref.follow():
                pass
        heard.append(str(caught.value))

    async with trio.open_nursery() as nursery, System.open(MemoryStore(), agents=[agent]) as system:
        nursery.start_soon(follow, await system.spawn(agent, id="a"))
        await trio.testing.wait_all_tasks_blocked()
    assert "is closed: open it again" in heard[0]


def test_causes_that_lead_back_to_themselves_through_a_group_end() -> None:
    error = ValueError("a")
    error.__cause__ = ExceptionGroup("g", [error])
    assert causes(error) == "ValueError: a"
    error.__cause__ = ExceptionGroup("g", [error, KeyError("b")])
    assert causes(error) == "ValueError: a ← ExceptionGroup: g (2 sub-exceptions) [KeyError: 'b']"
