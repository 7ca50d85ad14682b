"""HTTP on the service's port: requests one after another, limits of size and time, and what is answered to what is wrong."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked
from web import Web, browsing
from wired import make, said, scripted, serving

from callboard.net.access import Access
from callboard.net.http.line import LINGER_S, Line
from callboard.net.http.messages import Response, to_json
from callboard.net.http.pages import Pages
from callboard.net.http.router import Route, Visit
from callboard.net.http.site import Site
from callboard.net.limits import ServiceLimits
from callboard.storage.errors import InboxFull

TOKENS = {"t-secret": {"scopes": ["read"]}}


async def echo(visit: Visit) -> Response:
    return to_json({"got": visit.body, "path": dict(visit.path), "query": visit.request.query})


async def boom(visit: Visit) -> Response:
    raise ZeroDivisionError("a secret")


async def full(visit: Visit) -> Response:
    raise InboxFull("a", "next-turn", 3)


async def poured(visit: Visit) -> Response:
    async def pour(send: Any) -> None:
        for part in (b"one ", b"two ", b"three"):
            await send(part)

    return Response(media_type="text/plain", pour=pour)


async def torn(visit: Visit) -> Response:
    async def pour(send: Any) -> None:
        await send(b"one ")
        raise ZeroDivisionError

    return Response(pour=pour)


ROUTES = [
    Route(method="GET", path="/echo/{name}", handler=echo, door="public", text="."),
    Route(method="POST", path="/echo", handler=echo, door="public", text=".", body=dict[str, int]),
    Route(method="GET", path="/boom", handler=boom, door="public", text="."),
    Route(method="GET", path="/full", handler=full, door="public", text="."),
    Route(method="GET", path="/v1/full", handler=full, door="public", text=".", dialect="openai"),
    Route(method="GET", path="/poured", handler=poured, door="public", text="."),
    Route(method="GET", path="/torn", handler=torn, door="public", text="."),
    Route(method="GET", path="/reading", handler=echo, door="read", text="."),
    Route(method="GET", path="/sending", handler=echo, door="send", text="."),
]


@asynccontextmanager
async def site(**limits: Any) -> AsyncGenerator[Web]:
    """A service of these routes alone."""
    bounds = ServiceLimits(**limits)
    async with browsing(limits=bounds, tokens=TOKENS) as web:
        web.server.site = Site(Access(TOKENS), bounds, ROUTES)
        web.server.site.state = "ready"
        yield web


async def test_requests_follow_one_another_on_a_connection(autojump_clock: object) -> None:
    async with site() as web, web.line() as line:
        for n in range(3):
            reply = await line.ask("GET", f"/echo/{n}%20%2Fx?a=1&a=2&b=")
            assert reply.status == 200
            assert reply.json == {"got": None, "path": {"name": f"{n} /x"}, "query": {"a": "2", "b": ""}}
            assert reply.headers["content-type"] == "application/json" and reply.headers["cache-control"] == "no-store"


async def test_a_body_is_decoded_by_its_type_and_refused_by_name(autojump_clock: object) -> None:
    async with site(body_bytes=1000) as web:
        assert (await web.post("/echo", {"a": 1})).json["got"] == {"a": 1}
        wrong = await web.post("/echo", {"a": "x"})
        assert (wrong.status, wrong.error["data"]["error"]) == (422, "ServiceError")
        assert "Expected `int`" in wrong.error["message"]
        assert (await web.ask("POST", "/echo", b"{", content_type="application/json")).status == 400
        assert (await web.ask("POST", "/echo", b'{"a":' * 150, content_type="application/json")).status == 422
        assert (await web.ask("POST", "/echo", b"{}", content_type="text/plain")).status == 415
        assert (await web.ask("POST", "/echo", b"{}")).status == 415


async def test_what_is_not_there_and_what_is_not_taken(autojump_clock: object) -> None:
    async with site() as web, web.line() as line:
        missing = await line.ask("GET", "/nothing")
        assert missing.status == 404 and missing.error["message"] == "there is nothing at /nothing"
        wrong = await line.ask("DELETE", "/echo")
        assert wrong.status == 405 and wrong.headers["allow"] == "OPTIONS, POST"
        assert (await line.ask("GET", "/echo/x")).status == 200, "the connection goes on"


async def test_head_is_a_get_without_its_body(autojump_clock: object) -> None:
    async with site() as web, web.line() as line:
        whole, head = await line.ask("GET", "/echo/x"), await line.ask("HEAD", "/echo/x")
        assert head.status == 200 and head.body == b"" and head.headers["content-length"] == str(len(whole.body))
        assert (await line.ask("HEAD", "/poured")).body == b""
        assert (await line.ask("GET", "/echo/x")).body == whole.body


async def test_a_body_can_be_poured(autojump_clock: object) -> None:
    async with site() as web, web.line() as line:
        reply = await line.ask("GET", "/poured")
        assert reply.parts == [b"one ", b"two ", b"three"] and reply.headers["transfer-encoding"] == "chunked"
        assert (await line.ask("GET", "/echo/x")).status == 200
        assert b"HTTP/1.1 200 \r\n" in (old := await web.raw(b"GET /poured HTTP/1.0\r\nhost: localhost\r\n\r\n"))
        assert old.endswith(b"\r\n\r\none two three")


async def test_a_handler_that_throws_costs_one_answer(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    async with site() as web, web.line() as line:
        reply = await line.ask("GET", "/boom")
        assert reply.status == 500 and b"secret" not in reply.body and reply.error["code"] == -32603
        assert (await line.ask("GET", "/echo/x")).status == 200
        await line.send("GET", "/torn")
        with pytest.raises(Exception, match="peer closed connection"):
            await line.answer()
        assert (await web.get("/echo/x")).status == 200
    assert "ZeroDivisionError" in caplog.text


async def test_an_error_of_the_tree_has_its_status_and_the_shape_of_its_dialect(autojump_clock: object) -> None:
    async with site() as web:
        ours = await web.get("/full")
        assert ours.status == 429 and ours.error["code"] == -32011
        assert ours.error["data"]["error"] == "InboxFull" and ours.error["data"]["kinds"] == ["InputError", "CallboardError"]
        assert ours.error["data"]["agent"] == "a"
        theirs = await web.get("/v1/full")
        assert theirs.status == 429
        assert theirs.error == {
            "message": "the inbox of 'a' is full: next-turn holds 3 messages (Limits.pending); send again later",
            "type": "rate_limit_error",
            "param": None,
            "code": "InboxFull",
        }


async def test_c227_no_token_no_answer(autojump_clock: object) -> None:
    async with site() as web, web.line() as line:
        for given in ("", "Bearer wrong", "Basic dC1zZWNyZXQ="):
            refused = await line.ask("GET", "/reading", authorization=given)
            assert refused.status == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert (await line.ask("GET", "/reading?token=t-secret")).status == 401, "never in an address"
        assert (await line.ask("GET", "/reading", authorization="Bearer t-secret")).status == 200
        scope = await line.ask("GET", "/sending", authorization="Bearer t-secret")
        assert scope.status == 403 and "needs the scope 'send'" in scope.error["message"]


# -- limits


async def test_a_head_that_is_too_long(autojump_clock: object) -> None:
    async with site(head_bytes=1000) as web:
        assert b"HTTP/1.1 431 " in await web.raw(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 2000)


@pytest.mark.parametrize("how", ["announced", "chunked"])
async def test_a_body_that_is_too_long(autojump_clock: object, how: str) -> None:
    async with site(body_bytes=1000) as web, web.line() as line:
        head = b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        more = b"content-length: 2000\r\n\r\n" if how == "announced" else b"transfer-encoding: chunked\r\n\r\n7d0\r\n"
        await line.stream.send_all(head + more + b"x" * 1500)
        said = b""
        with trio.fail_after(2 * LINGER_S):
            while part := await line.stream.receive_some():
                said += part
        assert said.startswith(b"HTTP/1.1 413 ") and b"connection: close" in said.lower()


async def test_who_waits_for_the_word_to_go_on_hears_it(autojump_clock: object) -> None:
    async with site() as web, web.line() as line:
        await line.stream.send_all(
            b"POST /echo HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
            b"content-type: application/json\r\ncontent-length: 2\r\n\r\n"
        )
        assert (await line.stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await line.stream.send_all(b"{}")
        assert (await line.stream.receive_some()).startswith(b"HTTP/1.1 200 ")


async def test_a_slow_body_is_given_up(autojump_clock: object) -> None:
    async with site(body_s=5) as web, web.line() as line:
        await line.stream.send_all(
            b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
        )
        begun = trio.current_time()
        assert (await line.stream.receive_some()).startswith(b"HTTP/1.1 408 ")
        assert trio.current_time() - begun == pytest.approx(5)


async def test_an_idle_connection_is_closed(autojump_clock: object) -> None:
    async with site(idle_s=60) as web, web.line() as line:
        await line.ask("GET", "/echo/x")
        begun = trio.current_time()
        assert await line.stream.receive_some() == b""
        assert 60 <= trio.current_time() - begun <= 60 + LINGER_S


async def test_who_does_not_read_is_let_go(autojump_clock: object) -> None:
    async with serving(limits=ServiceLimits(slow_s=30), lockstep=True) as (_, server, wires):
        near, far = wires.pipe()
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.handle, far)
            await near.send_all(b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert trio.current_time() - begun == pytest.approx(30)


async def test_connections_of_both_protocols_are_counted_together(autojump_clock: object) -> None:
    async with serving(make(scripted()), limits=ServiceLimits(connections=2)) as (_, server, wires), wires.socket() as connection:
        await said(connection)
        async with trio.open_nursery() as nursery:
            ends = [memory_stream_pair() for _ in range(2)]
            for (_, far), others in zip(ends, (1, 2), strict=True):
                assert server.statistics()["open"] == others
                nursery.start_soon(server.handle, far)
                await wait_all_tasks_blocked()
            assert await ends[0][0].receive_some() == b"", "it said nothing, and made room"
            assert server.statistics()["open"] == 2
            for near, _ in ends:
                await near.aclose()


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\0" * 100,
        b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET //[ HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://[/ HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /%00%ff HTTP/1.1\r\nhost: [\r\n\r\n",
        b"POST / HTTP/9\r\n\r\n",
        b"\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + b"9" * 30 + b"\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
async def test_rubbish_is_answered_or_dropped(autojump_clock: object, rubbish: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with site() as web:
        said = await web.raw(rubbish)
        assert said == b"" or said.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# -- the page


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    (tmp_path / "page").mkdir()
    (tmp_path / "secret.html").write_text("secret")
    for name, text in {"index.html": "<p>hello</p>", "app.js": "1", "notes.txt": "no", ".hidden.js": "no"}.items():
        (tmp_path / "page" / name).write_text(text)
    return Pages(tmp_path / "page")


@asynccontextmanager
async def paged(pages: Pages, tokens: Any = None) -> AsyncGenerator[Web]:
    async with browsing(tokens=tokens) as web:
        web.server.pages.home = pages.home
        yield web


async def test_the_page_is_served_with_its_digest_and_its_policy(autojump_clock: object, pages: Pages) -> None:
    async with paged(pages) as web:
        home = await web.get("/")
        assert (home.status, home.body, home.headers["content-type"]) == (200, b"<p>hello</p>", "text/html; charset=utf-8")
        assert "default-src 'self'" in home.headers["content-security-policy"]
        script = await web.get("/page/app.js")
        assert script.headers["content-type"].startswith("text/javascript")
        again = await web.get("/page/app.js", if_none_match=script.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        (pages.home / "app.js").write_text("other")
        assert (await web.get("/page/app.js", if_none_match=script.headers["etag"])).body == b"other"


@pytest.mark.parametrize(
    "path",
    [
        "/page/../secret.html",
        "/page/%2e%2e/secret.html",
        "/page/%2e%2e%2fsecret.html",
        "/page/..%5csecret.html",
        "/page//etc/passwd",
        "/page/notes.txt",
        "/page/.hidden.js",
        "/page/",
        "/page/none.js",
        "/page/app.js/x.js",
        "/page/app.js%00.html",
        "/page/" + "x" * 5000 + ".js",
    ],
)
async def test_nothing_else_is_served(autojump_clock: object, pages: Pages, path: str) -> None:
    async with paged(pages) as web:
        reply = await web.get(path)
        assert reply.status == 404 and b"secret<" not in reply.body


def test_a_line_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from callboard.storage.errors import UsageError

    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(UsageError, match=r"callboard\[net\]"):
        Line(memory_stream_pair()[0], ServiceLimits())
