"""A cancel at each record of a parent with a tool and a child: one end, nothing new after it, and the same after a crash."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, make, order, records
from test_shutdown import Watched, family, watch
from trio.testing import wait_all_tasks_blocked

from callboard.actors.agent import Agent
from callboard.actors.delegation import delegate
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Request

ALLOWED = (
    e.ToolResult,
    e.ApprovalAnswered,
    e.ChildSpawned,
    e.ChildEnded,
    e.StepEnd,
    e.TurnEnd,
    e.TurnCancel,
    e.TurnSuspend,
)
"""What a turn may write after it was cancelled; the cut message besides. A body may be about to spawn when it hears of it: then
the child is born, and starts cancelled."""


def _let(count: int) -> None:
    """Nothing is done at this append."""


def background() -> Agent[Any, Any]:
    """A parent whose child works in the background, and that is woken by its end."""

    def say(request: Request) -> Reply:
        return Reply.text("seen") if len(request.messages) > 1 else Reply.tools(("c1", "child", {"task": "do"}))

    child = Agent("child", model=ScriptedModel(lambda request: Reply.text("child's"), paced=True), plugins=())
    return make(ScriptedModel(say, paced=True), tools=[delegate(child, background=True)])


async def _cancelled_at(at: int, *, keep: bool, agent: Agent[Any, Any] | None = None) -> tuple[MemoryStore, MemoryStore | None]:
    """A life whose parent is cancelled after `at` appends; its store, and what a crash would leave when the cancel returned."""
    store, agent = MemoryStore(), agent or family()
    images: list[MemoryStore] = []

    async with System.open(store, agents=[agent]) as system, trio.open_nursery() as nursery:
        ref = await system.spawn(agent, id="a")

        async def cancel() -> None:
            await ref.cancel(keep_inbox=keep)
            images.append(store.copy())

        def cut(count: int) -> None:
            if count == at:
                nursery.start_soon(cancel)

        Watched.at, Watched.count = staticmethod(cut), 0
        await ref.followup("one", message_id="m")
        await wait_all_tasks_blocked()
    return store, images[0] if images else None


async def _check_after_cancel(store: MemoryStore, agent: str) -> None:
    cancelled = False
    for record in await records(store, agent):
        event = record.event
        if isinstance(event, e.TurnCancel) and event.turn is not None:
            cancelled = True
        elif isinstance(event, e.TurnEnd):
            assert not cancelled or event.reason.kind == "aborted"
            cancelled = False
        elif cancelled:
            if isinstance(event, e.ChildSpawned):
                assert "Q" not in await order(store, event.child)
            cut = isinstance(event, e.AssistantMessage) and event.interrupted
            assert cut or isinstance(event, ALLOWED), f"{record.type} after the cancel: {await order(store, agent)}"


async def _check_whole(store: MemoryStore) -> None:
    await check(store)
    for head in await store.agents():
        await _check_after_cancel(store, head.agent)
        starts, ends = await events(store, e.TurnStart, head.agent), await events(store, e.TurnEnd, head.agent)
        assert len(starts) == len(ends)
        assert len(await events(store, e.ChildSpawned, head.agent)) == len(await events(store, e.ChildEnded, head.agent))


@pytest.mark.parametrize("keep", [False, True])
async def test_c054_c068_c213_c256_a_cancel_at_each_record_of_a_family(keep: bool) -> None:
    tasks, kinds = trio.lowlevel.current_statistics().tasks_living, set[str]()
    at = 1
    with pytest.MonkeyPatch.context() as patch:
        watch(patch, _let)
        while True:
            store, image = await _cancelled_at(at, keep=keep)
            assert trio.lowlevel.current_statistics().tasks_living == tasks
            await _check_whole(store)
            kinds.update(end.reason.kind for end in await events(store, e.TurnEnd))
            if image is None:
                break
            Watched.at = staticmethod(_let)
            await _recovered(image)
            at += 1
    assert at > 30
    assert kinds == {"aborted", "completed"}


@pytest.mark.parametrize("keep", [False, True])
async def test_c208_a_cancel_at_each_record_of_a_parent_with_a_child_in_the_background(keep: bool) -> None:
    at = 1
    with pytest.MonkeyPatch.context() as patch:
        watch(patch, _let)
        while True:
            store, image = await _cancelled_at(at, keep=keep, agent=background())
            await _check_whole(store)
            if image is None:
                break
            at += 1
    assert at > 20


async def _recovered(image: MemoryStore) -> None:
    before = {head.agent: await order(image, head.agent) for head in await image.agents()}
    agent = family()
    async with System.open(image, agents=[agent]) as system:
        for name in before:
            await (await system.get(name)).wait_idle()
    await _check_whole(image)
    for name, prefix in before.items():
        cancelled = prefix.rfind("TC1") > prefix.rfind("TE1")
        added = (await order(image, name)).removeprefix(prefix)
        if cancelled:
            assert "TR" not in added and "Q" not in added and added.endswith(("TE1{aborted user}", "TE1{aborted parent}"))
