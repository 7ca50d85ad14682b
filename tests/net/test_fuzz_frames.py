"""Whatever comes over a WebSocket: frames bent and broken below the protocol, and calls whose parameters are of any kind.

After the handshake a client may send anything. Each message is answered with a typed error or a result, or the connection is
closed with a code; nothing is left running, nothing is logged as a fault, and the service serves the next one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rawsocket import frame, upgraded
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked
from wired import make, said, serving, told

from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.net.limits import ServiceLimits
from callboard.net.server import Server
from callboard.net.wire.closes import CLOSES
from callboard.net.wire.methods import METHODS, NOTES

LIMITS = ServiceLimits(message_bytes=2000, calls=20, streams=5, slow_s=5, close_s=2, ping_every_s=5, ping_s=5, page_bytes=1000)
FEW = settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
OPCODES = (0, 1, 2, 8, 9, 10, 3, 11)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture(autouse=True)
def no_faults(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing may be logged as a fault of the service."""
    yield
    assert not [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]


# -- what is sent


@st.composite
def calls(draw: st.DrawFn) -> bytes:
    """A message of the protocol whose parameters are right, of the wrong kind, or of no kind."""
    name = draw(st.sampled_from([*METHODS, *NOTES, "gett", ""]))
    shape = METHODS[name].params if name in METHODS else NOTES.get(name)
    params: Any = {}
    if shape is not None and draw(st.integers(0, 5)):
        fields = shape.__struct_fields__
        chosen = draw(st.lists(st.sampled_from(fields), max_size=4, unique=True)) if fields else []
        params = {field: draw(RIGHT.get(field, json_values) | json_values) for field in chosen}
        for field in ("agent", "stream"):
            if field in fields and draw(st.integers(0, 5)):
                params[field] = draw(RIGHT[field])
    else:
        params = draw(json_values)
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": name, "params": params}
    if draw(st.integers(0, 6)):
        message["id"] = draw(st.integers(0, 30) | st.text(max_size=3))
    message.update(
        draw(st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "result", "error"]), json_values, max_size=1))
    )
    return json.dumps(message).encode()


RIGHT: dict[str, st.SearchStrategy[Any]] = {
    "agent": st.sampled_from(["a", "b", "", "\ud800".encode("utf-8", "replace").decode()]),
    "content": st.sampled_from(["hi", "", [{"type": "text", "text": "x"}], [{"type": "image", "media_type": "x", "url": "y"}]]),
    "stream": st.integers(-1, 6),
    "after": st.integers(-2, 50),
    "window": st.integers(-1, 4),
    "timeout": st.sampled_from([0, 0.5, 3]),
    "name": st.sampled_from(["demo", "other"]),
    "message_id": st.sampled_from(["m1", "m2"]),
    "frames": st.integers(-5, 5),
    "types": st.sampled_from([["turn/end"], ["nothing"], []]),
    "turn": st.integers(-1, 3),
    "upto": st.integers(-2, 50),
}


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Frames: mostly whole messages; some in pieces, with broken text, of other kinds, or with lies about their length."""
    kind = draw(st.integers(0, 9))
    if kind < 5:
        return frame(1, draw(calls()))
    if kind == 5:  # in pieces, perhaps in the middle of a letter, perhaps with a ping between
        data = draw(calls()) + draw(st.sampled_from([b"", "é".encode()[:1], b"\xff"]))
        cut = draw(st.integers(0, len(data)))
        between = draw(st.sampled_from([b"", frame(9, b"are you there?")]))
        return frame(1, data[:cut], final=False) + between + frame(draw(st.sampled_from([0, 0, 0, 1])), data[cut:])
    if kind == 6:
        return frame(draw(st.sampled_from(OPCODES)), draw(st.binary(max_size=140)), masked=draw(st.booleans()))
    if kind == 7:
        return frame(1, b"x" * draw(st.sampled_from([1999, 2001, 4100])))
    if kind == 8:
        return frame(1, draw(st.binary(max_size=20)), size=draw(st.sampled_from([0, 5, 200, 70_000, 2**40])))
    return draw(st.binary(max_size=60))


# -- who sends it


@asynccontextmanager
async def service() -> AsyncGenerator[tuple[Any, Server, Any, trio.Nursery]]:
    model = ScriptedModel(lambda request: Reply.text("ok"))
    async with serving(make(model), limits=LIMITS) as (system, server, wires), trio.open_nursery() as nursery:
        await system.spawn(system.definitions["demo"], id="a")
        yield system, server, wires, nursery
        nursery.cancel_scope.cancel()


async def play(messages: list[bytes]) -> None:
    async with service() as (_, server, wires, nursery):
        near, far = memory_stream_pair()
        nursery.start_soon(server.handle, far)
        await upgraded(near)
        nursery.start_soon(_read, near)
        try:
            for message in messages:
                await near.send_all(message)
                await wait_all_tasks_blocked()
        except trio.BrokenResourceError:
            messages = []  # it was closed, as it should be
        await near.aclose()
        with trio.fail_after(60):
            while server.statistics()["connections"]:  # noqa: ASYNC110 (the clock of the test jumps)
                await trio.sleep(0.5)
        assert server.statistics()["followers"] == 0
        async with wires.socket() as connection:
            await said(connection)
            assert "result" in await told(connection, "agents")


async def _read(near: Any) -> None:
    """Read whatever comes; every close has a code that the document explains, or one of WebSocket's own."""
    heard = b""
    try:
        while part := await near.receive_some():
            heard += bytes(part)
    except trio.ClosedResourceError:
        return
    for opcode, data in frames_in(heard):
        assert opcode in (1, 8, 9, 10)
        if opcode == 8:
            code = int.from_bytes(data[:2], "big")
            assert code in CLOSES or 1000 <= code < 1016, code


