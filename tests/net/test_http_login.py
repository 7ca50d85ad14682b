"""The door of the page: no token, no page; a form that takes one, a cookie that stands for it, and what other sites cannot do."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import memory_stream_pair
from trio_websocket import ConnectionRejected, wrap_client_stream
from web import Reply, Web, browsing
from wired import said

from callboard.net import cookies
from callboard.net.access import Access

TOKENS = {"t-secret": {"scopes": ["read", "send"]}, "other": {"scopes": ["read"]}}
FORM = "application/x-www-form-urlencoded"
HOST = "localhost:8000"


@asynccontextmanager
async def locked(tmp_path: Path) -> AsyncGenerator[Web]:
    (tmp_path / "index.html").write_text("<p>the page</p>")
    async with browsing(tokens=TOKENS) as web:
        web.server.pages.home = tmp_path
        web.server.bound("127.0.0.1", 8000, secure=False)
        yield web


async def enter(web: Web, token: str, **headers: str) -> Reply:
    return await web.ask("POST", "/login", f"token={token}".encode(), content_type=FORM, **headers)


def cookie_in(reply: Reply) -> str:
    return reply.headers["set-cookie"].partition(";")[0]


def _pipe() -> tuple[Any, Any]:
    return memory_stream_pair()


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/openapi.json", "/metrics", "/v1/models"])
async def test_c227_without_a_token_there_is_not_even_a_page(autojump_clock: object, tmp_path: Path, path: str) -> None:
    async with locked(tmp_path) as web:
        assert (await web.get(path)).status == 401
        browser = await web.get(path, accept="text/html,*/*")
        if path in ("/metrics", "/v1/models"):
            assert browser.status == 401
        else:
            assert (browser.status, browser.headers["location"], browser.body) == (303, "/login", b"")


async def test_a_token_buys_a_cookie_and_the_cookie_opens_the_page(autojump_clock: object, tmp_path: Path) -> None:
    async with locked(tmp_path) as web:
        form = await web.get("/login")
        assert form.status == 200 and b"<form" in form.body and "script-src" not in form.headers["content-security-policy"]
        entered = await enter(web, "t-secret", origin=f"http://{HOST}")
        assert (entered.status, entered.headers["location"]) == (303, "/")
        flags = entered.headers["set-cookie"]
        assert "HttpOnly" in flags and "SameSite=Strict" in flags and "Secure" not in flags and "t-secret" not in flags
        cookie = cookie_in(entered)
        assert cookie.startswith("callboard-8000=")
        assert (await web.get("/", cookie=cookie)).body == b"<p>the page</p>"
        assert (await web.get("/v1/models", cookie=f"theme=dark; {cookie}")).status == 200
        left = await web.ask("POST", "/logout", b"", cookie=cookie)
        assert left.status == 303 and "Max-Age=0" in left.headers["set-cookie"]


async def test_a_wrong_token_buys_nothing(autojump_clock: object, tmp_path: Path) -> None:
    async with locked(tmp_path) as web:
        for token in ("wrong", "", "%ff", "x" * 5000):
            refused = await enter(web, token)
            assert refused.status == 401 and "set-cookie" not in refused.headers and b"no token of this service" in refused.body
        assert (await web.ask("POST", "/login", b"{}", content_type="application/json")).status == 415
        for cookie in ("callboard=", "callboard=1.2", "callboard=9999999999999.x", "callboard-8000='\"", "x=y"):
            assert (await web.get("/", cookie=cookie)).status == 401


async def test_under_tls_the_cookie_stays_under_tls(autojump_clock: object, tmp_path: Path) -> None:
    async with locked(tmp_path) as web:
        web.server.bound("127.0.0.1", 8000, secure=True)
        assert "; Secure" in (await enter(web, "t-secret")).headers["set-cookie"]


async def test_another_site_cannot_use_the_cookie(autojump_clock: object, tmp_path: Path) -> None:
    async with locked(tmp_path) as web:
        cookie = cookie_in(await enter(web, "t-secret"))
        chat = {"model": "none", "messages": [{"role": "user", "content": "hi"}]}
        evil = "https://evil.example"
        assert (await web.post("/v1/chat/completions", chat, cookie=cookie, origin=evil)).status == 401
        assert (await web.post("/v1/chat/completions", chat, cookie=cookie)).status == 401, "who does not say where it is from"
        assert (await web.post("/v1/chat/completions", chat, cookie=cookie, origin=f"http://{HOST}")).status == 404, "gets in"
        assert (await web.get("/v1/models", cookie=cookie, sec_fetch_site="cross-site")).status == 401
        assert (await web.get("/v1/models", cookie=cookie, origin=evil)).status == 401
        assert (await enter(web, "t-secret", origin=evil)).status == 403
        assert (await web.ask("POST", "/logout", b"", origin=evil)).status == 403


@pytest.mark.parametrize(("origin", "gets_in"), [(f"http://{HOST}", True), ("https://evil.example", False), (None, False)])
async def test_the_websocket_of_the_page_comes_with_the_cookie(
    autojump_clock: object, tmp_path: Path, nursery: trio.Nursery, origin: str | None, gets_in: bool
) -> None:
    async with locked(tmp_path) as web:
        headers = [(b"cookie", cookie_in(await enter(web, "t-secret")).encode())]
        if origin is not None:
            headers.append((b"origin", origin.encode()))
        near, far = _pipe()
        nursery.start_soon(web.server.handle, far)
        connection = None
        try:
            async with trio.open_nursery() as inner:
                connection = await wrap_client_stream(
                    inner, near, HOST, "/", subprotocols=["callboard.v1"], extra_headers=list(headers)
                )
                assert (await said(connection))["params"]["scopes"] == ["read", "send"]
                await connection.aclose()
        except* ConnectionRejected:
            assert not gets_in
        assert (connection is not None) is gets_in


async def test_without_tokens_the_page_is_there_for_this_machine_alone(autojump_clock: object, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>the page</p>")
    async with browsing() as web:
        web.server.pages.home = tmp_path
        assert (await web.get("/")).status == 200
        assert (await web.get("/login")).headers["location"] == "/"
        for host in ("127.0.0.1:8000", "[::1]:8000", "localhost"):
            assert (await web.get("/", host=host)).status == 200
        for host in ("evil.example:8000", "127.0.0.1.evil.example", "", "[::1", "localhost@evil"):
            assert (await web.get("/", host=host)).status == 421, "a name of another site that was made to point here"
        assert (await web.get("/v1/models", origin="https://evil.example")).status == 401


async def test_pages_of_listed_origins_may_read(autojump_clock: object) -> None:
    async with browsing(tokens=TOKENS, token="t-secret") as web:
        web.server._access = web.server.site._access = Access(TOKENS, origins=["https://app.example"])  # pyright: ignore[reportPrivateUsage]
        allowed = await web.get("/v1/models", origin="https://app.example")
        assert allowed.status == 200 and allowed.headers["access-control-allow-origin"] == "https://app.example"
        refused = await web.get("/v1/models", origin="https://evil.example")
        assert refused.status == 401 and "access-control-allow-origin" not in refused.headers
        asked = await web.ask(
            "OPTIONS", "/v1/models", None, origin="https://app.example", access_control_request_headers="authorization, x-a"
        )
        assert asked.status == 204 and asked.headers["access-control-allow-headers"] == "authorization, x-a"
        assert asked.headers["access-control-allow-methods"] == "GET, HEAD, OPTIONS"
        assert (await web.ask("OPTIONS", "/nothing")).status == 404


def test_a_cookie_is_signed_and_grows_old() -> None:
    now, key = 1_800_000_000.0, b"k" * 32
    value = cookies.mint(key, now)
    assert cookies.fits(value, key, now) and cookies.fits(value, key, now + 43_199)
    assert not cookies.fits(value, key, now + 43_201)
    assert not cookies.fits(value, b"o" * 32, now)
    assert not cookies.fits(cookies.mint(key, now + 3600), key, now), "from the future"
    assert not cookies.fits(value.replace("18", "19", 1), key, now + 1e8)
    assert list(cookies.found_in("a=b; callboard=1; callboard-80=2; callboardx=3;")) == ["1", "2"]


def test_a_cookie_ends_with_its_token() -> None:
    value = Access(TOKENS).cookie_for("other")
    assert value is not None
    headers = [(b"cookie", f"callboard={value}".encode())]
    assert Access(TOKENS).admit(headers, safe=True).scopes == ("read",)
    with pytest.raises(Exception, match="missing or wrong"):
        Access({"t-secret": TOKENS["t-secret"]}).admit(headers, safe=True)
