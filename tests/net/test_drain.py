"""The end of a service: what is under way finishes or is left, nothing new is taken, and clients are told to come again."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from trio_websocket import ConnectionClosed
from web import browsing
from wired import Wired, make, said, scripted, serving, told, wired

from callboard import Agent, System, tool
from callboard.actors.testing.scripted import Reply
from callboard.net import serve
from callboard.net.server import Server
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import StoreInUse, UsageError


@tool(replay="safe", approval="May I?")
async def ask_first() -> str:
    """Asks first."""
    return "asked"


def slow() -> tuple[Agent[Any, Any], trio.Event]:
    """An agent whose tool takes until the event is set."""
    go = trio.Event()

    @tool(replay="safe")
    async def wait() -> str:
        """Waits."""
        await go.wait()
        return "waited"

    return make(scripted(Reply.tools(("c1", "wait", {})), "done"), tools=[wait]), go


async def test_finish_waits_for_open_turns_and_then_says_goodbye(autojump_clock: object) -> None:
    agent, go = slow()
    async with serving(agent) as (system, server, wires), wires.socket() as connection, trio.open_nursery() as nursery:
        await said(connection)
        ref = await system.spawn(agent, id="a")
        await ref.followup("go", message_id="m")
        await told(connection, "follow", agent="a", stream=1, types=["turn/end"])
        begun = trio.current_time()
        nursery.start_soon(partial(server.drain, "finish", grace=30))
        await trio.sleep(5)
        go.set()
        seen: list[str] = []
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                seen += [record["type"] for record in (await said(connection))["params"]["records"]]
        assert seen == ["turn/end"] and closed.value.reason is not None and closed.value.reason.code == 1001
        assert trio.current_time() - begun < 6


async def test_finish_gives_up_after_its_grace_and_leaves_the_turn(autojump_clock: object) -> None:
    store = MemoryStore()
    agent, go = slow()
    async with serving(agent, store=store, grace=0) as (system, server, _):
        await (await system.spawn(agent, id="a")).followup("go", message_id="m")
        begun = trio.current_time()
        await server.drain("finish", grace=7)
        assert trio.current_time() - begun == pytest.approx(7, abs=0.1)
    go.set()
    async with System.open(store, agents=[agent.replace(model=scripted("done"))]) as system:
        assert (await (await system.get("a")).outcome("m")).text == "done"


async def test_finish_does_not_wait_for_people(autojump_clock: object) -> None:
    agent = make(scripted(Reply.tools(("c1", "ask_first", {}))), tools=[ask_first])
    async with serving(agent) as (system, server, _):
        ref = await system.spawn(agent, id="a")
        await ref.followup("go")
        await wait_all_tasks_blocked()
        begun = trio.current_time()
        await server.drain("finish", grace=30)
        assert trio.current_time() - begun < 1
        await ref.cancel()


async def test_leave_waits_for_no_turn(autojump_clock: object) -> None:
    agent, _ = slow()
    async with browsing(agent, grace=0) as web, web.line() as line:
        body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "hi"}]}).encode()
        await line.send("POST", "/v1/chat/completions", body, content_type="application/json")
        await wait_all_tasks_blocked()
        begun = trio.current_time()
        await web.server.drain("leave", grace=30)
        assert trio.current_time() - begun < 2
        assert (await line.answer()).status == 503
        assert (await web.get("/readyz")).json == {"status": "draining"}


async def test_a_drain_has_two_ways(autojump_clock: object) -> None:
    async with serving(make(scripted())) as (_, server, _):
        how: Any = "slowly"
        with pytest.raises(UsageError, match="'finish'"):
            await server.drain(how)


async def test_a_send_while_it_drains_is_for_the_next_service(autojump_clock: object) -> None:
    """The client sees a connection that closes, tries again until somebody serves, and its message is taken once."""
    agent, go = slow()
    w: Wired
    async with wired(agent.replace(model=scripted(Reply.tools(("c1", "wait", {})), "done", "again"))) as w:
        ref = await w.client.spawn("demo", id="a")
        await ref.followup("go")
        w.server.site.state = "draining"
        assert (await ref.info()).turn == 1, "looking is allowed"
        outcomes: list[str] = []

        async def ask() -> None:
            outcomes.append((await ref.ask("more", message_id="m2")).text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(10)
            assert not outcomes and w.wires.made > 2
            w.server.site.state = "ready"
            go.set()
        assert outcomes == ["again"]


# -- the beginning


async def test_a_service_that_opens_its_system_says_that_it_recovers(nursery: trio.Nursery) -> None:
    opening, go = trio.Event(), trio.Event()
    servers: list[Server] = []

    @asynccontextmanager
    async def slowly() -> AsyncGenerator[System]:
        opening.set()
        await go.wait()
        async with System.open(":memory:", agents=[make(scripted())]) as system:
            yield system

    port = await _free_port()
    run = partial(serve, slowly(), port=port)

    async def start() -> None:
        servers.append(await nursery.start(run))

    async with trio.open_nursery() as inner:
        inner.start_soon(start)
        await opening.wait()
        assert (await _status(port, "/readyz")) == (503, {"status": "recovering"})
        assert (await _status(port, "/healthz"))[0] == 200
        assert (await _status(port, "/v1/models"))[0] == 503
        assert not servers
        go.set()
    assert (await _status(port, "/readyz")) == (200, {"status": "ready"})
    nursery.cancel_scope.cancel()


async def test_a_system_that_cannot_be_opened_is_the_error_of_the_service(tmp_path: Path) -> None:
    async with System.open(tmp_path / "state"), trio.open_nursery() as nursery:
        with pytest.raises(StoreInUse):
            await nursery.start(partial(serve, System.open(tmp_path / "state")))


async def _free_port() -> int:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        return int(listener.socket.getsockname()[1])


async def _status(port: int, path: str) -> tuple[int, Any]:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        said = b"".join([part async for part in stream])
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)
