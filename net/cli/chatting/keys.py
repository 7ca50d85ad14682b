"""From what a terminal sends to keys. Pure.

A key is a text: the character itself, or a name such as `left`, `enter`, `ctrl-c`. What was pasted comes whole, as one
`Paste`: terminals put marks around it when they are asked to, so that a line end in it does not send it. A sequence that is cut
between two reads waits for its rest; one that nobody knows is dropped, and never shown as garbage.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple


class Paste(NamedTuple):
    """What was pasted, with line ends as `\\n`."""

    text: str


Key = str | Paste

PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
"""Ask a terminal to mark what is pasted, and not to any more."""
_BEGIN, _END = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?<=>]*[ -/]*[@-~]|O[ -~]|[^\[O])", re.DOTALL)
_PARTIAL = re.compile(r"\x1b(?:\[[0-9;?<=>]*[ -/]*|O)?\Z")
_LONGEST = 64
"""A sequence that is longer is none."""
_NAMES = {
    "\r": "enter",
    "\n": "newline",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b\r": "newline",
    "\x1b\n": "newline",
    "\x1b\x7f": "ctrl-w",
    "\x1bb": "word-left",
    "\x1bf": "word-right",
}
_FINALS = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
    "1~": "home",
    "3~": "delete",
    "4~": "end",
    "7~": "home",
    "8~": "end",
    "1;5C": "word-right",
    "1;5D": "word-left",
    "1;3C": "word-right",
    "1;3D": "word-left",
}


class Keys:
    """Bytes in, keys out, as they come."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> Iterator[Key]:
        """The keys that are complete with these bytes."""
        text = self._rest + self._decode.decode(data)
        at = 0
        while at < len(text):
            if text.startswith(_BEGIN, at):
                end = text.find(_END, at)
                if end < 0:
                    break
                yield Paste(_lines(text[at + len(_BEGIN) : end]))
                at = end + len(_END)
                continue
            step, key = _one(text, at)
            if step == 0:
                break
            at += step
            if key is not None:
                yield key
        self._rest = text[at:]


def _one(text: str, at: int) -> tuple[int, str | None]:
    """How long the key at this place is, and its name; (0, None) if its rest is still to come."""
    if text[at] != "\x1b":
        return 1, _NAMES.get(text[at]) or (_control(text[at]) if text[at] < " " else text[at])
    found = _SEQUENCE.match(text, at)
    if found is None:
        waits = _PARTIAL.match(text, at) is not None and len(text) - at < _LONGEST
        return (0, None) if waits else (1, None)
    sequence = found[0]
    known = _NAMES.get(sequence)
    return len(sequence), known or _FINALS.get(sequence[2:])


def _control(character: str) -> str:
    return f"ctrl-{chr(ord(character) + 96)}"


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
