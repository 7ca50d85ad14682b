"""What a page needs of the service: requests as they were sent, in pieces if long; agents by status and a part of the id."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked
from wired import Wires, make, scripted, serving

from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import tool
from callboard.net import handlers
from callboard.net.client import connected
from callboard.net.wire import ClientEnd
from callboard.net.wire import methods as m
from callboard.net.wire.client import Answered, Failed, decode_result
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentNotFound, Unauthorized
from callboard.storage.store import Head


async def call(wires: Wires, method: str, params: m.Params) -> Any:
    """The answer to one call over a bare socket, also if it is an error."""
    end = ClientEnd()
    async with wires.socket() as socket:
        await socket.get_message()
        await socket.send_message(end.call(method, params)[1])
        received = end.receive(await socket.get_message())
    if isinstance(received, Failed):
        return received.error
    assert isinstance(received, Answered)
    return decode_result(method, received.result)


@tool
async def lookup(city: str) -> str:
    """The weather of a city."""
    return f"{city}: rain"


@tool(approval="always")
async def refund(order: str) -> str:
    """Give money back."""
    return order


async def test_the_request_behind_an_answer(autojump_clock: object) -> None:
    model = scripted(Reply.tools(("c1", "lookup", {"city": "Oslo"})), "Take a coat.")
    async with serving(make(model, tools=[lookup], system="Be brief.")) as (system, _, wires):
        ref = await system.spawn(system.definitions["demo"], id="a")
        await ref.ask("Oslo?")
        answers = [record.seq async for record in ref.read(types=["assistant/message"])]
        first = await call(wires, "request", m.RequestAt(agent="a", seq=answers[0]))
        second = await call(wires, "request", m.RequestAt(agent="a", seq=answers[1]))
        assert first.ok and second.ok and (first.before, second.before) == (None, first.seq)
        assert (second.turn, second.step, second.attempt, second.count, second.kept) == (1, 2, 1, 3, 1)
        assert second.system == "Be brief." and [spec.name for spec in second.tools] == ["lookup"]
        assert [message.role for message in second.messages] == ["user", "assistant", "tool"]


async def test_a_long_request_comes_in_pieces(autojump_clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MOST_BYTES", 2000)
    async with serving(make(scripted("one", "two", "three"))) as (system, _, wires):
        ref = await system.spawn(system.definitions["demo"], id="a")
        for text in ("x" * 1500, "y" * 1500, "z" * 1500):
            await ref.ask(text)
        pieces: list[Any] = []
        while not pieces or sum(len(piece.messages) for piece in pieces) < pieces[0].count:
            first = sum(len(piece.messages) for piece in pieces)
            pieces.append(await call(wires, "request", m.RequestAt(agent="a", seq=10_000, first=first)))
        assert [len(piece.messages) for piece in pieces] == [3, 2]
        assert [message.text[0] for piece in pieces for message in piece.messages] == ["x", "o", "y", "t", "z"]
        assert (await call(wires, "request", m.RequestAt(agent="a", seq=10_000, first=99))).messages == []


async def test_the_prefix_of_a_token_holds_for_requests(autojump_clock: object) -> None:
    tokens = {"t": {"scopes": ["read"], "prefix": "acme/"}}
    async with serving(make(scripted("one")), tokens=tokens, token="t") as (system, _, wires):
        await (await system.spawn(system.definitions["demo"], id="other")).ask("hi")
        refused = await call(wires, "request", m.RequestAt(agent="other", seq=9))
        assert isinstance(refused, Unauthorized)
        missing = await call(wires, "request", m.RequestAt(agent="acme/none", seq=9))
        assert isinstance(missing, AgentNotFound)


async def test_agents_by_status_and_by_a_part_of_the_id(autojump_clock: object) -> None:
    async with serving(make(scripted(Reply.hang("...")))) as (system, _, wires):
        for id in ("acme/Reader-1", "acme/reader-2", "acme/writer"):
            await system.spawn(system.definitions["demo"], id=id)
        await (await system.get("acme/reader-2")).followup("hi")
        await wait_all_tasks_blocked()

        async def ids(**how: Any) -> list[str]:
            page = await call(wires, "agents", m.Agents(**how))
            return [agent.id for agent in page.agents]

        assert await ids(status="running") == ["acme/reader-2"]
        assert await ids(text="READER") == ["acme/Reader-1", "acme/reader-2"]
        assert await ids(text="demo", status="idle") == ["acme/Reader-1", "acme/writer"]
        page = await call(wires, "agents", m.Agents(text="reader", limit=1))
        assert page.more and [agent.id for agent in page.agents] == ["acme/Reader-1"]
        await (await system.get("acme/reader-2")).cancel()


async def test_a_search_looks_at_some_agents_for_each_page_and_says_where_it_is(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "LOOKED", 10)
    async with serving(make(scripted())) as (system, _, wires):
        for number in range(45):
            labels = {"team": "rare"} if number in (12, 41) else {"team": "x"}
            await system.spawn(system.definitions["demo"], id=f"a{number:02}", labels=labels)
        ways: list[dict[str, Any]] = [{"labels": {"team": "rare"}}, {"labels": {"team": "rare"}, "status": "idle", "text": "A"}]
        for how in ways:
            pages, after = list[tuple[list[str], int]](), None
            while True:
                page = await call(wires, "agents", m.Agents(after=after, **how))
                pages.append(([agent.id for agent in page.agents], page.looked))
                after = page.upto
                if not page.more:
                    break
            assert pages == [([], 10), (["a12"], 10), ([], 10), ([], 10), (["a41"], 5)] and after == "a44"
        page = await call(wires, "agents", m.Agents(limit=3))
        assert (page.upto, page.looked, page.more) == ("a02", 3, True)
        async with connected(wires.dial) as client:
            assert [agent.id async for agent in client.agents(labels={"team": "rare"})] == ["a12", "a41"]


class Watched(MemoryStore):
    """Remembers under which flag agents were listed."""

    def __init__(self) -> None:
        super().__init__()
        self.flags: list[Any] = []

    async def agents(self, *arguments: Any, **named: Any) -> list[Head]:
        found = await super().agents(*arguments, **named)
        self.flags.append((arguments[2] if len(arguments) > 2 else named.get("flag"), [head.agent for head in found]))
        return found


async def test_who_waits_for_a_person_is_found_without_reading_the_whole_index(autojump_clock: object) -> None:
    store = Watched()
    model = scripted("hello", Reply.tools(("c1", "refund", {"order": "7"})))
    async with serving(make(model, tools=[refund]), store=store) as (system, _, wires):
        for id in ("a", "b"):
            await (await system.spawn(system.definitions["demo"], id=id)).followup("hi")
            await wait_all_tasks_blocked()
        store.flags.clear()
        assert [question.agent for question in await call(wires, "approvals", m.Selection())] == ["b"]
        assert [agent.id for agent in (await call(wires, "agents", m.Agents(waiting="approval"))).agents] == ["b"]
        assert store.flags == [("attention", ["b"]), ("attention", [])] * 2
        store.flags.clear()
        running = await call(wires, "agents", m.Agents(status="running"))
        assert ([agent.id for agent in running.agents], running.looked) == (["b"], 1)
        assert store.flags == [("attention", ["b"]), ("attention", [])]
        await (await system.get("b")).cancel()
