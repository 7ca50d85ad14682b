"""verify: a good log is clean, and each broken rule is told by its record and in words."""

from __future__ import annotations

import sys

import msgspec
import pytest
from log_script import HEADER, Script, asking, fold, text

from callboard.storage import events as e
from callboard.storage import messages as m
from callboard.storage.digest import header_digest, request_digest
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentNotFound
from callboard.storage.folds import Surface
from callboard.storage.records import Record, UnknownEvent, decode_event, encode_event
from callboard.storage.store import Batch, Fork, Summary
from callboard.storage.verify import Problem, Report, check_records, verify


def check(script: Script) -> Report:
    return check_records("a", script.records)


def told(script: Script) -> list[str]:
    return [problem.what for problem in check(script).problems]


# -- good logs


def test_c243_a_log_as_the_loop_writes_it_is_clean() -> None:
    script = Script()
    script.simple("one")
    script.with_tools("two", "c1", "c2")
    script.simple("three")
    assert check(script) == Report(ok=True, agents=1, records=len(script.records), requests=4, turns=3)


def test_c240_every_prefix_of_a_good_log_is_clean() -> None:
    script = Script()
    script.with_tools("one", "c1", "c2")
    script.simple("two")
    for end in range(1, len(script.records) + 1):
        assert check_records("a", script.records[:end]).problems == ()


def test_c098_retries_prompt_changes_and_replaces_are_rebuilt() -> None:
    script = Script()
    script.simple("one")
    script.begin("two")
    script.send()
    script.fail()
    script.add(
        e.SurfaceReplace(start=script.surface.entries()[0][0], end=script.surface.entries()[1][0], message=text("summary"))
    )
    script.header = msgspec.structs.replace(HEADER, system="Be short.")
    script.headers("change")
    script.send()
    script.answer()
    script.end()
    script.header = HEADER
    script.add(e.RequestHeader(reason="change", digest=header_digest(HEADER)))
    script.simple("three")
    report = check(script)
    assert report.ok and report.requests == 4


def test_c262_a_replace_by_the_request_seam_is_not_in_the_request_derived_before_it() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    upto, digest = script.last, request_digest(script.surface.messages(), HEADER)
    script.add(e.UserMessage(message=text("meanwhile")))
    script.send(digest=digest, upto=upto)
    script.answer()
    script.end()
    assert check(script).ok
    script.records[8] = Record(8, script.records[8].time, e.UserMessage(message=text("x")))
    assert check(script).ok


def test_c170_requests_left_open_by_a_cancel_or_a_crash_are_no_problem() -> None:
    for reason in (e.Aborted(e.Cause("user")), e.Interrupted()):
        script = Script()
        script.begin("one")
        script.headers()
        script.send()
        script.end(reason)
        script.simple("two")
        assert check(script).ok


def test_c086_a_cut_answer_after_a_failed_attempt_is_no_problem() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    script.send()
    script.fail("raise")
    script.answer(interrupted=True)
    script.end(e.Errored(m.Failure("SERVER")))
    assert check(script).ok


def test_c014_a_fork_goes_on_with_turns_and_begins_anew_with_its_inbox() -> None:
    script = Script()
    script.simple("one")
    script.put("pending")
    script.add(e.LogForked(agent="f", name="n", source="a", at=script.last))
    script.add(e.RequestHeader(reason="resume", digest=header_digest(HEADER)))
    script.put("one-again")
    script.simple("pending")
    assert check(script).ok
    script.add(e.InboxDrop(ids=("one",), why="withdrawn"))
    assert told(script) == ["inbox/drop names message 'one', which was never put"]


def test_c245_replaying_a_log_gives_the_live_history_and_imports_nothing() -> None:
    script = Script()
    script.with_tools("one", "c1", "c2")
    script.simple("two")
    stored = [encode_event(record) for record in script.records]
    before = set(sys.modules)
    read = [Record(seq, 1000 + seq, decode_event(raw), raw) for seq, raw in enumerate(stored)]
    assert check_records("a", read).ok and set(sys.modules) == before
    replayed = Surface()
    fold(replayed, [record.event for record in read if not isinstance(record.event, UnknownEvent)])
    assert replayed.messages() == script.surface.messages() and read == script.records


# -- broken ones


