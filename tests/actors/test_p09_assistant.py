"""docs/examples/p09_assistant.py as a process, over an IRC server of the test: killed between a question and its answer."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.storage import events as e
from callboard.storage import open_store, verify

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PROVIDED = """
import runpy, sys
from callboard.actors.models.registry import BUILT_IN
from callboard.actors.testing import Reply, ScriptedModel

def model(request):
    last = request.messages[-1]
    if last.role == "tool":
        return Reply.text(f"I will: {last.text[:7]}")
    asked = [m.text for m in request.messages if m.role == "user" and not m.text.startswith("It is ")][-1]
    if asked == "remind me":
        return Reply.tools(("c1", "remind_me", {"text": "tea", "minutes": 0.001}))
    return Reply.text("tea!" if "tea" in asked else f"You said {asked}")

BUILT_IN["openai"] = lambda: ScriptedModel(model, provider="openai")
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class IrcServer:
    """One room, one assistant at a time, and a person who is the test."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        """Delivery and text of everything the assistant has said, however often."""
        self.online = trio.Event()
        """Set once the assistant has joined the room."""
        self._heard = trio.lowlevel.ParkingLot()
        self._stream: trio.SocketStream | None = None
        self.deaf = False

    async def serve(self, stream: trio.SocketStream) -> None:
        self._stream, buffer = stream, b""
        try:
            async for data in stream:
                buffer += data
                *lines, buffer = buffer.split(b"\r\n")
                for line in lines:
                    await self._hear(stream, line.decode())
        except trio.BrokenResourceError:
            return

    async def _hear(self, stream: trio.SocketStream, line: str) -> None:
        if line.startswith("USER"):
            await stream.send_all(b"PING :1\r\n:server 001 helper :welcome\r\n")
        elif line.startswith("JOIN"):
            assert line == "JOIN #docs"
            self.online.set()
        elif "PRIVMSG" in line and not self.deaf:
            tag, _, rest = line.partition(" PRIVMSG #docs :")
            self.said.append((tag.removeprefix("@+callboard/delivery="), rest))
            self._heard.unpark_all()

    async def wait_online(self) -> None:
        with trio.fail_after(120):  # a program that cannot start never comes
            await self.online.wait()

    async def say(self, text: str, id: str) -> None:
        assert self._stream is not None
        await self._stream.send_all(f"@msgid={id};x :ann!a@host PRIVMSG #docs :{text}\r\n".encode())

    async def wait_for(self, *texts: str) -> None:
        with trio.fail_after(120):
            while not set(texts) <= {text for _, text in self.said}:
                await self._heard.park()


class Process:
    def __init__(self, folder: Path, port: int) -> None:
        command = [sys.executable, "-P", "-W", "error", "-c", PROVIDED, str(EXAMPLES), str(EXAMPLES / "p09_assistant.py")]
        self.process = subprocess.Popen([*command, f"127.0.0.1:{port}", "#docs"], cwd=folder, stderr=subprocess.PIPE)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


async def test_p09_assistant(folder: Path) -> None:
    server = IrcServer()
    async with trio.open_nursery() as nursery:
        listening = partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1")
        listeners: list[trio.SocketListener] = await nursery.start(listening)
        port = listeners[0].socket.getsockname()[1]
        first = Process(folder, port)
        try:
            await server.wait_online()
            await server.say("hello", "m1")
            await server.wait_for("You said hello")
            await server.say("/karma", "m2")
            await server.wait_for("ann has 1")
            await server.say("remind me", "m3")
            await server.wait_for("tea!")
            assert any(text.startswith("I will: set for") for _, text in server.said)
        finally:
            first.kill()
        await _ask_while_killed(server, folder, port)
        nursery.cancel_scope.cancel()
    ids = dict[str, str]()
    for delivery, text in server.said:
        assert ids.setdefault(delivery, text) == text, "what came twice has one id"
    await _look(folder, {text for _, text in server.said})


async def _ask_while_killed(server: IrcServer, folder: Path, port: int) -> None:
    """Ask, and kill as soon as the question is on disk; the next process answers."""
    server.online = trio.Event()
    second = Process(folder, port)
    try:
        await server.wait_online()
        await server.say("are you there", "m4")
        await _until_on_disk(folder, "m4")
    finally:
        second.kill()
    third = Process(folder, port)
    try:
        await server.wait_for("You said are you there")
        await _until_sent(folder)
    finally:
        third.kill()


async def _until_on_disk(folder: Path, message: str) -> None:
    with trio.fail_after(120):
        while True:
            async with open_store(folder / "state", readonly=True) as store:
                if await store.find("irc:#docs", message) is not None:
                    return
            await trio.lowlevel.checkpoint()


async def _until_sent(folder: Path) -> None:
    with trio.fail_after(120):
        while True:
            async with open_store(folder / "state", readonly=True) as store:
                head = await store.head("irc:#docs")
                if head is not None and head.summary.outbox == 0:
                    return
            await trio.lowlevel.checkpoint()


async def _look(folder: Path, said: set[str]) -> None:
    async with open_store(folder / "state", readonly=True) as store:
        assert (await verify(store)).ok
        events: list[Any] = [record.event async for record in store.read("irc:#docs")]
    puts = [event for event in events if isinstance(event, e.OutboxPut)]
    assert {event.delivery for event in events if isinstance(event, e.OutboxSent)} == {put.delivery for put in puts}
    assert {"".join(getattr(block, "text", "") for block in put.content) for put in puts} == said
    answered = [put.route.message for put in puts]
    assert answered == ["m1", "m2", "m3", "m3", "m4"], "each where it was asked, the reminder too"
