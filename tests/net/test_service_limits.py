"""What one connection can do to a service: nothing. Slow, silent, noisy, forbidden and broken clients."""

from __future__ import annotations

import json
import logging
import tracemalloc
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked
from trio_websocket import ConnectionClosed
from wired import make, said, scripted, serving, told, wired

from callboard.actors.testing.scripted import Reply
from callboard.net import handlers
from callboard.net.http.line import LINGER_S
from callboard.net.limits import ServiceLimits
from callboard.storage.errors import InputRefused, Unauthorized, UsageError
from callboard.storage.events import Note
from callboard.storage.messages import TextBlock

ASK = {"jsonrpc": "2.0", "method": "get", "params": {"agent": "a"}}


async def code_of(connection: Any) -> int:
    """Read until the connection is closed, and say with which code."""
    try:
        while True:
            await connection.get_message()
    except ConnectionClosed as closed:
        return int(closed.reason.code) if closed.reason is not None else 0


async def test_the_first_frame_says_who_serves(autojump_clock: object) -> None:
    tokens = {"t": {"scopes": ["read"], "prefix": "acme/"}}
    async with serving(make(scripted()), tokens=tokens, token="t") as (_, _, wires), wires.socket() as connection:
        hello = await said(connection)
        assert hello["method"] == "hello"
        assert hello["params"] == {**hello["params"], "scopes": ["read"], "prefix": "acme/", "max_message": 4194304}


async def test_c226_malformed_frames_are_answered_and_the_fifth_in_a_row_closes(autojump_clock: object) -> None:
    async with serving(make(scripted())) as (_, server, wires):
        async with wires.socket() as connection:
            await said(connection)
            for frame in ("{", '{"jsonrpc":"2.0","id":7,"method":"gett"}', b"\xff", '{"jsonrpc":"2.0","id":8,"method":"get"}'):
                await connection.send_message(frame)
            answers = [await said(connection) for _ in range(4)]
            assert [(a["id"], a["error"]["code"]) for a in answers] == [(None, -32700), (7, -32601), (None, -32600), (8, -32602)]
            await connection.send_message("[1]")
            assert await code_of(connection) == 4400
        await wait_all_tasks_blocked()
        assert server.statistics()["connections"] == 0


async def test_c226_a_long_message_is_refused_and_one_far_too_long_closes(autojump_clock: object) -> None:
    limits = ServiceLimits(message_bytes=1000)
    async with serving(make(scripted()), limits=limits) as (_, _, wires), wires.socket() as connection:
        await said(connection)
        await connection.send_message(json.dumps({**ASK, "id": 3, "params": {"agent": "x" * 1200}}))
        answer = await said(connection)
        assert (answer["id"], answer["error"]["data"]["error"]) == (3, "UsageError")
        await connection.send_message("x" * 2100)
        assert await code_of(connection) == 1009


async def test_a_client_does_not_send_what_a_service_would_not_take(autojump_clock: object) -> None:
    async with wired(make(scripted("ok")), limits=ServiceLimits(message_bytes=1000)) as w:
        ref = await w.client.spawn("demo", id="a")
        with pytest.raises(UsageError, match="takes 1,000; send less"):
            await ref.followup("x" * 1000)
        assert (await ref.ask("hi")).text == "ok" and w.wires.made == 1


async def test_too_many_calls_at_once_are_refused_by_name(autojump_clock: object) -> None:
    async with serving(make(scripted(Reply.hang("..."))), limits=ServiceLimits(calls=3)) as (system, _, wires):
        ref = await system.spawn(system.definitions["demo"], id="a")
        await ref.followup("hi")
        async with wires.socket() as connection:
            await said(connection)
            for id in range(4):
                wait = {"jsonrpc": "2.0", "id": id, "method": "wait_idle", "params": {"agent": "a"}}
                await connection.send_message(json.dumps(wait))
            refused = await said(connection)
            assert refused["id"] == 3 and "3 calls wait" in refused["error"]["message"]
            await connection.send_message(json.dumps({"jsonrpc": "2.0", "method": "forget", "params": {"id": 0}}))
            await wait_all_tasks_blocked()
            await connection.send_message(json.dumps({**ASK, "id": 1}))
            assert "in use" in (await said(connection))["error"]["message"]
            await connection.send_message(json.dumps({**ASK, "id": 9}))
            assert (await said(connection))["result"]["id"] == "a"
        await ref.cancel()


