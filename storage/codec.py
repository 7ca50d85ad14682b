"""How a batch becomes bytes: a frame for its records, and columns beside it for its chunks.

One frame is encoded in one call, whatever is in it; the seqs are not stored but follow from the first one and from where the
runs stand between the records. A packed run joins neighbouring deltas of one block, which leaves a sixth of the bytes. Both
are msgpack arrays: fields are only ever added at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgspec
from msgspec import Raw, Struct

from .events import AssistantChunk
from .messages import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from .records import Record, UnknownEvent, decode_event
from .runs import ChunkRun
from .store import Batch, Summary

Item = Record | ChunkRun


class Frame(Struct, frozen=True, array_like=True, gc=False):
    """One batch in the journal. `later` are the times after `time`, as flat pairs of (record, ms since the one before);
    `runs` say where chunks stand, as flat pairs of (record they come before, how many); `ids` give the offset of each seq."""

    log: int
    first: int
    epoch: int
    time: int
    later: list[int]
    events: list[Any]
    runs: list[int]
    ids: dict[str, int]
    summary: Summary
    end: int
    """The time of the last record, a chunk or not."""

    @property
    def last(self) -> int:
        """The seq of its last record; one before `first` if it has none."""
        return self.first + len(self.events) + sum(self.runs[1::2]) - 1


class StoredFrame(Frame, frozen=True, array_like=True):
    """A frame as it is read: its events are decoded when somebody wants them."""

    events: list[Raw]


class Tagged(Struct):
    """The one field a filter looks at."""

    type: str


PackedOp = tuple[int, list[str]] | Chunk
"""Neighbouring deltas as (index << 2 | kind, texts); anything else as it is."""
_TEXT, _REASONING, _CALL = 0, 1, 2


class PackedRun(Struct, frozen=True, array_like=True, gc=False):
    """One run: times as the first one and the steps after it (None: they are all the same)."""

    turn: int
    step: int
    first: int
    time: int
    later: list[int] | None
    ops: list[PackedOp]


_encode = msgspec.msgpack.Encoder().encode
_decode_frame = msgspec.msgpack.Decoder(StoredFrame).decode
_decode_tag = msgspec.msgpack.Decoder(Tagged).decode
_decode_runs = msgspec.msgpack.Decoder(list[PackedRun]).decode


def encode_frame(batch: Batch, log: int, time: int) -> tuple[bytes, bytes | None, int, int]:
    """The frame and the packed runs (None without chunks) of a batch, its last seq, and that record's time (`time` if it is
    empty)."""
    events: list[Any] = []
    runs: list[int] = []
    later: list[int] = []
    packed: list[PackedRun] = []
    start = end = end_of_records = in_runs = 0
    for item in batch.items:
        if isinstance(item, ChunkRun):
            runs += (len(events), len(item))
            in_runs += len(item)
            packed.append(pack_run(item))
            end = item.times[-1]
            continue
        if not events:
            start = item.time
        elif item.time != end_of_records:
            later += (len(events), item.time - end_of_records)
        end = end_of_records = item.time
        events.append(_body(item))
    end = end if batch.items else time
    first = batch.follows + 1
    ids = {message_id: seq - first for message_id, seq in batch.ids.items()}
    frame = _encode(Frame(log, first, batch.epoch, start, later, events, runs, ids, batch.summary, end))
    return frame, _encode(packed) if packed else None, batch.follows + len(events) + in_runs, end


def _body(record: Record) -> Any:
    if record.raw:
        return Raw(record.raw)
    return record.event.fields if isinstance(record.event, UnknownEvent) else record.event


def decode_frame(data: bytes) -> StoredFrame:
    """The frame in these bytes; its events stay encoded."""
    return _decode_frame(data)


def type_of_raw(event: Raw) -> str:
    """The type of an encoded event, without decoding the rest."""
    return _decode_tag(event).type


def places(frame: StoredFrame) -> Iterator[tuple[int, int, Raw | None, int]]:
    """What a frame holds in order of seq: (seq, time, event, 1), or for a run of chunks (seq, 0, None, how many)."""
    seq, time = frame.first, frame.time
    runs, later = iter(_pairs(frame.runs)), iter(_pairs(frame.later))
    run, change = next(runs, None), next(later, None)
    for i, event in enumerate(frame.events):
        while run is not None and run[0] == i:
            yield seq, 0, None, run[1]
            seq += run[1]
            run = next(runs, None)
        if change is not None and change[0] == i:
            time += change[1]
            change = next(later, None)
        yield seq, time, event, 1
        seq += 1
    while run is not None:
        yield seq, 0, None, run[1]
        seq += run[1]
        run = next(runs, None)


def _pairs(flat: list[int]) -> Iterator[tuple[int, int]]:
    return zip(flat[::2], flat[1::2], strict=True)


def record_of(seq: int, time: int, event: Raw) -> Record:
    """The record of an encoded event; it keeps the bytes."""
    raw = bytes(event)
    return Record(seq, time, decode_event(raw), raw)


def pack_run(run: ChunkRun) -> PackedRun:
    """A run as columns."""
    ops: list[PackedOp] = []
    key, texts = -1, list[str]()
    for chunk in run.chunks:
        # Most are text, and all are looked at: what `_delta` says of those stands here once more.
        this, text = (chunk.index << 2 | _TEXT, chunk.text) if type(chunk) is TextDelta else _delta(chunk)
        if this < 0:
            ops.append(chunk)
        elif this == key:
            texts.append(text)
        else:
            texts = [text]
            ops.append((this, texts))
        key = this
    times = run.times
    later = None if min(times) == max(times) else [b - a for a, b in pairwise(times)]
    return PackedRun(run.turn, run.step, run.first, times[0], later, ops)


def _delta(chunk: Chunk) -> tuple[int, str]:
    # The key under which a delta (but for text) can be joined with its neighbours, or -1 for what carries more than text.
    if type(chunk) is ReasoningDelta and chunk.signature is None:
        return chunk.index << 2 | _REASONING, chunk.text
    if type(chunk) is ToolCallDelta and chunk.id is None and chunk.name is None:
        return chunk.index << 2 | _CALL, chunk.arguments
    return -1, ""


def unpack_runs(data: bytes) -> list[ChunkRun]:
    """The runs that were packed beside a frame."""
    return [_unpack(p) for p in _decode_runs(data)]


def _unpack(packed: PackedRun) -> ChunkRun:
    run = ChunkRun(packed.turn, packed.step, packed.first)
    for op in packed.ops:
        if isinstance(op, tuple):
            run.chunks += _deltas(op[0] >> 2, op[0] & 3, op[1])
        else:
            run.chunks.append(op)
    steps = packed.later if packed.later is not None else [0] * (len(run.chunks) - 1)
    run.times = list(accumulate(steps, initial=packed.time))
    return run


def _deltas(index: int, kind: int, texts: list[str]) -> Sequence[Chunk]:
    if kind == _TEXT:
        return [TextDelta(index, t) for t in texts]
    if kind == _REASONING:
        return [ReasoningDelta(index, t) for t in texts]
    return [ToolCallDelta(index, arguments=t) for t in texts]


def cut_frame(data: bytes, chunks: bytes | None, upto: int) -> tuple[bytes, bytes | None]:
    """The frame and its chunks without what comes after `upto`: what a delete leaves to a fork that shares the rest."""
    frame = decode_frame(data)
    events: list[Any] = []
    runs: list[int] = []
    for seq, _, event, count in places(frame):
        if seq > upto:
            break
        if event is None:
            runs += (len(events), min(count, upto - seq + 1))
        else:
            events.append(event)
    later = [v for i, step in _pairs(frame.later) if i < len(events) for v in (i, step)]
    ids = {m: at for m, at in frame.ids.items() if frame.first + at <= upto}
    left = Frame(frame.log, frame.first, frame.epoch, frame.time, later, events, runs, ids, frame.summary, frame.end)
    return _encode(left), None if chunks is None else _cut_chunks(chunks, upto)


def _cut_chunks(data: bytes, upto: int) -> bytes | None:
    kept: list[PackedRun] = []
    for run in unpack_runs(data):
        if run.first <= upto:
            del run.chunks[upto - run.first + 1 :], run.times[upto - run.first + 1 :]
            kept.append(pack_run(run))
    return _encode(kept) if kept else None


def chunk_record(run: ChunkRun, seq: int) -> Record:
    """One chunk of a run as the record it stands for."""
    at = seq - run.first
    return Record(seq, run.times[at], AssistantChunk(turn=run.turn, step=run.step, chunk=run.chunks[at]))


def plain_chunk(record: Record) -> AssistantChunk | None:
    """The record's chunk if a column can hold all of it; None if it is something else, or has fields we do not know."""
    event = record.event
    if not isinstance(event, AssistantChunk):
        return None
    return event if not record.raw or _encode(event) == record.raw else None


def columns(records: Sequence[Record]) -> list[Item]:
    """The records with neighbouring chunks gathered in runs, as a batch wants them."""
    items: list[Item] = []
    for record in records:
        event = plain_chunk(record)
        if event is None:
            items.append(record)
            continue
        run = items[-1] if items else None
        if not isinstance(run, ChunkRun) or (run.turn, run.step) != (event.turn, event.step):
            run = ChunkRun(event.turn, event.step, record.seq)
            items.append(run)
        run.times.append(record.time)
        run.chunks.append(event.chunk)
    return items
