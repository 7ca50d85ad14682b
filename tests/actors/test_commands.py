"""Slash commands in a turn of their own: recorded always, answered without the model, never in its view."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import check, events, history, make, opened, order, records, scripted

from callboard.actors.agent import Agent
from callboard.actors.answers import Answer, Replace
from callboard.actors.plugins import CommandContext, Commands, command
from callboard.actors.seams import Plugin, SeamContext
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import tool
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore

ROUTE = {"channel": "desk", "chat": "1"}
RUN = "put[t]({0}) TS{1} claim({0}) cmd cmdres TE{1}{{completed}}"


@command("/karma", usage="/karma NAME")
async def karma(ctx: CommandContext, args: str) -> str:
    """How well somebody is liked."""
    return f"{args or ctx.sender}: 7"


@command("/breaks")
async def breaks(ctx: CommandContext) -> None:
    """Fails."""
    raise LookupError("no such table")


def noon(ctx: SeamContext) -> str:
    """Runtime context."""
    return "It is noon."


def talker(*replies: Any, plugin: Commands | None = None, **options: Any) -> Agent[Any, Any]:
    """An agent with commands."""
    return make(scripted(*replies), plugins=[plugin or Commands(karma, breaks)], **options)


async def answer(ref: Any, text: str, **options: Any) -> str:
    """What a command says."""
    outcome = await ref.ask(text, **options)
    assert outcome.ok
    return str(outcome.text)


@pytest.mark.parametrize("text", ["/help", "/HELP", "  /help@bot  "])
async def test_c150_a_command_is_a_turn_of_three_states(text: str) -> None:
    store = MemoryStore()
    async with opened(talker(), store) as (_, ref):
        said = await answer(ref, text, route=ROUTE)
        assert await history(ref) == []
    assert "/karma NAME      How well somebody is liked." in said
    assert await order(store) == RUN.format(text, 1) + " out"
    (end,) = await events(store, e.TurnEnd)
    assert [(entry.state, entry.event) for entry in end.trace] == [("RESTORE", "ok"), ("COMPACT", "ok"), ("COMMAND", "shortcut")]
    (run,) = await events(store, e.CommandRun)
    assert (run.name, run.args) == ("/help", "")
    (out,) = await events(store, e.OutboxPut)
    assert out.content[0].text == said  # type: ignore[union-attr]


async def test_c156_a_slash_within_a_text_is_a_prompt() -> None:
    async with opened(talker("hello", "you too")) as (_, ref):
        assert await answer(ref, "hello /new") == "hello"
        assert await answer(ref, "/etc/hosts is empty") == "you too"


async def test_c158_an_unknown_command_is_recorded_and_never_in_history() -> None:
    store = MemoryStore()
    async with opened(talker("hi"), store) as (_, ref):
        assert await answer(ref, "/zzzz x", message_id="z") == "There is no command /zzzz. /help lists them all."
        await answer(ref, "hello")
        assert await history(ref) == ["user hello", "assistant hi"]
    (run,) = await events(store, e.CommandRun)
    assert (run.name, run.args) == ("/zzzz", "x")


async def test_help_of_one_command_and_of_none() -> None:
    async with opened(talker()) as (_, ref):
        assert await answer(ref, "/help karma") == "/karma NAME  How well somebody is liked."
        assert await answer(ref, "/help /STOP") == "/stop  Stop what runs; what waits is kept until your next message."
        assert await answer(ref, "/help x") == "There is no command /x; /help lists them all."


async def test_c159_arguments_and_sender_reach_the_command() -> None:
    store = MemoryStore()
    async with opened(talker(), store) as (_, ref):
        assert await answer(ref, "/karma My  Friend", sender="ann") == "My  Friend: 7"
        assert await answer(ref, "/karma", sender="ann") == "ann: 7"
    assert [run.args for run in await events(store, e.CommandRun)] == ["My  Friend", ""]


async def test_c160_the_model_of_the_next_turn_also_after_a_restart() -> None:
    store, other = MemoryStore(), scripted("from the other", "again")
    own = scripted("from my own", "my own again")
    models = {"acme:large": other}
    agent = make(own, plugins=[Commands()])
    async with opened(agent, store, models=models) as (system, ref):
        assert "There is no model 'acme:huge'. Did you mean acme:large?" in await answer(ref, "/model acme:huge")
        assert "acme:large, default" in await answer(ref, "/model")
        assert await answer(ref, "hello") == "from my own"
        assert await answer(ref, "/model ACME:large") == "From the next turn on acme:large answers."
        before = (await records(store))[-1].seq
        assert await answer(ref, "hello") == "from the other"
        assert "H{change} X Q1" in await order(store, after=before)
        twin = await system.spawn(agent, id="b")
        assert await answer(twin, "hello") == "my own again", "no other agent is affected"
    own = scripted("back")
    async with System.open(store, agents=[make(own, plugins=[Commands()])], models=models) as system:
        ref = await system.get("a")
        assert await answer(ref, "hello") == "again"
        assert "Model: acme:large" in await answer(ref, "/status")
        await answer(ref, "/model default")
        assert await answer(ref, "hello") == "back"
    await check(store)


async def test_c160_a_running_turn_keeps_its_model() -> None:
    store = MemoryStore()
    own = scripted(Reply.tools(("c1", "choose", {})), "mine to the end")

    @tool
    async def choose() -> str:
        """Choose another model beside the turn."""
        await ref.followup("/pick", message_id="pick")
        return "chosen"

    @command("/pick", control=True)
    async def pick(ctx: CommandContext) -> Answer:
        """Choose."""
        return Answer("picked", notes={"choice/model": "acme:large"})

    async with opened(make(own, tools=[choose], plugins=[Commands(pick)]), store, models={"acme": scripted("not mine")}) as (
        _,
        ref,
    ):
        assert await answer(ref, "go") == "mine to the end"
        assert await answer(ref, "go") == "not mine"
    assert "call(c1) cmd cmdres note(choice/model) res(c1)" in await order(store)


async def test_c160_names_of_ones_own_for_models() -> None:
    plugin = Commands(models={"My  Preset": "acme:small"})
    async with opened(talker("mine", plugin=plugin), models={"acme": scripted("small")}) as (_, ref):
        assert "There is no model 'acme:small'. There are: My  Preset, default." in await answer(ref, "/model acme:small")
        assert await answer(ref, "/model My  Preset") == "From the next turn on acme:small answers."
        assert await answer(ref, "hello") == "small"


@pytest.mark.parametrize("text", ["/model none:x", "/model x", "/model :"])
async def test_c160_a_model_that_nobody_answers_for_changes_nothing(text: str) -> None:
    async with opened(talker("mine")) as (_, ref):
        assert "There is no model" in await answer(ref, text)
        assert await answer(ref, "hello") == "mine"


async def test_c161_history_shows_what_was_said_and_nothing_else() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "a result"

    replies = ("one", Reply.tools(("c1", "look", {})), "two")
    agent = talker(*replies, tools=[look], context=[noon])
    async with opened(agent) as (_, ref):
        assert await answer(ref, "/history") == "Nothing was said yet."
        await answer(ref, "first")
        await answer(ref, "/help")
        await answer(ref, "second")
        assert await answer(ref, "/history 3") == "Agent: one\n\nYou: second\n\nAgent: two"
        assert (await answer(ref, "/history")).startswith("You: first")
        assert await answer(ref, "/history 0") == "Nothing to show."
        assert await answer(ref, "/history three") == "'three' is no number; write /history 5."


async def test_new_forgets_the_view_and_keeps_the_records() -> None:
    store, model = MemoryStore(), scripted("one", "two")
    async with opened(make(model, plugins=[Commands()]), store) as (_, ref):
        await answer(ref, "first")
        seq = (await records(store))[-1].seq
        assert await answer(ref, "/new", message_id="n") == "A new conversation begins."
        assert await order(store, after=seq) == "put[t](/new) TS2 claim(/new) cmd cmdres cut(5..24) TE2{completed}".replace(
            "5..24", _cut(await events(store, e.SurfaceReplace))
        )
        assert await history(ref) == []
        assert await answer(ref, "/new") == "This is a new conversation already."
        await answer(ref, "second")
    assert [message.text for message in model.requests[1].messages] == ["second"]
    assert [put.message.text for put in await events(store, e.UserMessage)] == ["first", "second"]


def _cut(replaced: list[e.SurfaceReplace]) -> str:
    return f"{replaced[0].start}..{replaced[0].end}"


async def test_undo_goes_back_before_the_last_prompt_and_again() -> None:
    async with opened(talker("one", "two", "three")) as (_, ref):
        assert await answer(ref, "/undo") == "There is nothing to undo."
        await answer(ref, "first")
        await answer(ref, "second " * 20)
        assert (await answer(ref, "/undo")).startswith("Taken back: second second")
        assert await history(ref) == ["user first", "assistant one"]
        await answer(ref, "third")
        await answer(ref, "/undo")
        await answer(ref, "/undo")
        assert await history(ref) == []
        assert await answer(ref, "/undo") == "There is nothing to undo."


async def test_undo_takes_a_whole_turn_with_what_was_steered_into_it() -> None:
    @tool
    async def look() -> str:
        """Look."""
        await ref.steer("and Bergen")
        return "rain"

    agent = talker("one", Reply.tools(("c1", "look", {})), "both", tools=[look], context=[noon])
    async with opened(agent) as (_, ref):
        await answer(ref, "first")
        await answer(ref, "Oslo?")
        assert (await history(ref))[-4:] == ["assistant ", "tool rain", "user and Bergen", "assistant both"]
        assert await answer(ref, "/undo") == "Taken back: Oslo?"
        assert await history(ref) == ["user first", "user It is noon.", "assistant one"]


async def test_undo_of_a_failed_turn_and_behind_a_summary() -> None:
    async with opened(talker("one", Reply.fail("X"), "three")) as (_, ref):
        await answer(ref, "first")
        assert not (await ref.ask("second")).ok
        await answer(ref, "third")
        assert await answer(ref, "/undo") == "Taken back: third"
        assert (await history(ref))[-1] == "user second"
        assert await answer(ref, "/undo") == "Taken back: second"
        assert (await history(ref)) == ["user first", "assistant one"]


async def test_undo_finds_the_prompt_of_a_turn_of_many_records() -> None:
    looks = 0

    @tool
    async def look() -> str:
        """Look."""
        nonlocal looks
        looks += 1
        if looks == 39:
            await ref.steer("and once more")
        return "rain"

    calls = [Reply.tools((f"c{i}", "look", {})) for i in range(40)]
    async with opened(talker("one", *calls, "done", tools=[look])) as (_, ref):
        await answer(ref, "first")
        await answer(ref, "again and again")
        assert "user and once more" in await history(ref)
        assert await answer(ref, "/undo") == "Taken back: again and again"
        assert await history(ref) == ["user first", "assistant one"]


async def test_c165_a_fork_has_the_history_and_nothing_that_waits() -> None:
    store = MemoryStore()
    async with opened(talker("one", "two"), store) as (system, ref):
        await answer(ref, "first")
        said = await answer(ref, "/fork", message_id="f")
        copy = await system.get(said.removeprefix("The copy is ").removesuffix("."))
        assert await history(copy) == ["user first", "assistant one"]
        assert await copy.pending() == ()
        assert await answer(copy, "second") == "two"
        assert await history(ref) == ["user first", "assistant one"]
    assert "cmd" not in (await order(store, copy.id)).split()


async def test_c165_without_the_plugin_compact_says_so() -> None:
    async with opened(talker("one")) as (_, ref):
        assert await answer(ref, "/compact") == "This agent does not summarise: it has no Compaction plugin."


class Summary(Plugin):
    """Makes room when it is asked to."""

    async def compact(self, ctx: SeamContext, position: Any, next: Any) -> Replace | None:
        if position.why != "command" or not position.entries:
            return None
        return Replace(cause="compact")


async def test_c165_compact_asks_the_plugin_and_rewrites_with_the_result() -> None:
    store = MemoryStore()
    agent = make(scripted("one"), plugins=[Commands(), Summary()])
    async with opened(agent, store) as (_, ref):
        assert await answer(ref, "/compact") == "There is nothing to summarise."
        await answer(ref, "first")
        assert await answer(ref, "/compact") == "A summary stands for what was said before."
        assert await history(ref) == []
    assert "cmd cmdres cut" in await order(store)


async def test_c166_a_command_that_throws_is_answered_and_the_agent_lives_on() -> None:
    store = MemoryStore()
    async with opened(talker("hi"), store) as (_, ref):
        assert await answer(ref, "/breaks", route=ROUTE) == "/breaks failed: LookupError: no such table"
        assert await answer(ref, "hello") == "hi"
    assert (await order(store)).startswith("put[t](/breaks) TS1 claim(/breaks) cmd cmdres{error} TE1{completed} out")
    (result, *_) = await events(store, e.CommandResult)
    assert result.error is not None and "LookupError" in str(result.error)


async def test_c167_without_the_plugin_a_slash_is_a_prompt() -> None:
    async with opened(make(scripted("what?"))) as (_, ref):
        assert await answer(ref, "/help") == "what?"


async def test_what_agents_and_timers_say_is_no_command(autojump_clock: Any) -> None:
    from callboard.actors.testing import trio_wall

    async with opened(talker("the model reads it"), now=trio_wall("2026-12-01T08:00Z")) as (_, ref):
        timer = await ref.remind("/new", after_s=60)
        assert (await ref.outcome(timer.id)).text == "the model reads it"
