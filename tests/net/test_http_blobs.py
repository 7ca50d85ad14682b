"""Blobs over HTTP: by the record that holds them, pictures as pictures, everything else as a download, and nothing to others."""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import quote

import pytest
import trio
import trio.testing
from web import Reply, Web, browsing
from wired import make, scripted

from callboard import tool
from callboard.actors.testing import Reply as Answer
from callboard.net.http import blobs
from callboard.net.http.blobs import find
from callboard.net.http.messages import request_of
from callboard.net.http.router import Visit
from callboard.storage.events import InboxPut, Note
from callboard.storage.messages import File, Image, Message, TextBlock, ToolResultBlock

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
TOKENS = {"ours": {"scopes": ["read"], "prefix": "acme/"}, "theirs": {"scopes": ["read"], "prefix": "zeta/"}}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def written(web: Web, *blocks: Any, id: str = "acme/a") -> int:
    """The seq of the record that holds them."""
    ref = await web.system.spawn(web.system.definitions["demo"], id=id)
    return (await ref.followup([TextBlock("look"), *blocks])).seq


async def get(web: Web, data: bytes, seq: int | str, agent: str = "acme/a", *, method: str = "GET", **headers: str) -> Reply:
    return await web.ask(method, f"/blobs/{digest(data)}?agent={quote(agent, safe='')}&seq={seq}", None, **headers)


async def test_a_picture_is_shown_and_runs_nothing(autojump_clock: object) -> None:
    async with browsing(make(scripted("ok")), tokens=TOKENS, token="ours") as web:
        seq = await written(web, Image.from_bytes(PNG, "image/png"))
        reply = await get(web, PNG, seq)
        assert (reply.status, reply.body, reply.headers["content-type"]) == (200, PNG, "image/png")
        assert reply.headers["content-disposition"].startswith("inline")
        assert reply.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'; sandbox"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        asked = await get(web, PNG, seq, method="HEAD")
        assert (asked.status, asked.body, asked.headers["content-length"]) == (200, b"", str(len(PNG)))


@pytest.mark.parametrize("media_type", ["image/svg+xml", "text/html", "IMAGE/PNG; x", "application/pdf", "a\r\nset-cookie: b=c"])
async def test_everything_else_is_a_download_without_a_type(autojump_clock: object, media_type: str) -> None:
    async with browsing(make(scripted("ok")), tokens=TOKENS, token="ours") as web:
        seq = await written(web, File.from_bytes(SVG, media_type, name='../../etc/"pass\r\nwd\u202e".svg'))
        reply = await get(web, SVG, seq)
        assert (reply.status, reply.body, reply.headers["content-type"]) == (200, SVG, "application/octet-stream")
        said = reply.headers["content-disposition"]
        assert said == "attachment; filename*=UTF-8''%22pass%0D%0Awd%E2%80%AE%22.svg" and "set-cookie" not in reply.headers


async def test_who_may_not_read_the_record_has_nothing_of_it(autojump_clock: object) -> None:
    async with browsing(make(scripted("ok", "ok")), tokens=TOKENS, token="theirs") as web:
        seq = await written(web, Image.from_bytes(PNG, "image/png"))
        other = await written(web, id="zeta/b")
        assert (await get(web, PNG, seq)).status == 403
        assert (await get(web, PNG, other, "zeta/b")).status == 404, "a digest opens nothing by itself"
        assert (await get(web, PNG, seq, authorization="Bearer wrong")).status == 401
        assert (await get(web, PNG, seq, "zeta/none")).status == 404


async def test_what_the_query_does_not_name(autojump_clock: object) -> None:
    async with browsing(make(scripted("ok")), tokens=TOKENS, token="ours") as web:
        seq = await written(web, Image.from_bytes(PNG, "image/png"))
        for bad in ("", "-1", "x", "1e3", "\u0661", "9" * 30):
            assert (await get(web, PNG, quote(bad))).status == 400
        assert (await web.get(f"/blobs/{digest(PNG)}")).status == 400
        for missing in (seq + 1, 999_999):
            assert (await get(web, PNG, missing)).status == 404
        for name in ("..", "%2e%2e%2fdata.mdb", "x", digest(b"other"), digest(PNG).upper()):
            assert (await web.get(f"/blobs/{name}?agent=acme%2Fa&seq={seq}")).status == 404


async def test_a_blob_that_the_store_does_not_have_is_said_without_its_place(autojump_clock: object) -> None:
    async with browsing(make(scripted("ok")), tokens=TOKENS, token="ours") as web:
        seq = await written(web, Image("image/png", blob=digest(PNG)))
        reply = await get(web, PNG, seq)
        assert reply.status == 404 and reply.error["message"] == "the log tells of this blob, and the store does not have it"


async def test_what_tools_give_is_found_in_their_results(autojump_clock: object) -> None:
    answers = scripted(Answer.tools(("c1", "draw", {})), "done")

    async def draw() -> list[Any]:
        """Draw."""
        return [TextBlock("here"), Image.from_bytes(PNG, "image/png")]

    async with browsing(make(answers, tools=[tool(replay="safe")(draw)]), tokens=TOKENS, token="ours") as web:
        ref = await web.system.spawn(web.system.definitions["demo"], id="acme/a")
        await ref.ask("go")
        (seq,) = [record.seq async for record in ref.read() if record.type == "tool/result"]
        assert (await get(web, PNG, seq)).body == PNG


async def test_slow_readers_hold_no_more_than_so_much(autojump_clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "AT_ONCE", len(PNG))
    async with browsing(make(scripted("ok")), tokens=TOKENS, token="ours") as web, trio.open_nursery() as nursery:
        seq = await written(web, Image.from_bytes(PNG, "image/png"))
        target, read = f"/blobs/{digest(PNG)}?agent=acme%2Fa&seq={seq}", trio.Event()
        route, path = web.server.site.router.find("GET", target.partition("?")[0])
        slow = (await route.handler(Visit(request_of(b"GET", target.encode(), ()), path=path))).pour
        assert slow is not None

        async def send(data: bytes) -> None:
            await read.wait()

        nursery.start_soon(slow, send)
        await trio.testing.wait_all_tasks_blocked()
        refused = await get(web, PNG, seq)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        read.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await get(web, PNG, seq)).body == PNG


async def test_what_only_looks_like_a_block_opens_nothing(autojump_clock: object) -> None:
    forged = {"type": "image", "media_type": "image/png", "blob": digest(PNG)}
    async with browsing(make(scripted("ok", "ok")), tokens=TOKENS, token="theirs") as web:
        await written(web, Image.from_bytes(PNG, "image/png"))
        await web.system.spawn(web.system.definitions["demo"], id="zeta/labels", labels=forged)
        assert (await get(web, PNG, 0, "zeta/labels")).status == 404


def test_a_block_is_found_wherever_it_is_and_free_json_is_none() -> None:
    image = Image("image/png", blob="d")
    forged = {"type": "image", "media_type": "image/png", "blob": "d"}
    result = ToolResultBlock("c", (TextBlock("here"), image))
    assert find(InboxPut(message=Message("m", "tool", (result,)), lane="next-turn"), "d") is image
    assert find(InboxPut(message=Message("m", "user", (image,)), lane="next-turn"), "e") is None
    put = InboxPut(message=Message("m", "user", (TextBlock("x"),)), lane="next-turn", context=forged)
    assert find(put, "d") is None and find(Note(kind="mine", data=[forged]), "d") is None