async def test_a_fault_in_one_method_is_one_error(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(desk: Any, params: Any, caller: Any) -> Any:
        raise ZeroDivisionError("a secret")

    monkeypatch.setitem(handlers.HANDLERS, "info", broken)
    async with serving(make(scripted())) as (_, _, wires), wires.socket() as connection:
        await said(connection)
        answer = await told(connection, "info", agent="a")
        assert answer["error"]["code"] == -32603 and "secret" not in json.dumps(answer)
        assert (await told(connection, "agents"))["result"]["agents"] == []
    assert "ZeroDivisionError" in caplog.text


async def test_c227_no_scope_no_method_and_no_prefix_no_agent(autojump_clock: object) -> None:
    tokens = {"t": {"scopes": ["read", "send"], "prefix": "acme/"}}
    async with wired(make(scripted("ok", "ok")), tokens=tokens, token="t") as w:
        other = await w.system.spawn(w.system.definitions["demo"], id="zeta/1")
        ref = await w.client.spawn("demo")
        assert ref.id.startswith("acme/demo-")
        assert (await ref.ask("hi")).text == "ok"
        for refused in (
            w.client.delete(ref.id),
            ref.dispose(),
            w.client.answer(f"{ref.id}!3", "allow", by="me"),
            w.client.get(other.id),
            w.client.get("zeta/none"),
            w.client.spawn("demo", id="zeta/2"),
            ref.fork(id="zeta/3"),
        ):
            with pytest.raises(Unauthorized):
                await refused
        assert [agent.id async for agent in w.client.agents()] == [ref.id]
        assert [agent.id async for agent in w.client.agents("zeta/")] == []
        assert [a async for a in w.client.approvals("zeta/")] == []
        assert (await w.client.usage("zeta/")).total == 0
        async with w.wires.socket() as connection:
            for method, more in (("follow", {"stream": 1}), ("read", {}), ("ask", {"content": "hi"})):
                refused_too = await told(connection, method, agent=other.id, **more)
                assert refused_too["error"]["data"]["error"] == "Unauthorized"


# -- slow, silent, gone


async def noted(system: Any, records: int, size: int) -> None:
    """An agent `a` with a long log."""
    ref = await system.spawn(system.definitions["demo"], id="a")
    actor = await system._runtime.registry.actor(ref.id)
    for _ in range(records):
        actor.log.append(Note(kind="big", data="x" * size))
    await actor.log.commit()


async def test_c223_a_reader_that_stops_is_bounded_closed_with_a_code_and_resumes(autojump_clock: object) -> None:
    limits = ServiceLimits(slow_s=30, close_s=60)
    async with serving(make(scripted("hello")), limits=limits, lockstep=True) as (system, _, wires):
        await noted(system, 2000, 30 * 1024)
        async with wires.socket() as slow, wires.socket() as quick:
            await said(slow)
            await said(quick)
            tracemalloc.start()
            follow = {"jsonrpc": "2.0", "id": 1, "method": "follow", "params": {"agent": "a", "stream": 1}}
            await slow.send_message(json.dumps(follow))
            await trio.sleep(20)
            held = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            assert held < 4 * 2**20, f"{held:,} bytes are held for a reader that does not read"
            assert (await told(quick, "get", agent="a"))["result"]["id"] == "a"
            await trio.sleep(20)
            seen: list[int] = []
            try:
                while True:
                    frame = await said(slow)
                    seen += [record["seq"] for record in frame.get("params", {}).get("records", ())]
            except ConnectionClosed as closed:
                assert closed.reason is not None and closed.reason.code == 4408
            assert 0 < len(seen) < 200 and seen == list(range(len(seen)))
            follow["params"] = {"agent": "a", "stream": 2, "after": seen[-1]}
            await quick.send_message(json.dumps(follow))
            while seen[-1] < 2000:
                frame = await said(quick)
                seen += [record["seq"] for record in frame.get("params", {}).get("records", ())]
            assert seen == list(range(2001))


async def test_a_window_stops_one_stream_and_not_its_connection(autojump_clock: object) -> None:
    async with serving(make(scripted()), limits=ServiceLimits(page_bytes=10_000)) as (system, _, wires):
        await noted(system, 50, 1000)
        async with wires.socket() as connection:
            await said(connection)
            await told(connection, "follow", agent="a", stream=1, window=2)
            first = [await said(connection) for _ in range(2)]
            await wait_all_tasks_blocked(0.1)
            assert (await told(connection, "get", agent="a"))["result"]["id"] == "a"
            await connection.send_message(json.dumps({"jsonrpc": "2.0", "method": "ack", "params": {"stream": 1, "frames": 1}}))
            third = await said(connection)
            assert third["params"]["records"][0]["seq"] == first[-1]["params"]["upto"] + 1
            await told(connection, "unfollow", stream=1)
            await connection.send_message(json.dumps({"jsonrpc": "2.0", "method": "ack", "params": {"stream": 1, "frames": 3}}))
            assert "id" in await told(connection, "get", agent="a")


async def test_a_stream_that_its_reader_dropped_ends_at_the_service(autojump_clock: object) -> None:
    async with wired(make(scripted("a", "b", "c")), limits=ServiceLimits(page_bytes=100)) as w:
        ref = await w.client.spawn("demo", id="a")
        async for _ in ref.follow():
            break
        assert w.server.statistics()["followers"] == 1
        await ref.ask("hi")
        await ref.ask("hi again")
        await wait_all_tasks_blocked(0.1)
        assert w.server.statistics()["followers"] == 0


async def test_c224_a_close_with_a_full_queue_ends_within_its_deadline(autojump_clock: object) -> None:
    async with serving(make(scripted()), limits=ServiceLimits(close_s=5), lockstep=True) as (system, server, wires):
        await noted(system, 100, 10_000)
        async with wires.socket() as connection:
            await said(connection)
            follow = {"jsonrpc": "2.0", "id": 1, "method": "follow", "params": {"agent": "a", "stream": 1}}
            await connection.send_message(json.dumps(follow))
            await wait_all_tasks_blocked(0.1)
            begun = trio.current_time()
            await server.close()
            assert trio.current_time() - begun <= 5


async def test_c224_a_peer_that_is_gone_without_a_word_is_noticed_by_a_ping(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ServiceLimits(ping_every_s=10, ping_s=10, close_s=1)
    async with serving(make(scripted()), limits=limits) as (_, server, wires), wires.socket() as connection:
        await said(connection)
        await trio.sleep(100)
        assert server.statistics()["connections"] == 1, "one that answers stays"
        monkeypatch.setattr(connection, "_handle_ping_event", _ignore)
        connection._reader_running = False  # pyright: ignore[reportPrivateUsage]
        await trio.sleep(25)
        assert server.statistics()["connections"] == 0


async def _ignore(event: Any) -> None: ...


async def test_a_head_that_never_comes_is_given_up(autojump_clock: object) -> None:
    async with serving(make(scripted()), limits=ServiceLimits(handshake_s=10)) as (_, server, _):
        near, far = trio.testing.memory_stream_pair()
        begun = trio.current_time()
        await near.send_all(b"GET / HT")
        await server.handle(far)
        assert trio.current_time() - begun == pytest.approx(10 + LINGER_S)
        assert (await near.receive_some()).startswith(b"HTTP/1.1 408 ")


async def test_more_connections_than_allowed_are_turned_away(autojump_clock: object) -> None:
    async with serving(make(scripted()), limits=ServiceLimits(connections=1)) as (_, server, wires), wires.socket() as connection:
        await said(connection)
        near, far = trio.testing.memory_stream_pair()
        await server.handle(far)
        assert (await near.receive_some()).startswith(b"HTTP/1.1 503 ")
        assert "result" in await told(connection, "agents")


# -- many


async def test_c229_each_record_is_encoded_once_for_all_its_followers(autojump_clock: object) -> None:
    async with serving(make(scripted(Reply.text("x" * 40, parts=40)))) as (system, server, wires):
        ref = await system.spawn(system.definitions["demo"], id="a")
        counts: list[int] = []

        async def follow() -> None:
            async with wires.socket() as connection:
                seqs: list[int] = []
                await connection.send_message(
                    json.dumps({"jsonrpc": "2.0", "id": 1, "method": "follow", "params": {"agent": "a", "stream": 1}})
                )
                while True:
                    params = (await said(connection)).get("params", {})
                    seqs += [record["seq"] for record in params.get("records", ())]
                    if any(record["type"] == "turn/end" for record in params.get("records", ())):
                        break
                assert seqs == list(range(len(seqs)))
                counts.append(len(seqs))

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(follow)
            await wait_all_tasks_blocked(0.01)
            await ref.ask("hi")
        assert len(set(counts)) == 1 and len(counts) == 50
        assert server.statistics()["feeds"]["encoded"] == counts[0]


async def test_c247_refusals_of_the_inbox_cross_the_wire(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with wired(make(scripted("ok"))) as w:
        ref = await w.client.spawn("demo", id="a")
        with pytest.raises(InputRefused, match="empty"):
            await ref.followup("  ")
        with pytest.raises(UsageError, match="no 'room'"):
            await ref.followup([TextBlock("x")], route={"room": "x"})
    assert not caplog.records
