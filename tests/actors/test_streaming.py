"""Reading a stream: its deadlines, its end, and what may come out of it; and what the log keeps of a failure."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.models import read_stream, sound
from callboard.actors.models.streaming import CLOSE_S
from callboard.storage import chunks as c
from callboard.storage.errors import ModelError
from callboard.storage.messages import Chunk, TextBlock, TextDelta


def ignore(chunk: Chunk) -> None:
    """Take a chunk and forget it."""


class Timed:
    """A stream of chunks after pauses, that tells whether and where it was closed."""

    def __init__(self, *pauses: float, then: float = 0, close_takes: float = 0) -> None:
        self.pauses, self.then, self.close_takes = pauses, then, close_takes
        self.closed_by: trio.lowlevel.Task | None = None
        self.closed_at = -1.0

    async def stream(self) -> AsyncIterator[Chunk]:
        try:
            for pause in self.pauses:
                await trio.sleep(pause)
                yield c.text_delta(0, "x")
            await trio.sleep(self.then)
        finally:
            self.closed_by, self.closed_at = trio.lowlevel.current_task(), trio.current_time()
            if self.close_takes:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.close_takes)


async def test_c094_chunks_come_in_order_and_each_in_time(autojump_clock: MockClock) -> None:
    seen: list[Chunk] = []
    await read_stream(Timed(9, 4, 4, 4, then=4).stream(), seen.append, first_s=10, gap_s=5)
    assert len(seen) == 4
    assert trio.current_time() == 25


@pytest.mark.parametrize(
    ("stream", "first_s", "gap_s", "after", "says"),
    [
        (Timed(100), 10, 5, 10, "no first chunk within 10 s"),
        (Timed(1, 100), 10, 5, 6, "nothing for 5 s"),
        (Timed(0, 4, 4, 100), 10, 5, 13, "nothing for 5 s"),
        (Timed(1, then=100), 10, 5, 6, "nothing for 5 s"),
        (Timed(100), 0, 5, 0, "no first chunk within 0 s"),
        (Timed(1, 100), None, 0, 1, "nothing for 0 s"),
    ],
)
async def test_c094_over_its_deadline_a_stream_is_cut_and_may_be_tried_again(
    autojump_clock: MockClock, stream: Timed, first_s: float | None, gap_s: float, after: float, says: str
) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        await read_stream(stream.stream(), ignore, first_s=first_s, gap_s=gap_s)
    assert (caught.value.code, caught.value.transient) == ("TIMEOUT", True)
    assert trio.current_time() == after
    assert stream.closed_at == after


async def test_no_bound_means_no_bound(autojump_clock: MockClock) -> None:
    seen: list[Chunk] = []
    await read_stream(Timed(10_000, 10_000).stream(), seen.append, first_s=None, gap_s=None)
    assert len(seen) == 2
    await read_stream(Timed(1, 10_000).stream(), seen.append, first_s=5, gap_s=None)
    assert len(seen) == 4


async def test_a_burst_shares_a_deadline_to_a_thousandth_of_the_gap(autojump_clock: MockClock) -> None:
    await read_stream(Timed(0, *[0.0005] * 20_000, then=0.9).stream(), ignore, first_s=1, gap_s=1)
    with pytest.raises(ModelError, match="nothing for 1 s"):
        await read_stream(Timed(0, *[0.0005] * 99, then=1.01).stream(), ignore, first_s=1, gap_s=1)


async def test_a_cancelled_reader_closes_the_stream_in_its_own_task(autojump_clock: MockClock) -> None:
    stream = Timed(0, then=100)
    reader: trio.lowlevel.Task | None = None

    async def read() -> None:
        nonlocal reader
        reader = trio.lowlevel.current_task()
        await read_stream(stream.stream(), ignore, first_s=1000, gap_s=1000)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert stream.closed_by is reader


async def test_a_stream_whose_reader_throws_is_closed_and_the_throw_goes_on() -> None:
    stream = Timed(0, 0, 0)

    def veto(chunk: Chunk) -> None:
        raise RuntimeError("no such log")

    chunks = stream.stream()
    with pytest.raises(RuntimeError, match="no such log"):
        await read_stream(chunks, veto, first_s=1, gap_s=1)
    assert stream.closed_by is trio.lowlevel.current_task()
    assert [x async for x in chunks] == []


async def test_an_adapters_own_error_goes_on_as_it_is() -> None:
    async def broken(error: Exception) -> AsyncIterator[Chunk]:
        yield c.text_delta(0, "x")
        raise error

    for error in (ModelError("RATE_LIMIT", status=429), KeyError("odd")):
        with pytest.raises(type(error)) as caught:
            await read_stream(broken(error), ignore, first_s=1, gap_s=1)
        assert caught.value is error


async def test_a_deadline_that_the_client_turns_into_an_error_is_still_a_timeout(autojump_clock: MockClock) -> None:
    async def torn() -> AsyncIterator[Chunk]:
        try:
            await trio.sleep(100)
        except trio.Cancelled:
            raise ConnectionError("torn read") from None
        yield c.text_delta(0, "x")

    with pytest.raises(ModelError, match="no first chunk") as caught:
        await read_stream(torn(), ignore, first_s=10, gap_s=5)
    assert isinstance(caught.value.__cause__, ConnectionError)


async def test_a_late_error_of_the_reader_is_not_taken_for_the_deadline(autojump_clock: MockClock) -> None:
    def late(chunk: Chunk) -> None:
        autojump_clock.jump(100)
        raise RuntimeError("the reader's own")

    with pytest.raises(RuntimeError, match="the reader's own"):
        await read_stream(Timed(0, close_takes=1).stream(), late, first_s=10, gap_s=5)


async def test_an_error_while_closing_is_reported_and_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def sticky() -> AsyncIterator[Chunk]:
        try:
            yield c.text_delta(0, "x")
        finally:
            raise OSError("close failed")

    def veto(chunk: Chunk) -> None:
        raise RuntimeError("first")

    with caplog.at_level(logging.ERROR, "callboard.models"), pytest.raises(RuntimeError, match="first"):
        await read_stream(sticky(), veto, first_s=1, gap_s=1)
    assert "closing a model's stream failed" in caplog.text
    assert "close failed" in caplog.text


async def test_a_stream_that_does_not_close_is_cut_and_reported(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow:
        def __aiter__(self) -> Slow:
            return self

        async def __anext__(self) -> Chunk:
            await trio.sleep_forever()
            raise AssertionError

        async def aclose(self) -> None:
            await trio.sleep_forever()

    with caplog.at_level(logging.ERROR, "callboard.models"), pytest.raises(ModelError, match="no first chunk"):
        await read_stream(Slow(), ignore, first_s=1, gap_s=1)
    assert trio.current_time() == 1 + CLOSE_S
    assert "did not close within 5 s" in caplog.text


class Nested:
    """A stream that is no generator, as one through plugins is: it counts how often it was closed."""

    def __init__(self, *chunks: Chunk) -> None:
        self.chunks, self.closed = list(chunks), 0

    def __aiter__(self) -> Nested:
        return self

    async def __anext__(self) -> Chunk:
        if not self.chunks:
            raise StopAsyncIteration
        return self.chunks.pop(0)

    async def aclose(self) -> None:
        self.closed += 1


async def test_a_stream_through_plugins_is_closed_also_when_it_ran_out() -> None:
    stream = Nested(c.text_delta(0, "x"))
    await read_stream(stream, ignore, first_s=1, gap_s=1)
    assert stream.closed == 1


# -- sound chunks


@pytest.mark.parametrize(
    "chunk",
    [
        "text",
        None,
        {"kind": "text-delta"},
        TextDelta(0, cast("Any", None)),
        TextDelta(cast("Any", "0"), "x"),
        TextDelta(cast("Any", True), "x"),
        c.finish(cast("Any", "done")),
        c.block_end(0, meta={"x": object()}),
        c.block_end(0, meta=cast("Any", {1: 2})),
        c.block_end(2**70),
    ],
)
async def test_what_the_log_could_not_keep_fails_the_request_before_it_gets_there(chunk: Any) -> None:
    async def adapter() -> AsyncIterator[Chunk]:
        yield chunk

    seen: list[Chunk] = []
    with pytest.raises(ModelError, match="is no sound chunk") as caught:
        await read_stream(adapter(), seen.append, first_s=1, gap_s=1)
    assert (caught.value.code, seen) == ("BAD_CHUNK", [])


@pytest.mark.parametrize(
    "chunk", [c.text_delta(0, "a"), c.text_delta(0, "å 🎭"), c.usage(input=1), c.block_end(0, meta={"a": [1]})]
)
def test_a_sound_chunk_passes_as_it_is(chunk: Chunk) -> None:
    assert sound(chunk) is chunk


def test_half_an_emoji_is_replaced_wherever_it_stands() -> None:
    half = "a\ud83c"
    assert sound(c.text_delta(0, half)) == c.text_delta(0, "a\ufffd")
    assert sound(c.tool_call_delta(0, id="c", arguments=half)) == c.tool_call_delta(0, id="c", arguments="a\ufffd")
    assert sound(c.block_start(1, TextBlock("", {"deep": [half]}))) == c.block_start(1, TextBlock("", {"deep": ["a\ufffd"]}))
    assert sound(c.text_delta(0, "\ud83c\udfad")) == c.text_delta(0, "🎭")
