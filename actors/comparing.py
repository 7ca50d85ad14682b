"""Two runs side by side: what was put in, what was asked with, what came out, turn by turn and step by step.

    alt = await ref.fork(turn=12, agent=better, rerun=True)
    await alt.outcome(turn=12)
    print(await compare_runs(ref, alt))

Both logs are read from where they part; what they share is the same by construction. Facts are matched by their place (turn,
step, the how-many-eth call), not by ids, which differ between two runs of the same thing. Everything is data first; the text
shows what differs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ..storage import events as e
from ..storage.messages import Block, Header, TextBlock
from ..storage.records import Record
from .values import explain

_TYPES = frozenset(
    {
        "log/created",
        "log/forked",
        "turn/start",
        "turn/end",
        "step/start",
        "user/message",
        "request/header",
        "request/sent",
        "request/failed",
        "assistant/message",
        "tool/result",
    }
)
_WIDTH = 200
_END = 1 << 30
"""The step under which the end of a turn is sorted."""


class Run(Protocol):
    """What can be compared: an AgentRef, here or of a service."""

    @property
    def id(self) -> str:
        """The agent's id."""
        ...

    def read(self, after: int = -1, upto: int | None = None, types: Collection[str] | None = None) -> AsyncIterator[Record]:
        """Its records."""
        ...


class Row(Struct, frozen=True):
    """One fact of both runs; None where a run has none at this place. Of a turn's end `step` is 0."""

    turn: int
    step: int
    what: str
    """input, model, system, tools, settings, failed, answer, call, result, end, steps, tokens, latency_ms; with a number from
    the second on."""
    first: str | None
    second: str | None

    @property
    def same(self) -> bool:
        """Whether both runs agree."""
        return self.first == self.second


class Comparison(Struct, frozen=True):
    """Two runs, fact by fact, in order. `str()` shows what differs."""

    first: str
    """The id of the first agent."""
    second: str
    shared: int
    """The last seq that both logs share; -1 if they have nothing in common."""
    rows: tuple[Row, ...]

    @property
    def differences(self) -> tuple[Row, ...]:
        """The facts in which they differ."""
        return tuple(row for row in self.rows if not row.same)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


async def compare_runs(first: Run, second: Run, *, turn: int | None = None) -> Comparison:
    """What two runs have in common and where they differ, in the turns that both have behind the point where they part; or in
    turn `turn` alone.
    """
    logs = [[record async for record in run.read(types=_TYPES)] for run in (first, second)]
    parted = next((n for n, (a, b) in enumerate(zip(*logs, strict=False)) if a.event != b.event), min(map(len, logs)))
    facts = [_facts(log, parted) for log in logs]
    turns = {key[0] for key in facts[0]} & {key[0] for key in facts[1]} if turn is None else {turn}
    keys = sorted(key for key in {**facts[0], **facts[1]} if key[0] in turns)
    rows = (Row(key[0], key[1] % _END, _name(key), facts[0].get(key), facts[1].get(key)) for key in keys)
    own = [log[parted].seq for log in logs if len(log) > parted]
    shared = min(own) - 1 if own else max((log[-1].seq for log in logs if log), default=-1)
    return Comparison(first.id, second.id, shared, tuple(_without_repetitions(rows)))


# -- facts

_ORDER = (
    "input",
    "model",
    "system",
    "tools",
    "settings",
    "failed",
    "answer",
    "call",
    "result",
    "end",
    "steps",
    "tokens",
    "latency_ms",
)
_SETUP = ("model", "system", "tools", "settings")
Key = tuple[int, int, int, int]
"""Turn, step, place of the kind in `_ORDER`, and the how-many-eth of that kind."""


def _name(key: Key) -> str:
    return _ORDER[key[2]] + (f" {key[3] + 1}" if key[3] else "")


