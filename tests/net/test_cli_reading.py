"""ls, log and verify over a store on disk: what people read, what programs read, and what is said when it cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import lmdb
import pytest
import trio

from callboard.net.cli import main
from callboard.net.cli.lines import ago, line_of, shorten
from callboard.net.cli.output import plain
from callboard.storage import chunks as c
from callboard.storage.engines.lmdb_layout import LAYOUT, Format, encode
from callboard.storage.errors import CallboardError, StoreInUse
from callboard.storage.events import (
    EVENTS,
    ApprovalAnswered,
    ApprovalAsked,
    AssistantChunk,
    CommandResult,
    CommandRun,
    Event,
    InboxPut,
    LogCreated,
    Note,
    OutboxFailed,
    OutboxPut,
    TimerFired,
    TimerSet,
    TurnEnd,
)
from callboard.storage.events.base import Completed, Route
from callboard.storage.messages import Failure, Message, TextBlock, Usage
from callboard.storage.opening import open_store
from callboard.storage.records import FORMAT, Record, UnknownEvent
from callboard.storage.store import Batch, Summary


async def fill(state: Path, *, chunk: bool = True) -> None:
    async with open_store(str(state)) as store:
        for agent, labels in (("desk/ann", {"shop": "a"}), ("desk/bob", None)):
            events: list[Event | UnknownEvent] = [
                LogCreated(format=FORMAT, agent=agent, name="desk", labels=labels),
                InboxPut(message=Message("m1", "user", (TextBlock("hello\x1b[2J there"),)), lane="next-step", wake=False),
                AssistantChunk(turn=1, step=1, chunk=c.text_delta(0, "hi")),
                Note(kind="plan", data={"a": 1}),
                UnknownEvent({"type": "later/thing", "skippable": True, "x": 7}),
            ]
            if not chunk:
                del events[2]
            records = [Record(n, 1_764_500_000_000 + n, event) for n, event in enumerate(events)]
            summary = Summary(name="desk", labels=labels, usage=Usage(input=1200))
            epoch = await store.own(agent)
            assert await store.commit([[Batch(agent, epoch, -1, records, summary)]]) == [None]


@pytest.fixture
def state(tmp_path: Path) -> str:
    trio.run(fill, tmp_path / "state")
    return str(tmp_path / "state")


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(words) == code
    out, err = capsys.readouterr()
    assert not err, err
    return out


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    """One sentence on standard error for people; the same in one JSON object for programs."""
    assert main(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("callboard: ") and err.count("\n") == 1 and "Traceback" not in err
    assert main([*words, "--json"]) == code
    out, nothing = capsys.readouterr()
    assert nothing == ""
    error = json.loads(out)["error"]
    assert (f"callboard: {error['message']}\n", error["exit"]) == (err, code)
    return err


def test_ls_lists_agents(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "ls", state).splitlines()
    assert len(lines) == 3
    assert lines[1].split()[:4] == ["idle", "0", "5", "1,200"]
    assert lines[1].endswith("desk/ann (desk)")
    assert said(capsys, "ls", state, "--prefix", "desk/b").splitlines()[1].endswith("desk/bob (desk)")
    assert "no agents" in said(capsys, "ls", state, "--prefix", "x")


def test_ls_as_json_is_one_object_a_line(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = [json.loads(line) for line in said(capsys, "ls", state, "--json").splitlines()]
    assert [(v["id"], v["head"], v["labels"], v["status"]) for v in values] == [
        ("desk/ann", 4, {"shop": "a"}, "idle"),
        ("desk/bob", 4, {}, "idle"),
    ]
    assert said(capsys, "ls", state, "--json", "--prefix", "x") == ""


def test_log_is_a_line_a_record_without_chunks_or_control_sequences(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "log", state, "desk/ann").splitlines()
    assert [line.split()[2] for line in lines] == ["log/created", "inbox/put", "note", "later/thing"]
    assert "hello\\x1b[2J there" in lines[1]
    assert len(said(capsys, "log", state, "desk/ann", "--chunks").splitlines()) == 5
    assert [line.split()[0] for line in said(capsys, "log", state, "desk/ann", "--after", "2").splitlines()] == ["3", "4"]
    assert [line.split()[0] for line in said(capsys, "log", state, "desk/ann", "--types", "note,log/created").splitlines()] == [
        "0",
        "3",
    ]


def test_log_as_json_is_the_whole_log(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = [json.loads(line) for line in said(capsys, "log", state, "desk/bob", "--json").splitlines()]
    assert [v["seq"] for v in values] == [0, 1, 2, 3, 4]
    assert values[4] == {"seq": 4, "time": 1_764_500_000_004, "type": "later/thing", "skippable": True, "x": 7}


def test_a_log_can_be_read_while_another_process_owns_the_store(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def hold() -> None:
        async with open_store(state):
            await trio.to_thread.run_sync(lambda: None)
            process = await trio.run_process(
                [sys.executable, "-P", "-m", "callboard.net.cli", "log", state, "desk/ann", "--json"], capture_stdout=True
            )
            assert len(process.stdout.splitlines()) == 5

    trio.run(hold)


def test_verify_says_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trio.run(partial(fill, tmp_path / "s", chunk=False))
    out = said(capsys, "verify", str(tmp_path / "s"))
    assert out.startswith("ok: 2 agents, 8 records")
    assert json.loads(said(capsys, "verify", str(tmp_path / "s"), "desk/ann", "--json"))["agents"] == 1


def test_verify_names_the_record(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "verify", state, "desk/ann", code=1).splitlines()
    assert lines[0].startswith("desk/ann at 2: assistant/chunk")
    assert lines[1].startswith("1 problems: 1 agents, 5 records")


def test_verify_lists_problems_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def spoil() -> None:
        async with open_store(str(tmp_path / "s")) as store:
            records = [
                Record(0, 1, LogCreated(format=FORMAT, agent="a", name="a")),
                Record(1, 1, TurnEnd(turn=1, reason=Completed())),
            ]
            await store.commit([[Batch("a", await store.own("a"), -1, records, Summary(name="a"))]])

    trio.run(spoil)
    assert "problems: 1 agents" in said(capsys, "verify", str(tmp_path / "s"), code=1)
    assert json.loads(said(capsys, "verify", str(tmp_path / "s"), "--json", code=1))["ok"] is False


def test_c230_an_unknown_agent_is_one_sentence_with_the_closest_name(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'desk/ann'?" in refused(capsys, "log", state, "desk/an", code=2)
    assert "did you mean 'desk/bob'?" in refused(capsys, "verify", state, "desk/bobb", code=2)
    assert "`callboard ls`" in refused(capsys, "log", state, "zzz", code=2)


def test_c230_a_missing_folder_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["ls"], ["log"], ["verify"]):
        extra = ["x"] if command == ["log"] else []
        refused(capsys, *command, str(tmp_path / "none"), *extra, code=4)
    assert not (tmp_path / "none").exists()


def test_c230_wrong_words_are_one_sentence(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean `callboard log`?" in refused(capsys, "lgo", state, code=2)
    assert "STATE" in refused(capsys, "ls", code=2)
    assert "COMMAND" in refused(capsys, code=2)
    assert "--prefx" in refused(capsys, "ls", state, "--prefx", "x", code=2)
    assert "did you mean 'turn/end'?" in refused(capsys, "log", state, "desk/ann", "--types", "turn/ends", code=2)
    assert "invalid int value" in refused(capsys, "log", state, "desk/ann", "--after", "x", code=2)


def test_c230_a_foreign_folder_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "data.mdb").write_bytes(b"not a store at all" * 1000)
    refused(capsys, "ls", str(tmp_path / "s"), code=4)


def test_help_lists_every_command_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("demo", "run", "ls", "log", "verify", "143", "another process owns the store"))


def test_every_type_has_a_line() -> None:
    assert [type for type, event in EVENTS.items() if type == "turn/end" and event is not TurnEnd] == []
    record = Record(3, 1_764_500_000_000, TurnEnd(turn=2, reason=Completed(), usage=Usage(input=1000, output=5), latency_ms=7))
    assert line_of(record).endswith("turn/end          turn 2 completed; 1,005 tokens, 7 ms")


def test_replies_questions_and_reminders_are_told_in_words() -> None:
    route, text = Route("irc", "ann", "t1"), (TextBlock("Tea."),)
    told = {
        "to irc:ann:t1: Tea.": OutboxPut(delivery="d1", route=route, content=text, turn=1),
        "delivery d1: TIMEOUT: gone": OutboxFailed(delivery="d1", failure=Failure("TIMEOUT", "gone")),
        "a!3 about c1: Pay?": ApprovalAsked(id="a!3", call_id="c1", question="Pay?"),
        "a!3 deny by ann: too much": ApprovalAnswered(id="a!3", verdict="deny", by="ann", text="too much"),
        "every 60 s: Tea.": TimerSet(id="t", due=0, every=60, message=Message("m", "user", text)),
        "t, late": TimerFired(id="t", late=True),
        "/history 3": CommandRun(id="m", name="/history", args="3"),
        "BROKEN: no": CommandResult(id="m", text="no", error=Failure("BROKEN", "no")),
    }
    for words, event in told.items():
        assert line_of(Record(1, 0, event)).endswith(words)


def test_texts_for_people_are_short_and_harmless() -> None:
    assert shorten("a\n b" * 100, 9) == "a ba ba …"
    assert plain("a\x9b1m\u202eb\tc\n") == "a\\x9b1m\\x202eb\tc\n"
    assert [ago(n) for n in (0, 59_000, 3_600_000, 172_800_000)] == ["0s", "59s", "1h", "2d"]


def test_errors_pick_what_a_person_can_act_on() -> None:
    from callboard.net.cli.problems import describe

    group = ExceptionGroup("g", [OSError(28, "No space left on device", "x"), StoreInUse("owned by 7", pid=7)])
    assert (describe(group).message, describe(group).exit) == ("owned by 7", 3)
    assert describe(OSError(28, "No space left on device", "x")).exit == 4
    assert describe(CallboardError("x")).exit == 1
    assert describe(ZeroDivisionError("x")).exit == 70
    assert describe(KeyboardInterrupt()).exit == 130


def test_a_store_of_a_newer_version_is_one_sentence(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    with lmdb.open(state, max_dbs=20) as env:
        meta = env.open_db(b"meta")
        with env.begin(write=True) as txn:
            txn.put(b"format", encode(Format(LAYOUT + 1, FORMAT)), db=meta)
    for words in (("ls", state), ("verify", state), ("log", state, "desk/ann")):
        assert "newer Callboard" in refused(capsys, *words, code=4)


def test_a_log_that_nobody_reads_to_its_end_is_no_error(state: str) -> None:
    async def cut() -> None:
        async with open_store(state) as store:
            records = [Record(n, 1, Note(kind="x", data="y" * 1000)) for n in range(5, 2000)]
            await store.commit([[Batch("desk/ann", await store.own("desk/ann"), 4, records, Summary(name="desk"))]])

    trio.run(cut)
    words = [sys.executable, "-P", "-m", "callboard.net.cli", "log", state, "desk/ann"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert b"log/created" in process.stdout.readline()
        process.stdout.close()
        assert (process.wait(timeout=120), process.stderr.read()) == (141, b"")
