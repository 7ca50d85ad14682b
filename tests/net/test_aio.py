"""Agents from asyncio: the same surface, errors as themselves, streams that lose nothing, and cancellation on both sides."""

from __future__ import annotations

import asyncio
import inspect
import threading
from functools import partial
from typing import Any

import pytest
import trio
from looped import make, on_loop

from callboard.actors import AgentRef as TrioRef
from callboard.actors import System as TrioSystem
from callboard.actors import tool
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net import serve
from callboard.net.aio import System, connect
from callboard.net.aio.host import Host
from callboard.net.client import Client as TrioClient
from callboard.storage import AgentNotFound, AskTimeout, Disconnected, InboxFull, Request, TurnFailed, UsageError, verify
from callboard.storage.engines.memory import MemoryStore


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_a_handle_has_the_methods_of_what_it_stands_for() -> None:
    async def main() -> None:
        agent = make()
        async with System.open(":memory:", agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            for handle, kind in ((system, TrioSystem), (ref, TrioRef)):
                assert public(kind) - {"open"} <= set(dir(handle))
                for name in public(kind) - {"open"}:
                    ours, theirs = getattr(handle, name), getattr(kind, name)
                    assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs), name
            assert ref == await system.get("a") and ref.id == "a" and ref.status == "idle"
            assert "AgentRef 'a'" in repr(ref) and {ref: 1}[await system.get("a")] == 1
            assert not hasattr(ref, "nonsense") and not hasattr(ref, "_runtime")

    on_loop(main)


def test_ask_read_and_list() -> None:
    async def main() -> None:
        agent = make(Reply.text("Hello.", parts=3), "And you?")
        async with System.open(":memory:", agents=[agent]) as system:
            ref = await system.spawn(agent, id="a", labels={"of": "us"})
            outcome = await ref.ask("Hi", message_id="m1")
            assert (outcome.result(), (await ref.outcome("m1")).text) == ("Hello.", "Hello.")
            assert [m.text for m in await ref.messages()] == ["Hi", "Hello."]
            assert [a.id async for a in system.agents(labels={"of": "us"})] == ["a"]
            assert (await system.usage()).total == (await ref.info()).usage.total
            other = await ref.fork(id="b")
            assert (await other.ask("Well")).text == "And you?"
            assert system.statistics()["agents"] == 2 and list(system.definitions) == ["demo"]
            records = [record async for record in ref.read()]
            assert [r.seq for r in records] == list(range(len(records)))

    on_loop(main)


def test_errors_arrive_as_themselves() -> None:
    async def main() -> None:
        agent = make(Reply.hang("..."), Reply.fail("AUTH"))
        async with System.open(":memory:", agents=[agent], grace=0) as system:
            with pytest.raises(AgentNotFound) as missing:
                await system.get("nobody")
            assert missing.value.agent == "nobody"
            ref = await system.spawn(agent, id="a")
            with pytest.raises(TimeoutError) as late:
                await ref.ask("Hi", timeout=0.05)
            assert type(late.value) is AskTimeout
            await ref.cancel()
            with pytest.raises(TurnFailed):
                (await ref.ask("again")).result()
            full = agent.replace(name="full", limits=agent.limits.__class__(pending=0))
            with pytest.raises(InboxFull):
                await (await system.spawn(full, id="f")).followup("no")

    on_loop(main)


