"""Section 15, what runs beside: a summary begun before it is due, and one made while the agent rests."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import history, make, opened, order, say
from talkers import LONG, TWICE, said, summariser, tail, talker
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Plugin, Position, Replace
from callboard.actors.plugins import Compaction
from callboard.actors.plugins.compaction.drafts import Draft, ready
from callboard.actors.plugins.compaction.extract import HEAD
from callboard.actors.testing import Reply
from callboard.storage import Message, TextBlock


async def test_c203_a_summary_is_begun_beside_the_turn_and_put_in_place_when_it_is_needed() -> None:
    go = trio.Event()
    small = summariser(Reply.wait(go, said("Short.")))
    model = talker("ok.")
    async with opened(make(model, plugins=[Compaction(model="sum:small", at=0.6, keep=0.2)]), models={"sum": small}) as (
        system,
        ref,
    ):
        await say(ref, "1 " + LONG, message_id="m1")
        await say(ref, "2 " + LONG, message_id="m2")
        await say(ref, "3 " + "word " * 25, message_id="m3")
        await wait_all_tasks_blocked()
        assert len(small.requests) == 1, "it was begun"
        assert ref.status == "idle" and "cut(" not in await order(system.store), "and nothing waits for it"
        await say(ref, "4 x")
        go.set()
        await wait_all_tasks_blocked()
        await say(ref, "5 " + LONG, message_id="m5")
        assert (await history(ref))[0] == "user Short."
        texts = [message.text[:1] for message in model.requests[-1].messages]
        assert texts[-4:] == ["4", "o", "5"][-3:] or "4" in texts, "what came since is as it was"
        assert tail(await order(system.store), 5).startswith("TS5 cut(")


async def test_a_draft_of_a_view_that_was_rewritten_meanwhile_is_thrown_away() -> None:
    small = summariser("Of what is gone.", "Of what is there.")
    agent = make(talker("ok."), plugins=[Compaction(model="sum:small", at=0.6, keep=0.2), Forgets()])
    async with opened(agent, models={"sum": small}) as (_system, ref):
        for number in (1, 2):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        await say(ref, "3 " + "word " * 25, message_id="m3")
        await wait_all_tasks_blocked()
        assert len(small.requests) == 1
        await say(ref, "/forget")
        for number in (5, 6, 7):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        assert "Of what is gone." not in " ".join(await history(ref))


@pytest.mark.parametrize(
    ("now", "found"), [("012", (0, 1)), ("x012", (1, 2)), ("02", None), ("0x1", None), ("12", None), ("0", None)]
)
async def test_a_draft_is_of_use_only_where_exactly_its_messages_stand(now: str, found: tuple[int, int] | None) -> None:
    messages = {letter: Message(letter, "user", (TextBlock(letter),)) for letter in "012x"}
    draft = Draft([messages["0"], messages["1"]], 10)
    draft.text = "short"
    draft.done.set()
    place = await ready(draft, Position([(seq, messages[letter]) for seq, letter in enumerate(now)]))
    assert (None if place is None else (place.first, place.last)) == found


class Forgets(Plugin):
    """`/forget` takes everything out of the view."""

    async def command(self, ctx: Any, command: Any, next: Any, /) -> Any:
        return Replace(cause="forget") if command.text == "/forget" else await next(command)


@pytest.mark.parametrize("end", ["cancel", "close"])
async def test_what_runs_beside_the_turns_ends_with_a_cancel_and_with_the_system(end: str) -> None:
    small = summariser(Reply.hang())
    agent = make(talker("ok."), plugins=[Compaction(model="sum:small", at=0.6, keep=0.2)])
    async with opened(agent, models={"sum": small}) as (_system, ref):
        for number in (1, 2):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        await say(ref, "3 " + "word " * 25, message_id="m3")
        await wait_all_tasks_blocked()
        tasks = trio.lowlevel.current_statistics().tasks_living
        if end == "cancel":
            await ref.cancel()
            await wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().tasks_living == tasks - 1


async def test_c280_an_idle_agent_is_compacted_when_asked_and_keeps_its_newest() -> None:
    async with opened(make(talker("ok."), plugins=[Compaction()])) as (_, ref):
        assert await ref.compact() is False
        for number in (1, 2, 3):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        assert await ref.compact() is True
        assert (await history(ref))[-1] == "assistant ok." and len(await history(ref)) < 6
        assert await ref.compact() is False, "what is left is kept"


async def test_c280_an_agent_that_rests_is_compacted_once_and_only_then_dropped_from_memory(autojump_clock: MockClock) -> None:
    model = talker("ok.")
    agent = make(model, plugins=[Compaction(idle_s=300, at=0.9, keep=0.1)])
    async with opened(agent, idle_after=60) as (system, ref):
        for number in (1, 2):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        await trio.sleep(200)
        assert system.statistics()["agents"] == 1 and "cut(" not in await order(system.store)
        await trio.sleep(200)
        log = await order(system.store)
        assert log.count("cut(") == 1 and log.count("TS") == 2
        await trio.sleep(200)
        assert system.statistics()["agents"] == 0 and (await order(system.store)).count("cut(") == 1
        await say(ref, "3 x")
        assert model.requests[-1].messages[0].text.startswith(HEAD)


async def test_an_agent_that_works_again_in_time_is_left_alone(autojump_clock: MockClock) -> None:
    agent = make(talker("ok."), plugins=[Compaction(idle_s=300, at=0.9, keep=0.1)])
    async with opened(agent) as (system, ref):
        for number in (1, 2, 3):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
            await trio.sleep(200)
        assert "cut(" not in await order(system.store)


async def test_a_deleted_agent_leaves_nothing_beside_and_its_name_begins_anew() -> None:
    small = summariser(Reply.hang(), Reply.hang())
    agent = make(talker("ok."), plugins=[Compaction(model="sum:small", at=0.6, keep=0.2)])
    async with opened(agent, models={"sum": small}) as (system, ref):
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(2):
            for number in (1, 2):
                await say(ref, f"{number} {LONG}", message_id=f"m{number}")
            await say(ref, "3 " + "word " * 25, message_id="m3")
            await wait_all_tasks_blocked()
            await system.delete("a")
            await wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().tasks_living == before
            ref = await system.spawn(agent, id="a")
    assert len(small.requests) == 2


async def test_a_summariser_may_be_given_itself() -> None:
    small = summariser("Short.")
    agent = make(talker("ok."), plugins=[Compaction(model=small, at=0.5, keep=0.1)])
    async with opened(agent) as (_, ref):
        await say(ref, "1 " + TWICE, message_id="m1")
        await say(ref, "2 " + TWICE, message_id="m2")
        assert (await history(ref))[0] == "user Short."
