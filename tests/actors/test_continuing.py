"""Continuation: an answer that was cut is one answer; an empty one is asked for once more."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from crashing import image, live
from helpers import events, history, make, opened, say, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Next, Plugin, Position, Replace, SeamContext, ToolContext, tool
from callboard.actors.plugins import Continue, EmptyAnswer
from callboard.actors.plugins.continuing import TEXT
from callboard.actors.plugins.empty_answer import TEXT as AGAIN
from callboard.actors.testing import Reply, ScriptedModel, every_crash
from callboard.storage import Store, UsageError
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Message, PluginSource, TextBlock

ROUTE = {"channel": "hall", "chat": "1"}
CUT = Reply.max_tokens


async def said(store: Store) -> list[str]:
    """What went to routes, as `chat: text`."""
    return [f"{put.route.chat}: {put.content[0].text}" for put in await events(store, e.OutboxPut)]  # type: ignore[union-attr]


async def test_a_cut_answer_is_gone_on_with_and_is_one_answer_without_blanks() -> None:
    script = scripted(CUT("The cat sat on the m"), CUT("at, an"), "d purred.")
    async with opened(make(script, plugins=[Continue()])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        outcome = await ref.outcome("hi")
        assert (outcome.text, outcome.reason.kind, outcome.steps) == ("The cat sat on the mat, and purred.", "completed", 3)
        assert await said(system.store) == ["1: The cat sat on the mat, and purred."]
        assert await history(ref) == [
            "user hi",
            "assistant The cat sat on the m",
            f"user {TEXT}",
            "assistant at, an",
            f"user {TEXT}",
            "assistant d purred.",
        ]
    script.assert_used_up()


async def test_the_outcome_is_the_same_when_it_is_asked_for_later() -> None:
    store = MemoryStore()
    async with opened(make(scripted(CUT("one t"), "wo"), plugins=[Continue()]), store) as (_, ref):
        assert (await ref.ask("hi", message_id="hi")).text == "one two"
    async with opened(make(scripted()), store) as (_, ref):
        assert (await ref.ask("hi", message_id="hi")).text == "one two"
        assert (await ref.outcome(turn=1)).text == "one two"


@pytest.mark.parametrize(("times", "text"), [(0, "a"), (1, "ab"), (3, "abcd")])
async def test_it_ends_with_max_tokens_after_so_many_times(times: int, text: str) -> None:
    script = scripted(*(CUT(letter) for letter in "abcd"))
    async with opened(make(script, plugins=[Continue(times=times)])) as (_, ref):
        outcome = await ref.ask("hi")
        assert (outcome.text, outcome.reason.kind) == (text, "max-tokens")


class Summary(Plugin):
    """Puts one sentence in the place of all that was said, before each step."""

    every_step = True

    async def compact(self, ctx: SeamContext, position: Position, next: Next[Position, Replace | None], /) -> Replace | None:
        if len(position.entries) < 2:
            return None
        return Replace(Message("s", "user", (TextBlock("They spoke."),), PluginSource("summary")), position.entries[0][0])


async def the_step(ctx: SeamContext) -> str:
    """A section that is another one in each step."""
    return f"This is step {ctx.step}."


@pytest.mark.parametrize(
    "others", [{}, {"context": [the_step]}, {"plugins": [Continue(times=2), Summary()]}], ids=["nothing", "context", "summary"]
)
async def test_what_others_do_to_the_view_gives_it_no_further_times(others: dict[str, Any]) -> None:
    script = scripted(*(CUT(letter) for letter in "abcdefgh"))
    async with opened(make(script, **{"plugins": [Continue(times=2)], **others})) as (_, ref):
        outcome = await ref.ask("hi")
        assert (outcome.text, outcome.reason.kind) == ("abc", "max-tokens")


async def test_c070_without_the_plugin_a_turn_that_was_cut_stays_cut() -> None:
    async with opened(make(scripted(CUT("half"), "next"))) as (_, ref):
        assert (await ref.ask("hi")).reason.kind == "max-tokens"
        assert (await ref.ask("you")).text == "next", "no leak from turn to turn"


async def test_each_answer_of_a_session_has_its_own_times() -> None:
    script = scripted(CUT("a"), "b", CUT("c"), "d")
    async with opened(make(script, plugins=[Continue(times=1)])) as (_, ref):
        assert (await ref.ask("hi")).text == "ab"
        assert (await ref.ask("you")).text == "cd"


async def test_a_crash_anywhere_leaves_one_whole_answer_and_says_it_once() -> None:
    def reply(request: Any) -> Reply:
        asked: int = sum(message.text == TEXT for message in request.messages)
        return [CUT("one, t"), CUT("wo, th"), Reply.text("ree")][asked]

    async def scenario(store: Store) -> str:
        async with opened(make(ScriptedModel(reply), plugins=[Continue()]), store) as (_, ref):
            return (await ref.ask("hi", message_id="hi", route=ROUTE)).text

    async for crash in every_crash(scenario):
        assert crash.result == "one, two, three", crash
        assert await said(crash.store) == ["1: one, two, three"], crash


async def test_a_crash_between_a_cut_answer_and_the_message_that_asks_for_the_rest() -> None:
    store = MemoryStore()
    async with opened(make(scripted(CUT("half, ")), plugins=[Stops()]), store, grace=0) as (_, ref):
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
    async with opened(make(scripted("whole"), plugins=[Continue()]), store) as (_, ref):
        assert (await ref.outcome("hi")).text == "half, whole"


class Stops(Plugin):
    """Does not come to an end."""

    async def turn_stopping(self, ctx: Any, stopping: Any, /) -> None:
        await trio.sleep_forever()


class Steers(Plugin):
    """Somebody else's question comes while the turn is about to end."""

    def __init__(self, route: Any) -> None:
        self.route = route

    async def turn_stopping(self, ctx: Any, stopping: Any, /) -> None:
        if stopping.step == 1:
            await ctx.agent.steer("And you?", message_id="s", route=self.route)


