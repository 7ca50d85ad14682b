"""Requests that wait for an agent: pipelined ones, several on a connection, readers that stop, and clients that half-close."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from web import browsing
from wired import make, scripted, serving

from callboard.actors.testing.scripted import Reply
from callboard.net.limits import ServiceLimits


def completion(content: str, **more: Any) -> bytes:
    """A request for one, as bytes."""
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": content}], "user": "u", **more}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def test_what_is_sent_ahead_waits_for_its_turn(autojump_clock: object) -> None:
    async with browsing(make(scripted("one", "two", "three"))) as web, web.line() as line:
        await line.stream.send_all(b"".join(completion(word) for word in ("1", "2", "3")))
        said = b""
        with trio.fail_after(5):
            while said.count(b'"finish_reason":"stop"') < 3:
                said += await line.stream.receive_some()
        assert said.index(b'"one"') < said.index(b'"two"') < said.index(b'"three"')


async def test_one_connection_after_another_answer(autojump_clock: object) -> None:
    async with browsing(make(scripted("one", Reply.text("two", parts=3), "three"))) as web, web.line() as line:
        for word, stream in (("one", False), ("two", True), ("three", False)):
            body = completion("hi", stream=stream).partition(b"\r\n\r\n")[2]
            reply = await line.ask("POST", "/v1/chat/completions", body, content_type="application/json")
            assert reply.status == 200
            assert word.encode() in reply.body or b'{"content":"t"}' in reply.body
        await wait_all_tasks_blocked()
        assert not web.server.site.waiting


async def test_a_stream_that_nobody_reads_is_let_go_and_the_turn_goes_on(autojump_clock: object) -> None:
    model = scripted(Reply.text("x" * 50, parts=50))
    async with serving(make(model), limits=ServiceLimits(slow_s=30), lockstep=True) as (system, server, wires):
        near, far = wires.pipe()
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.handle, far)
            await near.send_all(completion("hi", stream=True))
            assert b"200" in await near.receive_some()
        assert trio.current_time() - begun == pytest.approx(30, abs=1)
        assert server.site.requests == 0
        assert (await (await system.get("demo/u")).outcome(turn=1)).text == "x" * 50


async def test_who_says_no_more_has_left(autojump_clock: object) -> None:
    """A client that closes its half while it waits for an agent counts as gone: nobody could tell it from one that is."""
    async with browsing(make(scripted(Reply.hang("...")))) as web, web.line() as line:
        await line.stream.send_all(completion("hi"))
        await wait_all_tasks_blocked()
        assert web.server.site.requests == 1
        await line.stream.send_eof()
        assert await line.stream.receive_some() == b""
        await wait_all_tasks_blocked()
        assert web.server.site.requests == 0
        await (await web.system.get("demo/u")).cancel()
