"""Section 12 of the conformance cases: a log cut where a crash may cut it, and what a restart adds to it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from crashing import Act, crashed, folded, image, live, restart
from helpers import history, make, notation, opened, order, records, scripted

from callboard.actors.answers import Stopping
from callboard.actors.ref import AgentRef
from callboard.actors.seams import Plugin
from callboard.actors.system import System
from callboard.actors.testing.crashes import every_crash
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.actors.tools import ToolContext, tool
from callboard.mailbox.addresses import effect_key
from callboard.storage import events as e
from callboard.storage.messages import Message, TextBlock
from callboard.storage.records import FORMAT, Record
from callboard.storage.store import Store

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Bodies of the test before do not count."""
    ran.clear()


@tool(replay="never")
async def once(ctx: ToolContext[Any]) -> str:
    """Must not be repeated."""
    ran.append(ctx.effect_key)
    return "done"


@tool(replay="never", mode="parallel")
async def one(ctx: ToolContext[Any]) -> str:
    """Not repeated, beside others."""
    ran.append(ctx.effect_key)
    return "one"


@tool(replay="safe", mode="parallel")
async def again(ctx: ToolContext[Any]) -> str:
    """May be repeated."""
    ran.append(ctx.effect_key)
    return "again"


CALL = Reply.tools(("c1", "once", {}))


def say(*texts: str, then: trio.Event | None = None) -> Act:
    """Send these, one after the other, without waiting for their turns; the event says that all are there."""

    async def act(ref: AgentRef[Any]) -> None:
        for text in texts:
            await ref.followup(text, message_id=text)
        if then is not None:
            then.set()

    return act


async def test_c168_accepted_inputs_have_their_turns_without_a_new_wake() -> None:
    texts = "abcde"
    puts = [e.InboxPut(message=Message(text, "user", (TextBlock(text),)), lane="next-turn") for text in texts]
    created = e.LogCreated(format=FORMAT, agent="a", name="demo")
    log = [Record(seq, 1, event) for seq, event in enumerate([created, *puts])]
    added = await crashed(log, 5, make(scripted(*texts)))
    first = "TS1 claim(a) SS1.1 U(a) H{initial} X Q1 C* A SE TE1{completed}"
    rest = [f"TS{n} claim({t}) SS{n}.1 U({t}) Q1 C* A SE TE{n}{{completed}}" for n, t in enumerate(texts, 1) if n > 1]
    assert added == " ".join([first, *rest])


async def test_c169_an_open_request_is_another_attempt_of_its_step() -> None:
    life = await live(make(scripted("hello")), say("hi"))
    for end in life.ends:
        if life.upto("Q1") <= end < life.upto("A"):
            model = scripted("hello again")
            after = await restart(make(model), await image(life.records, end))
            assert notation(after.records, end) == "TR1 F1{retry} H{resume} Q2 C* A SE TE1{completed}"
            sent = [r.event for r in after.records if isinstance(r.event, e.RequestSent)]
            assert [q.attempt for q in sent] == [1, 2] and sent[0].digest == sent[1].digest
            failed = next(r.event for r in after.records if isinstance(r.event, e.RequestFailed))
            assert failed.failure.code == "INTERRUPTED"
            assert [m.text for m in model.requests[0].messages] == ["hi"]


async def test_c169_a_changed_definition_is_a_changed_header() -> None:
    life = await live(make(scripted("hello")), say("hi"))
    after = await restart(make(scripted("x"), system="Be brief."), await image(life.records, life.upto("Q1")))
    headers = [r.event for r in after.records if isinstance(r.event, e.RequestHeader)]
    assert [(h.reason, h.header is not None) for h in headers] == [("initial", True), ("resume", True)]


class Stopped(Plugin):
    """Counts how often it was asked at the stop of a turn."""

    def __init__(self) -> None:
        self.asked = 0

    async def turn_stopping(self, ctx: Any, value: Stopping) -> None:
        self.asked += 1