async def test_a_question_of_another_chat_at_the_same_boundary_lets_the_cut_answer_go_as_it_is() -> None:
    plugins = [Continue(), Steers({"channel": "hall", "chat": "2"})]
    async with opened(make(scripted(CUT("half"), "to both"), plugins=plugins)) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        assert await said(system.store) == ["1: half", "2: to both"]
        outcome = await ref.outcome("hi")
        assert (outcome.text, outcome.reason.kind) == ("to both", "max-tokens")
        assert (await ref.outcome(turn=1)).text == "to both"


async def test_a_steer_without_a_route_is_answered_in_the_same_answer() -> None:
    async with opened(make(scripted(CUT("half, "), "whole"), plugins=[Continue(), Steers(None)])) as (_, ref):
        assert (await ref.ask("hi")).text == "half, whole"


class Cancels(Plugin):
    """The turn is cancelled when it is about to end, and keeps what waits."""

    async def turn_stopping(self, ctx: Any, stopping: Any, /) -> None:
        if ctx.turn == 1:
            await ctx.agent.cancel(keep_inbox=True)


async def test_a_cut_answer_of_one_turn_is_not_gone_on_with_in_the_next() -> None:
    async with opened(make(scripted(CUT("half"), "new"), plugins=[Continue(), Cancels()])) as (_, ref):
        await say(ref, "hi")
        outcome = await ref.ask("you")
        assert (outcome.text, outcome.reason.kind) == ("new", "completed")
        assert f"user {TEXT}" not in await history(ref), "it is of the turn that was stopped"


@tool(replay="safe")
async def look() -> str:
    """Look."""
    return "seen"


