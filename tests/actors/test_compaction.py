"""Section 15 of the conformance cases: a summary in the place of what fills the model's window."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import events, history, make, opened, order, records, say
from talkers import LONG, NOT_COUNTED, TWICE, WINDOW, full, said, summariser, tail, talker
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Plugin, Replace, tool
from callboard.actors.plugins import Budget, Commands, Compaction
from callboard.actors.plugins.compaction.extract import HEAD
from callboard.actors.testing import Reply, ScriptedModel, every_crash
from callboard.storage import Message, Request, Store, TextBlock, UsageError
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Usage


async def test_c199_over_budget_at_compact_a_summary_stands_before_the_turn_is_built() -> None:
    model = talker()
    async with opened(make(model, plugins=[Compaction()])) as (system, ref):
        for number in range(1, 5):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        log = await order(system.store)
        assert log.count("cut(") == 1
        cut = tail(log, 4)
        assert cut.startswith("TS4 cut(5..") and "claim(" in cut and cut.index("cut(") < cut.index("claim(")
        assert (await history(ref))[0].startswith(f"user {HEAD}")
    assert max(full(request) for request in model.requests) <= WINDOW
    assert [message.text[:1] for message in model.requests[-1].messages][-1] == "4"


async def test_c199_a_prompt_that_fills_the_window_by_itself_is_counted_before_it_is_claimed() -> None:
    model = talker("short")
    async with opened(make(model, plugins=[Compaction()])) as (system, ref):
        await say(ref, "1 " + LONG, message_id="m1")
        await say(ref, "2 " + LONG * 4, message_id="m2")
        assert tail(await order(system.store), 2).startswith("TS2 cut(")


@tool(replay="safe")
async def read(page: int = 0) -> str:
    """Read a page."""
    return f"page {page} {LONG}"


async def test_the_view_is_looked_at_again_before_each_request_and_the_open_question_stays() -> None:
    calls = [Reply.tools((f"c{n}", "read", {"page": n}), usage=NOT_COUNTED) for n in range(8)]
    model = ScriptedModel([*calls, said("done")], context_window=WINDOW)
    async with opened(make(model, tools=[read], plugins=[Compaction()])) as (system, ref):
        await say(ref, "Read all of it.")
        log = await order(system.store)
        assert "TE1{completed}" in log and log.count("cut(") >= 2
    assert max(full(request) for request in model.requests) <= WINDOW
    for request in model.requests:
        assert request.messages[0].text == "Read all of it."
    assert "you called read (" in model.requests[-1].messages[1].text


async def test_c200_an_overflow_is_answered_by_a_shorter_view_in_the_same_step() -> None:
    model = talker(window=None, refuse=lambda request: full(request) > 250)
    async with opened(make(model, plugins=[Compaction()])) as (system, ref):
        for number in range(1, 5):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        log = await order(system.store)
        third = tail(log, 3)
        assert "Q1 F1{retry} cut(5.." in third and ") Q2 C* A SE TE3{completed}" in third
        assert (await history(ref))[0].startswith(f"user {HEAD}")
        # What was refused is where the window ends from then on.
        assert tail(log, 4).startswith("TS4 cut(") and "F1" not in tail(log, 4)
        failed = [record for record in await records(system.store) if isinstance(record.event, e.RequestFailed)]
        cut = [record for record in await records(system.store) if isinstance(record.event, e.SurfaceReplace)]
        assert cut[0].seq == failed[0].seq + 1 and cut[0].time == failed[0].time


async def test_c200_a_second_overflow_in_the_step_ends_the_turn() -> None:
    model = talker(window=None, refuse=lambda request: "3 " in request.messages[-1].text)
    async with opened(make(model, plugins=[Compaction()])) as (system, ref):
        for number in range(1, 4):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        third = tail(await order(system.store), 3)
        assert "Q1 F1{retry} cut(" in third and third.endswith("Q2 F2{raise} SE TE3{error}")
        (end,) = [end for end in await events(system.store, e.TurnEnd) if end.turn == 3]
        assert isinstance(end.reason, e.Errored) and end.reason.error.code == "CONTEXT_OVERFLOW"


async def test_c200_with_nothing_to_compact_the_turn_ends_at_once() -> None:
    async with opened(make(talker(refuse=lambda _: True), plugins=[Compaction()])) as (system, ref):
        await say(ref, "hi")
        assert tail(await order(system.store), 1).endswith("Q1 F1{raise} SE TE1{error}")


async def test_c200_after_a_crash_between_the_two_an_overflow_is_still_the_second() -> None:
    model = talker(window=None, refuse=lambda request: "6 " in request.messages[-1].text)

    async def scenario(store: Store) -> str:
        async with opened(make(model, plugins=[Compaction()]), store) as (_, ref):
            outcomes = [await ref.ask(f"{number} {LONG}", message_id=f"m{number}") for number in range(1, 7)]
            assert (await order(store)).count("cut(") == 1
            return outcomes[-1].reason.kind

    async for crash in every_crash(scenario):
        assert crash.result == "error", crash


async def test_c201_after_two_useless_summaries_nothing_is_tried_until_the_history_has_grown() -> None:
    long = "blah " * 2000
    small = summariser(long, long, long, "All of it, in short.")
    plugin = Compaction(model="sum:small", at=0.5, keep=0.1)
    async with opened(make(talker("ok."), plugins=[plugin]), models={"sum": small}) as (system, ref):
        await say(ref, "1 " + TWICE, message_id="m1")
        await say(ref, "2 " + TWICE, message_id="m2")
        await say(ref, "3 x")
        await say(ref, "4 x")
        log = await order(system.store)
        # The second prompt made it grow, so what was tried before that does not count.
        assert log.count("note(compaction-useless)") == 2 and log.count("note(compaction-gave-up)") == 1
        assert log.count("note(model-call)") == 3 and "cut(" not in log
        await say(ref, "5 " + LONG, message_id="m5")
        await say(ref, "6 x")
        assert "cut(" in await order(system.store)
        assert (await history(ref))[0] == "user All of it, in short."
    small.assert_used_up()


class Middle(Plugin):
    """First all but the newest two give way to a summary, then the message right behind that summary vanishes."""

    async def compact(self, ctx: Any, position: Any, next: Any, /) -> Any:
        entries = position.entries
        if ctx.turn == 3:
            return Replace(Message("s", "user", (TextBlock("summary"),)), end=entries[-3][0])
        return Replace(start=entries[1][0], end=entries[1][0]) if ctx.turn == 4 else None


async def test_a_range_is_taken_by_its_places_since_a_summary_has_a_later_seq_than_what_follows_it() -> None:
    async with opened(make(talker("ok."), plugins=[Middle()])) as (_, ref):
        for number in range(1, 5):
            await say(ref, f"{number}")
        assert await history(ref) == [
            "user summary",
            "assistant ok.",
            *("user 3", "assistant ok."),
            *("user 4", "assistant ok."),
        ]


class Broken(Plugin):
    """A `compact` of somebody's own that throws."""

    async def compact(self, ctx: Any, position: Any, next: Any, /) -> Any:
        raise RuntimeError("my own bug")


