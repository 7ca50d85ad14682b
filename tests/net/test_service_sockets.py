"""Service and client over real sockets: the handshake, TLS, tokens, a service that comes back, and what `serve` refuses."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio_websocket import open_websocket_url
from wired import make, said, scripted

from callboard.actors.system import System
from callboard.net import ServiceLimits, connect, serve, service, websocket
from callboard.net.remote import RemoteRef
from callboard.net.service import Server
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import Disconnected, ServiceError, Unauthorized, UsageError
from callboard.storage.store import Store

TOKENS = {"a-token": {"scopes": ["admin"]}}


@asynccontextmanager
async def service_of(*replies: Any, store: Store | None = None, **options: Any) -> AsyncGenerator[tuple[System, Server]]:
    agent = make(scripted(*replies))
    async with System.open(store or MemoryStore(), agents=[agent], grace=0) as system, trio.open_nursery() as nursery:
        yield system, await nursery.start(partial(serve, system, **options))
        nursery.cancel_scope.cancel()


async def test_a_client_over_a_socket() -> None:
    async with service_of("hello", tokens=TOKENS) as (_, server), connect(server.url, token="a-token") as client:
        ref = await client.spawn("demo", id="a")
        assert (await ref.ask("hi")).result() == "hello"
        assert [r.type async for r in ref.read()][-1] == "turn/end"


async def knock(server: Server, *headers: str, version: str = "1.1") -> bytes:
    """What the service answers to a bare request for an upgrade."""
    stream = await trio.open_tcp_stream(server.host, server.port)
    lines = [
        f"GET / HTTP/{version}",
        "Host: x",
        "Connection: upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        *headers,
    ]
    async with stream:
        await stream.send_all("\r\n".join([*lines, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "", ""]).encode())
        return bytes(await stream.receive_some())


OURS = "Sec-WebSocket-Protocol: callboard.v1"


async def test_c227_without_the_token_nothing() -> None:
    async with service_of(tokens=TOKENS) as (_, server):
        for token in (None, "wrong-token"):
            with pytest.raises(Unauthorized, match="missing or wrong") as caught:
                async with connect(server.url, token=token):
                    pass
            assert "wrong-token" not in str(caught.value)
        assert b" 401 " in await knock(server, OURS)
        assert b" 401 " in await knock(server)


async def test_a_websocket_over_http_1_0_is_refused_with_the_version_it_needs() -> None:
    async with service_of() as (_, server):
        answer = await knock(server, OURS, version="1.0")  # its head: the body says why
        assert b" 426 " in answer and b"upgrade: HTTP/1.1\r\n" in answer
        assert b" 101 " in await knock(server, OURS)


async def test_browsers_bring_the_token_as_a_subprotocol() -> None:
    offered = ["callboard.v1", "bearer.a-token"]
    async with service_of(tokens=TOKENS) as (_, server), open_websocket_url(server.url, subprotocols=offered) as connection:
        assert connection.subprotocol == "callboard.v1"
        assert (await said(connection))["method"] == "hello"


async def test_another_subprotocol_is_refused_by_name_and_a_page_of_another_site_is_turned_away() -> None:
    async with service_of() as (_, server):
        assert b" 101 " in await knock(server, OURS)
        assert b" 400 " in (answer := await knock(server, "Sec-WebSocket-Protocol: callboard.v9")) and answer
        assert b" 401 " in await knock(server, OURS, "Origin: https://evil.example")


async def test_rubbish_in_the_head_leaves_the_service_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    async with service_of() as (_, server):
        for rubbish in (
            b"\0" * 100,
            b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"POST / HTTP/9\r\n\r\n",
        ):
            async with await trio.open_tcp_stream(server.host, server.port) as stream:
                await stream.send_all(rubbish)
                await stream.send_eof()
                assert b" 101 " not in await stream.receive_some()
        assert b" 101 " in await knock(server, OURS)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_connections_beyond_the_limit_are_turned_away() -> None:
    async with service_of(limits=ServiceLimits(connections=1)) as (_, server), connect(server.url):
        with pytest.raises(Disconnected, match="too many connections"):
            async with connect(server.url):
                pass


async def test_a_closing_service_says_so(nursery: trio.Nursery) -> None:
    scope = trio.CancelScope()

    async def run(system: System, *, task_status: trio.TaskStatus[Server]) -> None:
        with scope:
            await serve(system, task_status=task_status)

    async with System.open(":memory:") as system:
        server: Server = await nursery.start(run, system)
        async with websocket.dialer(server.url, None, None)() as near:
            await near.receive()
            scope.cancel()
            with pytest.raises(websocket.Closed) as closed:
                await near.receive()
            assert closed.value.code == 1001


async def test_c222_a_service_that_comes_back_is_found_again_and_nothing_is_seen_twice(nursery: trio.Nursery) -> None:
    store, seen = MemoryStore(), list[int]()

    async def stay(port: int, *, task_status: trio.TaskStatus[RemoteRef]) -> None:
        async with connect(f"ws://127.0.0.1:{port}") as client:
            ref = await client.spawn("demo", id="a")
            task_status.started(ref)
            async for record in ref.follow():
                seen.append(record.seq)

    async with service_of("one", store=store) as (_, server):
        port = server.port
        ref: RemoteRef = await nursery.start(stay, port)
        await ref.ask("first", message_id="m1")
    async with service_of("two", store=store, port=port):
        assert (await ref.ask("second", message_id="m2")).text == "two"
        assert (await ref.ask("first", message_id="m1")).text == "one"
        last = [record.seq async for record in ref.read()][-1]
        with trio.fail_after(120):
            while not seen or seen[-1] < last:  # noqa: ASYNC110 (it comes over a socket)
                await trio.sleep(0.01)
    assert seen == list(range(last + 1))


async def test_nobody_there_is_one_sentence() -> None:
    with pytest.raises(Disconnected, match=r"nobody answers at ws://127.0.0.1:1; is the service running there\?"):
        async with connect("ws://127.0.0.1:1"):
            pass


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1", "looks like ws://"),
        ("127.0.0.1:80", "looks like"),
        ("ws://a:b@host", "token="),
        ("ws://h/?token=x", "token="),
    ],
)
async def test_an_address_that_is_none_is_one_sentence(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        async with connect(url):
            pass


async def test_what_is_no_service_is_an_error_of_the_service() -> None:
    async def other(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnope")

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, other, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(ServiceError, match="nope"):
            async with connect(f"ws://127.0.0.1:{port}"):
                pass
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("url", ["ws://me:hunter2@localhost:99999", "ws://[::1", "ws://a b:1", "ws://a/b\n", "ftp://a", "ws://"])
async def test_what_cannot_be_an_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is no address of a service") as caught:
        async with connect(url):
            pass
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("token", ["hunter2 ", "hunter2\n", "hunter2\u20ac"])
async def test_what_no_header_carries_is_no_token(token: str) -> None:
    with pytest.raises(UsageError, match="the token has a character") as caught:
        async with connect("ws://localhost:1", token):
            pass
    assert "hunter2" not in str(caught.value)


async def test_who_speaks_no_tls_is_told_apart_from_who_proves_nothing() -> None:
    async with service_of() as (_, server):
        with pytest.raises(Disconnected, match=r"does not speak TLS; is it ws://127\.0\.0\.1"):
            async with connect(server.url.replace("ws", "wss")):
                pass


async def test_tls(tmp_path: Path) -> None:
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    try:
        await trio.run_process([*command, *more], capture_stdout=True, capture_stderr=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    async with service_of("hello", tls=(cert, key)) as (_, server):
        assert server.url.startswith("wss://")
        async with connect(server.url, ssl_context=ssl.create_default_context(cafile=cert)) as client:
            ref = await client.spawn("demo", id="a")
            assert (await ref.ask("hi")).text == "hello"
            seen = [record.type async for record in ref.read()]
            async for record in ref.follow():
                assert record.type == seen[record.seq]
                if record.type == "turn/end":
                    break
        async with httpx.AsyncClient(verify=ssl.create_default_context(cafile=cert)) as web:
            assert (await web.get(f"{server.page}readyz")).json()["status"] == "ready"
        with pytest.raises(Disconnected, match=r"does not prove who it is: .*name it in \$SSL_CERT_FILE"):
            async with connect(server.url):
                pass
    with pytest.raises(UsageError, match="cannot be used"):
        async with System.open(":memory:") as system:
            await serve(system, tls=(key, cert))
    locked = str(tmp_path / "locked.pem")
    locking = ["openssl", "rsa", "-aes128", "-passout", "pass:x", "-in", key, "-out", locked]
    await trio.run_process(locking, capture_stdout=True, capture_stderr=True)
    with pytest.raises(UsageError, match="is encrypted, and nobody is asked for its password"):
        async with System.open(":memory:") as system:
            await serve(system, tls=(cert, locked))


async def test_what_would_let_anybody_in_is_refused() -> None:
    async with System.open(":memory:") as system:
        with pytest.raises(UsageError, match="without tokens the service binds loopback only"):
            await serve(system, host="0.0.0.0")


async def test_without_the_extra_an_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trio_websocket", None)
    async with System.open(":memory:") as system:
        with pytest.raises(UsageError, match=r"pip install 'callboard\[net\]'"):
            await serve(system)
    with pytest.raises(UsageError, match="callboard"):
        async with connect("ws://127.0.0.1:1"):
            pass


def test_the_command_line_does_not_load_the_service() -> None:
    loaded = "[m for m in sys.modules if 'websocket' in m or 'net.service' in m]"
    code = f"import sys, callboard.net.cli.main, callboard.net; print({loaded})"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_of_the_face() -> None:
    assert service.serve is serve and websocket.library().__name__ == "trio_websocket"
    import callboard.net

    with pytest.raises(AttributeError, match="no attribute 'sreve'"):
        _ = callboard.net.sreve
