"""Many things at once: input during tools, agents side by side up to the model slots, cold agents, who started what."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, make, opened, order, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.initiator import current_initiator
from callboard.actors.seams import Plugin, SeamContext
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.actors.tools import ToolContext, tool
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Request
from callboard.storage.testing import FaultyStore

START = "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 "
ROUTE = {"channel": "irc", "chat": "1"}


async def test_c182_a_steer_during_tools_is_the_next_calls_own_message_and_one_answer_covers_both() -> None:
    store = MemoryStore()

    @tool
    async def steered(ctx: ToolContext[Any]) -> str:
        """Is steered while it runs."""
        await ctx.agent.steer("and this", route=ROUTE)
        return "ok"

    model = scripted(Reply.tools(("c1", "steered", "")), "both")
    async with opened(make(model, tools=[steered]), store) as (_, ref):
        await ref.followup("go", route=ROUTE)
        await ref.wait_idle()
    assert [message.text for message in model.requests[1].messages if message.role == "user"] == ["go", "and this"]
    assert await order(store) == (
        f"{START}C* A call(c1) put[s](and this) res(c1) SE claim(and this) SS1.2 U(and this) Q1 C* A SE TE1{{completed}} out"
    )


async def test_c183_five_messages_at_once_enter_together_in_order_each_with_its_own_route() -> None:
    store, names = MemoryStore(), iter("abcde")

    @tool
    async def crowded(ctx: ToolContext[Any]) -> str:
        """Gets five messages while it runs."""

        async def steer() -> None:
            name = next(names)
            await ctx.agent.steer(name, route={"channel": "irc", "chat": name}, sender=f"user {name}")

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(steer)
        return "ok"

    async with opened(make(scripted(Reply.tools(("c1", "crowded", "")), "all"), tools=[crowded]), store) as (_, ref):
        await ref.followup("go")
        await ref.wait_idle()
    puts = " ".join(f"put[s]({name})" for name in "abcde")
    users = " ".join(f"U({name})" for name in "abcde")
    assert (await order(store)).startswith(f"{START}C* A call(c1) {puts} res(c1) SE claim(a,b,c,d,e) SS1.2 {users} Q1 C* A SE")
    steered = [put for put in await events(store, e.InboxPut) if put.lane == "next-step"]
    assert [(put.route and put.route.chat, put.sender) for put in steered] == [(name, f"user {name}") for name in "abcde"]


async def test_c184_leftovers_of_a_turn_run_in_order_before_later_arrivals() -> None:
    store, go = FaultyStore(MemoryStore()), trio.Event()
    agent = make(ScriptedModel([Reply.wait(go, Reply.text("one")), Reply.text("two"), Reply.text("three")]))
    async with opened(agent, store) as (_, ref):
        await ref.followup("go")
        await wait_all_tasks_blocked()
        await ref.followup("B")
        store.hold()
        go.set()
        await wait_all_tasks_blocked()  # the end is appended and waits for the disk
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.steer, "late")
            await wait_all_tasks_blocked()
            nursery.start_soon(ref.followup, "C")
            await wait_all_tasks_blocked()
            store.release()
        await ref.wait_idle()
    assert await order(store) == (
        f"{START}put[t](B) C* A SE TE1{{completed}} put[s](late) put[t](C) TS2 claim(late,B) SS2.1 U(late) U(B) Q1 C* A SE "
        "TE2{completed} TS3 claim(C) SS3.1 U(C) Q1 C* A SE TE3{completed}"
    )


async def test_c185_ten_agents_run_side_by_side_up_to_the_model_slots_in_order_of_arrival() -> None:
    store = MemoryStore()
    begun: list[str] = []
    gates = {str(number): trio.Event() for number in range(10)}

    def answer(request: Request) -> Reply:
        begun.append(request.agent)
        return Reply.wait(gates[request.agent], Reply.text("done"))

    agent = make(ScriptedModel(answer))
    async with System.open(store, agents=[agent], model_slots=3) as system:
        for name in gates:
            ref = await system.spawn(agent, id=name)
            await ref.followup("go")
            await wait_all_tasks_blocked()
            assert await order(store, name) == START.strip()  # durable at once, and waiting for its slot
        for done, name in enumerate(gates, 1):
            assert begun == list(gates)[: done + 2]
            gates[name].set()
            await wait_all_tasks_blocked()
    await check(store)
    for name in gates:
        assert await order(store, name) == f"{START}C* A SE TE1{{completed}}"


async def test_c185_one_agent_is_strictly_serial() -> None:
    store, running = MemoryStore(), 0

    @tool
    async def alone(ctx: ToolContext[Any]) -> str:
        """Fails if another turn of the agent runs."""
        nonlocal running
        running += 1
        assert running == 1
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        running -= 1
        return "ok"

    def answer(request: Request) -> Reply:
        return Reply.text("done") if request.messages[-1].role == "tool" else Reply.tools((f"c{request.turn}", "alone", ""))

    async with opened(make(ScriptedModel(answer), tools=[alone]), store) as (_, ref), trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ref.ask, "go")
    ends = [end.reason.kind for end in await events(store, e.TurnEnd)]
    assert ends == ["completed"] * 5
    assert all(result.error is None for result in await events(store, e.ToolResult))


async def test_c186_two_sends_race_on_a_cold_agent() -> None:
    store = MemoryStore()
    async with opened(make(scripted()), store):
        pass
    agent = make(scripted("one", "two"))
    texts = iter(("one", "two"))
    async with System.open(store, agents=[agent]) as system:

        async def send() -> None:
            ref = await system.get("a")
            await ref.ask(next(texts))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(send)
        assert system.statistics()["opened"] == 1
    await check(store)
    whole = await order(store)
    assert whole.count("put[t](two)") == 1
    assert whole.replace(" put[t](two)", "") == (
        "put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 C* A SE TE1{completed} "
        "TS2 claim(two) SS2.1 U(two) Q1 C* A SE TE2{completed}"
    )


async def test_c187_appends_from_outside_during_a_turn_survive_beside_its_own() -> None:
    store, go = MemoryStore(), trio.Event()

    class Notes(Plugin):
        async def on_event(self, ctx: SeamContext, record: Any, /) -> None:
            if record.type == "request/sent":
                ctx.note("seen", record.seq)

    model = scripted(Reply.wait(go, Reply.text("one", parts=3)))
    async with opened(make(model, plugins=[Notes()]), store) as (_, ref):
        await ref.followup("go")
        await wait_all_tasks_blocked()
        await ref.inject("context")
        go.set()
        await ref.wait_idle()
    whole = await order(store)
    assert whole.startswith(f"{START}note(seen) put[s](context) C* A SE claim(context) SS1.2 U(context) Q1 ")


class Initiators(Plugin):
    """Notes whose work runs in each seam."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []

    async def pre_step(self, ctx: SeamContext, boundary: Any, next: Any, /) -> Any:
        self.seen.append((ctx.id, current_initiator()))
        await trio.lowlevel.checkpoint()
        return await next(boundary)

    async def on_event(self, ctx: SeamContext, record: Any, /) -> None:
        self.seen.append((ctx.id, current_initiator()))