class _Facts:
    """The facts of one log, as its records go by; those of the shared part only set the scene."""

    def __init__(self) -> None:
        self.found: dict[Key, str] = {}
        self.quiet = True
        self._turn = self._step = 0
        self._headers: dict[str, Header] = {}
        self._header: Header | None = None

    def see(self, event: Any) -> None:
        """Take in one record."""
        match event:
            case e.TurnStart(turn=turn):
                self._turn, self._step = turn, 0
            case e.StepStart(step=step):
                self._step = step
            case e.RequestHeader(digest=digest, header=header):
                self._headers[digest] = header or self._headers[digest]
                self._header = self._headers[digest]
            case _:
                for what, text in () if self.quiet else self._told(event):
                    self._add(what, text)

    def _add(self, what: str, text: str) -> None:
        step = _END if what in ("end", "steps", "tokens", "latency_ms") else self._step
        kind, nth = _ORDER.index(what), 0
        while (self._turn, step, kind, nth) in self.found:
            if what in _SETUP:
                return  # another attempt of the same step
            nth += 1
        self.found[self._turn, step, kind, nth] = text

    def _told(self, event: Any) -> Iterator[tuple[str, str]]:
        match event:
            case e.UserMessage(message=message):
                yield "input", _text(message.content)
            case e.RequestSent() if self._header is not None:
                yield from _setup(self._header)
            case e.RequestFailed(failure=failure):
                yield "failed", f"{failure.code}: {failure.message}"
            case e.AssistantMessage(message=message, interrupted=interrupted, finish=finish):
                cut = " (cut)" if interrupted else (f" ({finish})" if finish not in ("stop", "tool-calls") else "")
                yield "answer", message.text + cut
                for call in message.calls:
                    yield "call", f"{call.name}({call.arguments})"
            case e.ToolResult(content=content, error=error):
                yield "result", f"{error}: {_text(content)}" if error else _text(content)
            case e.TurnEnd(reason=reason, usage=usage, latency_ms=latency):
                yield "end", explain(reason)
                yield "steps", str(self._step)
                yield "tokens", str(usage.total)
                yield "latency_ms", str(latency)
            case _:
                pass


def _facts(log: list[Record], parted: int) -> dict[Key, str]:
    facts = _Facts()
    for place, record in enumerate(log):
        facts.quiet = place < parted
        facts.see(record.event)
    return facts.found


def _setup(header: Header) -> Iterator[tuple[str, str]]:
    yield "model", f"{header.provider}:{header.model}"
    yield "system", header.system
    yield "tools", ", ".join(tool.name for tool in header.tools)
    yield "settings", msgspec.json.encode(header.settings).decode()


def _text(blocks: tuple[Block, ...]) -> str:
    return "".join(block.text if isinstance(block, TextBlock) else f"[{block.__struct_config__.tag}]" for block in blocks)


def _without_repetitions(rows: Iterator[Row]) -> Iterator[Row]:
    """What both runs are asked with is told again only when it changes."""
    told: dict[str, tuple[str | None, str | None]] = {}
    for row in rows:
        if row.what in _SETUP:
            pair = row.first, row.second
            if told.get(row.what) == pair or None in pair:
                continue  # a step that only one of them has changes nothing for the other
            told[row.what] = pair
        yield row


# -- text


def _lines(comparison: Comparison) -> Iterator[str]:
    shared = f"they share records up to {comparison.shared}" if comparison.shared >= 0 else "they share nothing"
    yield f"- {comparison.first}"
    yield f"+ {comparison.second}"
    yield f"{shared}; of {len(comparison.rows)} facts behind that {len(comparison.differences)} differ"
    place = (0, -1)
    for row in comparison.differences:
        if (row.turn, row.step) != place:
            place = row.turn, row.step
            yield f"turn {row.turn}, step {row.step}" if row.step else f"turn {row.turn}, its end"
        yield f"  {row.what}"
        yield from (f"    {sign} {_short(text)}" for sign, text in (("-", row.first), ("+", row.second)))


def _short(text: str | None) -> str:
    if text is None:
        return "(none)"
    flat = " ".join(text.split())
    return flat if len(flat) <= _WIDTH else f"{flat[: _WIDTH - 1]}…"
