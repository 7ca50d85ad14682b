"""Crashes around tools: what runs again, what must not, and what a result brings with it (C171, C263, C264)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from crashing import crashed, image, live, restart, upto
from helpers import check, make, notation, opened, records, scripted

from callboard.actors.answers import Allow, ToolCall
from callboard.actors.ref import AgentRef
from callboard.actors.seams import Plugin
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import ToolContext, ToolOutput, tool
from callboard.mailbox.addresses import effect_key
from callboard.storage import events as e

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Bodies of the test before do not count."""
    ran.clear()


async def _body(ctx: ToolContext[Any]) -> str:
    """A body that counts."""
    ran.append(ctx.effect_key)
    return f"{ctx.call_id} done"


async def _tells(ctx: ToolContext[Any]) -> ToolOutput:
    """Gives the next step something to read."""
    ran.append(ctx.effect_key)
    return ToolOutput(f"{ctx.call_id} done", context=[f"{ctx.call_id} tells"])


async def send(ref: AgentRef[Any]) -> None:
    await ref.followup("hi", message_id="hi")


def calls(*names: str) -> Reply:
    return Reply.tools(*((f"c{n}", name, "{}") for n, name in enumerate(names, 1)))


TELLS = tool(name="tells", mode="parallel", replay="never")(_tells)
NEVER = tool(name="work", replay="never")(_body)
SAFE = tool(name="work", replay="safe")(_body)
REST = "SE SS1.2 H{resume} Q1 C* A SE TE1{completed}"


async def test_c263_what_results_bring_is_put_with_the_last_of_them() -> None:
    life = await live(make(scripted(calls("tells", "tells"), "fine"), tools=[TELLS]), send)
    assert "call(c1) call(c2) res(c1) res(c2) put[s](c1 tells) put[s](c2 tells) SE" in notation(life.records)
    last = life.upto("res(c2)")
    assert last not in life.ends and last + 2 in life.ends, "one append"


async def test_c171_what_results_bring_is_put_once_whenever_the_crash() -> None:
    agent = make(scripted(), tools=[TELLS])
    life = await live(agent.replace(model=scripted(calls("tells", "tells"), "fine")), send)
    for end in life.ends:
        if end >= life.upto("call(c1)"):
            ran.clear()
            after = await restart(agent.replace(model=scripted("fine", "fine")), await image(life.records, end))
            put = [r.event.message.text for r in after.records if isinstance(r.event, e.InboxPut)][1:]
            claimed = [id for r in after.records if isinstance(r.event, e.InboxClaim) for id in r.event.ids][1:]
            told = [r.event.call_id for r in after.records if isinstance(r.event, e.ToolResult) if not r.event.error]
            assert put == [f"{call} tells" for call in told]
            assert len(claimed) == len(put)
            assert (len(ran) == 1) == (end == life.upto("call(c1)"))  # only what had not started


async def test_c264_a_safe_body_runs_again_under_its_first_call() -> None:
    life = await live(make(scripted(calls("work"), "fine"), tools=[SAFE]), send)
    added = await crashed(life.records, life.upto("call(c1)"), make(scripted("fine"), tools=[SAFE]))
    assert added == f"TR1 res(c1) {REST}"
    assert len(ran) == 2 and len(set(ran)) == 1


async def test_c264_a_started_call_follows_the_log_whatever_the_code_says_now() -> None:
    for then, now, result in ((SAFE, NEVER, "res(c1)"), (NEVER, SAFE, "res(c1!OUTCOME_UNKNOWN)")):
        life = await live(make(scripted(calls("work"), "fine"), tools=[then]), send)
        added = await crashed(life.records, life.upto("call(c1)"), make(scripted("fine"), tools=[now]))
        assert added == f"TR1 {result} {REST}"


async def test_c264_a_call_that_has_not_started_follows_the_code() -> None:
    for then, now in ((SAFE, NEVER), (NEVER, SAFE)):
        life = await live(make(scripted(calls("work"), "fine"), tools=[then]), send)
        after = await restart(make(scripted("fine"), tools=[now]), await image(life.records, life.upto("A")))
        assert notation(after.records, life.upto("A")) == f"TR1 call(c1) res(c1) {REST}"
        assert [r.event.replay for r in after.records if isinstance(r.event, e.ToolCalled)] == [now.replay]


