"""Start-up with many open turns, with missing definitions, and with one that kills its process each time (C176, C177, C179)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import trio
from crashing import batch, folded, image, live, restart
from helpers import check, make, notation, order, records, scripted

from callboard.actors.agent import Agent
from callboard.actors.answers import Assembly
from callboard.actors.delegation import delegate
from callboard.actors.limits import Limits
from callboard.actors.ref import AgentRef
from callboard.actors.seams import Plugin
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.actors.tools import tool
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import DefinitionMissing, UnknownRecord
from callboard.storage.messages import Chunk, Request
from callboard.storage.records import Record, UnknownEvent
from callboard.storage.store import Batch


async def send(ref: AgentRef[Any]) -> None:
    await ref.followup("hi", message_id="hi")


async def many(log: list[Record], last: int, count: int) -> MemoryStore:
    """A store of so many agents, each with this log up to `last`."""
    store, kept = MemoryStore(), [record for record in log if record.seq <= last]
    units: list[list[Batch]] = []
    for n in range(count):
        id = f"a{n:04}"
        born = Record(0, kept[0].time, msgspec.structs.replace(kept[0].event, agent=id))
        units.append([batch([born, *kept[1:]], await store.own(id), id)])
    await store.commit(units)
    return store


async def test_c176_an_agent_whose_definition_is_missing_is_reported_and_left_alone() -> None:
    life = await live(make(scripted("hello")), send)
    store = await many(life.records, life.upto("Q1"), 2)
    other = [msgspec.structs.replace(record) for record in life.records if record.seq <= life.upto("Q1")]
    other[0] = Record(0, other[0].time, msgspec.structs.replace(other[0].event, agent="gone", name="gone"))
    await store.commit([[batch(other, await store.own("gone"), "gone")]])
    async with System.open(store, agents=[make(scripted("x", "y"))]) as system:
        for id in ("a0000", "a0001"):
            await (await system.get(id)).wait_idle()
        assert sorted(system.report.resumed) == ["a0000", "a0001"]
        assert isinstance(system.report.failed["gone"], DefinitionMissing)
        assert "'gone'" in str(system.report.failed["gone"])
    assert await records(store, "gone") == other
    await check(store)


class Busy:
    """How many are at it at once, at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def __enter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        self.now -= 1


class Watched(MemoryStore):
    """A store that counts how many logs are being opened at a time."""

    opening: Busy

    @classmethod
    def of(cls, store: MemoryStore) -> Watched:
        """The same data, watched."""
        watched = cls()
        watched._data = store._data
        watched.opening = Busy()
        return watched

    async def snapshot(self, agent: str) -> Any:
        """The first read of an opening; held long enough to be seen."""
        with self.opening:
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            return await super().snapshot(agent)


