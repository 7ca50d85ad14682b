"""docs/examples/p03_web.py as a process, through a real socket: streams that are cut, a server that is killed, two users."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import trio

from callboard.storage import open_store, verify

# httpx leaves its generators to the collector when a stream is cut, which trio says aloud.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "p03_web.py"
PROVIDED = """
import runpy, sys
import trio
from callboard.actors.models.registry import BUILT_IN
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import chunks as c

def model(request):
    said = request.messages[-1].text
    if said == "wait":
        return Reply.hang("Let me think")
    words = f"{request.system} You said {said}."
    return Reply.text(words, parts=len(words) // 2)

BUILT_IN["openai"] = lambda: ScriptedModel(model, provider="openai")
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""The example, with a script that answers as the provider it names."""


class Event(NamedTuple):
    """One event as a browser sees it."""

    id: int
    kind: str
    turn: int
    text: str


class Site:
    """The running program, as a browser's client has it."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-P", "-W", "error", "-c", PROVIDED, str(EXAMPLE)]
        self._process = subprocess.Popen(
            command, cwd=self._folder, env={**os.environ, "BIND": self.address}, stderr=subprocess.DEVNULL
        )

    def end(self, number: int) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(120)

    @asynccontextmanager
    async def browser(self, user: str) -> AsyncGenerator[httpx.AsyncClient]:
        cookies = {"session": f"secret-of-{user}"}
        async with httpx.AsyncClient(base_url=f"http://{self.address}", cookies=cookies, timeout=120) as client:
            with trio.fail_after(120):
                while not await answers(client):  # noqa: ASYNC110  (it is another process)
                    await trio.sleep(0.02)
            yield client


async def answers(client: httpx.AsyncClient) -> bool:
    try:
        await client.get("/stop")
    except httpx.TransportError:
        return False
    return True


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    site = Site(tmp_path)
    site.start()
    yield site
    site.end(signal.SIGKILL)


async def say(client: httpx.AsyncClient, text: str, id: str) -> Any:
    response = await client.post("/say", json={"id": id, "text": text})
    assert response.status_code == 202
    return response.json()


async def events_until(client: httpx.AsyncClient, after: int, last: Callable[[Event], bool]) -> list[Event]:
    """What an EventSource gets, from its Last-Event-ID to the event where we cut the connection."""
    seen: list[Event] = []
    async with client.stream("GET", "/stream", headers={"last-event-id": str(after)}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
                continue
            data = json.loads(fields["data"])
            seen.append(Event(int(fields["id"]), fields["event"], data["turn"], data["text"]))
            if last(seen[-1]):
                break
    return seen


def shown(events: list[Event], turn: int) -> str:
    """What stands on the page: a discarded attempt is taken off it."""
    text = ""
    for event in events:
        if event.turn == turn:
            text = "" if event.kind == "discard" else text + event.text * (event.kind == "text")
    return text


async def test_a_stream_that_is_cut_again_and_again_loses_and_doubles_nothing(site: Site) -> None:
    async with site.browser("ann") as browser:
        after = (await say(browser, "hello", "m1"))["after"]
        assert await say(browser, "hello", "m1") == {"id": "m1", "after": after}, "repeated, it is the same"
        events = await events_until(browser, after, lambda event: True)
        while events[-1].kind != "end":
            events += await events_until(browser, events[-1].id, lambda event: event.id % 3 == 0 or event.kind == "end")
        assert shown(events, 1) == "You help ann. You said hello."
        ids = [event.id for event in events]
        assert ids == sorted(set(ids))
        assert await events_until(browser, -1, lambda event: event.kind == "end") == events, "a page that is loaded anew"


async def test_a_server_that_is_killed_in_the_middle_is_resumed_where_the_browser_was(site: Site) -> None:
    async with site.browser("ann") as browser:
        after = (await say(browser, "wait", "m1"))["after"]
        before = await events_until(browser, after, lambda event: event.kind == "text")
        assert shown(before, 1) == "Let me think"
    site.end(signal.SIGKILL)
    site.start()
    async with site.browser("ann") as browser:
        assert (await say(browser, "wait", "m1"))["after"] == after, "the browser is not sure, and says it again"
        again = await events_until(browser, before[-1].id, lambda event: event.kind == "text")
        assert [event.kind for event in again] == ["discard", "text"] and shown(before + again, 1) == "Let me think"
        assert (await browser.post("/stop")).status_code == 200
        rest = await events_until(browser, again[-1].id, lambda event: event.kind == "end")
        assert [event.kind for event in rest] == ["end"]
        await say(browser, "hello", "m2")
        second = await events_until(browser, rest[-1].id, lambda event: event.kind == "end")
        assert shown(second, 2) == "You help ann. You said hello."


async def test_each_user_has_an_agent_and_nobody_else_has_one(site: Site) -> None:
    async with site.browser("ann") as ann, site.browser("ben") as ben, site.browser("eve") as eve:
        assert (await ben.get("/stream")).status_code == 404
        await say(ann, "hello", "m1")
        await say(ben, "hello", "m1")
        for browser, user in ((ann, "ann"), (ben, "ben")):
            events = await events_until(browser, -1, lambda event: event.kind == "end")
            assert shown(events, 1) == f"You help {user}. You said hello."
        for response in (await eve.get("/stream"), await eve.post("/say", json={"id": "x", "text": "hi"})):
            assert (response.status_code, response.json()) == (401, {"error": "log in first"})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_told_to_end_it_ends_and_leaves_a_sound_store(site: Site, tmp_path: Path, number: signal.Signals) -> None:
    async with site.browser("ann") as browser:
        await say(browser, "hello", "m1")
        await events_until(browser, -1, lambda event: event.kind == "end")
    assert site.end(number) == 0
    async with open_store(tmp_path / "state", readonly=True) as store:
        assert (await verify(store)).ok
        assert [record.type async for record in store.read("web/ann")][-1] == "turn/end"