def test_c098_a_request_that_the_log_does_not_give_again_is_told() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    at = script.send()
    script.answer()
    script.end()
    script.records[5] = Record(5, script.records[5].time, e.UserMessage(message=text("another")))
    (problem,) = check(script).problems
    assert (problem.agent, problem.seq) == ("a", at)
    assert problem.what == (
        f"the request of turn 1 step 1 attempt 1 cannot be rebuilt: records up to seq {at - 1} have another digest"
    )
    assert str(problem).startswith("'a' seq 8: the request")


def test_c262_a_doubtful_request_with_a_wrong_digest_is_told() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    upto = script.last
    script.add(e.UserMessage(message=text("meanwhile")))
    script.send(upto=upto)
    assert told(script) == ["the request of turn 1 step 1 attempt 1 cannot be rebuilt: records up to seq 7 have another digest"]


def test_c243_a_request_needs_a_step_a_header_and_a_context_before_it() -> None:
    script = Script()
    script.put("one")
    script.add(e.RequestSent(turn=1, step=1, attempt=1, digest="", upto=9))
    assert told(script) == [
        "request/sent of turn 1 step 1 lies outside any turn",
        "a request is sent before any request/context",
        "a request is derived from seq 9, which is not before it",
        "a request is sent before any request/header",
    ]


def test_c100_headers_name_themselves_truly() -> None:
    script = Script()
    script.add(e.RequestHeader(reason="change", digest="1234567890abcdef"))
    script.add(e.RequestHeader(reason="initial", digest="wrong", header=HEADER))
    assert told(script) == [
        "repeats header 1234567890ab, which was never written whole",
        "gives the reason 'change' to a header that is the first",
        "the digest is not that of the header beside it",
        "gives the reason 'initial' to a header that is not the first",
    ]


def test_c242_a_message_ends_once() -> None:
    script = Script()
    script.put("a")
    script.put("a")
    script.put("b")
    script.add(e.InboxDrop(ids=("b", "c"), why="withdrawn"))
    script.add(e.TurnCancel(cause=e.Cause("user"), ids=("b",)))
    assert told(script) == [
        "puts message 'a' a second time",
        "inbox/drop names message 'c', which was never put",
        "turn/cancel names message 'b', which seq 4 has taken already",
    ]


def test_c240_turns_and_steps_nest_and_count() -> None:
    script = Script()
    script.add(e.TurnStart(turn=2), e.StepStart(turn=2, step=2), e.StepStart(turn=2, step=3))
    script.add(e.TurnStart(turn=3), e.TurnEnd(turn=4, reason=e.Completed()), e.TurnResume(turn=3), e.StepEnd(turn=3, step=1))
    assert told(script) == [
        "turn 2 follows turn 0",
        "step 2 follows step 0: steps count from 1",
        "step 3 starts while step 2 is open",
        "turn 3 starts while turn 2 is open",
        "turn/end of turn 4 lies in turn 3 outside any step",
        "turn/resume of turn 3 lies outside any turn",
        "step/end of turn 3 step 1 lies outside any turn",
    ]


def test_c240_a_turn_does_not_end_inside_its_step() -> None:
    script = Script()
    script.begin("one")
    script.add(e.TurnEnd(turn=1, reason=e.Completed()))
    assert told(script) == ["turn 1 ends inside its step 1"]


def test_c241_each_call_of_a_closed_step_has_one_result() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    script.send()
    script.answer(asking("ask", "c1", "c2", "c3"))
    script.result("c1")
    script.call("c1")
    script.result("c1")
    script.call("c2")
    script.call("c2")
    script.call("c9")
    script.result("c9")
    script.close_step()
    assert told(script) == [
        "calls 'c1' after its result",
        "is a second result of call 'c1'",
        "calls 'c2' a second time",
        "calls 'c9', which the answer of the step does not hold",
        "is the result of call 'c9', which the answer of the step does not hold",
        "step 1 ends, and call 'c2' has no result",
        "step 1 ends, and call 'c3' has no result",
    ]


def test_c080_each_request_has_one_end() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    script.send()
    script.send()
    script.next_step()
    script.fail()
    script.end()
    assert told(script) == [
        "attempt 2 is sent while attempt 1 has no end",
        "step 2 starts, and attempt 2 of the request before has no end",
        "attempt 0 fails, which is not open",
    ]


