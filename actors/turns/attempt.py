"""Attempts: send the request, read its stream into the log, and decide what a failure means.

Every chunk is appended at once and assembled. A success is one `assistant/message` that cites exactly the chunks of its
attempt. A failed attempt is offered to `request_error`, which may answer `Resend`; cancellation beats it. Only what the adapter
raises is such a failure: a throw of `stream` middleware, of the `request` seam or of rendering ends the turn, since trying the
same code again is no recovery.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import trio

from ...storage.errors import ModelError
from ...storage.events import AssistantMessage, Event, RequestFailed
from ...storage.messages import Chunk, Failure, FinishChunk, Message, ModelSource, Request
from ..answers import Failed, Resend
from ..chains import failed_in_model
from ..content import mint_id
from ..failures import as_error, flatten
from ..models.assembler import Assembled, Assembler
from ..models.media import with_media
from ..models.registry import no_adapter
from ..models.streaming import read_stream
from .request import Call, prepare, record
from .surfacing import replace_event

if TYPE_CHECKING:
    from .turn import Turn


_READER_CODES = frozenset({"TIMEOUT", "BAD_CHUNK"})
"""What the reading of a stream raises by itself: failures of the request, though no adapter raised them."""


class Stream:
    """What one attempt has streamed so far: the blocks, and the seqs of their chunks.

    A chunk that comes is only kept: what the blocks are is asked seldom, and most often once, at the end.
    """

    __slots__ = ("_assembler", "fresh", "model", "provider", "queued", "seqs")

    def __init__(self, provider: str, model: str) -> None:
        self.provider, self.model = provider, model
        self._assembler = Assembler()
        self.fresh: list[Chunk] = []
        """Chunks that no block has yet."""
        self.seqs: list[int] = []
        self.queued = False
        """Whether it still waits for one of the system's model slots."""

    def feed(self, seq: int, chunk: Chunk) -> None:
        """One more chunk, at `seq`."""
        self.seqs.append(seq)
        self.fresh.append(chunk)

    @property
    def assembler(self) -> Assembler:
        """All that has come, assembled."""
        self._assembler.feed(*self.fresh)
        self.fresh.clear()
        return self._assembler

    def cut_message(self, turn: int, step: int) -> AssistantMessage | None:
        """The visible prefix as a message; None if nothing was shown."""
        blocks = self.assembler.cut()
        if not blocks:
            return None
        message = Message(mint_id(), "assistant", blocks, ModelSource(self.provider, self.model))
        return AssistantMessage(
            turn=turn,
            step=step,
            message=message,
            finish="aborted",
            usage=self.assembler.usage,
            sources=tuple(self.seqs),
            interrupted=True,
        )


async def answer(turn: Turn) -> None:
    """Send requests until one is answered; the step then has its `assistant/message`.

    Raises:
        ModelError: the last attempt failed and nothing recovered it; its `request/failed` is written.
    """
    while True:
        call = await prepare(turn)
        await trio.lowlevel.checkpoint_if_cancelled()
        record(turn, call)
        turn.actor.at_barrier()
        await turn.log.commit()
        failure = await _attempt(turn, call)
        if failure is None:
            return
        await _recover(turn, call, failure)


