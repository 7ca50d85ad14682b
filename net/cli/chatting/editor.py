"""One message being typed: keys in, and what they ask for. Pure.

Enter sends; alt-enter, ctrl-j and a paste bring line ends into the message. Up and down go through what was sent before. An
unfinished message is kept while one looks at others.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from .keys import Key, Paste

MOST = 200
"""Messages that can be found again with the up key."""


class Submit(NamedTuple):
    """Send this."""

    text: str


Wish = Submit | Literal["interrupt", "end", "redraw"] | None


class Editor:
    """The text and the place of the cursor in it."""

    def __init__(self) -> None:
        self.text, self.at = "", 0
        self._sent: list[str] = []
        self._looking = 0
        self._draft = ""

    def feed(self, key: Key) -> Wish:
        """Take a key; what it asks the program for."""
        if isinstance(key, Paste):
            self._insert("".join(c for c in key.text if c >= " " or c in "\n\t"))
            return None
        if len(key) == 1:
            self._insert(key)
            return None
        if key == "enter":
            return self._submit()
        if key in ("ctrl-c", "ctrl-l"):
            return "interrupt" if key == "ctrl-c" else "redraw"
        if key == "ctrl-d" and not self.text:
            return "end"
        self._edit(key)
        return None

    def clear(self) -> None:
        """Forget what is being typed."""
        self.text, self.at, self._looking = "", 0, len(self._sent)

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.at] + text + self.text[self.at :]
        self.at += len(text)

    def _submit(self) -> Wish:
        text = self.text.strip("\n")
        self.clear()
        if not text.strip():
            return None
        if not self._sent or self._sent[-1] != text:
            self._sent = [*self._sent, text][-MOST:]
        self._looking = len(self._sent)
        return Submit(text)

    def _edit(self, key: str) -> None:
        match key:
            case "newline":
                self._insert("\n")
            case "tab":
                self._insert("\t")
            case "left" | "ctrl-b":
                self.at = max(self.at - 1, 0)
            case "right" | "ctrl-f":
                self.at = min(self.at + 1, len(self.text))
            case "home" | "ctrl-a":
                self.at = self.text.rfind("\n", 0, self.at) + 1
            case "end" | "ctrl-e":
                self.at = self._line_end()
            case "word-left":
                self.at = self._word_left()
            case "word-right":
                self.at = self._word_right()
            case "up" | "ctrl-p":
                self._look(-1)
            case "down" | "ctrl-n":
                self._look(1)
            case _:
                self._cut(key)

    def _cut(self, key: str) -> None:
        start, end = self.at, self.at
        match key:
            case "backspace":
                start = max(self.at - 1, 0)
            case "delete" | "ctrl-d":
                end = min(self.at + 1, len(self.text))
            case "ctrl-w":
                start = self._word_left()
            case "ctrl-u":
                start = self.text.rfind("\n", 0, self.at) + 1
            case "ctrl-k":
                end = self._line_end()
            case _:
                return
        self.text, self.at = self.text[:start] + self.text[end:], start

    def _line_end(self) -> int:
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end

    def _word_left(self) -> int:
        before = self.text[: self.at].rstrip()
        return max(before.rfind(" "), before.rfind("\n")) + 1

    def _word_right(self) -> int:
        at = self.at
        while at < len(self.text) and self.text[at].isspace():
            at += 1
        while at < len(self.text) and not self.text[at].isspace():
            at += 1
        return at

    def _look(self, step: int) -> None:
        place = self._looking + step
        if not 0 <= place <= len(self._sent):
            return
        if self._looking == len(self._sent):
            self._draft = self.text
        self._looking = place
        self.text = self._draft if place == len(self._sent) else self._sent[place]
        self.at = len(self.text)
