"""Export, import, backup: what leaves comes back equal, also what this version does not know."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from callboard.storage import events as e
from callboard.storage.conformance_kit import batch, chunks, create, created, fork, note, put, seqs, write
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentNotFound, StoreError, StoreFormat, UsageError
from callboard.storage.exchange import backup, export_log, import_log
from callboard.storage.index import IndexFold
from callboard.storage.messages import AgentSource, Message, TextBlock, Usage
from callboard.storage.opening import open_store
from callboard.storage.records import Record, from_json
from callboard.storage.store import Store, Summary
from callboard.storage.testing import FaultyStore

ODD = (
    b'{"seq":%d,"time":5000,"type":"future/thing","skippable":true,"deep":{"list":[1,null,2.5]}}',
    b'{"seq":%d,"time":5000,"type":"note","kind":"k","data":[],"added_later":{"a":1}}',
    b'{"seq":%d,"time":5001,"type":"assistant/chunk","turn":1,"step":1,"chunk":{"kind":"text-delta","index":0,"text":"x","mood":"new"}}',
    b'{"seq":%d,"time":5001,"type":"assistant/chunk","turn":1,"step":1,"chunk":{"kind":"text-delta","index":0,"text":"plain"}}',
)


def odd(first: int) -> list[Record]:
    """Records with types and fields of a later version."""
    return [from_json(line % seq) for seq, line in enumerate(ODD, first)]


async def a_log(store: Store) -> None:
    epoch = await store.own("a")
    await write(store, [batch("a", epoch, [created("a"), put(1, "m"), chunks(2, 2000), note(2002)], ids={"m": 1})])
    await write(store, [batch("a", epoch, odd(2003))])


async def exported(store: Store, agent: str) -> bytes:
    file = io.BytesIO()
    await export_log(store, agent, file)
    return file.getvalue()


async def test_c239_export_and_import_keep_every_record_and_byte(tmp_path: Path) -> None:
    async with open_store(tmp_path / "one", sync=False) as one, open_store(tmp_path / "two", sync=False) as two:
        await a_log(one)
        file = await exported(one, "a")
        assert file.count(b"\n") == 2007
        for store in (two, MemoryStore()):
            assert await import_log(store, io.BytesIO(file)) == "a"
            assert await exported(store, "a") == file
            assert [r async for r in store.read("a")] == [r async for r in one.read("a")]
            assert await store.find("a", "m") == 1
            assert await import_log(store, io.BytesIO(file), id="b") == "b"
            assert await seqs(store, "b") == list(range(2007))
        for line in ODD[:3]:
            assert line % (2003 + ODD.index(line)) in file


async def test_c239_a_fork_is_exported_whole(tmp_path: Path) -> None:
    store = MemoryStore()
    await create(store, "a", 5)
    epoch = await store.own("a")
    await write(store, [batch("a", epoch, [put(5, "m")], ids={"m": 5})])
    await fork(store, "f", "a", 5)
    file = await exported(store, "f")
    assert await import_log(store, io.BytesIO(file), id="g") == "g"
    assert await exported(store, "g") == file
    assert await store.find("g", "m") is None
    async with open_store(tmp_path, sync=False) as other:
        assert await import_log(other, io.BytesIO(file)) == "f"


async def test_async_files_are_taken_too(tmp_path: Path) -> None:
    store = MemoryStore()
    await a_log(store)
    async with await trio.open_file(tmp_path / "a.jsonl", "wb") as file:
        assert await export_log(store, "a", file) == 2007
    async with await trio.open_file(tmp_path / "a.jsonl", "rb") as file:
        assert await import_log(store, file, id="b") == "b"
    assert await seqs(store, "b") == await seqs(store, "a")


async def test_an_agent_that_exists_is_not_written_over() -> None:
    store = MemoryStore()
    await a_log(store)
    with pytest.raises(UsageError, match="another id"):
        await import_log(store, io.BytesIO(await exported(store, "a")))
    with pytest.raises(AgentNotFound):
        await exported(store, "nobody")


Change = Callable[[list[bytes]], list[bytes]]
BROKEN: dict[str, tuple[Change, str]] = {
    "json": (lambda lines: [*lines[:1500], b"{not json", *lines[1500:]], "line 1501 is not a record"),
    "gap": (lambda lines: lines[:1200] + lines[1201:], "seq 1201, but 1200 is the next"),
    "empty": (lambda lines: [], "holds no log"),
    "headless": (lambda lines: lines[1:], "line 1 has seq 1"),
    "nameless": (lambda lines: [b'{"seq":0,"time":1,"type":"note","kind":"x"}'], "holds no log"),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_a_broken_file_leaves_nothing_behind(tmp_path: Path, how: str) -> None:
    source = MemoryStore()
    await a_log(source)
    lines = (await exported(source, "a")).splitlines()
    change, match = BROKEN[how]
    async with open_store(tmp_path, sync=False) as store:
        with pytest.raises(StoreFormat, match=match):
            await import_log(store, io.BytesIO(b"\n".join(change(lines))))
        assert await store.agents() == []


def folded(*events: e.Event) -> Summary:
    fold = IndexFold()
    for seq, event in enumerate(events):
        fold.apply(Record(seq, seq, event))
    return fold.summary()


def message(id: str) -> Message:
    return Message(id, "user", (TextBlock("hi"),))


def test_the_index_of_an_imported_log_says_what_there_is_to_do() -> None:
    start = e.LogCreated(format=1, agent="a", name="n", labels={"k": "v"}, parent="p", depth=2)
    waiting = e.InboxPut(message=message("m"), lane="next-turn")
    mail = e.InboxPut(message=Message("mail", "user", source=AgentSource("b")), lane="next-turn", sender="b")
    of_a_chat = e.InboxPut(message=message("m"), lane="next-turn", sender="ann")
    command = e.InboxPut(message=message("c"), lane="next-turn", releases=False)
    failed = e.TurnEnd(turn=1, reason=e.Completed(), usage=Usage(3), park=True)
    assert folded(start) == Summary("n", {"k": "v"}, "p", 2)
    assert folded(start, waiting).due
    assert not folded(start, e.InboxPut(message=message("m"), lane="next-step", wake=False)).due
    assert not folded(start, waiting, e.InboxClaim(turn=1, ids=("m",))).due
    assert not folded(start, waiting, failed).due
    assert folded(start, mail, failed).due
    assert not folded(start, of_a_chat, failed).due
    assert folded(start, waiting, failed, command).due
    assert not folded(start, waiting, failed, command, e.InboxClaim(turn=2, ids=("c",))).due
    assert folded(start, waiting, failed, e.InboxPut(message=message("n"), lane="next-turn")).due
    turn = folded(start, e.TurnStart(turn=1), e.ApprovalAsked(id="q", call_id="c", question="?"))
    assert (turn.turn, turn.open, turn.waits) == (1, True, ("approval",))
    closed = folded(start, e.TurnStart(turn=1), e.TimerSet(id="t", due=77, message=message("t")), failed)
    assert (closed.open, closed.timer, closed.usage) == (False, 77, Usage(3))
    forked = e.LogForked(agent="f", name="n", source="a", at=2)
    assert folded(start, waiting, e.TurnStart(turn=1), forked) == Summary("n", {"k": "v"}, turn=1)


# -- backups


async def test_a_backup_of_a_store_in_use_is_a_store(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store", sync=False) as store:
        await a_log(store)
        async with open_store(tmp_path / "store", readonly=True) as reader:
            await backup(reader, tmp_path / "copies" / "today")
        whole = await exported(store, "a")
        with pytest.raises(StoreError, match="not an empty folder"):
            await backup(store, tmp_path / "copies" / "today")
    async with open_store(tmp_path / "copies" / "today", sync=False) as copy:
        assert await exported(copy, "a") == whole
        await create(copy, "b")


async def test_what_cannot_be_backed_up(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not in a folder"):
        await backup(MemoryStore(), tmp_path / "copy")
    async with open_store(tmp_path / "store", sync=False) as store:
        with pytest.raises(StoreError, match="cannot be created"):
            await backup(store, "/proc/callboard/copy")


# -- the faulty store


async def test_a_faulty_store_fails_holds_and_counts() -> None:
    store = FaultyStore(MemoryStore())
    epoch = await create(store, "a")
    store.fail_next(StoreError("no"), 2)
    for _ in range(2):
        with pytest.raises(StoreError, match="no"):
            await write(store, [batch("a", epoch, [note(1)])])
    store.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, store, [batch("a", epoch, [note(1)])])
        await trio.testing.wait_all_tasks_blocked()
        assert (store.waiting, await seqs(store, "a")) == (1, [0])
        store.release()
    assert (store.waiting, await seqs(store, "a")) == (0, [0, 1])
    assert [len(units) for units in store.commits] == [1, 1]
    assert isinstance(store, Store)