async def test_c170_a_complete_answer_only_needs_its_end() -> None:
    life = await live(make(scripted("hello")), say("hi"))
    stopped, model = Stopped(), scripted()
    agent = make(model, plugins=[stopped])
    assert await crashed(life.records, life.upto("A"), agent) == "TR1 SE TE1{completed}"
    assert await crashed(life.records, life.upto("SE"), agent) == "TR1 TE1{completed}"
    assert not stopped.asked and not model.requests
    async with opened(agent, await image(life.records, life.upto("A"))) as (_, ref):
        assert (await ref.outcome("hi")).text == "hello"
        assert (await ref.ask("hi", message_id="hi")).text == "hello"
    assert not model.requests


async def test_c171_no_body_runs_again_behind_its_result() -> None:
    life = await live(make(scripted(CALL, "fine"), tools=[once]), say("hi"))
    ran.clear()
    added = await crashed(life.records, life.upto("res(c1)"), make(scripted("fine"), tools=[once]))
    assert added == "TR1 SE SS1.2 H{resume} Q1 C* A SE TE1{completed}"
    assert not ran


async def test_c172_the_open_turn_goes_first_then_what_is_queued() -> None:
    there = trio.Event()
    calls = [Reply.wait(there, Reply.tools((f"c{n}", "once", {}))) for n in (1, 2)]
    life = await live(make(scripted(*calls, "fine", "next"), tools=[once]), say("hi", "more", then=there))
    assert notation(life.records).startswith("put[t](hi)")
    end = life.upto("SE", 2)
    assert any(isinstance(r.event, e.InboxPut) and r.event.message.id == "more" for r in life.records[:end])
    added = await crashed(life.records, end, make(scripted("fine", "next"), tools=[once]))
    assert added == ("TR1 SS1.3 H{resume} Q1 C* A SE TE1{completed} TS2 claim(more) SS2.1 U(more) Q1 C* A SE TE2{completed}")


async def test_c173_what_ended_and_what_may_have_is_told_by_the_models_order() -> None:
    def batch(*names: str) -> Reply:
        return Reply.tools(*((name, name, "{}") for name in names))

    tools = [one, again, tool(name="two", mode="parallel", replay="never")(_two)]
    life = await live(make(scripted(batch("one", "two"), "fine"), tools=tools), say("hi"))
    added = await crashed(life.records, life.upto("res(one)"), make(scripted("fine"), tools=tools))
    assert added == "TR1 res(two!OUTCOME_UNKNOWN) SE SS1.2 H{resume} Q1 C* A SE TE1{completed}"

    # The other way round: the first runs, the second has ended, and its result could not be written yet.
    added = await crashed(life.records, life.upto("call(two)"), make(scripted("fine"), tools=tools))
    assert added.startswith("TR1 res(one!OUTCOME_UNKNOWN) res(two!OUTCOME_UNKNOWN) SE SS1.2")
    life = await live(make(scripted(batch("two", "again"), "fine"), tools=tools), say("hi"))
    added = await crashed(life.records, life.upto("call(again)"), make(scripted("fine"), tools=tools))
    assert added.startswith("TR1 res(two!OUTCOME_UNKNOWN) res(again) SE SS1.2")


async def _two() -> str:
    """Another that must not be repeated."""
    return "two"


async def test_c175_an_effect_key_is_made_of_agent_turn_step_and_call() -> None:
    for _ in range(2):
        await live(make(scripted(CALL, "fine"), tools=[once]), say("hi"))
    life = await live(make(scripted(CALL, "fine"), tools=[once]), say("hi"))
    await crashed(life.records, life.upto("A"), make(scripted("fine"), tools=[once]))
    assert ran == [effect_key("a", 1, 1, "c1")] * 4