async def test_c189_two_agents_at_once_see_themselves_in_tools_seams_and_observers() -> None:
    store, plugin = MemoryStore(), Initiators()
    bodies: list[tuple[str, str | None]] = []

    @tool
    async def who(ctx: ToolContext[Any]) -> str:
        """Notes whose work it is."""
        await trio.lowlevel.checkpoint()
        bodies.append((ctx.agent.id, current_initiator()))
        return "ok"

    def answer(request: Request) -> Reply:
        return Reply.text("done") if request.messages[-1].role == "tool" else Reply.tools(("c1", "who", ""))

    agent = make(ScriptedModel(answer, paced=True), tools=[who], plugins=[plugin])
    async with System.open(store, agents=[agent]) as system:
        async with trio.open_nursery() as nursery:
            for name in "ab":
                nursery.start_soon((await system.spawn(agent, id=name)).ask, "go")
        assert current_initiator() is None
    await check(store)
    assert sorted(bodies) == [("a", "a"), ("b", "b")]
    assert {agent for agent, _ in plugin.seen} == {"a", "b"}
    assert all(agent == initiator for agent, initiator in plugin.seen)


@pytest.mark.parametrize("passes", range(4))
@pytest.mark.parametrize("observed", [False, True])
async def test_c190_a_send_in_the_instant_of_passivation(autojump_clock: MockClock, passes: int, observed: bool) -> None:
    store = MemoryStore()
    agent = make(scripted("one", "two"), plugins=[Initiators()] if observed else [])
    async with opened(agent, store, idle_after=60) as (system, ref):
        await ref.ask("go")
        start = trio.current_time()
        await trio.sleep_until(start + 60)
        for _ in range(passes):
            await trio.lowlevel.checkpoint()
        await ref.ask("again")
        assert system.statistics()["agents"] == 1
    assert await order(store) == (
        f"{START}C* A SE TE1{{completed}} put[t](again) TS2 claim(again) SS2.1 U(again) Q1 C* A SE TE2{{completed}}"
    )


async def test_c190_an_idle_agent_is_dropped_and_comes_back_without_a_record(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with opened(make(scripted("one", "two")), store, idle_after=60) as (system, ref):
        await ref.ask("go")
        await trio.sleep(120)
        assert system.statistics()["agents"] == 0
        await ref.ask("again")
    assert await order(store) == (
        f"{START}C* A SE TE1{{completed}} put[t](again) TS2 claim(again) SS2.1 U(again) Q1 C* A SE TE2{{completed}}"
    )
