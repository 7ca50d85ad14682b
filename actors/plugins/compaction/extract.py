"""A summary without a model: who said what, a line for each message, each cut short; the oldest lines go first. Pure.

It costs nothing, cannot fail, is the same whenever it is made, and holds no word that was not said. It forgets more than a model
would: what matters to find again is found by `recall`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ....storage.messages import File, Image, Message, PluginSource
from ...tokens import text_tokens
from .ranges import SOURCE

HEAD = "What was said before, shortened; the whole of it is not shown any more:"
LINE = 280
"""Characters of one line."""
SHORTEST = 40
"""Lines are not cut shorter than this; before that the oldest go."""


def extract(messages: Sequence[Message], *, limit: int) -> str:
    """The messages in about `limit` tokens at most; empty if not even one line has room."""
    lines = list(_lines(messages))
    width = LINE
    while width > SHORTEST and _size(lines, width) > limit:
        width //= 2
    kept: list[str] = []
    room = limit - text_tokens(HEAD)
    for line in reversed(lines):
        text = _cut(line, max(width, SHORTEST))
        room -= text_tokens(text) + 1
        if room < 0:
            break
        kept.append(text)
    return "\n".join((HEAD, *reversed(kept))) if kept else ""


def _size(lines: Iterable[str], width: int) -> int:
    return text_tokens(HEAD) + sum(text_tokens(_cut(line, width)) + 1 for line in lines)


def _lines(messages: Iterable[Message]) -> Iterator[str]:
    calls: Counter[str] = Counter()
    for message in messages:
        if calls and message.role != "tool" and not message.calls:
            yield _called(calls)
            calls.clear()
        if message.source == SOURCE:
            yield from (line for line in message.text.splitlines() if line.strip() and line != HEAD)
            continue
        calls.update(call.name for call in message.calls)
        text = " ".join(message.text.split())
        if message.role != "tool" and (text or _media(message)):
            yield f"- {_who(message)}: {text}{_media(message)}"
    if calls:
        yield _called(calls)


def _who(message: Message) -> str:
    if message.role == "assistant":
        return "you"
    return message.source.name if isinstance(message.source, PluginSource) else "user"


def _media(message: Message) -> str:
    kinds = [block.media_type for block in message.content if isinstance(block, Image | File)]
    return "".join(f" [{kind}]" for kind in kinds)


def _called(calls: Counter[str]) -> str:
    return "- you called " + ", ".join(name if times == 1 else f"{name} ({times} times)" for name, times in calls.items())


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"
