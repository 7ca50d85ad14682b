"""The router: from a text to the command it names, its arguments, or what is wrong with it. Pure.

Three tiers, as people expect them: a text that is a control command and nothing more; one that is any command and nothing more;
else the longest name that it begins with, and the rest are the arguments, as they were typed. Names compare without case, blanks
around the text do not matter, and one `@name` behind the first word is dropped: in a group people write `/new@bot`.

What begins with a slash and is no command is answered and not sent to the model: somebody meant a command. A path is none
(`/etc/hosts is empty`), nor is a slash alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

from ....storage.errors import UsageError

_NAME = re.compile(r"/[\w-]+(?: [\w-]+)*")
_FIRST = re.compile(r"(/[^\s/]+)(.*)", re.DOTALL)

LONGEST = 40
"""Characters of an unknown name that its answer repeats."""


class Spec(NamedTuple):
    """What the router knows of a command. `control`: it acts at once; `takes`: it has arguments."""

    name: str
    usage: str
    control: bool
    takes: bool
    about: str = ""


class Found(NamedTuple):
    """The text names this command, with these arguments."""

    name: str
    arguments: str


class Misused(NamedTuple):
    """The text names a command that takes no arguments, and gives it some."""

    name: str
    arguments: str


class Unknown(NamedTuple):
    """The text is no command, but somebody meant one: `closest` is the likeliest."""

    name: str
    arguments: str
    closest: str | None


Routed = Found | Misused | Unknown


class Router:
    """The commands of one plugin, by name."""

    def __init__(self, specs: Iterable[Spec]) -> None:
        """Check the names.

        Raises:
            UsageError: a name that cannot be typed, or one that is there twice.
        """
        self.specs: dict[str, Spec] = {}
        for spec in specs:
            key = spec.name.lower()
            if not _NAME.fullmatch(spec.name):
                raise UsageError(
                    f"{spec.name!r} is no name of a command: write a slash and words, such as '/karma' or '/karma list'"
                )
            if key in self.specs:
                raise UsageError(f"there are two commands {spec.name!r}; give one of them another name")
            self.specs[key] = spec

    def route(self, text: str) -> Routed | None:
        """What the text names; None if it is no command at all."""
        first = _FIRST.match(text.strip())
        if first is None or (word := _without_suffix(first[1])) is None or first[2][:1] == "/":
            return None
        if word.count("@"):  # more than one suffix: nobody's command
            return Unknown(first[1], first[2].strip(), None)
        whole = word + first[2]
        exact = self.specs.get(" ".join(whole.split()).lower())
        if exact is not None:
            return Found(exact.name, "")
        return self._by_prefix(whole)

    def _by_prefix(self, text: str) -> Routed:
        words = [match.span() for match in re.finditer(r"\S+", text)]
        for count in range(len(words), 0, -1):
            end = words[count - 1][1]
            spec = self.specs.get(" ".join(text[:end].split()).lower())
            if spec is not None:
                rest = text[end:].strip()
                return Found(spec.name, rest) if spec.takes or not rest else Misused(spec.name, rest)
        name = text[: words[0][1]]
        near = difflib.get_close_matches(name.lower(), self.specs, n=1, cutoff=0.6)
        return Unknown(name, text[words[0][1] :].strip(), self.specs[near[0]].name if near else None)

    def is_control(self, routed: Routed) -> bool:
        """Whether it acts at once."""
        spec = self.specs.get(routed.name.lower())
        return spec is not None and spec.control


def _without_suffix(word: str) -> str | None:
    """The first word without its `@name`; as it is if there are several; None if nothing is left."""
    name, _, suffix = word.partition("@")
    if "@" in suffix:
        return word
    return name if len(name) > 1 else None


def correction(routed: Misused | Unknown) -> str:
    """What is said about a text that names no command, or the wrong way."""
    if isinstance(routed, Misused):
        return f"{routed.name} takes no arguments."
    guess = f"; did you mean {routed.closest}?" if routed.closest else "."
    return f"There is no command {routed.name[:LONGEST]}{guess} /help lists them all."
