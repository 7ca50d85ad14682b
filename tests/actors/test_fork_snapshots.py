"""A fork behind a snapshot of its origin begins with that and reads nothing before it; one in front of it folds the prefix."""

from __future__ import annotations

from pathlib import Path

from callboard import Agent, System
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import verify

TURNS = 60


def talker() -> Agent:
    replies = ScriptedModel(lambda request: Reply.text(f"answer to {request.messages[-1].text}"))
    return Agent("talker", model=replies, plugins=[])


async def test_a_fork_at_the_end_of_a_long_log_reads_its_snapshot_and_no_more(tmp_path: Path) -> None:
    agent = talker()
    async with System.open(tmp_path, agents=[agent]) as system:
        ref = await system.spawn(agent, id="long")
        for number in range(TURNS):
            await ref.ask(f"question {number}")
    async with System.open(tmp_path, agents=[agent]) as system:
        ref = await system.get("long")
        assert (await system.store.snapshot("long")) is not None
        opening = system.store.statistics()["frames_read"]
        fork = await ref.fork(id="fork")
        forking = system.store.statistics()["frames_read"] - opening
        assert forking <= opening + 2 < TURNS, "what is behind the snapshot, as when it was opened, and the record at the fork"
        early = await ref.fork(id="early", turn=10)
        assert list(await fork.messages()) == list(await ref.messages())
        assert list(await early.messages()) == list(await ref.messages())[: 2 * 9]
        assert (await fork.ask("and now?")).text == "answer to and now?"
        assert (await fork.info()).turn == TURNS + 1
        assert (await early.ask("and now?")).turn == 10
        report = await verify(system.store)
        assert report.ok, report.problems


async def test_a_fork_is_never_older_than_the_record_at_which_it_was_made(tmp_path: Path) -> None:
    agent, now = talker(), [2_000_000_000.0]
    async with System.open(tmp_path, agents=[agent], now=lambda: now[0]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("question")
        now[0] -= 1_000_000
        fork = await ref.fork(id="fork")
        await fork.ask("and now?")
        times = [record.time async for record in fork.read()]
        assert times == sorted(times)