def frames_in(heard: bytes) -> Iterator[tuple[int, bytes]]:
    """What the service sent: whole frames without a mask."""
    while len(heard) > 1:
        opcode, size, start = heard[0] & 15, heard[1], 2
        if size > 125:
            start = 4 if size == 126 else 10
            size = int.from_bytes(heard[2:start], "big")
        yield opcode, heard[start : start + size]
        heard = heard[start + size :]


@FEW
@given(st.lists(frames(), min_size=1, max_size=12))
def test_any_frames(messages: list[bytes]) -> None:
    trio.run(play, messages, clock=MockClock(autojump_threshold=0))


async def ask_all(messages: list[bytes]) -> None:
    """Each on its own connection, so that every one is heard: what has an id is answered under it."""
    async with service() as (_, _, wires, _), trio.open_nursery() as nursery:
        for message in messages:
            nursery.start_soon(_ask, wires, message)
        await trio.sleep(30)
        nursery.cancel_scope.cancel()


async def _ask(wires: Any, message: bytes) -> None:
    async with wires.socket() as connection:
        await said(connection)
        await connection.send_message(message.decode())
        sent = json.loads(message)
        if sent.get("jsonrpc") != "2.0" or not isinstance(sent.get("method"), str) or sent["method"] in NOTES:
            return
        while True:
            answer = await said(connection)
            if "result" in answer or "error" in answer:
                break
        if "error" in answer:
            assert answer["error"]["message"] and answer["error"]["data"]["error"], answer
            assert answer["error"]["code"] != -32603, (message, answer)


@FEW
@given(st.lists(calls(), min_size=1, max_size=8))
def test_any_calls_have_typed_answers(messages: list[bytes]) -> None:
    trio.run(ask_all, messages, clock=MockClock(autojump_threshold=0))


# -- floods, and those who fall silent


async def test_a_flood_of_calls_and_notifications_is_bounded(autojump_clock: object) -> None:
    async with service() as (_, server, wires, _), wires.socket() as connection:
        await said(connection)
        for n in range(500):
            await connection.send_message(json.dumps({"jsonrpc": "2.0", "method": "ack", "params": {"stream": n, "frames": n}}))
        for n in range(200):
            await connection.send_message(json.dumps({"jsonrpc": "2.0", "id": n, "method": "get", "params": {"agent": "a"}}))
            assert (await said(connection))["id"] == n
        assert server.statistics()["connections"] == 1


async def test_who_sends_and_never_reads_is_closed_and_leaves_nothing(autojump_clock: object) -> None:
    """Half-open: calls pour in, and no answer is ever taken."""
    model = ScriptedModel(lambda request: Reply.text("ok"))
    async with serving(make(model), limits=LIMITS, lockstep=True) as (system, server, wires), trio.open_nursery() as nursery:
        await system.spawn(system.definitions["demo"], id="a")
        async with wires.socket() as connection:
            await said(connection)
            near: Any = wires.newest
            call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "get", "params": {"agent": "a"}}).encode()
            with trio.move_on_after(120):
                try:
                    for n in range(1000):
                        await near.send_all(frame(1, call.replace(b'"id": 1', b'"id": %d' % n)))
                except trio.BrokenResourceError:
                    nursery.cancel_scope.cancel()
        assert server.statistics()["connections"] == 0