async def test_c264_a_tool_that_is_gone_is_unknown() -> None:
    life = await live(make(scripted(calls("work"), "fine"), tools=[SAFE]), send)
    agent = make(scripted("fine"))
    assert await crashed(life.records, life.upto("call(c1)"), agent) == f"TR1 res(c1!UNKNOWN_TOOL) {REST}"
    agent = make(scripted("fine"))
    assert await crashed(life.records, life.upto("A"), agent) == f"TR1 call(c1) res(c1!UNKNOWN_TOOL) {REST}"
    ran.clear()
    life = await live(make(scripted(calls("work"), "fine"), tools=[NEVER]), send)
    agent = make(scripted("fine"))
    assert await crashed(life.records, life.upto("call(c1)"), agent) == f"TR1 res(c1!OUTCOME_UNKNOWN) {REST}"


async def test_c264_the_effect_is_the_one_that_a_plugin_made_of_it() -> None:
    """A body that runs again has the arguments of the call's record, not those of the model."""
    seen: list[str] = []

    @tool(name="write", replay="safe")
    async def write(text: str) -> str:
        """Write it."""
        seen.append(text)
        return text

    class Rewrites(Plugin):
        async def tool_before(self, ctx: Any, value: ToolCall, next: Any) -> Any:
            return Allow({"text": f"{value.args['text']}!"})

    reply = Reply.tools(("c1", "write", {"text": "hey"}))
    life = await live(make(scripted(reply, "fine"), tools=[write], plugins=[Rewrites()]), send)
    after = await restart(make(scripted("fine"), tools=[write]), await image(life.records, life.upto("call(c1)")))
    assert seen == ["hey!", "hey!"]
    assert upto(after.records, "res(c1)") == life.upto("call(c1)") + 2


async def test_c172_calls_behind_the_crash_are_dispatched_now() -> None:
    life = await live(make(scripted(calls("work", "work", "work"), "fine"), tools=[NEVER]), send)
    ran.clear()
    added = await crashed(life.records, life.upto("call(c2)"), make(scripted("fine"), tools=[NEVER]))
    assert added == f"TR1 res(c2!OUTCOME_UNKNOWN) call(c3) res(c3) {REST}"
    assert ran == [effect_key("a", 1, 1, "c3")]


async def test_c147_with_recovery_end_one_append_closes_all_that_is_open() -> None:
    life = await live(make(scripted(calls("work", "work"), "fine"), tools=[NEVER]), send)
    agent = make(scripted("fine"), tools=[NEVER], recovery="end")
    cases = {
        life.upto("U(hi)"): "SE TE1{interrupted}",
        life.upto("Q1"): "SE TE1{interrupted}",
        life.upto("A"): "res(c1!NOT_STARTED) res(c2!NOT_STARTED) SE TE1{interrupted}",
        life.upto("call(c1)"): "res(c1!OUTCOME_UNKNOWN) res(c2!NOT_STARTED) SE TE1{interrupted}",
        life.upto("res(c1)"): "res(c2!NOT_STARTED) SE TE1{interrupted}",
        life.upto("call(c2)"): "res(c2!OUTCOME_UNKNOWN) SE TE1{interrupted}",
        life.upto("res(c2)"): "SE TE1{interrupted}",
        life.upto("SE"): "TE1{interrupted}",
        life.records[-1].seq: "",
    }
    ran.clear()
    for end, expected in cases.items():
        after = await restart(agent, await image(life.records, end))
        assert notation(after.records, end) == expected
        assert not after.ends or after.ends == [after.records[-1].seq]
    assert not ran


async def test_c147_after_the_start_of_a_turn_alone_its_items_stay_pending() -> None:
    life = await live(make(scripted("hello")), send)
    added = await crashed(life.records, life.upto("TS1"), make(scripted("hello"), recovery="end"))
    assert added == "TE1{interrupted} TS2 claim(hi) SS2.1 U(hi) H{initial} X Q1 C* A SE TE2{completed}"


