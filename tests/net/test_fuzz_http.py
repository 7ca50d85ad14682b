"""Whatever comes over HTTP: requests made from the service's own document, bent and broken, and heads of plain rubbish.

Each example is a handful of requests to one service. Whatever they are, each is answered as its document says or the connection
ends; nothing is left running, nothing is logged as a fault, and the service answers the next one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked
from web import Web, browsing
from wired import make, scripted

from callboard.actors.testing.scripted import Reply
from callboard.net.access import Access
from callboard.net.http.openapi import document
from callboard.net.limits import ServiceLimits
from callboard.net.server import Server

LIMITS = ServiceLimits(head_bytes=4096, body_bytes=4096, handshake_s=5, body_s=5, idle_s=10)
DOCUMENT = document(Server(None, Access(None), LIMITS).site.router.routes, "0")
ROUTES = [(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods]
FEW = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

words = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def of_schema(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a schema, and now and then one that is none."""
    right: st.SearchStrategy[Any]
    if "$ref" in schema:
        right = of_schema(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    elif "anyOf" in schema:
        right = st.one_of([of_schema(one) for one in schema["anyOf"]])
    elif "enum" in schema:
        right = st.sampled_from(schema["enum"])
    elif schema.get("type") == "object" and "properties" in schema:
        right = st.fixed_dictionaries(
            {name: of_schema(schema["properties"][name]) for name in schema.get("required", ())},
            optional={
                name: of_schema(one) for name, one in schema["properties"].items() if name not in schema.get("required", ())
            },
        )
    elif schema.get("type") == "array":
        right = st.lists(of_schema(schema.get("items", {})), max_size=3)
    elif schema.get("type") == "boolean":
        right = st.booleans()
    elif schema.get("type") == "integer":
        right = st.integers()
    elif schema.get("type") == "string":
        right = st.sampled_from(["demo", "user", "hi"]) | st.text(max_size=20)
    else:
        right = json_values
    return right | json_values if schema else right


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One request: a route of the document, with this and that about it not as it should be."""
    path, method = draw(st.sampled_from(ROUTES))
    operation = DOCUMENT["paths"][path][method]
    for place in operation.get("parameters", ()):
        value = draw(
            st.sampled_from(["demo", "index.html", "..%2f..", "%00", "%ff%fe", "a%2Fb"])
            | st.from_regex(r"[!-~]{1,20}", fullmatch=True)
        )
        path = path.replace("{" + place["name"] + "}", value)
    method = draw(st.sampled_from([method.upper()] * 6 + ["HEAD", "OPTIONS", "DELETE", "BREW", "get"]))
    body, kind = b"", "application/json"
    content = operation.get("requestBody", {}).get("content", {})
    if content and draw(st.integers(0, 9)):
        kind, media = next(iter(content.items()))
        if draw(st.booleans()):
            body = json.dumps(draw(of_schema(media.get("schema", {})))).encode()
        else:
            body = draw(st.binary(max_size=200))
    headers = {"host": "localhost:8000", "content-type": kind, "content-length": str(len(body))}
    odd = draw(st.dictionaries(st.sampled_from(ODD), words, max_size=3))
    headers.update({name: value.strip() for name, value in odd.items()})
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    return head.encode("latin-1") + body


ODD = [
    "host",
    "content-type",
    "content-length",
    "transfer-encoding",
    "authorization",
    "cookie",
    "origin",
    "expect",
    "connection",
    "upgrade",
    "accept",
    "x-callboard-session",
    "idempotency-key",
    "x-callboard-on-disconnect",
    "access-control-request-headers",
]


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A request with some bytes cut out, doubled or changed; or no request at all."""
    if not draw(st.integers(0, 4)):
        return draw(st.binary(max_size=300))
    data = bytearray(draw(requests()))
    for _ in range(draw(st.integers(1, 4))):
        place, length = draw(st.integers(0, len(data))), draw(st.integers(0, 12))
        data[place : place + length] = draw(st.binary(max_size=12) | st.just(bytes(data[place : place + length]) * 2))
    return bytes(data)


@pytest.fixture(autouse=True)
def no_faults(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing may be logged as a fault of the service."""
    yield
    assert not [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]


def answers_in(said: bytes) -> Iterator[tuple[int, dict[str, str], bytes]]:
    """The answers in what the service said: they are well formed, or this fails."""
    while said:
        head, end, said = said.partition(b"\r\n\r\n")
        assert end, f"an answer without an end: {head[:200]!r}"
        first, *lines = head.decode("latin-1").split("\r\n")
        assert first.startswith("HTTP/1.1 ")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        status, body = int(first.split()[1]), b""
        if headers.get("transfer-encoding") == "chunked":
            body, said = said, b""
        else:
            size = int(headers.get("content-length", "0"))
            body, said = said[:size], said[size:]
        if status != 100:
            yield status, headers, body


async def play(messages: list[bytes]) -> None:
    model = scripted()
    model = type(model)(lambda request: Reply.text("ok"))
    async with browsing(make(model), limits=LIMITS) as web:
        for message in messages:
            said = await heard(web, message)
            if b" " not in message.split(b"\r\n")[0] or message.startswith(b"HEAD"):
                continue
            for status, headers, body in answers_in(said):
                assert status in STATUSES, (message, said)
                if status >= 400 and body and headers["content-type"] == "application/json" and status != 503:
                    assert json.loads(body)["error"]["message"]
        await wait_all_tasks_blocked()
        assert not web.server.site.requests and not web.server.site.waiting
        assert (await web.get("/healthz")).status == 200


STATUSES = {101, 200, 202, 204, 303, 304, 400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 426, 429, 431, 501, 502, 503}


async def heard(web: Web, message: bytes) -> bytes:
    """What the service says to it; a client that says no more and does not leave is let go in time."""
    async with web.line() as line:
        await line.stream.send_all(message)
        said = b""
        with trio.fail_after(60):
            while part := await line.stream.receive_some():
                said += part
    return said


@FEW
@given(st.lists(requests(), min_size=1, max_size=6))
def test_requests_of_the_document_are_answered(messages: list[bytes]) -> None:
    trio.run(play, messages, clock=MockClock(autojump_threshold=0))


@FEW
@given(st.lists(broken(), min_size=1, max_size=6))
def test_broken_requests_are_answered_or_dropped(messages: list[bytes]) -> None:
    trio.run(play, messages, clock=MockClock(autojump_threshold=0))


async def test_a_flood_of_heads_that_never_end_keeps_nobody_out(autojump_clock: object) -> None:
    """Slow loris: each sends a byte now and then. None holds its place for longer than a head may take, or against another."""
    limits = ServiceLimits(connections=20, handshake_s=5)
    async with browsing(make(scripted()), limits=limits) as web, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(dribble, web)
        await wait_all_tasks_blocked()
        assert (await web.get("/healthz")).status == 200
        await trio.sleep(8)
        assert web.server.statistics()["open"] == 0


async def dribble(web: Web) -> None:
    async with web.line() as line:
        try:
            for byte in b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 100:
                await line.stream.send_all(bytes([byte]))
                await trio.sleep(0.9)
        except trio.BrokenResourceError:
            return
        raise AssertionError("it was served to its end")
