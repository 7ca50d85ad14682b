"""What a log holds of each way into the inbox: idle or in a turn, changed, sent twice, cut while it is on its way."""

from __future__ import annotations

from typing import Any

import trio
from helpers import check, make, opened, order, records, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors.answers import Answer, Boundary, Enter, Reject
from callboard.actors.ref import AgentRef
from callboard.actors.seams import Next, Plugin, SeamContext
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import ToolContext, tool
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.events import InboxPut
from callboard.storage.messages import Message
from callboard.storage.testing import FaultyStore

REST = "Q1 C* A SE"


class Statuses(Plugin):
    """Notes every status."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_status(self, ctx: SeamContext, status: str, /) -> None:
        self.seen.append(status)


@tool
async def injects(ctx: ToolContext[Any]) -> str:
    """Adds context twice."""
    await ctx.agent.inject("x")
    await ctx.agent.inject("y")
    return "ok"


@tool
async def steers(ctx: ToolContext[Any]) -> str:
    """Steers its own turn."""
    await ctx.agent.steer("x")
    return "ok"


@tool
async def follows(ctx: ToolContext[Any]) -> str:
    """Queues a prompt for its own agent."""
    await ctx.agent.followup("later")
    return "ok"


async def test_c032_an_idle_inject_waits_for_the_next_prompt() -> None:
    store = MemoryStore()
    async with opened(make(scripted("hello")), store) as (_, ref):
        await ref.inject("note")
        await ref.wait_idle()
        assert ref.status == "idle"
        assert await order(store) == "put[s](note)"
        await ref.followup("go")
        await ref.wait_idle()
    assert await order(store) == (
        f"put[s](note) put[t](go) TS1 claim(note,go) SS1.1 U(note) U(go) H{{initial}} X {REST} TE1{{completed}}"
    )


async def test_c033_an_idle_steer_wakes() -> None:
    store = MemoryStore()
    async with opened(make(scripted("hello")), store) as (_, ref):
        await ref.steer("now")
        await ref.wait_idle()
    assert await order(store) == f"put[s](now) TS1 claim(now) SS1.1 U(now) H{{initial}} X {REST} TE1{{completed}}"


async def test_c034_two_steers_before_the_driver_starts_are_one_turn() -> None:
    store, texts = MemoryStore(), iter("ab")

    async def steer(ref: AgentRef[Any]) -> None:
        await ref.steer(next(texts))

    async with opened(make(scripted("hello")), store) as (_, ref):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(steer, ref)
            nursery.start_soon(steer, ref)
        await ref.wait_idle()
    assert await order(store) == f"put[s](a) put[s](b) TS1 claim(a,b) SS1.1 U(a) U(b) H{{initial}} X {REST} TE1{{completed}}"


async def test_c035_injects_of_a_body_enter_after_its_result() -> None:
    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c", "injects", {})), "done"), tools=[injects])
    async with opened(agent, store) as (_, ref):
        await ref.followup("go")
        await ref.wait_idle()
    assert await order(store) == (
        "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 C* A call(c) put[s](x) put[s](y) res(c) SE "
        f"claim(x,y) SS1.2 U(x) U(y) {REST} TE1{{completed}}"
    )


async def test_c036_a_steer_of_a_body_joins_the_next_step() -> None:
    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c", "steers", {})), "done"), tools=[steers])
    async with opened(agent, store) as (_, ref):
        await ref.followup("go")
        await ref.wait_idle()
    assert await order(store) == (
        "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 C* A call(c) put[s](x) res(c) SE "
        f"claim(x) SS1.2 U(x) {REST} TE1{{completed}}"
    )


async def test_c037_a_followup_of_a_body_is_the_next_turn_of_the_same_activity() -> None:
    store, statuses = MemoryStore(), Statuses()
    agent = make(scripted(Reply.tools(("c", "follows", {})), "done", "and then"), tools=[follows], plugins=[statuses])
    async with opened(agent, store) as (_, ref):
        await ref.followup("go")
        await ref.wait_idle()
    assert statuses.seen == ["running", "idle"]
    assert await order(store) == (
        "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 C* A call(c) put[t](later) res(c) SE "
        f"SS1.2 {REST} TE1{{completed}} TS2 claim(later) SS2.1 U(later) {REST} TE2{{completed}}"
    )


async def test_c038_withdraw_is_one_record_and_then_false() -> None:
    store = MemoryStore()
    async with opened(make(scripted()), store) as (_, ref):
        receipt = await ref.inject("note")
        assert await ref.withdraw(receipt.message_id) is True
        assert await ref.withdraw(receipt.message_id) is False
        assert await ref.withdraw("nobody") is False
        assert await ref.pending() == ()
    assert await order(store) == "put[s](note) drop(note){withdrawn}"


async def test_c039_replace_keeps_the_place_under_a_new_id() -> None:
    store, go = MemoryStore(), trio.Event()
    agent = make(scripted(Reply.wait(go, Reply.text("one")), "two", "three"))
    async with opened(agent, store) as (_, ref):
        await ref.followup("first")
        await wait_all_tasks_blocked()
        old = await ref.followup("old")
        await ref.followup("last")
        receipt = await ref.replace(old.message_id, "new")
        assert receipt and receipt.message_id != old.message_id
        assert await ref.replace(old.message_id, "newer") is False
        assert [item.message.text for item in await ref.pending()] == ["new", "last"]
        go.set()
        await ref.wait_idle()
        assert await ref.replace(receipt.message_id, "too late") is False
        assert await ref.withdraw(receipt.message_id) is False
    put = next(r for r in await records(store) if r.seq == receipt.seq)
    assert isinstance(put.event, InboxPut) and put.event.replaces == old.message_id
    assert await order(store) == (
        "put[t](first) TS1 claim(first) SS1.1 U(first) H{initial} X Q1 put[t](old) put[t](last) drop(old){replaced} put[t](new) "
        "C* A SE TE1{completed} TS2 claim(new) SS2.1 U(new) Q1 C* A SE TE2{completed} "
        "TS3 claim(last) SS3.1 U(last) Q1 C* A SE TE3{completed}"
    )


async def test_c039_what_a_boundary_has_reserved_cannot_be_changed() -> None:
    store = MemoryStore()
    answers: list[object] = []

    class Meddler(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject], /) -> Enter | Reject:
            answers.append(await ctx.agent.withdraw(boundary.messages[0].id))
            answers.append(await ctx.agent.replace(boundary.messages[0].id, "other"))
            return await next(boundary)

    async with opened(make(scripted("hello"), plugins=[Meddler()]), store) as (_, ref):
        await ref.followup("go")
        await ref.wait_idle()
    assert answers == [False, False]
    assert await order(store) == f"put[t](go) TS1 claim(go) SS1.1 U(go) H{{initial}} X {REST} TE1{{completed}}"


async def test_c040_c041_the_same_id_while_pending_is_one_put_and_the_first_text_stands() -> None:
    store = MemoryStore()
    async with opened(make(scripted()), store) as (_, ref):
        first = await ref.inject("one", message_id="m")
        again = await ref.inject("one", message_id="m")
        other = await ref.inject("two", message_id="m")
        assert first == again == other
        assert [item.message.text for item in await ref.pending()] == ["one"]
    assert await order(store) == "put[s](one)"


async def test_c042_a_receipt_names_the_seq_of_its_put() -> None:
    store = MemoryStore()
    async with opened(make(scripted()), store) as (_, ref):
        given = await ref.inject("one", message_id="m")
        minted = await ref.inject("two")
    puts = {r.seq: r.event.message.id for r in await records(store) if isinstance(r.event, InboxPut)}
    assert given.message_id == "m" and puts == {given.seq: "m", minted.seq: minted.message_id}


async def test_c046_a_sender_cut_before_its_put_leaves_nothing() -> None:
    store = MemoryStore()
    async with opened(make(scripted("hello")), store) as (_, ref):
        with trio.CancelScope() as scope:
            scope.cancel()
            await ref.followup("go", message_id="m")
        assert await order(store) == ""
        await ref.followup("go", message_id="m")
        await ref.wait_idle()
    assert await order(store) == f"put[t](go) TS1 claim(go) SS1.1 U(go) H{{initial}} X {REST} TE1{{completed}}"


async def test_c046_a_sender_cut_while_it_waits_for_the_commit_leaves_all_of_it() -> None:
    store = FaultyStore(MemoryStore())
    async with opened(make(scripted("hello")), store) as (_, ref):
        store.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ref.followup("go", message_id="m"))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        store.release()
        receipt = await ref.followup("go", message_id="m")
        await ref.wait_idle()
    assert receipt.seq == 1
    assert await order(store) == f"put[t](go) TS1 claim(go) SS1.1 U(go) H{{initial}} X {REST} TE1{{completed}}"


async def test_c250_a_known_id_is_acknowledged_again_wherever_it_comes() -> None:
    store = MemoryStore()
    async with opened(make(scripted("hello")), store) as (_, ref):
        first = await ref.followup("go", message_id="m")
        await ref.wait_idle()
        assert await ref.followup("go", message_id="m") == first
        assert await ref.steer("go", message_id="m") == first
        assert await ref.inject("go", message_id="m") == first
    whole = await order(store)
    async with opened(make(scripted()), store) as (_, ref):
        assert await ref.followup("go", message_id="m") == first
        await ref.wait_idle()
    assert await order(store) == whole == f"put[t](go) TS1 claim(go) SS1.1 U(go) H{{initial}} X {REST} TE1{{completed}}"


async def test_c250_two_equal_sends_to_a_cold_agent_are_one_put() -> None:
    store = MemoryStore()
    async with opened(make(scripted()), store):
        pass
    agent = make(scripted("hello"))
    receipts: list[object] = []

    async def send(system: System) -> None:
        receipts.append(await (await system.get("a")).followup("go", message_id="m"))

    async with System.open(store, agents=[agent]) as system:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, system)
            nursery.start_soon(send, system)
        await (await system.get("a")).wait_idle()
    await check(store)
    assert receipts[0] == receipts[1]
    assert await order(store) == f"put[t](go) TS1 claim(go) SS1.1 U(go) H{{initial}} X {REST} TE1{{completed}}"


class Once(Plugin):
    """Answers the first message itself, as a control command, and lets the same text pass after that."""

    def __init__(self) -> None:
        self.asked = 0

    async def accept(
        self, ctx: SeamContext, message: Message, next: Next[Message, Message | Reject | Answer], /
    ) -> Message | Reject | Answer:
        self.asked += 1
        return Answer("pong") if self.asked == 1 else await next(message)


async def test_c250_the_id_of_a_command_is_known_too() -> None:
    store = MemoryStore()
    async with opened(make(scripted(), plugins=[Once()]), store) as (_, ref):
        first = await ref.followup("/ping", message_id="m")
        assert await ref.followup("/ping", message_id="m") == first
        await ref.wait_idle()
    assert await order(store) == "cmd cmdres"


async def test_c250_a_fork_takes_an_id_that_its_origin_has_seen() -> None:
    store = MemoryStore()
    async with opened(make(scripted("hello", "again")), store) as (_, ref):
        await ref.followup("go", message_id="m")
        await ref.wait_idle()
        at = (await records(store))[-1].seq
        fork = await ref.fork(id="b")
        receipt = await fork.followup("go", message_id="m")
        await fork.wait_idle()
    assert receipt.seq == at + 2
    assert await order(store, "b", at) == f"forked put[t](go) TS2 claim(go) SS2.1 U(go) H{{resume}} {REST} TE2{{completed}}"


async def test_c255_mail_runs_after_a_failed_turn_and_what_a_person_sent_waits() -> None:
    store, fail = MemoryStore(), trio.Event()

    @tool
    async def mails(ctx: ToolContext[Any]) -> str:
        """Writes to `a`."""
        await ctx.send("a", "M")
        return "sent"

    failing = Reply.wait(fail, Reply.fail("X"))
    agent = make(scripted(failing, "to M", "to B", "to C"))
    other = make(scripted(Reply.tools(("c", "mails", {})), "done"), tools=[mails], name="other")
    async with opened(agent, store) as (system, ref):
        await ref.followup("go")
        await wait_all_tasks_blocked()
        await ref.followup("B")
        writer = await system.spawn(other, id="b")
        await writer.followup("write")
        await writer.wait_idle()
        fail.set()
        await ref.wait_idle()
        failed = (
            "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 put[t](B) put[t](M) F1{raise} SE TE1{error} "
            "TS2 claim(M) SS2.1 U(M) Q1 C* A SE TE2{completed}"
        )
        assert await order(store) == failed
        assert [(item.message.text, item.parked) for item in await ref.pending()] == [("B", True)]
        await ref.followup("C")
        await ref.wait_idle()
    assert await order(store) == (
        f"{failed} put[t](C) TS3 claim(B) SS3.1 U(B) Q1 C* A SE TE3{{completed}} TS4 claim(C) SS4.1 U(C) {REST} TE4{{completed}}"
    )


async def test_c254_what_takes_the_place_of_a_parked_message_runs_at_once_and_not_only_after_a_restart() -> None:
    """Its put wakes like any other, so it is due: an idle agent must not sit on it."""
    go = trio.Event()
    async with opened(make(scripted(Reply.wait(go, Reply.fail("QUOTA")), "second", "third"))) as (system, ref):
        for text in "123":
            await ref.followup(text, message_id=text)
        go.set()
        await ref.wait_idle()
        assert [item.parked for item in await ref.pending()] == [True, True]
        await ref.replace("2", "two", new_id="two")
        await ref.wait_idle()
        assert not await ref.pending()
        assert "TS2 claim(two)" in await order(system.store) and "TS3 claim(3)" in await order(system.store)
