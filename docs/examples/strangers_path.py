"""A stranger's path: agents in a file, a service with a token, OpenAI's client and a follower, a cut line and a kill.

    python docs/examples/strangers_path.py [FOLDER]

Everything is a real process: `callboard serve`, an MCP server that it starts, and, as the model, aimock (`npm install
@copilotkit/aimock`; `LLMOCK` says where its program is). While the agent answers, the line to the clients is cut; while it
answers on, the service is killed. Both clients come back, and have every record once. In the end there is a page to look at.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import trio

from callboard.net import connect
from callboard.storage import Record, Unauthorized

TOKEN, AGENT = "a-long-secret", "clerk/ann"
QUESTION, ANSWER = "How much is 17 + 4?", "Seventeen and four are twenty-one. They have always been, and they will be tomorrow."
FILES = {
    "agents.py": """
import sys
from callboard import Agent
from callboard.actors import default_plugins
from callboard.net.mcp import McpServer

sums = McpServer.stdio("sums", sys.executable, "sums.py")
clerk = Agent("clerk", model="openai:large", system="You add up.", plugins=[*default_plugins(), sums])
""",
    "sums.py": """
from mcp.server.mcpserver import MCPServer

server = MCPServer("sums")

@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    with open("added", "a") as file:
        print(a, b, file=file)
    return a + b

server.run(transport="stdio")
""",
    "model/answers.json": json.dumps(
        {
            "fixtures": [
                {
                    "match": {"userMessage": QUESTION, "hasToolResult": False},
                    "response": {"toolCalls": [{"name": "sums__add", "arguments": {"a": 17, "b": 4}}]},
                },
                {
                    "match": {"userMessage": QUESTION, "hasToolResult": True, "sequenceIndex": 0},
                    "response": {"content": ANSWER},
                    "chunkSize": 2,
                    "latency": 300,  # so slow that there is time to cut and to kill, on any machine
                },
                {
                    "match": {"userMessage": QUESTION, "hasToolResult": True},
                    "response": {"content": ANSWER},
                    "chunkSize": 2,
                    "latency": 30,
                },
            ]
        }
    ),
}
CUT = (openai.APIError, httpx2.HTTPError)
"""What a broken line is to OpenAI's client."""


def free_port() -> int:
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


class Process:
    """A program that can be killed and started again."""

    def __init__(self, command: list[str], folder: Path, port: int, **environment: str) -> None:
        self._command, self._folder, self._environment = command, folder, {**os.environ, **environment}
        self.port = port
        self._running: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Return when it answers on its port."""
        self._run()
        with trio.fail_after(60):
            while True:
                try:
                    await (await trio.open_tcp_stream("127.0.0.1", self.port)).aclose()
                    return
                except OSError:
                    await trio.sleep(0.05)

    def _run(self) -> None:
        self._running = subprocess.Popen(self._command, cwd=self._folder, env=self._environment, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """SIGKILL: it has no time for a last word."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()


class Proxy:
    """Between the clients and the service; it can cut their lines."""

    def __init__(self, target: int) -> None:
        self.port, self._target = 0, target
        self._lines: set[trio.SocketStream] = set()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Pass on what comes, until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._pass_on, listeners)

    async def cut(self) -> None:
        """Cut all lines."""
        for line in list(self._lines):
            await trio.aclose_forcefully(line)

    async def _pass_on(self, near: trio.SocketStream) -> None:
        try:
            far = await trio.open_tcp_stream("127.0.0.1", self._target)
        except OSError:
            await near.aclose()
            return
        self._lines |= {near, far}
        async with near, far, trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, near, far, nursery.cancel_scope)
            await self._copy(far, near, nursery.cancel_scope)
        self._lines -= {near, far}

    async def _copy(self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            async for data in source:
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # cut
        scope.cancel()


class World:
    """The folder, the model and the service."""

    def __init__(self, folder: Path, llmock: str) -> None:
        for name, text in FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        self.folder, port = folder, free_port()
        self.model = Process([llmock, "-p", str(port), "-f", "model"], folder, port)
        self.service = Process(
            [sys.executable, "-m", "callboard.net.cli", "serve", "state", "agents.py", "--port", str(here := free_port())],
            folder,
            here,
            CALLBOARD_TOKENS=f'"{TOKEN}" = {{scopes = ["admin"]}}',
            OPENAI_BASE_URL=f"http://127.0.0.1:{port}/v1",
            OPENAI_API_KEY="sk-of-a-stranger",
        )
        self.page = f"http://127.0.0.1:{here}/"

    def callboard(self, *arguments: str) -> str:
        """What a command says, beside the running service.

        Raises:
            CalledProcessError: it failed.
        """
        command = [sys.executable, "-m", "callboard.net.cli", *arguments]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout


@contextmanager
def opened(folder: Path, llmock: str) -> Generator[World]:
    """A world, whose processes end with the block."""
    world = World(folder, llmock)
    try:
        yield world
    finally:
        world.service.kill()
        world.model.kill()


async def walk(world: World) -> list[Record]:
    """The whole way; the records that the follower saw."""
    await world.model.start()
    await world.service.start()
    await check_door(world)
    proxy, seen = Proxy(world.service.port), list[Record]()
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        async with trio.open_nursery() as clients:
            await clients.start(follow, f"ws://127.0.0.1:{proxy.port}", seen)
            await talk(world, proxy)
        nursery.cancel_scope.cancel()
    check_log(world, seen)
    return seen


async def follow(url: str, seen: list[Record], *, task_status: trio.TaskStatus[None]) -> None:
    """Collect the records of the turn, over as many connections as it takes."""
    async with connect(url, token=TOKEN) as client:
        ref = await client.spawn("clerk", id=AGENT)
        task_status.started()
        async for record in ref.follow():
            seen.append(record)
            if record.type == "turn/end":
                return


async def talk(world: World, proxy: Proxy) -> None:
    """Ask; while the answer comes, first the line is cut, and then the service is killed."""

    async def cut() -> None:
        print("the line is cut")
        await proxy.cut()

    async def kill() -> None:
        print("the service is killed, and started again")
        world.service.kill()
        await world.service.start()

    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key=TOKEN, max_retries=0) as client:
        assert (await listen(client, [(20, cut), (40, kill)])).strip() == ANSWER