@pytest.mark.parametrize("mode", ["continue", "end"])
async def test_c180_parked_stays_parked_until_the_next_wake(mode: Any) -> None:
    there = trio.Event()
    life = await live(make(scripted(Reply.wait(there, Reply.fail("AUTH")))), say("hi", "parked", then=there))
    assert folded(life.records).inbox.pending()[0].parked
    agent = make(scripted("first", "second"), recovery=mode)
    assert await crashed(life.records, life.records[-1].seq, agent) == ""
    added = await crashed(life.records, life.records[-1].seq, agent, say("wakes"))
    assert added == (
        "put[t](wakes) TS2 claim(parked) SS2.1 U(parked) H{resume} Q1 C* A SE TE2{completed} "
        "TS3 claim(wakes) SS3.1 U(wakes) Q1 C* A SE TE3{completed}"
    )


async def test_c180_parked_by_a_cancel_too() -> None:
    async def act(ref: AgentRef[Any]) -> None:
        await ref.followup("hi", message_id="hi")
        await ref.followup("parked", message_id="parked")
        await ref.cancel(keep_inbox=True)

    life = await live(make(scripted(Reply.hang("half"))), act)
    assert notation(life.records).endswith("TE1{aborted user}")
    assert await crashed(life.records, life.records[-1].seq, make(scripted())) == ""


async def test_c181_start_up_opens_no_agent_that_only_holds_parked_input() -> None:
    there = trio.Event()
    life = await live(make(scripted(Reply.wait(there, Reply.fail("AUTH")))), say("hi", "parked", then=there))
    store = await image(life.records, life.records[-1].seq)
    async with System.open(store, agents=[make(scripted())]) as system:
        assert system.statistics()["opened"] == 0
        assert system.report.resumed == system.report.woken == []


async def test_c143_opening_a_closed_log_adds_nothing() -> None:
    life = await live(make(scripted(CALL, "fine"), tools=[once]), say("hi"))
    store = await image(life.records, life.records[-1].seq)
    for _ in range(10):
        async with opened(make(scripted(), tools=[once]), store) as (_, ref):
            assert len(await history(ref)) == 4
    assert await order(store) == notation(life.records)


async def test_c046_what_was_acknowledged_is_there_after_any_kill() -> None:
    acknowledged: list[str] = []

    async def scenario(store: Store) -> list[str]:
        if await store.head("a") is None:
            acknowledged.clear()
        else:
            there = {r.event.message.id for r in await records(store) if isinstance(r.event, e.InboxPut)}
            assert there.issuperset(acknowledged), acknowledged
        agent = make(ScriptedModel(lambda request: Reply.text(f"{len(request.messages)}")))
        async with System.open(store, agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")

            async def send(how: str, n: int) -> None:
                receipt = await getattr(ref, how)(f"{how} {n}", message_id=f"{how} {n}")
                acknowledged.append(receipt.message_id)

            async with trio.open_nursery() as nursery:
                for how in ("followup", "steer", "inject"):
                    for n in range(3):
                        nursery.start_soon(send, how, n)
            await ref.wait_idle()
        claimed = [id for r in await records(store) if isinstance(r.event, e.InboxClaim) for id in r.event.ids]
        return sorted(claimed)

    async for crash in every_crash(scenario):
        everything = sorted(f"{how} {n}" for how in ("followup", "steer", "inject") for n in range(3))
        pending = [item.id for item in folded(await records(crash.store)).inbox.pending()]
        assert sorted([*crash.result, *pending]) == everything, crash
        assert all(id.startswith("inject") for id in pending)


async def test_c086_what_a_failed_attempt_had_shown_is_kept_also_by_recovery() -> None:
    life = await live(make(scripted(Reply.fail("AUTH", after="half"))), say("hi"))
    assert notation(life.records).endswith("Q1 C* F1{raise} A{cut} SE TE1{error}")
    end = life.upto("F1{raise}")
    assert await crashed(life.records, end, make(scripted())) == "TR1 A{cut} SE TE1{error}"
    assert await crashed(life.records, end, make(scripted(), recovery="end")) == "A{cut} SE TE1{interrupted}"
    after = await restart(make(scripted()), await image(life.records, end))
    cut = next(r.event for r in after.records if isinstance(r.event, e.AssistantMessage))
    assert cut.message.text == "half" and cut.interrupted
