"""What a person sees of a run: a live tree on a terminal, plain lines elsewhere, nothing where a program listens.

The tree shows the lead, the readers at work and the last ones that finished; the others are a number, so that four hundred
files fit on a screen.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from ...storage.events import Event, TurnEnd
from .progress import Board, Row

LAST = 6
"""So many finished readers stay on the screen."""
_MARKS = {"done": ("✓", "green"), "waiting": ("·", "dim")}


class Screen(Protocol):
    """Where progress goes."""

    def show(self, agent: str, event: Event) -> None:
        """An agent's event was committed."""
        ...

    async def run(self) -> None:
        """Draw until cancelled; the last picture stays."""
        ...


class Lines:
    """A line for each thing worth one, for files and pipes; `say` may as well say nothing."""

    def __init__(self, board: Board, say: Callable[[str], None]) -> None:
        self.board, self._say = board, say

    def show(self, agent: str, event: Event) -> None:
        """Fold the event and print its line."""
        line = self.board.apply(agent, event)
        if line:
            self._say(line)

    async def run(self) -> None:
        """Nothing is drawn between two events."""
        await trio.sleep_forever()


class LiveTree:
    """The tree on a terminal, drawn ten times a second: by a task and not by rich's thread, so that nothing changes meanwhile."""

    def __init__(self, board: Board, console: Console) -> None:
        self.board = board
        self._last: deque[str] = deque(maxlen=LAST)
        self._began = time.monotonic()
        self._live = Live(console=console, get_renderable=self.draw, auto_refresh=False)

    def show(self, agent: str, event: Event) -> None:
        """Fold the event; the next drawing shows it."""
        self.board.apply(agent, event)
        if isinstance(event, TurnEnd) and agent != self.board.lead:
            if agent in self._last:
                self._last.remove(agent)
            self._last.append(agent)

    def draw(self) -> Group:
        """The tree as it is now."""
        board = self.board
        tree = Tree(_label(board.rows[board.lead], "lead"), guide_style="dim")
        active = [row for row in board.readers if row.active]
        last = [row for agent in self._last if not (row := board.rows[agent]).active]
        others = max(board.finished - len(last), 0)
        if others:
            tree.add(Text(f"✓ {others} readers reported before", style="green dim"))
        for row in [*last, *active]:
            tree.add(_label(row, row.what or row.agent))
        readers = max(board.files, len(board.rows) - 1)
        total = Text(
            f"{board.finished} of {readers} readers done · {board.steps:,} steps · {board.spent:,} tokens · "
            f"{time.monotonic() - self._began:.0f} s",
            style="dim",
        )
        return Group(tree, total)

    async def run(self) -> None:
        """Draw until cancelled; the last picture stays on the terminal."""
        with self._live:
            try:
                while True:
                    await trio.sleep(0.1)
                    self._live.refresh()
            finally:
                self._live.refresh()


def _label(row: Row, name: str) -> Text:
    mark, style = _MARKS.get(row.state, ("✗", "red") if row.state.startswith("ended") else ("▸", "cyan"))
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{mark} ", style=style)
    text.append(name, style="bold" if row.active else "")
    text.append(f"  {row.state}", style=style)
    text.append(f"  {row.step_count} steps, {len(row.calls)} calls, {row.spent:,} tokens", style="dim")
    return text