async def test_a_call_in_the_rest_does_not_lose_the_beginning() -> None:
    script = scripted(CUT("I l"), Reply.tools(("c1", "look", {}), text="ook. "), "Seen.")
    async with opened(make(script, tools=[look], plugins=[Continue()])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        assert (await ref.outcome("hi")).text == "I look. Seen."
        assert await said(system.store) == ["1: I look. Seen."]


async def test_when_the_rest_fails_the_route_has_what_was_said_and_the_sentence() -> None:
    async with opened(make(scripted(CUT("half"), Reply.fail("SERVER")), plugins=[Continue()])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        first, second = await said(system.store)
        assert first == "1: half" and "went wrong" in second
        assert (await ref.outcome("hi")).text == "half"


async def test_a_value_that_was_cut_is_whole_when_it_is_joined() -> None:
    shape = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    script = scripted(CUT('{"city": "Os'), 'lo"}')
    async with opened(make(script, output=shape, plugins=[Continue()])) as (_, ref):
        assert (await ref.ask("where?")).output == {"city": "Oslo"}


def test_a_number_below_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="times=-1"):
        Continue(times=-1)


# -- empty answers


async def test_an_empty_answer_is_asked_for_once_more() -> None:
    async with opened(make(scripted("", "Here I am."), plugins=[EmptyAnswer()])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        assert await said(system.store) == ["1: Here I am."]
        assert await history(ref) == ["user hi", f"user {AGAIN}", "assistant Here I am."]


async def test_a_second_empty_answer_gets_the_standard_sentence() -> None:
    script = scripted("", "", "", "later")
    async with opened(make(script, plugins=[EmptyAnswer()])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        assert await said(system.store) == ["1: I have nothing to say to that."]
        await say(ref, "you", route=ROUTE)
        assert (await ref.outcome("you")).text == "later"


@tool(replay="safe")
async def tell(ctx: ToolContext) -> str:
    """Tell the person."""
    await ctx.reply("Told.")
    return "told"


async def test_who_was_answered_by_a_tool_needs_no_more_words() -> None:
    script = scripted(Reply.tools(("c1", "tell", {})), "")
    async with opened(make(script, tools=[tell], plugins=[EmptyAnswer()])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        assert await said(system.store) == ["1: Told."]
    script.assert_used_up()


async def test_words_beside_a_call_are_no_answer() -> None:
    script = scripted(Reply.tools(("c1", "look", {}), text="I look."), "", "Seen.")
    async with opened(make(script, tools=[look], plugins=[EmptyAnswer()])) as (_, ref):
        assert (await ref.ask("hi")).text == "Seen."


@pytest.mark.parametrize(("failures", "kind"), [(1, "completed"), (2, "error")])
async def test_a_provider_that_answers_nothing_at_all_is_asked_once_more(failures: int, kind: str) -> None:
    script = scripted(*(Reply.fail("EMPTY_RESPONSE") for _ in range(failures)), "Yes.")
    async with opened(make(script, plugins=[EmptyAnswer()])) as (_, ref):
        assert (await ref.ask("hi")).reason.kind == kind


async def test_a_crash_behind_an_empty_answer_has_it_asked_once_more() -> None:
    store = MemoryStore()
    async with opened(make(scripted(""), plugins=[Stops()]), store, grace=0) as (_, ref):
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
    async with opened(make(scripted("Yes."), plugins=[EmptyAnswer()]), store) as (_, ref):
        assert (await ref.outcome("hi")).text == "Yes."


@pytest.mark.parametrize("first", [CUT("half an ans"), Reply.text("")])
async def test_what_a_turn_that_was_stopped_was_asked_to_go_on_with_is_not_asked_of_the_next(first: Reply) -> None:
    """Or the next question would be answered with the rest of the answer that somebody stopped."""
    script = scripted(first, "two")
    async with opened(make(script, plugins=[Continue(), EmptyAnswer(), Cancels()])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        (waiting,) = await ref.pending()
        assert waiting.message.text in (TEXT, AGAIN)
        await say(ref, "one and one?", route=ROUTE)
        assert [message.text for message in script.requests[-1].messages if message.role == "user"] == ["hi", "one and one?"]
        assert not await ref.pending() and (await ref.outcome("one and one?")).text == "two"
        assert await said(system.store) == ["1: two"]


async def test_a_turn_that_a_restart_has_ended_is_not_gone_on_with_in_another() -> None:
    agent = make(scripted(CUT("half an ans"), "wer"), plugins=[Continue()], recovery="end")
    life = await live(agent, lambda ref: ref.followup("hi"))
    store = await image(life.records, life.upto(f"put[s]({TEXT})"))
    async with opened(agent, store) as (_, ref):
        await ref.wait_idle()
        assert [e.kind_of(end.reason) for end in await events(store, e.TurnEnd)] == ["interrupted", "completed"]
        assert len(await events(store, e.RequestSent)) == 1 and not await ref.pending()
