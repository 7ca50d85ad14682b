"""Clients that mean harm: floods, things that never end, heads that two readers understand in two ways.

What they cost is bounded, what they get is a typed answer or a close with a code, and the others are served meanwhile.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from rawsocket import frame, upgraded
from test_service_limits import code_of, noted
from trio.testing import memory_stream_pair, wait_all_tasks_blocked
from web import Web, browsing
from wired import make, said, scripted, serving, told

from callboard.net import cookies
from callboard.net.limits import ServiceLimits
from callboard.net.wire.closes import GOING_AWAY, TOO_LONG
from callboard.storage import open_store

TOKENS = {"t": {"scopes": ["admin"]}}
CHAT = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "hi"}]}).encode()
HANDSHAKE = (
    b"host: localhost:8000\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: callboard.v1"
)


@pytest.fixture(autouse=True)
def no_faults(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing of it is a fault of the service."""
    yield
    assert not [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def call(id: int, method: str, **params: Any) -> bytes:
    return frame(1, json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode())


# -- floods over WebSocket


@pytest.mark.parametrize(("agent", "numbers"), [("nobody", 1), ("a", 1), ("a", 10_000)], ids=["unknown", "same", "others"])
async def test_a_flood_of_follows_that_nobody_reads_starts_no_more_tasks_than_streams(
    autojump_clock: object, agent: str, numbers: int
) -> None:
    limits = ServiceLimits(streams=20, slow_s=1000, ping_every_s=1000)
    async with serving(make(scripted()), limits=limits, lockstep=True) as (system, _, wires):
        await noted(system, 3, 10)
        async with wires.socket() as connection:
            await said(connection)
            wire: Any = wires.newest
            before = tasks()
            with trio.move_on_after(100):
                for n in range(400):
                    await wire.send_all(call(n, "follow", agent=agent, stream=n % numbers))
            assert tasks() <= before + 20
            await trio.aclose_forcefully(wire)


async def test_streams_that_were_closed_make_room_for_others(autojump_clock: object) -> None:
    async with serving(make(scripted()), limits=ServiceLimits(streams=2)) as (system, _, wires):
        await noted(system, 3, 10)
        async with wires.socket() as connection:
            await said(connection)
            for n in range(20):
                assert "result" in await told(connection, "follow", agent="a", stream=n)
                assert "result" in await told(connection, "unfollow", stream=n)


async def test_a_service_that_drains_closes_a_connection_once_however_much_is_sent(
    autojump_clock: object, nursery: trio.Nursery
) -> None:
    async with serving(make(scripted()), limits=ServiceLimits(close_s=5)) as (_, server, _):
        near, far = memory_stream_pair()
        nursery.start_soon(server.handle, far)
        await upgraded(near)
        server.site.let_go()
        before = tasks()
        for n in range(400):
            await near.send_all(call(n, "followup", agent="a", content="x"))
        await wait_all_tasks_blocked()
        assert tasks() <= before + 1
        heard = b"".join([bytes(part) async for part in near])
        assert heard[heard.rindex(b"\x88") + 2 :][:2] == GOING_AWAY.to_bytes(2, "big")


async def test_a_message_that_never_ends_is_not_waited_for(autojump_clock: object) -> None:
    """Empty pieces weigh nothing against the longest message, and yet each is kept."""
    async with serving(make(scripted())) as (_, server, wires), wires.socket() as connection:
        await said(connection)
        wire: Any = wires.newest
        begun = trio.current_time()
        await wire.send_all(frame(1, b"", final=False))
        with trio.move_on_after(200):
            while server.statistics()["connections"]:
                await wire.send_all(frame(0, b"", final=False) * 10)
                await trio.sleep(1)
        assert trio.current_time() - begun <= 100
        assert await code_of(connection) == TOO_LONG


async def test_a_message_that_comes_slowly_but_comes_is_taken(autojump_clock: object) -> None:
    async with serving(make(scripted())) as (_, _, wires), wires.socket() as connection:
        await said(connection)
        wire: Any = wires.newest
        for n in range(40):
            text = json.dumps({"jsonrpc": "2.0", "id": n, "method": "agents", "params": {}}).encode()
            await wire.send_all(frame(1, text[:10], final=False))
            await trio.sleep(9)
            await wire.send_all(frame(0, text[10:]))
            assert (await said(connection))["id"] == n


# -- names that are no names


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("spawn", {"name": "demo", "id": "b", "labels": {"k": "x" * 9000}}),
        ("spawn", {"name": "demo", "id": "b", "labels": {f"k{n}": "" for n in range(2000)}}),
        ("followup", {"content": "hi", "message_id": "x" * 9000}),
        ("steer", {"content": "hi", "sender": "x" * 9000}),
        ("ask", {"content": "hi", "route": {"channel": "c", "chat": "x" * 9000}}),
        ("replace", {"content": "hi", "message_id": "m1", "new_id": "x" * 9000}),
        ("remind", {"content": "hi", "after_s": 5, "id": "x" * 9000}),
    ],
)
async def test_what_only_names_something_is_short(autojump_clock: object, method: str, params: dict[str, Any]) -> None:
    """Lists and receipts tell it again and again, also to those who did not write it."""
    async with serving(make(scripted("ok"))) as (system, _, wires), wires.socket() as connection:
        await said(connection)
        await system.spawn(system.definitions["demo"], id="a")
        answer = await told(connection, method, **({"agent": "a"} if method != "spawn" else {}), **params)
        assert answer["error"]["data"]["error"] == "UsageError" and "may take 8,192 bytes" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("followup", {}),
        ("steer", {}),
        ("inject", {}),
        ("ask", {}),
        ("replace", {"message_id": "m1"}),
        ("remind", {"after_s": 5}),
    ],
)
@pytest.mark.parametrize("kind", ["image", "file"])
async def test_a_client_names_no_blob(autojump_clock: object, method: str, params: dict[str, Any], kind: str) -> None:
    """Else whoever knows a digest would read what is in the log of another one."""
    named = {"type": kind, "media_type": "image/png", "blob": "0" * 64}
    async with serving(make(scripted("ok"))) as (system, _, wires), wires.socket() as connection:
        await said(connection)
        await system.spawn(system.definitions["demo"], id="a")
        answer = await told(connection, method, agent="a", content=[{"type": "text", "text": "see"}, named], **params)
        assert answer["error"]["data"]["error"] == "UsageError" and "names a blob" in answer["error"]["message"]


