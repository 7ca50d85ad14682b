"""Control commands: they act at once, beside whatever runs, and once for each id. Other commands wait for a turn of their own."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, history, make, opened, order, records, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, Limits, delegate
from callboard.actors.answers import Answer, LimitReached, Replace
from callboard.actors.plugins import CommandContext, Commands, Redact, command
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import InboxFull, InputRefused, UsageError

ROUTE = {"channel": "desk", "chat": "1"}
BEGUN = "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 C*"


class Karma:
    """Counts how often it was run."""

    def __init__(self) -> None:
        self.runs = 0
        self.wait: trio.Event | None = None

        @command("/karma", control=True)
        async def karma(ctx: CommandContext, args: str) -> str:
            """One more."""
            self.runs += 1
            if self.wait is not None:
                await self.wait.wait()
            return f"{self.runs} for {args}"

        self.command = karma


def hanging(*after: Any, **options: Any) -> Agent[Any, Any]:
    """An agent with commands whose first answer does not end."""
    return make(scripted(Reply.hang("so"), *after), plugins=[Commands()]).replace(**options)


async def begin(ref: Any, **options: Any) -> None:
    """A turn that hangs in its model call."""
    await ref.followup("go", message_id="go", **options)
    await wait_all_tasks_blocked()


async def test_c162_status_during_a_turn_is_answered_at_once() -> None:
    store = MemoryStore()
    async with opened(hanging(), store) as (_, ref):
        await begin(ref)
        await ref.followup("and", message_id="and")
        receipt = await ref.followup("/status", message_id="s")
        outcome = await ref.outcome("s")
        assert (await records(store))[receipt.seq].type == "command/run"
        assert (outcome.turn, outcome.ok, outcome.seq) == (0, True, receipt.seq + 1)
        assert "demo: turn 1, step 1" in outcome.text
        assert "waits for model turn 1, step 1, attempt 1" in outcome.text
        assert "Inbox: 1 waiting, 0 parked" in outcome.text
        assert await ref.outcome("s") == outcome
        assert await order(store) == f"{BEGUN} put[t](and) cmd cmdres"
        await ref.cancel()
        await ref.wait_idle()
    assert (await order(store)).endswith("cmd cmdres TC1(and) A{cut} SE TE1{aborted user}")


async def test_c157_a_control_command_with_arguments_it_does_not_take_is_told_so_at_once() -> None:
    store = MemoryStore()
    async with opened(hanging(), store) as (_, ref):
        assert (await ref.ask("/status now", route=ROUTE)).text == "/status takes no arguments."
        assert (await ref.ask("/new now")).text == "/new takes no arguments."
    assert await order(store) == "cmd cmdres out put[t](/new now) TS1 claim(/new now) cmd cmdres TE1{completed}"


async def test_c162_status_while_all_model_slots_are_taken() -> None:
    agent = make(scripted(Reply.hang("so"), "two"), plugins=[Commands()])
    async with opened(agent, model_slots=1) as (system, ref):
        await begin(ref)
        other = await system.spawn(agent, id="b")
        await other.followup("me too")
        await wait_all_tasks_blocked()
        said = (await other.ask("/status")).text
        assert "waits for model-slot" in said
        await ref.cancel()
        await other.wait_idle()


async def test_c162_a_turn_that_answers_is_not_changed_by_a_command_beside_it() -> None:
    store, go = MemoryStore(), trio.Event()
    agent = make(scripted(Reply.wait(go, Reply.text("the answer"))), plugins=[Commands()])
    async with opened(agent, store) as (_, ref):
        await begin(ref, route=ROUTE, sender="ann")
        status = await ref.ask("/status", route=ROUTE, sender="ann", message_id="s")
        go.set()
        outcome = await ref.outcome("go")
        assert outcome.text == "the answer"
        assert await history(ref) == ["user go", "assistant the answer"]
    said, answered = await events(store, e.OutboxPut)
    assert (said.turn, said.content[0].text) == (0, status.text)  # type: ignore[union-attr]
    assert (answered.turn, answered.content[0].text) == (1, "the answer")  # type: ignore[union-attr]
    assert said.delivery != answered.delivery
    (end,) = await events(store, e.TurnEnd)
    assert end.delivery == "put", "that a command answered the route does not take the turn's own reply"


async def test_c163_stop_when_nothing_runs() -> None:
    store = MemoryStore()
    async with opened(hanging(), store) as (_, ref):
        assert (await ref.ask("/stop", message_id="s")).text == "Nothing runs."
    assert await order(store) == "cmd cmdres"


async def test_c163_stop_parks_what_waits_and_counts_it() -> None:
    store = MemoryStore()
    async with opened(hanging("one", "two", "three"), store) as (_, ref):
        await begin(ref)
        await ref.followup("B", message_id="B")
        await ref.steer("C", message_id="C")
        said = (await ref.ask("/stop")).text
        await ref.wait_idle()
        assert said == "Stopped. 2 messages wait, and run before your next one."
        stopped = f"{BEGUN} put[t](B) put[s](C) cmd cmdres TC1 A{{cut}} SE TE1{{aborted user}}"
        assert await order(store) == stopped
        assert [item.parked for item in await ref.pending()] == [True, True]
        assert "Inbox: 0 waiting, 2 parked" in (await ref.ask("/status")).text
        assert [item.parked for item in await ref.pending()] == [True, True], "a control command wakes nobody"
        assert (await ref.ask("D")).text == "two"
    (cancel,) = await events(store, e.TurnCancel)
    assert (cancel.cause.kind, cancel.ids, cancel.keep_inbox) == ("user", (), True)


async def test_c163_stop_reaches_children_and_says_so() -> None:
    store = MemoryStore()
    worker = Agent("worker", model=scripted(Reply.hang("w")), plugins=())
    lead = make(scripted(Reply.tools(("c1", "worker", {"task": "dig"}))), tools=[delegate(worker)], plugins=[Commands()])
    async with System.open(store, agents=[lead]) as system:
        ref = await system.spawn(lead, id="a")
        await begin(ref)
        assert (await ref.ask("/stop")).text == "Stopped, with 1 child."
        await ref.wait_idle()
    await check(store)
    (child,) = (await events(store, e.ChildSpawned))[:1]
    assert (await order(store, child.child)).endswith("TC1 A{cut} SE TE1{aborted parent}")
    assert "cmd cmdres TC1" in await order(store)


async def test_c163_a_second_stop_while_the_first_is_heard() -> None:
    store = MemoryStore()
    async with opened(hanging(), store) as (_, ref):
        await begin(ref)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.followup, "/stop")
            nursery.start_soon(ref.followup, "/STOP")
        await ref.wait_idle()
    assert (await order(store)).count("TC1") == 1
    assert (await order(store)).count("cmdres") == 2


@pytest.mark.parametrize("way", ["followup", "steer"])
async def test_c164_a_command_waits_for_its_own_turn_and_is_not_steered_in(way: str) -> None:
    store, go = MemoryStore(), trio.Event()
    model = scripted(Reply.wait(go, Reply.text("one")), "two")
    async with opened(make(model, plugins=[Commands()]), store) as (_, ref):
        await begin(ref)
        await getattr(ref, way)("/help", message_id="h")
        await ref.followup("next", message_id="next")
        go.set()
        assert "/new" in (await ref.outcome("h")).text
        await ref.wait_idle()
    log = await order(store)
    assert "put[t](/help) put[t](next)" in log
    assert "TE1{completed} TS2 claim(/help) cmd cmdres TE2{completed} TS3 claim(next)" in log
    assert [message.text for message in model.requests[1].messages] == ["go", "one", "next"]


async def test_c164_what_is_steered_and_no_command_stays_a_steer() -> None:
    store, go = MemoryStore(), trio.Event()
    async with opened(make(scripted(Reply.wait(go, Reply.text("one")), "two"), plugins=[Commands()]), store) as (_, ref):
        await begin(ref)
        await ref.steer("/etc/hosts", message_id="m")
        await ref.inject("/new", message_id="i")
        go.set()
        await ref.wait_idle()
        assert await history(ref) == ["user go", "assistant one", "user /etc/hosts", "user /new", "assistant two"]


async def test_c267_a_control_command_acts_once_for_each_id() -> None:
    store, karma = MemoryStore(), Karma()
    agent = make(scripted(), plugins=[Commands(karma.command)])
    async with opened(agent, store) as (_, ref):
        first = await ref.followup("/karma ann", message_id="k")
        assert await ref.followup("/karma bob", message_id="k") == first, "with another text the first stands"
        assert (await ref.ask("/karma ann", message_id="k")).text == "1 for ann"
    async with opened(agent, store) as (_, ref):
        assert await ref.followup("/karma ann", message_id="k") == first
        assert (await ref.outcome("k")).text == "1 for ann"
    assert karma.runs == 1
    assert await order(store) == "cmd cmdres"


async def test_c267_two_at_once_with_one_id_act_once() -> None:
    store, karma = MemoryStore(), Karma()
    karma.wait = trio.Event()
    async with opened(make(scripted(), plugins=[Commands(karma.command)]), store) as (_, ref), trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(lambda: ref.followup("/karma ann", message_id="k"))
        await wait_all_tasks_blocked()
        karma.wait.set()
    assert karma.runs == 1
    assert await order(store) == "cmd cmdres"


async def test_c267_a_sender_that_is_cancelled_lets_the_next_try() -> None:
    store, karma = MemoryStore(), Karma()
    karma.wait = trio.Event()
    async with opened(make(scripted(), plugins=[Commands(karma.command)]), store) as (_, ref):
        with trio.move_on_after(0.01):
            await ref.followup("/karma ann", message_id="k")
        karma.wait = None
        assert (await ref.ask("/karma ann", message_id="k")).text == "2 for ann"
    assert await order(store) == "cmd cmdres"


async def test_a_control_command_needs_no_room_in_the_inbox() -> None:
    store = MemoryStore()
    async with opened(hanging(limits=Limits(pending=1)), store) as (_, ref):
        await begin(ref)
        await ref.followup("B")
        with pytest.raises(InboxFull):
            await ref.followup("/help")
        assert (await ref.ask("/stop")).text.startswith("Stopped. 1 message waits")
        await ref.wait_idle()


async def test_a_control_command_without_end_is_refused() -> None:
    store = MemoryStore()
    async with opened(hanging(), store) as (_, ref):
        with pytest.raises(InputRefused, match="at most 65,536 characters"):
            await ref.followup("/stop " + "x" * 70_000)
    assert await order(store) == ""


async def test_a_message_that_is_replaced_by_a_command_does_not_act_at_once() -> None:
    store, go = MemoryStore(), trio.Event()
    agent = make(scripted(Reply.wait(go, Reply.text("one"))), plugins=[Commands()])
    async with opened(agent, store) as (_, ref):
        await begin(ref)
        await ref.followup("B", message_id="B")
        assert await ref.replace("B", "/stop", new_id="S")
        go.set()
        assert (await ref.outcome("S")).text == "Nothing runs."
        assert (await ref.outcome("go")).text == "one"


async def test_a_control_command_rewrites_nothing() -> None:
    @command("/wipe", control=True)
    async def wipe(ctx: CommandContext) -> Replace:
        """Wipe."""
        return Replace(cause="wipe")

    store = MemoryStore()
    async with opened(make(scripted("hi"), plugins=[Commands(wipe)]), store) as (_, ref):
        await ref.ask("hello")
        assert "so it cannot be a control command" in (await ref.ask("/wipe")).text
        assert await history(ref) == ["user hello", "assistant hi"]


async def test_a_plugin_of_ones_own_that_rewrites_at_accept_is_refused() -> None:
    class Wipes(Commands):
        async def accept(self, ctx: Any, message: Any, next: Any, /) -> Answer:
            return Answer("wiped", Replace(cause="wipe"))

    store = MemoryStore()
    async with opened(make(scripted(), plugins=[Wipes()]), store) as (_, ref):
        with pytest.raises(InputRefused, match="needs a turn of its own"):
            await ref.followup("/x")
    assert await order(store) == ""


async def test_plugins_further_in_see_the_command_first() -> None:
    karma = Karma()
    agent = make(scripted(), plugins=[Commands(karma.command), Redact(["ann"])])
    async with opened(agent) as (_, ref):
        assert (await ref.ask("/karma ann")).text == "1 for [redacted]"


async def test_a_control_command_that_throws_is_recorded() -> None:
    @command("/bad", control=True)
    async def bad(ctx: CommandContext) -> str:
        """Bad."""
        raise UsageError("not today")

    store = MemoryStore()
    async with opened(make(scripted(), plugins=[Commands(bad)]), store) as (_, ref):
        assert (await ref.ask("/bad")).text == "/bad failed: not today"
    assert await order(store) == "cmd cmdres{error}"


async def test_a_control_command_at_a_limit_is_answered_where_it_was_asked() -> None:
    """There is no turn that could end with it, and a person in a chat would hear nothing."""

    @command("/enough", control=True)
    async def enough(ctx: CommandContext) -> str:
        """Be at the limit."""
        raise LimitReached("mine", "enough for today")

    async with opened(make(scripted("ok"), plugins=[Commands(enough)])) as (system, ref):
        await ref.followup("/enough")
        (result,) = await events(system.store, e.CommandResult)
        assert result.text == "/enough failed: enough for today"
        assert await order(system.store) == "cmd cmdres{error}"


async def test_status_in_words() -> None:
    go = trio.Event()
    agent = make(scripted("one", Reply.wait(go, Reply.text("two"))), plugins=[Commands()])
    async with opened(agent) as (_, ref):
        fresh = (await ref.ask("/status")).text.splitlines()
        assert fresh[:3] == ["demo: idle", "Inbox: 0 waiting, 0 parked", "Model: scripted:demo"]
        await ref.ask("hello")
        await ref.remind("tea", after_s=60)
        text = (await ref.ask("/status")).text
        assert "demo: idle after turn 1" in text
        assert "waits for timer tea, until 20" in text
        assert "Context: about " in text
        go.set()
