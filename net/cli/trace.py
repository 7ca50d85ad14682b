"""The walk of each turn as a table: its states, when each began, how long it took, and how it was left. Pure."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from typing import Any

from ...storage.events import TraceEntry, TurnEnd, TurnSuspend
from .lines import reason_text, shorten

HEAD = f"{'TURN':>5}  {'STATE':<8}  {'START':<12}  {'TOOK':>12}  EVENT"


def trace_lines(end: TurnEnd | TurnSuspend) -> Iterator[str]:
    """A line for each state that the turn was in, and one for how it ended; of one that is suspended, as far as it came."""
    for entry in end.trace:
        yield f"{end.turn:>5}  {entry.state:<8}  {_moment(entry.start)}  {_took(entry.us):>12}  {_left_by(entry)}".rstrip()
    if isinstance(end, TurnSuspend):
        yield f"{end.turn:>5}  {'':<8}  {'':<12}  {'':>12}  waits for the next start"
    else:
        yield f"{end.turn:>5}  {'':<8}  {'':<12}  {_took(end.latency_ms * 1000):>12}  {shorten(reason_text(end.reason))}"


def trace_value(end: TurnEnd | TurnSuspend) -> dict[str, Any]:
    """The same for programs; `start` in Unix milliseconds, `us` in microseconds. A turn that is suspended has no reason yet."""
    if isinstance(end, TurnSuspend):
        return {"turn": end.turn, "reason": None, "latency_ms": None, "trace": end.trace}
    return {"turn": end.turn, "reason": end.reason, "latency_ms": end.latency_ms, "trace": end.trace}


def _moment(unix_ms: int) -> str:
    return f"{clock.strftime('%H:%M:%S', clock.localtime(unix_ms / 1000))}.{unix_ms % 1000:03d}"


def _took(us: int) -> str:
    return f"{us / 1000:,.3f} ms" if us < 1_000_000 else f"{us / 1_000_000:,.3f} s"


def _left_by(entry: TraceEntry) -> str:
    """The event, or the error by its type and text."""
    if entry.error is None:
        return entry.event or ""
    return shorten(f"{entry.error}: {entry.text}" if entry.text else entry.error)
