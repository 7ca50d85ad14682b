"""Commands of one's own, who may run which, and what is refused when they are made."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import events, history, make, opened, scripted
from test_commands import answer, karma, talker

from callboard.actors.agent import Agent
from callboard.actors.answers import Answer, Command, Replace
from callboard.actors.plugins import CommandContext, Commands, command
from callboard.actors.seams import Next, Plugin, SeamContext
from callboard.actors.system import System
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import UsageError

# -- authority


async def test_senders_who_may_change_the_conversation() -> None:
    store = MemoryStore()
    async with opened(talker("one", plugin=Commands(karma, authority=["ann"])), store) as (_, ref):
        await answer(ref, "hello", sender="bob")
        assert await answer(ref, "/new", sender="bob") == "bob may not run /new here."
        assert await answer(ref, "/stop", sender="bob") == "bob may not run /stop here."
        assert await answer(ref, "/stop") == "You may not run /stop here."
        assert await answer(ref, "/karma", sender="bob") == "bob: 7"
        assert "/new" not in await answer(ref, "/help", sender="bob")
        assert await history(ref) == ["user hello", "assistant one"]
        assert await answer(ref, "/new", sender="ann") == "A new conversation begins."
    refused = [result.error for result in await events(store, e.CommandResult) if result.error]
    assert [error.code for error in refused] == ["NOT_ALLOWED"] * 3


async def test_a_policy_is_asked_for_every_command() -> None:
    asked: list[tuple[str, str | None]] = []

    async def allow(ctx: SeamContext, name: str, sender: str | None) -> bool:
        asked.append((name, sender))
        return ctx.labels.get("team") == "red" and sender == "ann"

    agent = talker(plugin=Commands(karma, authority=allow))
    async with opened(agent) as (system, _):
        ref = await system.spawn(agent, id="b", labels={"team": "red"})
        assert await answer(ref, "/karma", sender="ann") == "ann: 7"
        assert await answer(ref, "/karma", sender="bob") == "bob may not run /karma here."
    assert ("/karma", "ann") in asked


# -- commands of one's own


async def test_a_command_of_ones_own_replaces_a_built_in_one() -> None:
    @command("/Status")
    async def mine(ctx: CommandContext) -> Replace:
        """Mine."""
        return Replace(cause="mine")

    async with opened(talker("hi", plugin=Commands(mine))) as (_, ref):
        await answer(ref, "hello")
        assert await answer(ref, "/STATUS") == "Done."
        assert await history(ref) == []


async def test_a_command_sends_and_asks_under_ids_of_its_own() -> None:
    seen: list[str] = []

    @command("/pass")
    async def passes(ctx: CommandContext, args: str) -> str:
        """Hand it on."""
        ctx.note("passed", args)
        sent = await ctx.send("b", args)
        seen.extend([sent.message_id, ctx.effect_key, str(ctx.deps), str(ctx.turn), str(await ctx.notes("passed"))])
        return str((await ctx.ask("b", "and?")).text)

    async with opened(talker("got it", "this", plugin=Commands(passes)), deps="db") as (system, ref):
        await system.spawn(await _definition(system), id="b")
        assert await answer(ref, "/pass it on") == "this"
    assert seen[0] == f"{seen[1]}#1"
    assert seen[2:] == ["db", "1", "['it on']"]


async def _definition(system: System) -> Agent[Any, Any]:
    return system.definitions["demo"]


async def test_a_decorated_command_is_still_the_function() -> None:
    class Context:
        sender = "ann"

    assert await karma(Context(), "") == "ann: 7"


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: Commands(len), "decorate the function"),  # type: ignore[arg-type]
        (lambda: command("/x")(lambda ctx: None), "is no `async def`"),  # type: ignore[arg-type,return-value]
        (lambda: command(len), "write @command"),  # type: ignore[arg-type]
        (lambda: Commands(karma, karma), "two commands"),
        (lambda: Commands(authority="ann"), "give a list of senders"),
        (lambda: Commands(models="openai:gpt-5"), "give a list"),
        (lambda: Commands(models=["gpt-5"]), "provider and model"),
    ],
)
def test_what_cannot_be_is_refused_at_once(build: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        build()


async def test_a_command_that_returns_something_else_is_named() -> None:
    @command("/odd")
    async def odd(ctx: CommandContext) -> Any:
        """Odd."""
        return 7

    async with opened(talker(plugin=Commands(odd))) as (_, ref):
        assert "/odd gave a int; a command returns a text" in await answer(ref, "/odd")


async def test_the_next_plugin_is_asked_about_what_is_no_command() -> None:
    class Echo(Plugin):
        async def command(
            self, ctx: SeamContext, command: Command, next: Next[Command, Answer | Replace | None]
        ) -> Answer | Replace | None:
            return Answer("echo")

    async with opened(make(scripted(), plugins=[Commands(), Echo()])) as (_, ref):
        assert await answer(ref, "/etc/hosts") == "echo"