class Counted(ScriptedModel):
    """Counts how many requests are open at a time."""

    def __init__(self) -> None:
        super().__init__(lambda _: Reply.text("hello"), keep_requests=False)
        self.busy = Busy()

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Play the next reply, counted."""
        with self.busy:
            await trio.lowlevel.checkpoint()
            async for chunk in super().stream(request):
                yield chunk


async def test_c177_a_thousand_open_turns_are_taken_up_a_few_at_a_time() -> None:
    life = await live(make(scripted("hello")), send)
    store = Watched.of(await many(life.records, life.upto("Q1"), 1000))
    head = await store.head("a0500")
    assert head is not None
    newer = Record(head.last + 1, head.time, UnknownEvent({"type": "from/tomorrow"}))
    await store.commit([[Batch("a0500", await store.own("a0500"), head.last, [newer], head.summary)]])
    model = Counted()
    async with System.open(store, agents=[make(model)], model_slots=5) as system:
        async for agent in system.agents():
            if agent.id != "a0500":
                await (await system.get(agent.id)).wait_idle()
        assert len(system.report.resumed) == 999
        assert isinstance(system.report.failed["a0500"], UnknownRecord)
    assert 1 < store.opening.most <= 32
    assert model.busy.most == 5
    ends = [await order(store, head.agent) for head in await store.agents(limit=2000) if head.agent != "a0500"]
    assert len(ends) == 999 and set(ends) == {
        "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 TR1 F1{retry} H{resume} Q2 C* A SE TE1{completed}"
    }


async def test_c177_more_parents_wait_for_children_than_may_be_opened_at_a_time() -> None:
    child = Agent("child", model="child:x", plugins=())
    lead = Agent("lead", model="lead:x", plugins=(), tools=[delegate(child)])

    def lead_says(request: Any) -> Reply:
        results = request.messages[-1].results
        return Reply.text(results["c"]) if results else Reply.tools(("c", "child", {"task": "do it"}))

    def models(reply: Reply) -> dict[str, Any]:
        child_model = ScriptedModel(lambda _: reply, provider="child")
        return {"lead": ScriptedModel(lead_says, provider="lead"), "child": child_model}

    store = MemoryStore()
    async with System.open(store, agents=[lead], models=models(Reply.hang()), grace=0) as system:
        for n in range(40):
            await (await system.spawn(lead, id=f"p{n}")).followup("go", message_id="go")
        await trio.testing.wait_all_tasks_blocked()
        left = store.copy()
    async with System.open(left, agents=[lead], models=models(Reply.text("done"))) as system:
        for n in range(40):
            assert (await (await system.get(f"p{n}")).outcome("go")).text == "done"
        assert len(system.report.resumed) == 80
    await check(left)


async def killed_again(store: MemoryStore, agent: Agent[Any, Any]) -> MemoryStore:
    """Start over the store, be killed while the model runs, and give what is left."""
    async with System.open(store, agents=[agent], grace=0):
        await trio.testing.wait_all_tasks_blocked()
        return store.copy()


async def test_c179_a_turn_that_kills_its_process_each_time_ends_by_a_limit() -> None:
    life = await live(make(scripted("hello")), send)
    store = await image(life.records, life.upto("Q1"))
    hang = make(ScriptedModel(lambda _: Reply.hang()))
    for _ in range(5):
        store = await killed_again(store, hang)
    assert folded(await records(store)).position.resumes == 5
    model = scripted("never")
    after = await restart(make(model), store)
    assert notation(after.records[-4:]) == "TR1 F6{raise} SE TE1{limit}"
    end = after.records[-1].event
    assert isinstance(end, e.TurnEnd) and isinstance(end.reason, e.Limited) and end.reason.limit == "recoveries"
    assert end.park and not model.requests


async def test_c179_none_at_all_means_none() -> None:
    life = await live(make(scripted("hello")), send)
    agent = make(scripted("never"), limits=Limits(recoveries=0))
    after = await restart(agent, await image(life.records, life.upto("Q1")))
    assert notation(after.records, life.upto("Q1")) == "TR1 F1{raise} SE TE1{limit}"


async def test_c179_a_resume_behind_a_suspend_is_no_crash() -> None:
    hang = make(ScriptedModel(lambda _: Reply.hang()))
    store = MemoryStore()
    async with System.open(store, agents=[hang], grace=0) as system:
        await (await system.spawn(hang, id="a")).followup("hi", message_id="hi")
    for _ in range(10):
        async with System.open(store, agents=[hang], grace=0):
            await trio.testing.wait_all_tasks_blocked()
    assert (await order(store)).endswith("TZ1 TR1 F10{retry} H{resume} Q11 TZ1")
    assert folded(await records(store)).position.resumes == 0
    after = await restart(make(scripted("hello")), store)
    assert notation(after.records).endswith("TZ1 TR1 F11{retry} H{resume} Q12 C* A SE TE1{completed}")


class Order(ScriptedModel):
    """Notes which agents' requests begin and end, and dies (hangs) for one of them."""

    def __init__(self, *, killer: str = "") -> None:
        super().__init__(lambda r: Reply.hang() if r.agent == killer else Reply.text("hello"))
        self.seen: list[str] = []

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Play the next reply, noted."""
        self.seen.append(f"{request.agent} begins")
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        async for chunk in super().stream(request):
            yield chunk
        self.seen.append(f"{request.agent} ends")


async def died_twice(store: MemoryStore, *agents: str) -> MemoryStore:
    """Let the process die in the turns of these agents until they are suspect."""
    hang = make(ScriptedModel(lambda _: Reply.hang()))
    for _ in range(2):
        store = await killed_again(store, hang)
    for id in agents:
        assert folded(await records(store, id)).position.resumes == 2
    return store


async def test_c179_at_two_crashes_a_turn_is_taken_up_last_and_alone(autojump_clock: trio.testing.MockClock) -> None:
    life = await live(make(scripted("hello")), send)
    store = await died_twice(await many(life.records, life.upto("Q1"), 2), "a0000", "a0001")
    kept = [record for record in life.records if record.seq <= life.upto("Q1")]
    born = Record(0, kept[0].time, msgspec.structs.replace(kept[0].event, agent="z"))
    await store.commit([[batch([born, *kept[1:]], await store.own("z"), "z")]])
    model = Order()
    async with System.open(store, agents=[make(model)]) as system:
        for id in ("a0000", "a0001", "z"):
            assert (await (await system.get(id)).outcome("hi")).text == "hello"
    assert model.seen == ["z begins", "z ends", "a0000 begins", "a0000 ends", "a0001 begins", "a0001 ends"]
    await check(store)


async def test_c179_a_suspect_that_somebody_waits_for_is_not_kept_waiting(autojump_clock: trio.testing.MockClock) -> None:
    child = Agent("child", model="child:x", plugins=())
    lead = Agent("lead", model="lead:x", plugins=(), tools=[delegate(child)])

    def lead_says(request: Request) -> Reply:
        results = request.messages[-1].results
        return Reply.text(results["c"]) if results else Reply.tools(("c", "child", {"task": "do it"}))

    def models(reply: Reply) -> dict[str, Any]:
        return {
            "lead": ScriptedModel(lead_says, provider="lead"),
            "child": ScriptedModel(lambda _: reply, provider="child"),
        }

    store = MemoryStore()
    for _ in range(4):
        async with System.open(store, agents=[lead], models=models(Reply.hang()), grace=0) as system:
            ref = await system.spawn(lead, id="a")
            await ref.followup("go", message_id="go")
            with trio.move_on_after(10):
                await ref.wait_idle()
            left = store.copy()
        store = left
    for head in await store.agents():
        assert folded(await records(store, head.agent)).position.resumes == 3
    async with System.open(store, agents=[lead], models=models(Reply.text("done"))) as system:
        assert (await (await system.get("a")).outcome("go", timeout=60)).text == "done"
    await check(store)


async def test_c179_a_suspect_that_still_waits_is_left_for_the_next_start(autojump_clock: trio.testing.MockClock) -> None:
    life = await live(make(scripted("hello")), send)
    store = await died_twice(await many(life.records, life.upto("Q1"), 1), "a0000")
    kept = [record for record in life.records if record.seq <= life.upto("Q1")]
    born = Record(0, kept[0].time, msgspec.structs.replace(kept[0].event, agent="z"))
    await store.commit([[batch([born, *kept[1:]], await store.own("z"), "z")]])
    before = await order(store, "a0000")
    async with System.open(store, agents=[make(Order(killer="z"))], grace=0):
        await trio.sleep(100)
    assert await order(store, "a0000") == before
    assert (await order(store, "z")).endswith("TZ1")


async def test_c179_a_safe_body_that_kills_its_process_is_counted_before_it_runs_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def deadly() -> str:
        """Takes the process with it."""
        await trio.sleep_forever()
        return "never"

    agent = make(scripted(Reply.tools(("c1", "deadly", "{}"))), tools=[tool(replay="safe")(deadly)])
    store = MemoryStore()
    async with System.open(store, agents=[agent], grace=0) as system:
        await (await system.spawn(agent, id="a")).followup("hi", message_id="hi")
        with trio.move_on_after(0.5):  # a `safe` body does not wait for its call's record
            await trio.sleep_forever()
        left = store.copy()
    for _ in range(5):
        left = await killed_again(left, agent)
    after = await restart(agent, left)
    assert notation(after.records[-4:]) == "TR1 res(c1!OUTCOME_UNKNOWN) SE TE1{limit}"


class Deadly(Plugin):
    """Takes the process with it before anything of the turn is claimed."""

    async def assemble(self, ctx: Any, value: Assembly, next: Any) -> Assembly:
        """Hang."""
        await trio.sleep_forever()
        return await next(value)


async def test_c179_an_input_that_kills_before_it_is_claimed_is_accounted_for() -> None:
    life = await live(make(scripted("hello")), send)
    store = await image(life.records, life.upto("TS1"))
    agent = make(scripted("never"), plugins=[Deadly()])
    for _ in range(5):
        store = await killed_again(store, agent)
    after = await restart(agent, store)
    assert notation(after.records, life.upto("TS1")) == "TR1 TR1 TR1 TR1 TR1 TR1 claim(hi) TE1{limit}"


async def test_c179_a_parent_of_a_turn_that_kills_goes_on_with_its_end(autojump_clock: trio.testing.MockClock) -> None:
    child = Agent("child", model="child:x", plugins=())
    lead = Agent("lead", model="lead:x", plugins=(), tools=[delegate(child)])

    def lead_says(request: Request) -> Reply:
        results = request.messages[-1].results
        return Reply.text(results["c"]) if results else Reply.tools(("c", "child", {"task": "do it"}))

    models: dict[str, Any] = {
        "lead": ScriptedModel(lead_says, provider="lead"),
        "child": ScriptedModel(lambda _: Reply.hang(), provider="child"),
    }
    left = MemoryStore()
    for _ in range(6):
        async with System.open(left, agents=[lead], models=models, grace=0) as system:
            await (await system.spawn(lead, id="a")).followup("go", message_id="go")
            await trio.sleep(10)  # a suspect looks now and then whether somebody waits for it
            store = left.copy()
        left = store
    async with System.open(left, agents=[lead], models=models) as system:
        outcome = await (await system.get("a")).outcome("go", timeout=10)
    assert outcome.ok and "(Limits.recoveries=5)" in outcome.text
    assert (await order(left)).endswith("TR1 died{limit} res(c!CHILD_LIMIT) SE SS1.2 H{resume} Q1 C* A SE TE1{completed}")
    await check(left)