async def test_c202_a_summary_that_fails_leaves_a_note_and_the_turn_goes_on() -> None:
    small = summariser(Reply.fail("SERVER"), Reply.raises(RuntimeError("broken")), "Short.")
    plugin = Compaction(model="sum:small", at=0.5, keep=0.1)
    async with opened(make(talker("ok."), plugins=[plugin]), models={"sum": small}) as (system, ref):
        for number in range(1, 3):
            await say(ref, f"{number} {TWICE}", message_id=f"m{number}")
        log = await order(system.store)
        assert "cut(" not in log and log.count("note(compaction-failed)") == 1, "and in that turn nobody asks again"
        await say(ref, "3 x")
        log = await order(system.store)
        assert "cut(" not in log and log.count("note(compaction-failed)") == 2 and log.count("{completed}") == 3
        await say(ref, "4 x")
        assert (await history(ref))[0] == "user Short."
    async with opened(make(talker("ok."), plugins=[Broken()])) as (system, ref):
        await say(ref, "hi")
        assert "TS1 note(compact-failed) claim(hi)" in await order(system.store)
        assert (await ref.outcome("hi")).text == "ok."


@pytest.mark.parametrize("reply", [Reply.refusal("I cannot help with that."), Reply.tools(("c", "look", {})), Reply.text(" ")])
async def test_c202_what_is_no_summary_takes_the_place_of_nothing(reply: Reply) -> None:
    """A refusal in the place of what was said would be all that the model remembers."""
    small = ScriptedModel(lambda _: reply, provider="sum", name="small")
    plugin = Compaction(model=small, at=0.5, keep=0.1)
    async with opened(make(talker("ok."), plugins=[plugin])) as (system, ref):
        for number in range(1, 3):
            await say(ref, f"{number} {TWICE}", message_id=f"m{number}")
        log = await order(system.store)
        assert "cut(" not in log and "note(compaction-failed)" in log


