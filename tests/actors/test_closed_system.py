"""What a handle answers once its system is closed, and other calls that cannot be."""

from __future__ import annotations

import pytest
import trio

from callboard import Agent, Plugin, System
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import NameMismatch, UsageError
from callboard.storage.engines.memory import MemoryStore

AGENT = Agent("a", model="m:x", plugins=[])


async def test_a_handle_of_a_closed_system_says_so_and_never_waits() -> None:
    async with System.open(":memory:", agents=[AGENT], models={"m": ScriptedModel([Reply.text("hi")])}) as system:
        ref = await system.spawn(AGENT, id="t")
        await ref.ask("hello")
    for call in (lambda: ref.ask("again"), lambda: ref.followup("again"), ref.cancel, ref.info, ref.messages, ref.wait_idle):
        with trio.fail_after(60), pytest.raises(UsageError, match="is closed"):
            await call()
    with trio.fail_after(60), pytest.raises(UsageError, match="is closed"):
        await system.get("t")
    with trio.fail_after(60), pytest.raises(UsageError, match="is closed"):
        await system.spawn(AGENT, id="new")
    with trio.fail_after(60), pytest.raises(UsageError, match="is closed"):
        await system.delete("t")


async def test_an_id_of_a_definition_under_its_old_name_hints_at_formerly() -> None:
    store = MemoryStore()
    async with System.open(store, agents=[AGENT]) as system:
        await system.spawn(AGENT, id="t")
    renamed = Agent("b", model="m:x", plugins=[])
    async with System.open(store, agents=[renamed]) as system:
        with pytest.raises(NameMismatch, match=r"formerly=\['a'\]"):
            await system.spawn(renamed, id="t")


async def test_calls_that_cannot_be_say_what_was_meant() -> None:
    with pytest.raises(UsageError, match=r"agents=\[a\]"):
        async with System.open(":memory:", agents=AGENT):  # type: ignore[arg-type]
            pass
    async with System.open(":memory:", agents=[AGENT]) as system:
        ref = await system.spawn(AGENT, id="t")
        with pytest.raises(UsageError, match="whose outcome"):
            await ref.outcome()


def test_a_misspelt_seam_is_an_error_where_it_is_written() -> None:
    with pytest.raises(UsageError, match="did you mean 'pre_step'"):

        class Misspelt(Plugin):  # pyright: ignore[reportUnusedClass]
            async def pre_stepp(self) -> None: ...


async def test_a_missing_dependency_is_found_when_the_system_opens() -> None:
    class Database: ...

    wants = Agent("w", model="m:x", deps=Database)
    with pytest.raises(TypeError, match="expects deps of Database, not NoneType"):
        async with System.open(":memory:", agents=[wants]):
            pass


async def test_a_prompt_function_that_fails_is_named() -> None:
    def system_text(ctx: object) -> str:
        raise KeyError("user")

    agent = Agent("p", model="m:x", system=system_text, plugins=[])
    async with System.open(":memory:", agents=[agent], models={"m": ScriptedModel([])}) as system:
        outcome = await (await system.spawn(agent, id="t")).ask("hi")
    assert "system= of agent 'p' failed" in str(outcome)
    assert "KeyError: 'user'" in str(outcome)