async def listen(client: openai.AsyncOpenAI, surprises: list[tuple[int, Callable[[], Awaitable[None]]]]) -> str:
    """The answer, asked for again under the same key when it breaks off; a surprise comes after so many characters."""
    while True:
        text = ""
        try:
            async for piece in words(client):
                text = text + piece if piece else ""
                if surprises and len(text) >= surprises[0][0]:
                    await surprises.pop(0)[1]()
        except CUT as error:
            print(f"the answer broke off behind {text!r} ({type(error).__name__})")
            await trio.sleep(0.2)
            continue
        assert not surprises
        print(f"the answer is {text!r}")
        return text


async def words(client: openai.AsyncOpenAI) -> AsyncIterator[str]:
    """Pieces of the answer; an empty one says that what came of it is said again."""
    answer: Any = await client.chat.completions.create(
        model="clerk",
        user="ann",
        messages=[{"role": "user", "content": QUESTION}],
        stream=True,
        extra_headers={"idempotency-key": "q1"},
    )
    async with answer:
        async for chunk in answer:
            more: Any = chunk.model_extra or {}
            told: Any = more.get("callboard", {})
            if "tool" in told:
                print(f"the agent calls {told['tool']}")
            if told.get("discard"):
                yield ""
            if chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content


async def check_door(world: World) -> None:
    """Without the token there is nothing."""
    async with httpx2.AsyncClient(base_url=world.page) as web:
        for path in ("", "page/main.js", "v1/models", "metrics", "openapi.json"):
            assert (await web.get(path)).status_code == 401
    try:
        async with connect(f"ws://127.0.0.1:{world.service.port}", token="a-guess"):
            raise AssertionError("anybody may connect")
    except Unauthorized:
        print("without the token nothing is shown")


def check_log(world: World, seen: list[Record]) -> None:
    """The log on disk has what the follower saw, and each request can be rebuilt from it."""
    lines = [json.loads(line) for line in world.callboard("log", "state", AGENT, "--json").splitlines()]
    assert [(line["seq"], line["type"]) for line in lines] == [(record.seq, record.type) for record in seen]
    assert [record.seq for record in seen] == list(range(len(seen)))
    world.callboard("verify", "state")
    assert (world.folder / "added").read_text(encoding="utf-8") == "17 4\n"
    print(f"{len(seen)} records, each once, as in the log; verified; the tool ran once")


def main(folder: str) -> None:
    """Walk it, and leave the page to be looked at."""
    llmock = os.environ.get("LLMOCK") or shutil.which("llmock")
    if llmock is None:
        sys.exit("the model is aimock: npm install @copilotkit/aimock, and say LLMOCK=node_modules/.bin/llmock")
    home = Path(folder).resolve()
    home.mkdir(exist_ok=True)
    with opened(home, str(Path(llmock).resolve())) as world:
        trio.run(walk, world)
        input(f"look at {world.page}, whose token is {TOKEN}; Enter ends it ")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "stranger")
