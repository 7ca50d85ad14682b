"""Section 10 of the conformance cases: the trace that every turn leaves in its end, also when something goes wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from helpers import check, events, make, opened, order, say, scripted
from trio.testing import MockClock

from callboard.actors import Answer, Ask, Boundary, Enter, Plugin, Reject, System, ToolContext, tool
from callboard.actors.answers import Command, Stopping
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.actors.turns import turn
from callboard.actors.turns.respond import BLOCKED, EMPTY, FAILED
from callboard.actors.turns.states import BUILD, COMPACT, LONGEST, State, shortened
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.events import TraceEntry
from callboard.storage.store import Store

FIRST = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed}"
ROUTE = {"channel": "irc", "chat": "1"}
Admit = Next[Boundary, Enter | Reject]


async def trace(store: Store) -> list[tuple[str, str | None]]:
    """State and event of each entry of the last turn."""
    return [(entry.state, entry.event) for entry in (await events(store, e.TurnEnd))[-1].trace]


async def replies(store: Store) -> list[str]:
    """What was put for the route."""
    return ["".join(getattr(block, "text", "") for block in put.content) for put in await events(store, e.OutboxPut)]


async def test_c149_a_plain_message_leaves_seven_entries() -> None:
    async with opened(make(scripted("hello"))) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == FIRST
        assert await trace(system.store) == [
            ("RESTORE", "ok"),
            ("COMPACT", "ok"),
            ("COMMAND", "dispatch"),
            ("BUILD", "ok"),
            ("RUN", "ok"),
            ("SAVE", "ok"),
            ("RESPOND", "ok"),
        ]


class Help(Plugin):
    """Answers /help."""

    async def command(self, ctx: SeamContext, command: Command, next: Next[Command, Any]) -> Any:
        return Answer("ask me") if command.text == "/help" else await next(command)


@pytest.mark.parametrize("route", [None, ROUTE])
async def test_c150_a_command_leaves_three_entries(route: dict[str, str] | None) -> None:
    model = scripted()
    async with opened(make(model, plugins=[Help()])) as (system, ref):
        await say(ref, "/help", route=route)
        end = " out" if route else ""
        assert await order(system.store) == f"put[t](/help) TS1 claim(/help) cmd cmdres TE1{{completed}}{end}"
        assert await trace(system.store) == [("RESTORE", "ok"), ("COMPACT", "ok"), ("COMMAND", "shortcut")]
        assert await replies(system.store) == (["ask me"] if route else [])
    assert model.requests == []


class Verdict(Plugin):
    """Answers each boundary alike."""

    def __init__(self, verdict: Enter | Reject) -> None:
        self.verdict = verdict

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Admit) -> Enter | Reject:
        return self.verdict


@pytest.mark.parametrize(
    ("verdict", "event", "end", "reply"),
    [(Reject("no"), "blocked", "blocked", BLOCKED), (Enter(()), "empty", "completed", EMPTY)],
)
async def test_c150_blocked_and_empty_turns_leave_six(verdict: Enter | Reject, event: str, end: str, reply: str) -> None:
    async with opened(make(scripted(), plugins=[Verdict(verdict)])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        assert await order(system.store) == f"put[t](hi) TS1 claim(hi) TE1{{{end}}} out"
        assert await trace(system.store) == [
            ("RESTORE", "ok"),
            ("COMPACT", "ok"),
            ("COMMAND", "dispatch"),
            ("BUILD", event),
            ("SAVE", "ok"),
            ("RESPOND", "ok"),
        ]
        assert await replies(system.store) == [reply]


@pytest.mark.parametrize("route", [None, ROUTE])
async def test_c151_a_model_that_raises_is_the_last_entry(route: dict[str, str] | None) -> None:
    async with opened(make(scripted(Reply.fail("QUOTA", "no money")))) as (system, ref):
        await say(ref, "hi", route=route)
        end = " out" if route else ""
        assert await order(system.store) == (
            f"put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{{initial}} X Q1 F1{{raise}} SE TE1{{error}}{end}"
        )
        assert await trace(system.store) == [
            ("RESTORE", "ok"),
            ("COMPACT", "ok"),
            ("COMMAND", "dispatch"),
            ("BUILD", "ok"),
            ("RUN", None),
        ]
        (turn_end,) = await events(system.store, e.TurnEnd)
        assert (turn_end.trace[-1].error, turn_end.trace[-1].text) == ("ModelError", "no money")
        assert turn_end.delivery == ("put" if route else "none")
        assert await replies(system.store) == ([FAILED] if route else [])


def handlers() -> dict[State, Callable[[Any], Awaitable[str]]]:
    """The handlers of the running loop."""
    found: dict[State, Callable[[Any], Awaitable[str]]] = vars(turn)["_HANDLERS"]
    return found


async def test_c152_an_event_outside_the_table_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sideways(_: Any) -> str:
        return "sideways"

    monkeypatch.setitem(handlers(), BUILD, sideways)
    async with opened(make(scripted())) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == "put[t](hi) TS1 claim(hi) TE1{error}"
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored)
        assert end.reason.error.code == "TURN_TABLE"
        for word in ("turn 1", "BUILD", "'sideways'"):
            assert word in end.reason.error.message
        assert await trace(system.store) == [("RESTORE", "ok"), ("COMPACT", "ok"), ("COMMAND", "dispatch"), ("BUILD", "sideways")]


async def test_c152_a_state_without_a_handler_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(handlers(), COMPACT)
    async with opened(make(scripted())) as (system, ref):
        await say(ref, "hi")
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored)
        assert "turn 1: state COMPACT has no handler" in end.reason.error.message


async def test_c153_a_trace_reads_the_same_after_a_restart(tmp_path: Path) -> None:
    agent = make(scripted("hello"))
    async with System.open(tmp_path / "state", agents=[agent]) as system:
        await say(await system.spawn(agent, id="a"), "hi")
        (before,) = await events(system.store, e.TurnEnd)
    async with System.open(tmp_path / "state", agents=[agent]) as system:
        await system.get("a")
        (after,) = await events(system.store, e.TurnEnd)
        assert after.trace == before.trace
        assert all(entry.us >= 0 and entry.start > 1_600_000_000_000 for entry in after.trace)
        assert await order(system.store) == FIRST
        await check(system.store)


async def taken_up(image: MemoryStore, *script: Any) -> tuple[str, list[tuple[str, str | None]]]:
    """What a start over the image adds, and the trace of the turn that it takes up."""
    model = scripted(*script)
    before = await order(image)
    async with opened(make(model), image) as (system, ref):
        await ref.wait_idle()
        model.assert_used_up()
        return (await order(system.store))[len(before) + 1 :], await trace(system.store)


async def test_c154_a_turn_taken_up_in_a_step_goes_on_in_run() -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.hang())), store) as (_, ref):
        await ref.followup("hi", message_id="hi")
        await trio.testing.wait_all_tasks_blocked()
        image = store.copy()
        await ref.cancel()
        await ref.wait_idle()
    added, entries = await taken_up(image, "hello")
    assert added == "TR1 F1{retry} H{resume} Q2 C* A SE TE1{completed}"
    assert entries == [("RESTORE", "taken-up"), ("RUN", "ok"), ("SAVE", "ok"), ("RESPOND", "ok")]


class Copies(Plugin):
    """Takes the image of a crash in a seam, once what was appended before has reached the disk by itself."""

    def __init__(self, store: MemoryStore, seam: str) -> None:
        self.store, self.seam = store, seam
        self.image: MemoryStore | None = None

    async def _copy(self, seam: str) -> None:
        if seam == self.seam:
            await trio.sleep(1)
            self.image = self.store.copy()

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Admit) -> Enter | Reject:
        await self._copy("pre_step")
        return await next(boundary)

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
        await self._copy("turn_stopping")


@pytest.mark.parametrize(
    ("seam", "script", "added", "entries"),
    [
        (
            "turn_stopping",
            [],
            "TR1 TE1{completed}",
            [("RESTORE", "answered"), ("SAVE", "ok"), ("RESPOND", "ok")],
        ),
        (
            "pre_step",
            ["hello"],
            "TR1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed}",
            [
                ("RESTORE", "ok"),
                ("COMPACT", "ok"),
                ("COMMAND", "dispatch"),
                ("BUILD", "ok"),
                ("RUN", "ok"),
                ("SAVE", "ok"),
                ("RESPOND", "ok"),
            ],
        ),
    ],
)
async def test_c154_after_the_answer_and_before_the_step(
    seam: str, script: list[str], added: str, entries: list[tuple[str, str]], autojump_clock: MockClock
) -> None:
    store = MemoryStore()
    copies = Copies(store, seam)
    async with opened(make(scripted("hello"), plugins=[copies]), store) as (_, ref):
        await say(ref, "hi")
    assert copies.image is not None
    assert await taken_up(copies.image, *script) == (added, entries)


BEGUN = [("RESTORE", "ok"), ("COMPACT", "ok"), ("COMMAND", "dispatch"), ("BUILD", "ok"), ("RUN", None)]
GONE_ON = [("RESTORE", "taken-up"), ("RUN", "ok"), ("SAVE", "ok"), ("RESPOND", "ok")]


async def test_c154_a_turn_that_a_close_suspends_keeps_the_walk_before_it() -> None:
    store, agent = MemoryStore(), make(scripted(Reply.hang(), Reply.hang(), "hello"))
    for _ in range(2):
        async with System.open(store, agents=[agent], grace=0) as system:
            await (await system.spawn(agent, id="a")).followup("hi", message_id="hi")
            await trio.testing.wait_all_tasks_blocked()
    suspended = [event.trace for event in await events(store, e.TurnSuspend)]
    assert [len(entries) for entries in suspended] == [5, 7] and suspended[1][:5] == suspended[0]
    async with opened(agent, store) as (_, ref):
        await ref.wait_idle()
    assert await trace(store) == [*BEGUN, GONE_ON[0], ("RUN", None), *GONE_ON]
    (end,) = await events(store, e.TurnEnd)
    assert end.trace[:7] == suspended[1]
    cut = [(entry.error, entry.text) for entry in end.trace if entry.event is None]
    assert cut == [("Cancelled", None)] * 2, "and not which task of the process cancelled it, by its address"


@pytest.mark.parametrize("close", [False, True], ids=["answered in the same process", "answered after a restart"])
@pytest.mark.parametrize("waits_s", [150, 1000], ids=["in memory", "dropped from memory"])
async def test_c154_a_turn_that_slept_until_a_person_answered_keeps_the_walk_before_it(
    waits_s: float, close: bool, autojump_clock: MockClock
) -> None:
    @tool(approval=lambda ctx, call: Ask("May it?"))
    async def sign(ctx: ToolContext[Any]) -> str:
        """Sign."""
        return "signed"

    store, agent = MemoryStore(), make(scripted(Reply.tools(("s", "sign", {})), "hello"), tools=[sign])
    options: dict[str, Any] = {"agents": [agent], "idle_after": 80 if waits_s == 150 else 30}

    async def answer(system: System) -> None:
        async for question in system.approvals():
            await system.answer(question.id, "allow", by="ann")
        await (await system.get("a")).wait_idle()

    async with System.open(store, **options) as system:
        await (await system.spawn(agent, id="a")).followup("hi", message_id="hi")
        await trio.sleep(waits_s)
        assert (system.statistics()["agents"] == 0) == (waits_s == 1000)
        if not close:
            await answer(system)
    if close:
        async with System.open(store, **options) as system:
            await answer(system)
    kept = not close or waits_s == 150  # a close opens nobody to write down what it walked
    assert await trace(store) == [*(BEGUN if kept else []), *GONE_ON]
    await check(store)


def test_a_turn_that_is_taken_up_for_ever_keeps_its_beginning_and_what_came_last() -> None:
    entries = [TraceEntry("RUN", number, 0) for number in range(1000)]
    kept = [entry.start for entry in shortened(entries)]
    assert kept == [*range(8), *range(1000 - LONGEST + 8, 1000)] and len(kept) == LONGEST
    assert shortened(entries[:LONGEST]) == entries[:LONGEST]