async def _attempt(turn: Turn, call: Call) -> Failure | None:
    """Dispatch and read one attempt; None if it was answered."""
    stream = turn.stream = Stream(call.request.provider, call.request.model)
    limits, at, number, step = turn.agent.limits, turn.position, turn.number, turn.position.step
    append, note, keep = turn.log.append_chunk, stream.seqs.append, stream.fresh.append

    def on_chunk(chunk: Chunk) -> None:
        if at.cancel is None:
            note(append(number, step, chunk))  # as `feed` does it, without a call more for every chunk
            keep(chunk)
        elif type(chunk) is FinishChunk and chunk.failure is not None:
            turn.error = as_error(chunk.failure)  # all else that was on its way when the turn was cancelled came too late

    chunks: AsyncIterator[Chunk] | None = None
    try:
        stream.queued = True
        async with turn.actor.runtime.model_slots.held(stream.provider, turn.actor.family):
            stream.queued = False
            terminal = _terminal(call)
            if turn.log.state.surface.has_media:
                terminal = await with_media(call.request, terminal, turn.actor.runtime.store.blob)
            chunks = turn.chains.stream(turn.actor.context, call.request, terminal)
            first_s, gap_s = limits.first_chunk_s, limits.chunk_gap_s
            await read_stream(chunks, on_chunk, connect_s=limits.connect_s, first_s=first_s, gap_s=gap_s)
    except Exception as error:
        failure = flatten(error)
        ours = isinstance(error, ModelError) and error.code in _READER_CODES
        if ours or (chunks is not None and failed_in_model(chunks, error)):
            return failure
        await _write_failure(turn, error, failure)
        raise
    result = stream.assembler.result()
    if result.failure is not None:
        return result.failure
    if turn.position.cancel is not None:
        await trio.lowlevel.checkpoint_if_cancelled()
    _write_answer(turn, call, stream, result)
    return None


def _terminal(call: Call) -> Callable[[Request], AsyncIterator[Chunk]]:
    """The end of the `stream` chain: the adapter that prepared the request, whoever is registered by now."""
    return _nobody if call.model is None else call.model.stream


async def _nobody(request: Request) -> AsyncIterator[Chunk]:
    raise no_adapter(request.provider, request.model)
    yield  # an async generator, like every adapter's stream


def _write_answer(turn: Turn, call: Call, stream: Stream, result: Assembled) -> None:
    source = ModelSource(call.request.provider, call.request.model)
    turn.log.append(
        AssistantMessage(
            turn=turn.number,
            step=turn.position.step,
            message=Message(mint_id(), "assistant", result.content, source),
            finish=result.finish,
            usage=result.usage,
            sources=tuple(stream.seqs),
        )
    )
    turn.stream = None


async def _recover(turn: Turn, call: Call, failure: Failure) -> None:
    """Offer a failure to `request_error`; returns if the request is to be sent again."""
    at = turn.position
    asked = Failed(call.request.provider, failure, at.attempts - at.interrupted, call.prepared.retry, call.request)
    turn.error = as_error(failure)  # beside the abort, if a cancel comes now
    resend: Resend | None = None
    try:
        resend = await turn.chains.run("request_error", turn.actor.context, asked, _no_recovery)
    except Exception as error:
        await _write_failure(turn, error, failure)
        raise error from as_error(failure)
    await trio.lowlevel.checkpoint_if_cancelled()
    if resend is None:
        turn.log.append(attempt_failed(turn, failure, "raise"))
        raise as_error(failure)
    events: list[Event] = [attempt_failed(turn, failure, "retry", resend.after_s)]
    if resend.replacement is not None:
        events.append(replace_event(turn.actor, resend.replacement))
    turn.log.append(*events)
    turn.stream = None
    if resend.after_s > 0:
        await trio.sleep(resend.after_s)
    turn.error = None


async def _write_failure(turn: Turn, error: Exception, failure: Failure) -> None:
    """The attempt ends with its turn; in a turn that was cancelled meanwhile the error stands beside the abort instead."""
    turn.error = error
    await trio.lowlevel.checkpoint_if_cancelled()
    turn.log.append(attempt_failed(turn, failure, "raise"))


async def _no_recovery(failed: Failed) -> Resend | None:
    return None


def attempt_failed(turn: Turn, failure: Failure, action: str, delay_s: float | None = None) -> RequestFailed:
    """The end of the open attempt, and what it cost if the provider said so."""
    turn.actor.runtime.tally.attempt(failure.code)
    at = turn.position
    usage = turn.stream.assembler.usage if turn.stream is not None else None
    return RequestFailed(
        turn=turn.number,
        step=at.step,
        attempt=at.attempts,
        failure=failure,
        action="retry" if action == "retry" else "raise",
        delay_s=delay_s,
        usage=usage,
    )
