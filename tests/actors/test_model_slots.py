"""Model slots: a bound for each provider, families in turn, and no way for slots to lock each other (C162, C177, C185)."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from helpers import check, make, opened, order
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, Answer, Plugin, System, delegate
from callboard.actors.models.slots import MOST, ModelSlots, slots_of_machine
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import UsageError
from callboard.storage.messages import Chunk, Message, Request


class Turns:
    """Tasks that take a slot when told to, and note the order in which they got it."""

    def __init__(self, slots: ModelSlots, nursery: trio.Nursery) -> None:
        self.slots, self.nursery = slots, nursery
        self.got: list[str] = []
        self.gates: dict[str, trio.Event] = {}
        self.scopes: dict[str, trio.CancelScope] = {}

    async def start(self, name: str, family: str, provider: str = "p") -> None:
        self.gates[name], self.scopes[name] = trio.Event(), trio.CancelScope()
        self.nursery.start_soon(self._hold, name, family, provider)
        await wait_all_tasks_blocked()

    async def _hold(self, name: str, family: str, provider: str) -> None:
        with self.scopes[name]:
            async with self.slots.held(provider, family):
                self.got.append(name)
                await self.gates[name].wait()

    async def end(self, name: str) -> None:
        self.gates[name].set()
        await wait_all_tasks_blocked()


async def test_families_take_turns_and_within_one_who_came_first_goes_first() -> None:
    async with trio.open_nursery() as nursery:
        turns = Turns(ModelSlots(1), nursery)
        for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
            await turns.start(name, name[0])
        assert turns.slots.statistics() == {"p": {"limit": 1, "used": 1, "waiting": 6}}
        for name in ("a1", "a2", "b1", "c1", "a3", "b2", "a4"):
            assert turns.got[-1] == name
            await turns.end(name)
        assert turns.slots.statistics() == {"p": {"limit": 1, "used": 0, "waiting": 0}}


async def test_each_provider_has_slots_of_its_own() -> None:
    async with trio.open_nursery() as nursery:
        turns = Turns(ModelSlots({"p": 1, "*": 2}), nursery)
        for name, provider in (("p1", "p"), ("p2", "p"), ("q1", "q"), ("q2", "q"), ("q3", "q")):
            await turns.start(name, name, provider)
        assert turns.got == ["p1", "q1", "q2"]
        nursery.cancel_scope.cancel()


async def test_who_is_cancelled_while_waiting_or_when_its_turn_comes_keeps_no_slot() -> None:
    async with trio.open_nursery() as nursery:
        turns = Turns(ModelSlots(1), nursery)
        slots = turns.slots.of("p")
        assert slots.take_nowait()
        for name in ("b", "c", "d"):
            await turns.start(name, "family")
        turns.scopes["b"].cancel()
        await wait_all_tasks_blocked()
        assert slots.waiting == 2
        turns.scopes["c"].cancel()
        slots.release()  # to c, which has not run since
        await wait_all_tasks_blocked()
        assert turns.got == ["d"]
        await turns.end("d")
        assert turns.slots.statistics() == {"p": {"limit": 1, "used": 0, "waiting": 0}}


def test_the_default_is_a_quarter_of_the_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, slots in ((1024, 256), (8, 16), (1_000_000, MOST), (resource.RLIM_INFINITY, MOST)):
        limits = {resource.RLIMIT_NOFILE: (files, files)}
        monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
        assert slots_of_machine() == slots == ModelSlots().of("p").limit


@pytest.mark.parametrize("given", [-1, 1.5, True, {"p": "many"}])
def test_a_number_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="model_slots has"):
        ModelSlots(given)


class Asks(Plugin):
    """Asks a model beside the dialogue, in the seam of its name."""

    def __init__(self, seam: str) -> None:
        self.seam = seam

    async def pre_step(self, ctx: SeamContext, boundary: Any, next: Next[Any, Any]) -> Any:
        if self.seam == "pre_step":
            await ctx.model("beside")
        return await next(boundary)

    async def stream(self, ctx: SeamContext, request: Request, next: Any, /) -> AsyncIterator[Chunk]:
        if self.seam == "stream" and request.messages[-1].text != "beside":
            await ctx.model("beside")
        async for chunk in next(request):
            yield chunk


@pytest.mark.parametrize("seam", ["pre_step", "stream"])
async def test_a_call_of_a_plugin_counts_and_never_waits_for_the_slot_of_its_own_agent(seam: str) -> None:
    most = 0

    def answer(request: Request) -> Reply:
        nonlocal most
        used = system.statistics()["model_slots"]["scripted"]["used"]
        most = max(most, used)
        return Reply.text("hello")

    async with opened(make(ScriptedModel(answer), plugins=[Asks(seam)]), model_slots=1) as (system, ref):
        with trio.fail_after(60):
            assert (await ref.ask("hi")).text == "hello"
        assert most == 1


async def test_a_hundred_children_delay_another_agent_by_one_call() -> None:
    asked: list[str] = []
    store = MemoryStore()
    gate = trio.Event()

    def answer(request: Request) -> Reply:
        asked.append(request.agent)
        if request.agent == "lead" and len(request.messages) == 1:
            return Reply.tools(*((f"c{n}", "worker", {"task": str(n)}) for n in range(20)))
        return Reply.wait(gate, Reply.text("done")) if request.agent.startswith("lead/") else Reply.text("done")

    model = ScriptedModel(answer)
    worker = Agent("worker", model=model, plugins=())
    lead = Agent("lead", model=model, plugins=(), tools=[delegate(worker)])
    lead = lead.replace(limits=lead.limits.__class__(parallel=20))
    other = make(model)
    async with System.open(store, agents=[lead, other], model_slots=1) as system:
        await (await system.spawn(lead, id="lead")).followup("go")
        await wait_all_tasks_blocked()
        assert system.statistics()["model_slots"]["scripted"] == {"limit": 1, "used": 1, "waiting": 19}
        await (await system.spawn(other, id="other")).followup("me too")
        await wait_all_tasks_blocked()
        gate.set()
        await (await system.get("lead")).wait_idle()
    assert asked.index("other") <= 3, asked
    await check(store)


async def test_no_slots_mean_no_calls_and_a_control_command_is_answered_all_the_same() -> None:
    class Status(Plugin):
        async def accept(self, ctx: SeamContext, message: Message, next: Next[Any, Any]) -> Any:
            return Answer("fine") if message.text == "/status" else await next(message)

    async with opened(make(ScriptedModel([]), plugins=[Status()]), model_slots=0, grace=0) as (system, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await ref.followup("/status")
        assert (await order(system.store)).endswith("Q1 cmd cmdres")
        assert [wait.kind for wait in (await ref.info()).waits] == ["model-slot"]
        await ref.cancel()
