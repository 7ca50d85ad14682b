"""The terminal: raw mode, the keys that come from it, and one painter that draws on it.

Whatever happens, leaving the block gives the terminal back as it was. Reading waits for the file descriptor and never makes it
non-blocking: it is the same open file as the output, and a print of somebody else's would fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager

import trio

from .editor import Editor
from .flow import Flow
from .frame import MOST_ROWS, Frame, region
from .keys import PASTE_OFF, PASTE_ON, Key, Keys

FRAME_S = 1 / 30
"""Seconds between two drawings at least: a fast model must not keep a slow terminal busy."""


class Terminal:
    """What stands on the screen, and what is typed."""

    def __init__(self, *, colour: bool) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout
        self.editor = Editor()
        self.flow = Flow(_size()[0])
        self.status = ""
        self._frame = Frame(colour=colour)
        self._changed = trio.Event()
        self._keys = Keys()

    def show(self, style: str, text: str, *, fresh: bool = False) -> None:
        """Show text: where the last ended or, `fresh`, on rows of its own."""
        if fresh:
            self.flow.fresh()
        self.flow.add(style, text)
        if fresh:
            self.flow.fresh()
        self.changed()

    def changed(self) -> None:
        """Something is to be drawn."""
        self._changed.set()

    async def keys(self) -> list[Key]:
        """The next keys; none at the end of the input."""
        while True:
            await trio.lowlevel.wait_readable(self._in)
            data = os.read(self._in, 4096)
            if not data:
                return []
            keys = list(self._keys.feed(data))
            if keys:
                return keys

    async def paint(self) -> None:
        """Draw whenever something changed, at most thirty times a second, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            self.draw()
            await trio.sleep(FRAME_S)

    async def resized(self) -> None:
        """Draw when the window has another size, until cancelled."""
        with trio.open_signal_receiver(signal.SIGWINCH) as sizes:
            async for _ in sizes:
                self.changed()

    def draw(self) -> None:
        """Draw now."""
        width, most = _size()
        self.flow.width = width
        below = region(self.flow.open, self.status, self.editor.text, self.editor.at, width, most=most)
        self._write(self._frame.draw(self.flow.take(), below))

    def redraw(self) -> None:
        """Draw on an empty screen: its size changed, or somebody else wrote on it."""
        self._write("\x1b[H\x1b[2J")
        self._frame = Frame(colour=self._frame.colour)
        self.draw()

    def leave(self) -> None:
        """Take the region away; what was said stays."""
        self.flow.fresh()
        self._write(self._frame.leave(self.flow.take()))

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


@contextmanager
def raw_mode() -> Generator[None]:
    """The terminal gives each key at once and shows none; also Ctrl-C is a key."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    raw = termios.tcgetattr(fd)
    raw[0] &= ~(termios.ICRNL | termios.IXON | termios.INLCR | termios.ISTRIP)
    raw[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
    raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
    # At once, not when all output is through: a terminal that is held (Ctrl-S) or that nobody reads would hold up the whole loop.
    termios.tcsetattr(fd, termios.TCSANOW, raw)
    try:
        print(PASTE_ON, end="", flush=True)
        yield
    finally:
        print(PASTE_OFF, end="", flush=True)
        termios.tcsetattr(fd, termios.TCSANOW, before)


def is_terminal() -> bool:
    """Whether a person sits in front of both ends, at a terminal that can be drawn on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def wants_colour() -> bool:
    """Unless NO_COLOR is set to anything (no-color.org)."""
    return not os.environ.get("NO_COLOR")


def _size() -> tuple[int, int]:
    """The width of rows, and how many a message being typed may have."""
    # One column is left free: a row that fills the last one leaves the cursor in a place on which terminals do not agree.
    size = shutil.get_terminal_size()
    return max(size.columns - 1, 10), max(min(MOST_ROWS, size.lines - 3), 1)
