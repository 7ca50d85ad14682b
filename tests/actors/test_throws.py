"""What a throw in a seam does is what the table of docs/plugins.md says: the table is read, and every seam is made to throw.

One scene serves all seams: a message comes with a route, the model calls a tool and then answers. Where a seam is not reached
by that, the prompt is a command, or the model fails. Then it is looked up how the turn ended, which records hold the throw's own
words, and who else came to read them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers import check, make, records, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors.answers import LimitReached
from callboard.actors.seams import SEAMS, Plugin
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import tool
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import InputRefused
from callboard.storage.records import Record, to_json

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plugins.md"
WORDS = "the plugin broke"
"""What the throw says; nothing else in the scene says it."""


def table() -> dict[str, list[str]]:
    """Seam → the other cells of its row: the turn's end, the records, the readers, and the end after `LimitReached`."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## When a plugin throws\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", section, re.MULTILINE)
    return {seam: [cell.strip() for cell in cells.split("|")] for seam, cells in rows}


def throwing(seam: str, error: Exception) -> Plugin:
    """A plugin that throws in this seam and nowhere else."""

    async def throws(*given: Any) -> Any:
        raise error

    async def stream(*given: Any) -> AsyncIterator[Any]:
        if given:
            raise error
        yield

    plugin: Plugin = type("Throws", (Plugin,), {seam: stream if seam == "stream" else throws})()
    return plugin


@tool
async def look() -> str:
    """Look."""
    return "seen"


class Scene:
    """The scene with a plugin that throws, and what became of it."""

    def __init__(self, seam: str, error: Exception) -> None:
        self.seam, self.plugin, self.store = seam, throwing(seam, error), MemoryStore()
        fails = seam in ("request_error", "on_error")
        self.model = scripted(Reply.fail("SERVER")) if fails else scripted(Reply.tools(("c1", "look", "")), "Done.")
        self.log: list[Record] = []
        self.said: dict[str, str] = {}

    async def play(self) -> None:
        """From open to close."""
        agent = make(self.model, tools=[look])
        try:
            async with System.open(self.store, agents=[agent], plugins=[self.plugin]) as system:
                await self._write(await system.spawn(agent, id="a"))
        except Exception as error:
            if self.seam != "on_start":
                raise
            self._hear("who opens the system", str(error))
        await check(self.store)
        if await self.store.head("a") is not None:
            self.log = await records(self.store)
        self._hear("the model", "".join(message.text for request in self.model.requests for message in request.messages))

    async def _write(self, ref: Any) -> None:
        try:
            outcome = await ref.ask("/look" if self.seam == "command" else "Look.", route={"channel": "desk", "chat": "1"})
            self._hear("who asked", f"{outcome.text} {outcome.reason}")
        except InputRefused as error:
            self._hear("the sender", str(error))
        await ref.wait_idle()
        await wait_all_tasks_blocked()

    def _hear(self, who: str, text: str) -> None:
        self.said[who] = self.said.get(who, "") + text

    def end(self) -> str:
        """How the turn ended."""
        ends = [f"`{record.event.reason.kind}`" for record in self.log if isinstance(record.event, e.TurnEnd)]
        return ends[0] if ends else "no turn"

    def written(self) -> str:
        """The types of the records that hold the throw's words."""
        found = {f"`{record.type}`": None for record in self.log if WORDS in to_json(record).decode()}
        return ", ".join(found) or "nothing"

    def readers(self, process_log: str) -> str:
        """Everybody else who came to read them."""
        said = {**self.said, "the process's log": process_log}
        return ", ".join(who for who, text in said.items() if WORDS in text) or "nobody"


async def play(seam: str, error: Exception) -> Scene:
    scene = Scene(seam, error)
    await scene.play()
    return scene


def test_the_table_has_a_row_for_every_seam() -> None:
    assert set(table()) == SEAMS


@pytest.mark.parametrize("seam", sorted(SEAMS))
async def test_a_throw_does_what_the_table_says(seam: str, caplog: pytest.LogCaptureFixture) -> None:
    scene = await play(seam, RuntimeError(WORDS))
    limited = await play(seam, LimitReached("patience", "enough"))
    measured = [scene.end(), scene.written(), scene.readers(caplog.text), limited.end()]
    assert measured == table().get(seam), f"{seam}: {measured}"
