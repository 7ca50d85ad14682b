"""Who does what in a run of the demo, folded from committed events: the tree that a person watches. Pure.

It knows only what the log says, so after a kill it starts from what the index knows and goes on; it never guesses. A record
may be seen twice after a restart, so everything here is set or counted per turn and step, never blindly added.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...storage import events as e
from .findings import path_in


class Row(msgspec.Struct):
    """One agent: what it is for, what it does now, and what it has spent."""

    agent: str
    what: str = ""
    state: str = "waiting"
    turn: int = 0
    steps: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    """Steps by turn."""
    calls: set[str] = msgspec.field(default_factory=set[str])
    tokens: dict[tuple[int, int], int] = msgspec.field(default_factory=dict[tuple[int, int], int])
    """Tokens by turn and step."""
    before: tuple[int, int] = (0, 0)
    """Steps and tokens of turns that were over when this process began."""

    @property
    def step_count(self) -> int:
        """Steps in all turns."""
        return self.before[0] + sum(self.steps.values())

    @property
    def spent(self) -> int:
        """Tokens in all turns."""
        return self.before[1] + sum(self.tokens.values())

    @property
    def active(self) -> bool:
        """Whether a turn is open."""
        return self.state not in ("waiting", "done") and not self.state.startswith("ended")


class Board:
    """All agents of one lead, in order of their ids' appearance. `apply` folds one event and says what is worth a line."""

    def __init__(self, lead: str, *, files: int = 0) -> None:
        self.lead, self.files = lead, files
        self.rows: dict[str, Row] = {lead: Row(lead, "lead")}

    def known(self, agent: str, *, running: bool, tokens: int) -> None:
        """An agent that the index knows from before."""
        row = self._row(agent)
        row.before = (row.before[0], tokens)
        row.state = "going on" if running else "done"

    def apply(self, agent: str, event: e.Event) -> str | None:
        """Fold one event; the line it is worth for somebody who reads along, or None."""
        if agent != self.lead and not agent.startswith(self.lead + "/"):
            return None
        row = self._row(agent)
        match event:
            case e.TurnStart() | e.TurnResume():
                row.turn, row.state = event.turn, "starting"
                return f"{self._name(row)} goes on" if isinstance(event, e.TurnResume) else None
            case e.UserMessage():
                row.what = path_in(event.message.text) or row.what
                return f"{self._name(row)} starts" if row.turn == 1 else f"{self._name(row)} is asked back"
            case e.StepStart():
                row.steps[event.turn] = max(row.steps.get(event.turn, 0), event.step)
            case e.RequestSent():
                row.state = "thinking"
            case e.AssistantMessage() if event.usage:
                row.tokens[event.turn, event.step] = event.usage.total
            case e.ToolCalled():
                row.state = "waiting for readers" if event.name == "reader" else event.name.replace("_", " ")
                row.calls.add(event.call_id)
            case e.TurnEnd():
                return self._ended(row, event)
            case _:
                pass
        return None

    def _ended(self, row: Row, event: e.TurnEnd) -> str:
        kind = e.kind_of(event.reason)
        row.state = "done" if kind == "completed" else f"ended: {kind}"
        return f"{self._name(row)}: {row.state}, {row.step_count} steps, {row.spent:,} tokens"

    def _row(self, agent: str) -> Row:
        return self.rows.setdefault(agent, Row(agent))

    def _name(self, row: Row) -> str:
        return "lead" if row.agent == self.lead else f"reader of {row.what or row.agent}"

    @property
    def readers(self) -> Iterator[Row]:
        """All but the lead."""
        return (row for row in self.rows.values() if row.agent != self.lead)

    @property
    def finished(self) -> int:
        """How many readers have reported."""
        return sum(row.state == "done" for row in self.readers)

    @property
    def spent(self) -> int:
        """Tokens of the whole tree."""
        return sum(row.spent for row in self.rows.values())

    @property
    def steps(self) -> int:
        """Steps of the whole tree."""
        return sum(row.step_count for row in self.rows.values())