def test_a_closed_system_says_so() -> None:
    async def main() -> None:
        agent = make("hi")
        async with System.open(":memory:", agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
        for call in (ref.info, partial(ref.ask, "again"), partial(system.get, "a")):
            with pytest.raises(UsageError, match="is closed"):
                await call()
        with pytest.raises(UsageError, match="is closed"):
            await anext(ref.follow())
        assert ref.id == "a" and "AgentRef" in repr(ref)

    on_loop(main)


# -- streams


def test_deltas_may_be_left_at_any_time_and_resumed() -> None:
    async def main() -> None:
        agent = make(Reply.text("abcdefgh", parts=8))
        async with System.open(":memory:", agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            after, text = (await ref.followup("go")).seq, ""
            ended = False
            while not ended:
                deltas = ref.deltas(after=after)
                async for delta in deltas:
                    text, after, ended = text + delta.text, delta.seq, delta.kind == "end"
                    assert deltas.seq >= after
                    break  # without aclosing, each time
            assert text == "abcdefgh"

    on_loop(main)


@pytest.mark.parametrize("progress", range(8))
def test_a_step_of_a_stream_that_is_cancelled_loses_nothing(progress: int) -> None:
    async def main() -> None:
        agent = make(Reply.text("x" * 30, parts=30))
        async with System.open(":memory:", agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            last = (await ref.ask("go")).seq
            records, seen, cuts = ref.follow(), list[int](), 0
            while seen[-1:] != [last]:
                step = asyncio.ensure_future(anext(records))
                if cuts < 20:
                    cuts += 1
                    await asyncio.sleep(0)  # it is under way
                    for _ in range(progress):
                        assert ref.status == "idle"  # trio goes on by a tick or two, and this loop stands still
                    step.cancel()
                try:
                    seen.append((await step).seq)
                except asyncio.CancelledError:
                    continue
            assert seen == list(range(len(seen)))

    on_loop(main)


def test_a_long_history_takes_few_crossings(monkeypatch: pytest.MonkeyPatch) -> None:
    crossings: list[Any] = []
    call = Host.call

    def counted(self: Host, function: Any, *arguments: Any, **options: Any) -> Any:
        crossings.append(function)
        return call(self, function, *arguments, **options)

    async def main() -> None:
        agent = make(Reply.text("x" * 1000, parts=1000))
        async with System.open(":memory:", agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            await ref.ask("go")
            monkeypatch.setattr(Host, "call", counted)
            count = 0
            async for record in ref.follow():
                count += 1
                if record.type == "turn/end":
                    break
            assert count > 1000 and len(crossings) < 10

    on_loop(main)


# -- cancellation


def test_cancelling_a_call_cancels_it_over_there() -> None:
    async def main() -> None:
        agent = make(Reply.hang("so"), "fine")
        async with System.open(":memory:", agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            asking = asyncio.create_task(ref.ask("go", on_cancel="cancel"))
            async for delta in ref.deltas():
                if delta.kind == "text":
                    break
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert (await ref.outcome(turn=1)).reason.kind == "aborted"
            assert (await ref.ask("again")).text == "fine"

    on_loop(main)


def test_a_deadline_of_asyncio_is_one_there() -> None:
    async def main() -> None:
        agent = make(Reply.hang("so"))
        async with System.open(":memory:", agents=[agent], grace=0) as system:
            ref = await system.spawn(agent, id="a")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await ref.ask("go")
            assert ref.status == "running", "detached: the turn goes on"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ref.wait_idle(), 0.05)

    on_loop(main)


def test_a_task_group_that_fails_cancels_its_calls() -> None:
    async def main() -> None:
        agent = make(Reply.hang("so"))

        async def fail() -> None:
            await asyncio.sleep(0.01)
            raise ValueError("broken")

        async with System.open(":memory:", agents=[agent], grace=0) as system:
            ref = await system.spawn(agent, id="a")
            with pytest.raises(ExceptionGroup, match="unhandled"):
                async with asyncio.TaskGroup() as group:
                    group.create_task(ref.ask("go"))
                    group.create_task(fail())

    on_loop(main)


# -- many loops


def test_any_loop_may_use_an_open_system() -> None:
    async def main() -> None:
        def shout(request: Request) -> Reply:
            return Reply.text(request.messages[-1].text.upper())

        agent = make(shout)
        async with System.open(":memory:", agents=[agent]) as system:

            async def elsewhere(name: str) -> str:
                ref = await system.spawn(agent, id=name)
                return (await ref.ask(name)).text

            results: list[str] = []

            def in_a_thread(name: str) -> None:
                results.append(asyncio.run(elsewhere(name)))

            threads = [threading.Thread(target=in_a_thread, args=(name,)) for name in "abc"]
            for thread in threads:
                thread.start()
            results.append(await elsewhere("d"))
            for thread in threads:
                await asyncio.to_thread(thread.join)
            assert sorted(results) == ["A", "B", "C", "D"]

    on_loop(main)


def test_several_systems_on_one_loop() -> None:
    async def main() -> None:
        agent, stores = make("one", "two"), [MemoryStore(), MemoryStore()]
        async with System.open(stores[0], agents=[agent]) as first, System.open(stores[1], agents=[agent]) as second:
            refs = [await system.spawn(agent, id="a") for system in (first, second)]
            assert refs[0] != refs[1]
            assert {outcome.text for outcome in await asyncio.gather(*(ref.ask("go") for ref in refs))} == {"one", "two"}
        for store in stores:
            assert trio.run(partial(verify, store)).ok

    on_loop(main)


# -- the client


def test_a_client_on_a_loop() -> None:
    addresses: list[str] = []
    ready, over = threading.Event(), threading.Event()

    @tool(replay="safe", approval="Really?")
    async def pay() -> str:
        """Pay."""
        return "paid"

    async def service() -> None:
        model = ScriptedModel([Reply.text("Hello.", parts=3), Reply.tools(("c1", "pay", {})), Reply.text("Done.")])
        agent = make().replace(model=model, tools=[pay])
        async with TrioSystem.open(":memory:", agents=[agent]) as system, trio.open_nursery() as nursery:
            server = await nursery.start(partial(serve, system))
            addresses.append(server.url)
            ready.set()
            await trio.to_thread.run_sync(over.wait)
            nursery.cancel_scope.cancel()

    async def main() -> None:
        async with connect(addresses[0]) as client:
            assert public(TrioClient) <= set(dir(client))
            ref = await client.spawn("demo", id="a")
            receipt = await ref.followup("Hi")
            text = ""
            async for delta in ref.deltas(after=receipt.seq):
                if delta.kind == "end":
                    break
                text += delta.text
            assert text == "Hello."
            with pytest.raises(AgentNotFound):
                await client.open("nobody")
            async for agent in client.agents():
                assert agent.id == "a"
                break
            asking = asyncio.create_task(ref.ask("pay"))
            questions: list[Any] = []
            while not questions:
                questions = [question async for question in client.approvals()]
            await client.answer(questions[0].id, "allow", by="ann")
            assert (await asking).text == "Done."

    thread = threading.Thread(target=trio.run, args=(service,))
    thread.start()
    try:
        assert ready.wait(10)
        on_loop(main)
    finally:
        over.set()
        thread.join()


def test_nobody_at_the_address() -> None:
    async def main() -> None:
        with pytest.raises(Disconnected):
            async with connect("ws://127.0.0.1:9"):
                raise AssertionError("never connected")

    on_loop(main)
