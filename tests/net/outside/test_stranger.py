"""A stranger's path: a file of agents, `callboard serve` with a token, OpenAI's client, a follower, a kill, a browser.

The agent calls a tool of an MCP server. While it streams its answer to OpenAI's client, and a WebSocket client follows it, the
service is killed and started again. Both clients come back: the follower by itself, the other with the same idempotency key.
Nothing is lost, nothing doubled, and the page shows it all.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest
import trio
from openai import AsyncOpenAI

from callboard.net import connect
from callboard.net.cli import main

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.outside

ANSWER = "The sum of seventeen and four is twenty-one, as it has always been and will be."
SUMS = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("sums")

@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

server.run(transport="stdio")
"""
AGENTS = f"""
import sys
import trio
from callboard import Agent
from callboard.actors import Model, default_plugins
from callboard.net.mcp import McpServer
from callboard.storage import chunks as c

class Slow(Model):
    "Calls the tool, and then answers a word at a time."
    provider, name = "slow", "m"

    async def stream(self, request):
        if request.messages[-1].role != "tool":
            yield c.block_start(0, "tool-call")
            yield c.tool_call_delta(0, id="c1", name="sums__add", arguments='{{"a": 17, "b": 4}}')
            yield c.block_end(0)
            yield c.finish("tool-calls")
            return
        yield c.block_start(0, "text")
        for word in {ANSWER!r}.split(" "):
            await trio.sleep(0.1)
            yield c.text_delta(0, word + " ")
        yield c.block_end(0)
        yield c.finish("stop")

sums = McpServer.stdio("sums", sys.executable, "sums.py", replay="safe")
clerk = Agent("clerk", model=Slow(), plugins=[*default_plugins(), sums])
"""
TOKEN = "a-long-secret"
ID = "clerk/ann"


class Service:
    """The service, as a process that can be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as door:
            self.port = int(door.getsockname()[1])
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "callboard.net.cli", "serve", "state", "agents.py", "--port", str(self.port)]
        environment = {**os.environ, "CALLBOARD_TOKENS": f'"{TOKEN}" = {{scopes = ["admin"]}}'}
        self._process = subprocess.Popen(command, cwd=self._folder, env=environment, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert b"serving clerk" in self._process.stdout.readline()

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()


@pytest.fixture
def service(tmp_path: Path) -> Generator[Service]:
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "sums.py").write_text(SUMS)
    found = Service(tmp_path)
    found.start()
    yield found
    found.kill()


async def follow(service: Service, seen: list[Any], *, task_status: trio.TaskStatus[None]) -> None:
    async with connect(f"ws://127.0.0.1:{service.port}", token=TOKEN, patience=60) as client:
        ref = await client.spawn("clerk", id=ID)
        task_status.started()
        async for record in ref.follow():
            seen.append(record)
            if record.type == "turn/end":
                return


async def talk(service: Service, seen: list[Any]) -> None:
    """Ask, be cut, and ask again."""
    base_url = f"http://127.0.0.1:{service.port}/v1"
    ask: dict[str, Any] = {
        "model": "clerk",
        "messages": [{"role": "user", "content": "17 + 4?"}],
        "user": "ann",
        "extra_headers": {"idempotency-key": "q1"},
    }
    async with trio.open_nursery() as nursery, AsyncOpenAI(base_url=base_url, api_key=TOKEN, max_retries=0) as client:
        await nursery.start(follow, service, seen)
        create: Any = client.chat.completions.create
        heard = ""
        with pytest.raises((openai.APIConnectionError, httpx2.RemoteProtocolError)):
            async for chunk in await create(**ask, stream=True):
                heard += chunk.choices[0].delta.content or ""
                if len(heard) > 20:
                    await trio.to_thread.run_sync(service.kill)
        assert ANSWER.startswith(heard.strip()) and 20 < len(heard) < len(ANSWER)
        await trio.to_thread.run_sync(service.start)
        answer = await create(**ask)
        assert (answer.choices[0].message.content or "").strip() == ANSWER


@pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning")
def test_a_strangers_path(
    service: Service, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    async def within() -> None:
        with trio.fail_after(90):
            await talk(service, seen)

    trio.run(within)
    assert [record.seq for record in seen] == list(range(len(seen))), "none is lost and none doubled"
    types = [record.type for record in seen]
    assert types.count("turn/start") == types.count("turn/end") == types.count("turn/resume") == 1
    assert types.count("tool/call") == types.count("tool/result") == 1, "what was finished was not repeated"
    monkeypatch.chdir(tmp_path)
    assert main(["verify", "state"]) == 0
    capsys.readouterr()
    page = f"http://127.0.0.1:{service.port}/"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(page, timeout=10)
    tab = browser.new_page()
    tab.goto(page)
    tab.get_by_label("token").fill(TOKEN)
    tab.get_by_role("button", name="Enter").click()
    tab.get_by_text(ID).first.click()
    tab.get_by_text("sums__add").first.wait_for()
    tab.close()
