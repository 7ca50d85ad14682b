"""What a person sees of a conversation: pieces from records, and where it stands for whoever comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, System, tool
from callboard.actors.plugins import Commands, Permissions
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.cli.chatting.recent import recent, where_it_stands
from callboard.net.cli.chatting.transcript import SEEN, Piece, Transcript
from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.events import EVENTS
from callboard.storage.messages import Failure, Message, ReasoningBlock, TextBlock
from callboard.storage.records import Record


def shown(*events: Any, transcript: Transcript | None = None) -> list[tuple[str, str]]:
    transcript = transcript or Transcript()
    return [(piece.kind, piece.text) for seq, event in enumerate(events) for piece in transcript.feed(Record(seq, 1000, event))]


def chunk(of: Any) -> e.AssistantChunk:
    return e.AssistantChunk(turn=1, step=1, chunk=of)


def said(text: str) -> e.AssistantMessage:
    return e.AssistantMessage(turn=1, step=1, message=Message("m", "assistant", (TextBlock(text),)))


SENT = e.RequestSent(turn=1, step=1, attempt=1, digest="", upto=0)


def test_text_and_reasoning_stream() -> None:
    events = [
        SENT,
        chunk(c.block_start(0, ReasoningBlock("so"))),
        chunk(c.text_delta(1, "hi")),
        chunk(c.block_end(1)),
        said("hi"),
    ]
    assert shown(*events) == [("reasoning", "so"), ("text", "hi"), ("break", "")]


def test_an_answer_that_came_whole_is_shown() -> None:
    assert shown(SENT, said("hi")) == [("text", "hi")]


def test_an_attempt_that_broke_off_is_said() -> None:
    failed = e.RequestFailed(turn=1, step=1, attempt=1, failure=Failure("SERVER", "x"), action="retry", delay_s=0.5)
    assert shown(failed) == [("discard", "The answer broke off (SERVER); another try follows in 0.5 s.")]


def test_what_one_typed_oneself_is_not_shown_twice_and_what_others_sent_is() -> None:
    transcript = Transcript()
    transcript.sent.add("mine")
    mine, other = (e.UserMessage(message=Message(id, "user", (TextBlock(id),))) for id in ("mine", "other"))
    assert shown(mine, other, mine, transcript=transcript) == [("message", "other"), ("message", "mine")]


def test_ends_are_said_in_words() -> None:
    def end(reason: Any) -> list[tuple[str, str]]:
        return shown(e.TurnEnd(turn=1, reason=reason))

    assert end(e.Completed()) == [("end", "")]
    assert end(e.Aborted(e.Cause("user"))) == [("end", "Stopped.")]
    assert end(e.Blocked("no")) == [("end", "The turn was blocked: no.")]


def test_every_type_that_is_followed_exists() -> None:
    assert set(EVENTS) >= SEEN


async def test_tools_questions_commands_and_ends_of_a_real_turn() -> None:
    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([Reply.tools(("c1", "pay", {"cents": 5})), Reply.text("done")])
    agent = Agent("a", model=model, tools=[pay], plugins=[Commands(), Permissions(ask=["pay"])])
    transcript, pieces = Transcript(), list[Piece]()
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("go")

        async def watch() -> None:
            async for record in ref.follow(types=SEEN):
                pieces.extend(transcript.feed(record))
                if transcript.questions:
                    (question,) = transcript.questions
                    await system.answer(question, "allow", by="t")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await ref.wait_idle()
            await ref.ask("/status")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    kinds = [piece.kind for piece in pieces]
    assert kinds == ["message", "break", "question", "note", "tool", "result", "text", "break", "end", "command"]
    assert pieces[4].text == 'pay({"cents":5})'
    assert pieces[5].text == "paid"
    assert transcript.turn is None
    assert transcript.questions == {}


# -- coming back


async def talk(store: MemoryStore, replies: Sequence[Any], *texts: str) -> None:
    agent = Agent("a", model=ScriptedModel(list(replies)), plugins=[Commands()])
    async with System.open(store, agents=[agent], grace=0) as system:
        ref = await system.spawn(agent, id="a")
        for text in texts:
            await ref.ask(text)


async def stands(store: MemoryStore, most: int = 6) -> tuple[list[str], bool]:
    agent = Agent("a", model=ScriptedModel([Reply.hang("again")]), plugins=[Commands()])
    async with System.open(store, agents=[agent], grace=0) as system:
        ref = await system.get("a")
        after, is_open = await where_it_stands(ref)
        return [f"{piece.kind} {piece.text}" for piece in await recent(ref, after, most)], is_open


async def test_the_newest_texts_are_shown_to_whoever_comes_back() -> None:
    store = MemoryStore()
    await talk(store, [Reply.text("one"), Reply.text("two")], "first", "second")
    assert await stands(store) == (["message first", "text one", "message second", "text two"], False)
    assert (await stands(store, 3))[0] == ["text one", "message second", "text two"]
    assert await stands(store, 0) == ([], False)


async def test_what_was_taken_back_or_forgotten_is_not_shown() -> None:
    store = MemoryStore()
    await talk(store, [Reply.text("one"), Reply.text("two")], "first", "second", "/undo")
    assert (await stands(store))[0] == ["message first", "text one"]
    await talk(store, [], "/new")
    assert (await stands(store))[0] == []


async def test_an_open_turn_is_followed_from_its_beginning() -> None:
    store = MemoryStore()
    agent = Agent("a", model=ScriptedModel([Reply.text("one"), Reply.hang("half an ans")]), plugins=[Commands()])
    async with System.open(store, agents=[agent], grace=0) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("first")
        await ref.followup("second")
        async for delta in ref.deltas(after=None):
            if delta.text:
                break
    assert await stands(store) == (["message first", "text one"], True)


async def test_a_long_log_is_read_from_its_end() -> None:
    store = MemoryStore()
    await talk(store, [Reply.text("x", parts=1), *(Reply.text("word " * 200, parts=200) for _ in range(3))], *"abcd")
    assert [piece.split()[1] for piece in (await stands(store, 8))[0]] == ["a", "x", "b", "word", "c", "word", "d", "word"]


async def test_an_agent_that_never_spoke() -> None:
    store = MemoryStore()
    await talk(store, [])
    assert await stands(store) == ([], False)
