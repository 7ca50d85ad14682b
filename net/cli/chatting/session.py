"""A person at a terminal: what is typed goes to the agent, what the agent does is shown, at the same time.

A message typed while a turn runs is steered into it. Ctrl-C stops the turn and keeps what waits; a second one leaves. Leaving, or
being killed, loses nothing: an open turn is shown from its beginning when one comes back, and goes on.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import trio

from ....actors.content import mint_id
from ....actors.ref import AgentRef
from ....actors.system import System
from ....storage.errors import CallboardError
from .editor import Submit
from .keys import Key
from .recent import recent, where_it_stands
from .terminal import Terminal, raw_mode
from .transcript import SEEN, Piece, Transcript

HISTORY = 6
"""Texts that are shown to whoever comes back."""
TICK_S = 0.5
PATIENCE_S = 5
"""Seconds that leaving waits for what was typed to be accepted."""
STYLES = {"reasoning": "dim", "tool": "tool", "result": "dim", "discard": "error", "note": "dim", "message": "bold"}
MARKS = {"tool": "· ", "result": "  → ", "message": "> ", "question": "? "}
HINT = "/help lists the commands. A line typed while an answer runs is read with it. Ctrl-C stops the answer, Ctrl-D leaves."


class Session:
    """One conversation on one terminal."""

    def __init__(self, system: System, ref: AgentRef[Any], terminal: Terminal, *, model: str, about: str) -> None:
        self._system, self._ref, self._terminal = system, ref, terminal
        self._model, self._about = model, about
        self._transcript = Transcript()
        self._last: str | None = None
        self._armed = False
        """Whether the next Ctrl-C leaves."""
        self._used = 0
        self._outgoing, self._to_send = trio.open_memory_channel[str](math.inf)

    async def run(self) -> None:
        """Talk until the person leaves."""
        with raw_mode(), _LogLines(self._note):
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._terminal.paint)
                    nursery.start_soon(self._terminal.resized)
                    nursery.start_soon(self._watch, await self._welcome())
                    nursery.start_soon(self._tick)
                    nursery.start_soon(self._type, nursery.cancel_scope)
                    await self._send_all()
                    nursery.cancel_scope.cancel()
            finally:
                self._terminal.leave()

    # -- what is shown

    async def _welcome(self) -> int:
        """Say where the conversation stands; the seq behind which to follow it."""
        self._used = (await self._ref.info()).usage.total
        after, is_open = await where_it_stands(self._ref)
        for line in (self._about, HINT):
            self._show(Piece("note", line))
        for piece in await recent(self._ref, after, HISTORY):
            self._show(piece)
        await self._say_what_waits()
        if is_open:
            self._note("This is where it was:")
        self._update()
        return after

    async def _say_what_waits(self) -> None:
        parked = (await self._ref.info()).parked
        if parked:
            self._note(f"{parked} {'message waits' if parked == 1 else 'messages wait'} for your next one.")

    async def _watch(self, after: int) -> None:
        async for record in self._ref.follow(after, SEEN):
            for piece in self._transcript.feed(record):
                self._show(piece)
            self._update()

    def _show(self, piece: Piece) -> None:
        style = "error" if piece.failed else STYLES.get(piece.kind, "")
        text = piece.text.strip("\n") if not piece.streams else piece.text
        if piece.streams:
            if self._last != piece.kind:
                self._terminal.flow.fresh()
                text = text.lstrip(" ")
            self._terminal.show(style, text)
        else:
            if text or piece.kind == "end":
                self._terminal.flow.fresh()
            if text:
                self._terminal.show(style, f"{MARKS.get(piece.kind, '')}{text}", fresh=True)
            if piece.kind == "command" or (piece.kind == "end" and (text or self._last != "command")):
                self._terminal.show("", "\n")
        self._last = piece.kind

    def _note(self, text: str) -> None:
        self._show(Piece("note", text))

    # -- the line about the state

    async def _tick(self) -> None:
        while True:
            await trio.sleep(TICK_S)
            if self._transcript.turn is not None:
                self._update()

    def _update(self) -> None:
        seen = self._transcript
        state = "idle"
        if seen.questions:
            state = "asks you: /allow or /deny"
        elif seen.turn is not None:
            state = f"turn {seen.turn}, {max(time.time() - seen.began / 1000, 0):.0f} s"
        self._terminal.status = f"{self._ref.id} · {self._model} · {state} · {self._used + seen.tokens:,} tokens"
        self._terminal.changed()

    # -- what is typed

    async def _type(self, leave: trio.CancelScope) -> None:
        """Take keys until one of them leaves; what was typed before that is still sent."""
        while keys := await self._terminal.keys():
            for key in keys:
                if await self._leaves(key):
                    self._outgoing.close()
                    leave.deadline = trio.current_time() + PATIENCE_S
                    return
            self._terminal.changed()
        self._outgoing.close()

    async def _send_all(self) -> None:
        """Send what was typed, in order and beside the typing: an agent that is slow to accept keeps no key waiting."""
        async for text in self._to_send:
            await self._guarded(self._send, text)

    async def _leaves(self, key: Key) -> bool:
        wish = self._terminal.editor.feed(key)
        if wish == "interrupt":
            return await self._interrupt()
        self._armed = False
        if wish == "redraw":
            self._terminal.redraw()
        elif isinstance(wish, Submit):
            if wish.text.strip().lower() in ("/quit", "/exit"):
                return True
            self._outgoing.send_nowait(wish.text)
        return wish == "end"

    async def _interrupt(self) -> bool:
        if self._armed:
            return True
        if self._ref.status == "running":
            self._armed = True
            await self._guarded(self._stop)
            self._note("Ctrl-C again leaves.")
        elif self._terminal.editor.text:
            self._terminal.editor.clear()
        else:
            self._armed = True
            self._note("Ctrl-C again leaves.")
        return False

    async def _stop(self) -> None:
        await self._ref.cancel("user", keep_inbox=True)
        await self._say_what_waits()

    async def _guarded(self, call: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """What cannot be done is said, and the conversation goes on."""
        try:
            await call(*arguments)
        except CallboardError as error:
            self._show(Piece("note", error.message, failed=True))

    async def _send(self, text: str) -> None:
        word, _, rest = text.strip().partition(" ")
        if word.lower() in ("/allow", "/deny") and self._transcript.questions:
            await self._answer(word.lower(), rest.strip())
            return
        message_id = mint_id()
        self._transcript.sent.add(message_id)
        self._show(Piece("message", text))
        steers = self._ref.status == "running" and not text.lstrip().startswith("/")
        send = self._ref.steer if steers else self._ref.followup
        await send(text, message_id=message_id)

    async def _answer(self, word: str, text: str) -> None:
        question = next(iter(self._transcript.questions))
        verdict: Literal["allow", "deny"] = "allow" if word == "/allow" else "deny"
        await self._system.answer(question, verdict, by="terminal", text=text or None)


class _LogLines(logging.Handler):
    """Warnings of the runtime, shown as notes: printed by themselves they would tear the screen."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Show the message."""
        self._show(record.getMessage())

    def __enter__(self) -> None:
        logging.getLogger("callboard").addHandler(self)

    def __exit__(self, *raised: object) -> None:
        logging.getLogger("callboard").removeHandler(self)
