"""One way to print: text for people, or JSON and nothing but JSON, one value a line.

Text that comes from logs may hold anything, also control sequences that would steer the terminal; people get them escaped.
"""

from __future__ import annotations

import re
import sys
import time
from typing import Any, TextIO

import msgspec

from .problems import Problem

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """The text with everything escaped that could steer a terminal; line ends and tabs stay."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text)


class Output:
    """Where a command prints to. `json`: for programs, and then nothing else is printed on standard output."""

    def __init__(self, *, json: bool = False, stream: TextIO | None = None, errors: TextIO | None = None) -> None:
        self.json = json
        self.stream = stream or sys.stdout
        self.errors = errors or sys.stderr
        self._shown = 0.0

    @property
    def terminal(self) -> bool:
        """Whether a person watches: a terminal, and text."""
        return not self.json and self.stream.isatty()

    def text(self, text: str, *, end: str = "\n") -> None:
        """A line for people; nothing for programs."""
        if not self.json:
            self.stream.write(plain(text) + end)
            self.stream.flush()

    def value(self, value: Any) -> None:
        """A value for programs; nothing for people."""
        if self.json:
            self.raw(msgspec.json.encode(value))

    def raw(self, line: bytes) -> None:
        """A line of JSON that is encoded already."""
        self.stream.write(line.decode() + "\n")

    def notice(self, text: str) -> None:
        """A line for people beside the result, on standard error; nothing for programs."""
        if not self.json:
            self.errors.write(plain(text) + "\n")
            self.errors.flush()

    def progress(self, text: str) -> None:
        """How far long work is: one line that replaces itself, ten times a second, only where a person watches; "" ends it."""
        now = time.monotonic()
        if self.terminal and self.errors.isatty() and (not text or now - self._shown >= 0.1):
            self._shown = now
            self.errors.write(f"\r\x1b[K{plain(text)}")
            self.errors.flush()

    def problem(self, problem: Problem) -> None:
        """An error: a sentence on standard error, or a JSON object in the place of the result."""
        if self.json:
            self.value({"error": problem})
        else:
            self.errors.write(f"callboard: {plain(problem.message)}\n")
        self.flush()

    def flush(self) -> None:
        """Hand everything to the system."""
        self.stream.flush()
        self.errors.flush()