async def test_what_openais_clients_only_name_is_short(autojump_clock: object) -> None:
    async with browsing(make(scripted("ok"))) as web:
        chat = {**json.loads(CHAT), "user": "x" * 9000}
        assert (await web.post("/v1/chat/completions", chat, x_callboard_session="a")).status == 400
        assert (await web.post("/v1/chat/completions", json.loads(CHAT), idempotency_key="x" * 9000)).status == 400


@pytest.mark.parametrize("engine", ["memory", "folder"])
async def test_places_that_no_log_has_are_none_to_read_from(autojump_clock: object, engine: str, tmp_path: Path) -> None:
    where = ":memory:" if engine == "memory" else tmp_path
    async with (
        open_store(where) as store,
        serving(make(scripted()), store=store) as (system, _, wires),
        wires.socket() as line,
    ):
        await said(line)
        await noted(system, 3, 10)
        for after in (-9, -(2**62)):
            page = (await told(line, "read", agent="a", after=after, upto=2**62))["result"]
            assert [record["seq"] for record in page["records"]] == [0, 1, 2, 3]
            assert "result" in await told(line, "follow", agent="a", stream=1, after=after)
            assert [record["seq"] for record in (await said(line))["params"]["records"]] == [0, 1, 2, 3]
        for nowhere in (2**62, 4):
            assert (await told(line, "read", agent="a", after=nowhere))["result"]["records"] == []
        for seq in (2**62, -1, -(2**62)):
            assert "seq" in (await told(line, "request", agent="a", seq=seq))["error"]["message"]


# -- those who hold places


async def test_where_there_is_no_room_those_who_say_nothing_make_it(autojump_clock: object) -> None:
    """The one that has waited longest for a request goes; a WebSocket, and who waits for an answer, stays."""
    limits = ServiceLimits(connections=4)
    async with browsing(make(scripted()), limits=limits, tokens=TOKENS, token="t") as web, web.line() as old, web.line() as new:
        await old.ask("GET", "/healthz")
        await trio.sleep(1)
        await new.ask("GET", "/healthz")
        near, far = memory_stream_pair()
        async with trio.open_nursery() as nursery, near:
            nursery.start_soon(web.server.handle, far)
            await upgraded_with(near, b"authorization: Bearer t")
            async with web.line() as silent:
                await trio.sleep(1)
                assert (await web.get("/readyz")).status == 200
                assert await old.stream.receive_some() == b"", "it was the oldest"
                assert (await new.ask("GET", "/healthz")).status == 200
                assert (await web.get("/readyz")).status == 200
                assert await silent.stream.receive_some() == b"", "the other one has said something since"
            assert web.server.statistics()["connections"] == 1
            nursery.cancel_scope.cancel()


async def test_places_that_are_taken_by_people_are_not_given_away(autojump_clock: object) -> None:
    async with serving(make(scripted()), limits=ServiceLimits(connections=1)) as (_, server, wires), wires.socket() as connection:
        await said(connection)
        near, far = memory_stream_pair()
        await server.handle(far)
        assert (await near.receive_some()).startswith(b"HTTP/1.1 503 ")
        assert "result" in await told(connection, "agents")


async def upgraded_with(near: Any, header: bytes) -> None:
    await near.send_all(b"GET / HTTP/1.1\r\n" + HANDSHAKE + b"\r\n" + header + b"\r\n\r\n")
    assert b" 101 " in await near.receive_some()


# -- heads