async def test_c201_two_useless_summaries_do_not_let_the_window_overflow() -> None:
    """Once it is full the extract stands in, and no model is asked for it."""
    small = summariser(*[LONG * 9] * 4)
    async with opened(make(talker("ok."), plugins=[Compaction(model=small, at=0.5, keep=0.1)])) as (system, ref):
        for number in range(1, 3):
            await say(ref, f"{number} {TWICE}", message_id=f"m{number}")
        await say(ref, "3 x")
        assert "note(compaction-gave-up)" in await order(system.store)
        await say(ref, "4 " + LONG, message_id="m4")
        assert tail(await order(system.store), 4).startswith("TS4 cut(")
        assert (await history(ref))[0].startswith(f"user {HEAD}")


async def test_what_no_summary_can_be_shorter_than_is_left_alone() -> None:
    """And is no useless try: two of those would keep the next long range from being summarised."""
    small = summariser()
    async with opened(make(talker("ok.", window=36), plugins=[Compaction(model=small, at=0.5, keep=0.1)])) as (system, ref):
        for number in range(1, 4):
            await say(ref, f"{number}")
        assert small.requests == [] and "note(" not in await order(system.store)


async def test_c202_when_the_window_is_full_or_overflowed_the_extract_stands_in() -> None:
    model = talker(window=None, refuse=lambda request: full(request) > 250)
    plugin = Compaction(model="sum:small")
    async with opened(make(model, plugins=[plugin]), models={"sum": summariser(Reply.fail("SERVER"))}) as (system, ref):
        for number in range(1, 4):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        assert "Q1 note(compaction-failed) F1{retry} cut(" in tail(await order(system.store), 3)
        assert (await history(ref))[0].startswith(f"user {HEAD}")
    full_at_once = make(talker("ok."), plugins=[plugin])
    async with opened(full_at_once, models={"sum": summariser(Reply.fail("SERVER"))}) as (system, ref):
        await say(ref, "1 " + LONG, message_id="m1")
        await say(ref, "2 " + LONG * 5, message_id="m2")
        assert tail(await order(system.store), 2).startswith("TS2 note(compaction-failed) cut(")


async def test_a_summary_by_a_model_counts_as_usage_and_in_the_budget() -> None:
    small = ScriptedModel(lambda _: Reply.text("Short.", usage=Usage(input=70, output=7)), provider="sum", name="small")
    plugins = [Compaction(model="sum:small", at=0.5, keep=0.1), Budget(steps=2)]
    async with opened(make(talker("ok."), plugins=plugins), models={"sum": small}) as (system, ref):
        await say(ref, "1 " + TWICE, message_id="m1")
        await say(ref, "2 " + TWICE, message_id="m2")
        await ref.wait_idle()
        assert (await ref.info()).usage == Usage(input=70, output=7)
        assert (await history(ref))[0] == "user Short."
    request = small.requests[0]
    assert "word word" in request.messages[0].text and request.settings.max_tokens == 1000 and "at most" in request.system
    none = [Compaction(model="sum:small", at=0.5, keep=0.1), Budget(steps=1)]
    async with opened(make(talker("ok."), plugins=none), models={"sum": small}) as (system, ref):
        await say(ref, "1 " + TWICE, message_id="m1")
        await say(ref, "2 " + TWICE, message_id="m2")
        (end,) = [end for end in await events(system.store, e.TurnEnd) if end.turn == 2]
        assert end.reason == e.Limited("steps", end.reason.text if isinstance(end.reason, e.Limited) else None)


