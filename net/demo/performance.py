"""The run itself: open the store, wait for the lead, and say what became of it. Durable at every point.

The lead's id and its message's id are chosen, so running the demo again is asking again: a turn that a kill interrupted is
taken up when the store opens, one that is over answers at once. Only when a turn ended badly (a full disk, say) is the lead
told to go on, under the next id; it goes on where it was, since it decides from its whole history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ...actors.agent import Agent
from ...actors.ref import AgentRef
from ...actors.seams import Plugin, SeamContext
from ...actors.system import System
from ...actors.values import Outcome, explain
from ...storage.errors import TurnFailed
from ...storage.events import Event, UserMessage
from ...storage.records import Record
from ...storage.store import Store
from .answers import WrittenAnswer
from .cast import cast
from .dialogue import read_dialogue
from .lead import go_text
from .progress import Board
from .screen import Screen
from .tools import FOLDER, REPORT, Stage, replace_file

LIMIT = "limit"
GRACE_S = 5.0
"""How long a close waits for the screen to have seen everything; an interrupt does not wait at all."""
Status = Literal["written", "done before", "written again", "done before, changed since"]


class Plan(Struct, frozen=True):
    """What is asked for: the folder, where to keep the state, what to write, how much to read, how fast to speak."""

    folder: Path
    state: Path
    report: Path
    limit: int
    pace: float = 0.0

    @property
    def labels(self) -> dict[str, str]:
        """What makes this run this run: the same labels again go on with it."""
        return {FOLDER: str(self.folder), REPORT: str(self.report), LIMIT: str(self.limit)}


class Done(Struct, frozen=True):
    """What became of it."""

    status: Status
    lead: str
    said: str
    bytes: int
    sha256: str


class Watch(Plugin):
    """Hands every committed event to the screen."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    async def on_event(self, ctx: SeamContext, value: Record) -> None:
        """Show it, as long as somebody reads: that nobody does is said once, by the command, when it has ended."""
        if isinstance(value.event, Event):
            with suppress(BrokenPipeError):
                self.screen.show(ctx.id, value.event)


async def lead_of(store: Store, labels: Mapping[str, str]) -> tuple[str, bool]:
    """The id of the lead of this run, and whether its turn is over: `demo`, or the next free one if that is another run's."""
    number = 1
    while True:
        agent = "demo" if number == 1 else f"demo-{number}"
        head = await store.head(agent)
        if head is None:
            return agent, False
        if head.summary.labels == dict(labels):
            return agent, head.summary.turn > 0 and not head.summary.attention
        number += 1


async def perform(system: System, plan: Plan, lead: Agent[Any, str], agent: str, *, over: bool) -> Done:
    """Have the lead do its work, or learn that it is done.

    Raises:
        TurnFailed: the lead's turn ended badly; running the demo again goes on.
    """
    ref = await system.spawn(lead, id=agent, labels=plan.labels)
    number = 1
    while True:
        message_id = "go" if number == 1 else f"go-{number}"
        settled = over and await system.store.find(agent, message_id) is not None
        outcome: Outcome[str] = await ref.ask(go_text(plan.limit), message_id=message_id)
        found = await _written(ref) if outcome.ok else None
        if found is not None:
            answer, text = found
            return Done(_status(plan.report, text, settled=settled), agent, outcome.text, answer.bytes, answer.sha256)
        if not settled:
            raise TurnFailed(_why(agent, outcome), outcome=outcome, agent=agent, turn=outcome.turn)
        number += 1


async def _written(ref: AgentRef[Any]) -> tuple[WrittenAnswer, str] | None:
    """What the lead's log says was written."""
    call = read_dialogue(await ref.messages()).answered("write_report")
    answer = call.read(WrittenAnswer) if call else None
    return (answer, str(call.arguments["text"])) if call and answer else None


def _status(report: Path, text: str, *, settled: bool) -> Status:
    if not report.exists():
        replace_file(report, text.encode())
        return "written again"
    if not settled:
        return "written"
    same = hashlib.sha256(report.read_bytes()).digest() == hashlib.sha256(text.encode()).digest()
    return "done before" if same else "done before, changed since"


def _why(agent: str, outcome: Outcome[str]) -> str:
    if outcome.ok:
        return outcome.text
    return f"the turn of {agent} {explain(outcome.reason)}; run the demo again to go on"


def open_system(plan: Plan, screen: Screen) -> tuple[Agent[Any, str], Any]:
    """The lead's definition, and the System over the plan's state (to be entered)."""
    lead, reader = cast(pace=plan.pace)
    return lead, System.open(
        str(plan.state), agents=[lead, reader], plugins=[Watch(screen)], deps=Stage(plan.state), grace=GRACE_S
    )


async def remember(store: Store, board: Board) -> None:
    """Tell the board what the index knows from before."""
    after: str | None = None
    while page := await store.agents(prefix=board.lead + "/", after=after):
        for head in page:
            board.known(head.agent, running=head.summary.open, tokens=head.summary.usage.total)
            if head.summary.open:
                await _remember_task(store, board, head.agent)
        after = page[-1].agent


async def _remember_task(store: Store, board: Board, agent: str) -> None:
    """What a reader that goes on reads: its task is not told again."""
    async for record in store.read(agent, types=("user/message",)):
        if isinstance(record.event, UserMessage):
            board.apply(agent, record.event)
        break