async def status(web: Web, head: bytes, body: bytes = b"") -> list[str]:
    """The statuses of all answers to these bytes."""
    said = await web.raw(head.replace(b"\n", b"\r\n") + b"\r\n\r\n" + body)
    return statuses(said)


def statuses(said: bytes) -> list[str]:
    return [found.decode() for found in re.findall(rb"HTTP/1\.1 (\d+)", said)]


async def test_a_body_of_two_lengths_is_none(autojump_clock: object) -> None:
    """Whatever stands between may believe the other length, and what it takes for a body would be the next request."""
    async with browsing(make(scripted()), tokens=TOKENS) as web:
        smuggled = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        post = b"POST /login HTTP/1.1\nhost: localhost\ncontent-type: application/x-www-form-urlencoded\n"
        assert await status(web, post + b"content-length: 5\ntransfer-encoding: chunked", smuggled) == ["400"]
        assert await status(web, post + b"content-length: 5\ncontent-length: 6", b"hello") == ["400"]
        assert await status(web, post + b"transfer-encoding: identity, chunked", smuggled) == ["501"]
        assert await status(web, post + b"transfer-encoding : chunked", smuggled) == ["400"]
        assert await status(web, post + b"content-length: +5", b"hello") == ["400"]
        assert await status(web, post + b"transfer-encoding: chunked", b"-5\r\nhello") == ["400"]
        assert await status(web, b"GET /healthz HTTP/1.1\nhost: localhost\nhost: elsewhere") == ["400"]


async def test_requests_in_a_row_are_answered_in_their_order_until_one_is_none(autojump_clock: object) -> None:
    async with browsing(make(scripted()), tokens=TOKENS) as web:
        one = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        said = await web.raw(one + one.replace(b"healthz", b"nothing") + one + b"RUBBISH\r\n\r\n" + one)
        assert statuses(said) == ["200", "404", "200", "400"]


async def test_a_head_is_too_long_however_it_comes(autojump_clock: object) -> None:
    async with browsing(make(scripted())) as web:
        assert await status(web, b"GET /healthz HTTP/1.1\nhost: localhost\nx: " + b"y" * 40_000) == ["431"]
        assert await status(web, b"GET /healthz HTTP/1.1\nhost: localhost\n" + b"\n".join([b"x: y"] * 7000)) == ["431"]


@pytest.mark.parametrize(("method", "target", "size"), [("POST", "/login", 20_000), ("GET", "/healthz", 70_000)])
async def test_who_has_no_token_fills_no_memory(autojump_clock: object, method: str, target: str, size: int) -> None:
    async with browsing(make(scripted()), tokens=TOKENS) as web:
        assert (await web.ask(method, target, b"x" * size)).status == 413


async def test_a_body_that_is_packed_is_refused_by_name(autojump_clock: object) -> None:
    async with browsing(make(scripted()), tokens=TOKENS, token="t") as web:
        packed = await web.ask("POST", "/v1/chat/completions", CHAT, content_type="application/json", content_encoding="gzip")
        assert packed.status == 415 and "gzip" in packed.error["message"]


async def test_a_token_counts_only_where_it_belongs(autojump_clock: object) -> None:
    async with browsing(make(scripted()), tokens={"tok": TOKENS["t"]}) as web:
        for target, headers in (
            ("/v1/models?token=tok", {}),
            ("/v1/models?access_token=tok", {}),
            ("/v1/models", {"authorization": "Basic dG9rOnRvaw=="}),
            ("/v1/models", {"authorization": "tok"}),
            ("/v1/models", {"cookie": "callboard=tok"}),
            ("/v1/models", {"x-api-key": "tok"}),
            ("/v1/models", {"sec-websocket-protocol": "bearer.tok"}),
        ):
            assert (await web.get(target, **headers)).status == 401
        assert (await web.get("/v1/models", authorization="bearer tok")).status == 200


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        (b"", "101"),
        (b"\ncontent-length: 5", "200"),
        (b"\ntransfer-encoding: chunked", "200"),
        (b"\nsec-websocket-extensions: permessage-deflate; \xe9", "400"),
        (b"\nsec-websocket-protocol: bearer.\xff", "400"),
        (b"\nsec-websocket-extensions: ,;,=;;", "101"),
        (b"\ncookie: callboard=\xe9", "101"),
        (b"\norigin: https://elsewhere.example", "401"),
        (b"\norigin: null", "401"),
    ],
)
async def test_a_handshake_with_odd_headers_has_an_answer(autojump_clock: object, more: bytes, answer: str) -> None:
    async with browsing(make(scripted())) as web:
        head = b"GET / HTTP/1.1\n" + HANDSHAKE.replace(b"\r\n", b"\n") + more
        assert (await status(web, head, b"0\r\n\r\n"))[0] == answer


def test_a_head_full_of_cookies_costs_no_more_than_a_few() -> None:
    assert len(list(cookies.found_in("; ".join(["callboard=1.x"] * 3000)))) == cookies.MOST
    assert list(cookies.found_in("a=b; callboard-8000=1.x;callboard=2.y; callboardx=3.z")) == ["1.x", "2.y"]