async def test_c203_what_arrives_while_a_summary_is_made_is_in_the_next_boundary_and_not_in_the_summary() -> None:
    go = trio.Event()
    small = summariser(Reply.wait(go, said("Short.")))
    plugin = Compaction(model="sum:small", at=0.5, keep=0.1)
    async with opened(make(talker("ok."), plugins=[plugin]), models={"sum": small}) as (system, ref):
        await say(ref, "1 " + TWICE, message_id="m1")
        await ref.followup("2 " + TWICE, message_id="m2")
        await wait_all_tasks_blocked()
        await ref.steer("Hurry!", message_id="s1")
        go.set()
        await ref.wait_idle()
        log = tail(await order(system.store), 2)
        assert "cut(" in log and log.index("cut(") < log.index("U(Hurry!)")
        assert [line for line in await history(ref) if "Hurry" in line] == ["user Hurry!"]
    assert "Hurry" not in small.requests[0].messages[0].text


async def test_c204_a_crash_while_a_summary_is_made_leaves_the_history_whole() -> None:
    store = MemoryStore()
    plugin = Compaction(model="sum:small", at=0.5, keep=0.1)
    async with opened(make(talker("ok."), plugins=[plugin]), store, models={"sum": summariser(Reply.hang())}, grace=0) as (
        _,
        ref,
    ):
        await say(ref, "1 " + TWICE, message_id="m1")
        await ref.followup("2 " + TWICE, message_id="m2")
        await wait_all_tasks_blocked()
        image = store.copy()
    assert "cut(" not in await order(image)
    async with opened(make(talker("ok."), plugins=[plugin]), image, models={"sum": summariser("Short.")}) as (_, ref):
        await ref.wait_idle()
        assert (await history(ref))[0] == "user Short." and "cut(" in await order(image)


async def test_c204_a_crash_anywhere_around_a_summary_loses_nothing() -> None:
    small = ScriptedModel(lambda _: said("Short."), provider="sum", name="small")

    async def scenario(store: Store) -> list[str]:
        agent = make(talker("ok."), plugins=[Compaction(model="sum:small", at=0.5, keep=0.1)])
        async with opened(agent, store, models={"sum": small}) as (_, ref):
            for number in range(1, 4):
                await ref.ask(f"{number} {TWICE}", message_id=f"m{number}")
            return [line[:8] for line in await history(ref)]

    async for crash in every_crash(scenario):
        assert crash.result[0] == "user Sho" and crash.result[-1] == "assistan", crash
        put = [r.event.message for r in await records(crash.store) if isinstance(r.event, e.UserMessage)]
        assert [message.text[0] for message in put] == ["1", "2", "3"]


async def test_the_window_may_be_given_and_without_one_nothing_is_done_before_an_overflow() -> None:
    async with opened(make(talker(window=None), plugins=[Compaction(window=WINDOW)])) as (system, ref):
        for number in range(1, 5):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        # Nothing is known before the first request either way: the setting is.
        assert (await order(system.store)).count("cut(") == 1
    async with opened(make(talker(window=None), plugins=[Compaction()])) as (system, ref):
        for number in range(1, 9):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
        assert "cut(" not in await order(system.store)


async def test_the_room_for_the_answer_is_left_free() -> None:
    model = talker("ok.")
    async with opened(make(model, plugins=[Compaction(at=0.9)], max_tokens=200)) as (_system, ref):
        for number in range(1, 6):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
    assert max(full(request) for request in model.requests) <= WINDOW - 160


