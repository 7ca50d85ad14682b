"""A command that a log left without its result: written by hand here, since the runtime writes the two as one."""

from __future__ import annotations

from typing import Any

from helpers import check, events, make, order, scripted

from callboard.actors.answers import Answer, Command, Replace
from callboard.actors.seams import Next, Plugin, SeamContext
from callboard.actors.system import System
from callboard.storage import events as e
from callboard.storage.conformance_kit import batch, write
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Message, TextBlock
from callboard.storage.records import Record
from callboard.storage.store import Summary

ROUTE = e.Route(channel="desk", chat="1")


class Pays(Plugin):
    """`/pay` must not run twice."""

    def __init__(self) -> None:
        self.paid = 0

    async def command(self, ctx: SeamContext, command: Command, next: Next[Command, Answer | Replace | None]) -> Any:
        self.paid += 1
        return Answer("paid")


async def left() -> MemoryStore:
    """A store whose agent ran `/pay` when the process ended."""
    store = MemoryStore()
    message = Message("m", "user", (TextBlock("/pay"),))
    ran: list[e.Event] = [
        e.LogCreated(format=1, agent="a", name="demo"),
        e.InboxPut(message=message, lane="next-turn", route=ROUTE),
        e.TurnStart(turn=1, route=ROUTE),
        e.InboxClaim(turn=1, ids=("m",)),
        e.CommandRun(id="m", name="/pay"),
    ]
    log = [Record(seq, 1000, event) for seq, event in enumerate(ran)]
    summary = Summary(name="demo", turn=1, open=True)
    await write(store, [batch("a", await store.own("a"), log, ids={"m": 1}, summary=summary)])
    return store


async def test_its_outcome_is_unknown_and_it_does_not_run_again() -> None:
    store, pays, model = await left(), Pays(), scripted()
    agent = make(model, plugins=[pays])
    async with System.open(store, agents=[agent]) as system:
        outcome = await (await system.get("a")).outcome("m")
    assert pays.paid == 0
    assert "whether it took effect is unknown" in outcome.text
    assert (await order(store)).endswith("TS1 claim(/pay) cmd TR1 cmdres{error} TE1{completed} out")
    (result,) = await events(store, e.CommandResult)
    assert result.error is not None
    assert (result.error.code, model.requests) == ("OUTCOME_UNKNOWN", [])
    await check(store)