def test_c082_a_completed_turn_leaves_no_request_open() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    script.send()
    script.end()
    assert told(script) == ["turn 1 ends 'completed', and attempt 1 of its request has no end"]


def test_c003_an_answer_cites_the_chunks_of_its_attempt_and_no_others() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    first = script.send()
    script.fail()
    script.send()
    script.answer(sources=(first + 1, first + 2))
    script.answer()
    assert told(script) == [
        "cites 2 chunks that are not exactly the 2 of its attempt",
        "step 1 is answered a second time",
        "there is no open request that this would answer",
    ]


def test_c256_no_request_follows_a_cancel() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    script.add(e.TurnCancel(turn=1, cause=e.Cause("user")))
    script.send()
    script.end(e.Aborted(e.Cause("user")))
    assert told(script) == ["a request is sent after turn 1 was cancelled"]


def test_c015_seqs_are_dense_and_time_does_not_go_back() -> None:
    created = e.LogCreated(format=1, agent="a", name="n")
    note = e.Note(kind="k")
    records = [
        Record(0, 50, note),
        Record(2, 40, note),
        Record(3, 60, created),
        Record(4, 60, e.LogForked(agent="b", name="n", source="a", at=1)),
    ]
    assert [(problem.seq, problem.what) for problem in check_records("a", records).problems] == [
        (0, "a log begins with log/created, and has it only there"),
        (2, "follows seq 0: seqs must be dense"),
        (2, "is 10 ms older than the record before it"),
        (3, "a log begins with log/created, and has it only there"),
        (4, "says that the fork begins after seq 1"),
    ]


def test_c145_an_unknown_type_is_told_unless_it_may_be_skipped() -> None:
    script = Script()
    script.records.append(Record(1, 2000, UnknownEvent({"type": "new/thing", "skippable": True})))
    assert check(script).ok
    script.records.append(Record(2, 2000, UnknownEvent({"type": "new/thing"})))
    assert told(script) == ["has the unknown type 'new/thing': upgrade to verify this log"]


# -- over a store


async def write(store: MemoryStore, agent: str, records: list[Record], follows: int = -1, *before: Fork) -> None:
    epoch = await store.own(agent)
    forks = [msgspec.structs.replace(fork, epoch=epoch) for fork in before]
    batch = Batch(agent, epoch, follows, records, Summary(name="n"))
    assert await store.commit([[*forks, batch]]) == [None]


async def test_c279_verify_goes_over_every_agent_and_changes_nothing() -> None:
    store = MemoryStore()
    good, bad = Script("good"), Script("bad")
    good.simple("one")
    bad.put("x")
    bad.put("x")
    await write(store, "good", good.records)
    await write(store, "bad", bad.records)
    seen: list[tuple[str, int]] = []
    report = await verify(store, progress=lambda agent, records: seen.append((agent, records)))
    assert report == Report(
        ok=False,
        problems=(Problem("bad", 2, "puts message 'x' a second time"),),
        agents=2,
        records=len(good.records) + 3,
        requests=1,
        turns=1,
    )
    assert seen == [("bad", 3), ("good", len(good.records))]
    assert (await verify(store, ["good"])).ok
    head = await store.head("good")
    assert head is not None
    assert head.last == len(good.records) - 1


async def test_verify_of_an_agent_that_does_not_exist_says_so() -> None:
    with pytest.raises(AgentNotFound, match="no agent 'x' to verify"):
        await verify(MemoryStore(), ["x"])


async def test_c237_a_fork_is_verified_through_its_prefix() -> None:
    store = MemoryStore()
    script = Script("a")
    script.simple("one")
    await write(store, "a", script.records)
    at = script.last
    script.add(e.LogForked(agent="f", name="n", source="a", at=at))
    script.simple("two")
    await write(store, "f", script.records[at + 1 :], at, Fork("f", 0, "a", at))
    report = await verify(store)
    assert report.ok and (report.agents, report.requests, report.turns) == (2, 3, 3)


async def test_c262_a_doubtful_request_is_settled_over_a_store() -> None:
    store = MemoryStore()
    script = Script()
    script.begin("one")
    script.headers()
    upto, digest = script.last, request_digest(script.surface.messages(), HEADER)
    script.add(e.SurfaceReplace(start=5, end=5, message=text("meanwhile")))
    script.send(digest=digest, upto=upto)
    await write(store, "a", script.records)
    assert (await verify(store)).ok