async def test_a_model_that_counts_more_is_believed_also_after_a_restart() -> None:
    def reply(request: Request) -> Reply:
        return Reply.text("ok.", usage=Usage(input=3 * full(request)))

    store = MemoryStore()
    model = ScriptedModel(reply, context_window=1200)
    for number in range(1, 8):
        async with opened(make(model, plugins=[Compaction()]), store) as (_, ref):
            await say(ref, f"{number} {LONG}", message_id=f"m{number}")
    assert max(3 * full(request) for request in model.requests) <= 1200
    assert (await order(store)).count("cut(") >= 1


@pytest.mark.parametrize(
    "options",
    [{"at": 0}, {"at": 1.1}, {"keep": 0.8}, {"keep": -1}, {"window": 0}, {"summary_tokens": 0}, {"idle_s": -1}],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Compaction"):
        Compaction(**options)


async def test_a_plugin_further_in_has_the_word() -> None:
    class Own(Plugin):
        async def compact(self, ctx: Any, position: Any, next: Any, /) -> Any:
            return Replace(Message("o", "user", (TextBlock("mine"),))) if position.entries else None

    async with opened(make(talker("ok."), plugins=[Compaction(), Own()])) as (_, ref):
        await say(ref, "1")
        await say(ref, "2")
        assert (await history(ref))[0] == "user mine"


async def test_a_crash_anywhere_in_a_long_turn_that_is_compacted_behind_its_question_goes_on() -> None:
    def reply(request: Request) -> Reply:
        last = request.messages[-1].text.split()
        page = int(last[1]) + 1 if last[0] == "page" else 0
        return said("done") if page == 7 else Reply.tools((f"c{page}", "read", {"page": page}), usage=NOT_COUNTED)

    async def scenario(store: Store) -> str:
        model = ScriptedModel(reply, context_window=WINDOW)
        async with opened(make(model, tools=[read], plugins=[Compaction()]), store) as (_, ref):
            outcome = await ref.ask("Read all of it.", message_id="m")
            assert max(map(full, model.requests), default=0) <= WINDOW
            return outcome.text

    async for crash in every_crash(scenario):
        log = await order(crash.store)
        assert crash.result == "done" and log.count("cut(") >= 2, crash
        assert [log.count(f"call(c{page})") for page in range(7)] == [1] * 7, crash


async def test_a_budget_that_has_room_for_the_request_or_the_summary_but_not_for_both_at_once_holds_up_nobody() -> None:
    small = ScriptedModel(lambda _: Reply.text("Short.", usage=Usage(input=10, output=2)), provider="sum", name="small")
    calls = Reply.tools(("c1", "read", {}), usage=NOT_COUNTED)
    model = ScriptedModel([said("ok."), calls, said("done")], context_window=WINDOW)
    plugins = [Compaction(model="sum:small", at=0.45, keep=0.1, summary_tokens=100), Budget(tokens=180)]
    agent = make(model, tools=[read], plugins=plugins, max_tokens=100)
    with trio.fail_after(60):
        async with opened(agent, models={"sum": small}) as (system, ref):
            await say(ref, LONG, message_id="m1")
            await say(ref, "Read.")
            assert "res(c1) SE SS2.2 note(model-call) cut(" in await order(system.store), "it was due with the result"
            assert (await ref.outcome("Read.")).text == "done"


async def test_what_is_undone_or_begun_anew_is_not_summarised_before() -> None:
    """The last message would be part of the summary, and nothing left to undo; a path is no command, and is compacted for."""
    small = summariser("Short.", "Short.")
    plugins = [Commands(), Compaction(model=small, at=0.5, keep=0.0)]
    async with opened(make(talker("ok."), plugins=plugins)) as (system, ref):
        await say(ref, "1 " + LONG, message_id="m1")
        await say(ref, "2 " + LONG, message_id="m2")
        await say(ref, "/undo")
        assert small.requests == [] and await history(ref) == [f"user 1 {LONG}", "assistant ok."]
        await say(ref, "3 " + LONG, message_id="m3")
        await say(ref, f"/etc/hosts has {LONG}", message_id="m5")
        assert "TS5 note(model-call) cut(" in await order(system.store)
