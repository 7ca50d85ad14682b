"""Reading a model's stream: the deadlines, and the promise that the stream is closed where it was read.

One cancel scope spans the whole stream and its deadline moves with each chunk: a scope per chunk would cost as much as all
else that happens to a chunk. It is open around the generator, never inside one, so no scope is open across a `yield`.
Moving a deadline is not free either (some 2 µs), so chunks of a burst share one: it moves only when a thousandth of the
gap has gone by. A gap may so end early by that much.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable
from types import AsyncGeneratorType

import trio

from ...storage.errors import ModelError
from ...storage.messages import Chunk
from .connecting import CONNECT_S
from .soundness import sound

CLOSE_S = 5.0
"""How long a stream may take to close; an adapter that needs longer is cut and reported."""

BURST = 64
"""After so many chunks others run, too."""

_log = logging.getLogger("callboard.models")


async def read_stream(
    chunks: AsyncIterator[Chunk],
    on_chunk: Callable[[Chunk], None],
    *,
    connect_s: float | None = None,
    first_s: float | None,
    gap_s: float | None,
) -> None:
    """Hand each chunk of the stream to `on_chunk`, in order, and close the stream in this task whatever happens.

    `connect_s` bounds connecting, which the adapter knows of (see `connecting`), `first_s` from there on the wait for the first
    chunk, and `gap_s` that between two chunks and for the end; in seconds, None for no bound (of connecting: none of its own).
    What the adapter or `on_chunk` raises is raised as it is.

    Raises:
        ModelError: TIMEOUT, a deadline has passed (it may be retried); BAD_CHUNK, the adapter yields what the log cannot keep.
    """
    reader = _Reader(on_chunk, gap_s)
    within_s = (connect_s or 0) + _bound(first_s)
    scope = trio.CancelScope(deadline=trio.current_time() + within_s)
    told = CONNECT_S.set(connect_s)
    try:
        with scope:
            await reader.read(chunks, scope)
    except ModelError:
        raise
    except Exception as error:
        # A client library may turn the cancellation into an error of its own (a torn read): the deadline is why.
        if scope.cancel_called and not reader.in_hand:
            raise _overdue(reader.started, within_s, gap_s) from error
        raise
    finally:
        CONNECT_S.reset(told)
    if scope.cancelled_caught:
        raise _overdue(reader.started, within_s, gap_s)


class _Reader:
    """The state of one reading: whether a chunk has come, and whether it ended in the hands of `on_chunk`."""

    def __init__(self, on_chunk: Callable[[Chunk], None], gap_s: float | None) -> None:
        self._on_chunk, self._gap = on_chunk, _bound(gap_s)
        self.started = self.in_hand = False

    async def read(self, chunks: AsyncIterator[Chunk], scope: trio.CancelScope) -> None:
        gap, slack, moved, burst = self._gap, self._gap / 1000, 0.0, 0
        on_chunk, clock = self._on_chunk, trio.lowlevel.current_clock().current_time
        try:
            async for chunk in chunks:
                try:
                    on_chunk(sound(chunk))
                except BaseException:
                    self.in_hand = True
                    raise
                now = clock()
                if not self.started or now - moved > slack:
                    self.started = True
                    scope.deadline, moved = now + gap, now
                burst += 1
                if burst == BURST:  # an adapter that has everything at hand never waits, and nobody else would run
                    burst = 0
                    await trio.lowlevel.checkpoint()
        except BaseException:
            await _close(chunks)
            raise
        # A generator that ran out is closed by that. A stream through plugins may have others below it, still open.
        if type(chunks) is not AsyncGeneratorType:
            await _close(chunks)


async def _close(chunks: AsyncIterator[Chunk]) -> None:
    aclose = getattr(chunks, "aclose", None)
    if aclose is None:
        return
    with trio.CancelScope(deadline=trio.current_time() + CLOSE_S, shield=True) as scope:
        try:
            await aclose()
        except Exception:
            # What ended the stream must not be hidden by what closing it then raised: that is reported beside it.
            _log.exception("closing a model's stream failed: %r", chunks)
    if scope.cancelled_caught:
        _log.error("a model's stream did not close within %g s: %r; its adapter holds a connection up", CLOSE_S, chunks)


def _bound(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _overdue(started: bool, within_s: float, gap_s: float | None) -> ModelError:
    if started:
        return ModelError("TIMEOUT", f"the model sent nothing for {gap_s:g} s (Limits.chunk_gap_s)")
    return ModelError("TIMEOUT", f"the model sent no first chunk within {within_s:g} s (Limits.connect_s and first_chunk_s)")