async def test_c147_the_visible_part_of_a_cut_stream_is_kept() -> None:
    life = await live(make(scripted(Reply.text("hello there", parts=2))), send)
    agent = make(scripted(), recovery="end")
    end = next(r.seq for r in life.records if isinstance(r.event, e.AssistantChunk)) + 1
    async with opened(agent, await image(life.records, end)) as (_, ref):
        await ref.wait_idle()
        assert [(m.role, m.text) for m in await ref.messages()][1] == ("assistant", "hello ")


async def test_c148_two_recoveries_of_one_prefix_are_equal_apart_from_time() -> None:
    life = await live(make(scripted(calls("work", "work"), "fine"), tools=[NEVER]), send)
    agent = make(scripted(), tools=[NEVER], recovery="end")
    end = life.upto("call(c1)")
    both = [(await restart(agent, await image(life.records, end))).records for _ in range(2)]
    plain = [[_without_time(record.event) for record in log] for log in both]
    assert plain[0] == plain[1]
    closed = both[0]
    assert await crashed(closed, closed[-1].seq, make(scripted(), tools=[NEVER])) == "", "it is not taken up later"


def _without_time(event: Any) -> Any:
    return msgspec.structs.replace(event, latency_ms=0, trace=()) if isinstance(event, e.TurnEnd) else event


async def test_c256_a_cancelled_turn_is_ended_and_not_gone_on_with() -> None:
    async def act(ref: AgentRef[Any]) -> None:
        await ref.followup("hi", message_id="hi")
        await ref.followup("b", message_id="b")
        await ref.cancel()

    life = await live(make(scripted(Reply.hang("half"))), act)
    end = next(r.seq for r in life.records if isinstance(r.event, e.TurnCancel))
    assert _cut(life.records, end).endswith("TC1(b)")
    for mode in ("continue", "end"):
        assert await crashed(life.records, end, make(scripted(), recovery=mode)) == "A{cut} SE TE1{aborted user}"


async def test_c256_what_a_cancel_kept_stays_parked() -> None:
    async def act(ref: AgentRef[Any]) -> None:
        await ref.followup("hi", message_id="hi")
        await ref.followup("b", message_id="b")
        await ref.cancel(keep_inbox=True)

    life = await live(make(scripted(Reply.hang("half"))), act)
    end = next(r.seq for r in life.records if isinstance(r.event, e.TurnCancel))
    async with opened(make(scripted("x")), await image(life.records, end)) as (_, ref):
        await ref.wait_idle()
        assert [(item.id, item.parked) for item in await ref.pending()] == [("b", True)]


async def test_c256_in_tools() -> None:
    async def cancels(ctx: ToolContext[Any]) -> str:
        """Ends its own turn."""
        await ctx.agent.cancel()
        return "never read"

    tools = [tool(name="cancels", replay="safe")(cancels), NEVER]
    life = await live(make(scripted(calls("work", "cancels", "work")), tools=tools), send)
    end = next(r.seq for r in life.records if isinstance(r.event, e.TurnCancel))
    added = await crashed(life.records, end, make(scripted(), tools=tools))
    assert added == "res(c2!OUTCOME_UNKNOWN) res(c3!ABORTED_BEFORE_DISPATCH) SE TE1{aborted user}"


def _cut(log: Any, end: int) -> str:
    return notation([record for record in log if record.seq <= end])


async def test_c256_a_cancel_in_the_instant_of_taking_up_is_none_too_early() -> None:
    """Opened by the cancel itself: the driver has been woken, and has not begun."""
    life = await live(make(scripted("hello")), send)
    store = await image(life.records, life.upto("Q1"))
    async with System.open(store) as system:
        assert list(system.report.failed) == ["a"]  # nobody knows its definition yet
        system.define(make(scripted()))
        ref = await system.get("a")
        await ref.cancel()
        await ref.wait_idle()
    assert notation(await records(store), life.upto("Q1")) == "TC1 SE TE1{aborted user}"
    await check(store)
