"""Agents as tools: the SDK's own client against our server, in this process, over a command, and over HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp
import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve  # pyright: ignore[reportUnknownVariableType]
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_world import results
from trio.testing import wait_all_tasks_blocked

from callboard import Agent, System
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.cli.mcp import load
from callboard.net.cli.problems import Refused
from callboard.net.mcp import McpServer, agents_server
from callboard.net.mcp.stdio import serve_descriptors
from callboard.storage import Request, open_store, verify

AGENTS = """
from callboard import Agent
from callboard.actors.testing import Reply, ScriptedModel

print("said while it is loaded")

def answer(request):
    said = request.messages[-1].text
    return Reply.hang("thinking") if said == "hang" else Reply.text(said.upper(), parts=3)

echo = Agent("echo", model=ScriptedModel(answer), plugins=[])
"""


def answer(request: Request) -> Reply:
    said = request.messages[-1].text
    if said == "hang":
        return Reply.hang("thinking")
    if said == "fail":
        return Reply.fail("AUTH")
    heard = sum(message.role == "user" for message in request.messages)
    return Reply.text(f"{heard}: {said.upper()}", parts=4)


def echo(**options: Any) -> Agent[Any, Any]:
    return Agent("echo", model=ScriptedModel(answer), plugins=[]).replace(**options)


def words(result: Any) -> str:
    return "".join(block.text for block in result.content)


@asynccontextmanager
async def joined(server: Any) -> AsyncGenerator[mcp.Client]:
    """The SDK's client, joined with the server by streams in memory, as a connection is."""
    to_client, read = anyio.create_memory_object_stream[Any](0)
    write, to_server = anyio.create_memory_object_stream[Any](0)

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        yield read, write

    async with read, write, to_client, to_server, trio.open_nursery() as nursery:
        nursery.start_soon(server.run, to_server, to_client, server.create_initialization_options())
        async with mcp.Client(transport(), mode="legacy", cache=None) as client:
            yield client
        nursery.cancel_scope.cancel()


async def test_a_definition_is_a_tool_and_a_session_an_agent() -> None:
    async with System.open(":memory:", agents=[echo(), echo(name="the other one")]) as system:
        async with joined(agents_server(system, descriptions={"echo": "Says it again."})) as client:
            tools = (await client.list_tools()).tools
            assert [(tool.name, tool.description) for tool in tools] == [
                ("echo", "Says it again."),
                ("the_other_one", "Ask the agent 'the other one'."),
            ]
            first = await client.call_tool("echo", {"text": "hi"})
            assert words(first) == "1: HI" and first.structured_content is not None
            again = await client.call_tool("echo", {"text": "ho", "session": first.structured_content["session"]})
            assert words(again) == "2: HO"
            assert words(await client.call_tool("echo", {"text": "hi", "session": "mine"})) == "1: HI"
            assert words(await client.call_tool("the_other_one", {"text": "hi", "session": "mine"})) == "1: HI"
        ids = {agent.id async for agent in system.agents()}
        assert {"mcp/echo/mine", "mcp/the other one/mine"} < ids and len(ids) == 3


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("nobody", {"text": "hi"}, "there is no tool 'nobody'; there are: echo"),
        ("echo", {}, "the arguments are `text`"),
        ("echo", {"text": "  "}, "the arguments are `text`"),
        ("echo", {"text": 1}, "the arguments are `text`"),
        ("echo", {"text": "hi", "sesion": "x"}, "not 'sesion'"),
        ("echo", {"text": "hi", "session": ""}, "a session is a name"),
        ("echo", {"text": "hi", "session": "x" * 201}, "a session is a name"),
        ("echo", {"text": "fail"}, "The turn of 'echo' ended with an error: AUTH"),
        ("echo", {"text": "hang"}, "was not over in"),
    ],
)
async def test_what_goes_wrong_is_an_error_result(tool: str, arguments: dict[str, Any], why: str) -> None:
    async with (
        System.open(":memory:", agents=[echo()], grace=0) as system,
        joined(agents_server(system, timeout=0.1)) as client,
    ):
        result = await client.call_tool(tool, arguments)
        assert result.is_error and why in words(result)
        assert words(await client.call_tool("echo", {"text": "still there"})) == "1: STILL THERE"


async def test_an_output_is_told_as_json() -> None:
    agent = Agent("count", model=ScriptedModel([Reply.output({"n": 3})]), plugins=[], output={"type": "object", "title": "N"})
    async with System.open(":memory:", agents=[agent]) as system, joined(agents_server(system)) as client:
        assert json.loads(words(await client.call_tool("count", {"text": "go"}))) == {"n": 3}


async def test_progress_is_the_text_as_it_is_written() -> None:
    told: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async with System.open(":memory:", agents=[echo()]) as system, joined(agents_server(system)) as client:
        await client.call_tool("echo", {"text": "hello", "session": "a"})
        await client.call_tool("echo", {"text": "you there", "session": "a"}, progress_callback=hear)
        assert "".join(map(str, told)) == "2: YOU THERE" and len(told) == 4


async def test_the_client_s_cancel_cancels_the_turn() -> None:
    async with System.open(":memory:", agents=[echo()]) as system, joined(agents_server(system)) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(client.call_tool, "echo", {"text": "hang", "session": "a"}))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        ref = await system.get("mcp/echo/a")
        await ref.wait_idle()
        assert (await ref.outcome(turn=1)).reason.kind == "aborted"
        assert words(await client.call_tool("echo", {"text": "hi", "session": "a"})) == "2: HI"


async def test_a_client_that_only_goes_away_leaves_the_turn_running() -> None:
    async with System.open(":memory:", agents=[echo()], grace=0) as system:
        read, write = os.pipe()
        with Path(os.devnull).open("wb") as nowhere:  # noqa: ASYNC230
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve_descriptors, agents_server(system), read, nowhere.fileno())
                hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
                call = {"name": "echo", "arguments": {"text": "hang", "session": "a"}}
                for message in (
                    {"id": 1, "method": "initialize", "params": hello},
                    {"method": "notifications/initialized"},
                    {"id": 2, "method": "tools/call", "params": call},
                ):
                    os.write(write, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
                with trio.fail_after(120):
                    while not [a async for a in system.agents() if a.status == "running"]:  # noqa: ASYNC110
                        await trio.sleep(0.01)
                os.close(write)
        os.close(read)
        await wait_all_tasks_blocked()
        assert (await system.get("mcp/echo/a")).status == "running"


# -- as a command


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    file = tmp_path / "agents.py"
    file.write_text(AGENTS, encoding="utf-8")
    program = "from callboard.net.cli import main; import sys; sys.exit(main())"
    return [sys.executable, "-P", "-c", program, "mcp", str(tmp_path / "state"), "--agent", f"{file}:echo"]


async def test_the_command_serves_whoever_starts_it(command: list[str], tmp_path: Path) -> None:
    log = tmp_path / "stderr"
    with log.open("w") as errors:
        parameters = StdioServerParameters(command=command[0], args=command[1:])
        async with mcp.Client(stdio_client(parameters, errlog=errors)) as client:
            assert words(await client.call_tool("echo", {"text": "hi", "session": "a"})) == "HI"
    said = log.read_text()
    assert "said while it is loaded" in said and "serving echo of" in said and "Traceback" not in said
    async with open_store(tmp_path / "state", readonly=True) as store:
        assert (await verify(store)).ok and (await store.head("mcp/echo/a")) is not None


def test_what_the_command_serves_is_in_its_files(tmp_path: Path) -> None:
    for name, deps in (("one", "1"), ("two", "2"), ("none", "None")):
        text = AGENTS.replace("said while", f"{name} said while") + f"deps = {deps}\nmodels = {{'own': 'a model'}}\n"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    one, two, none = (f"{tmp_path / name}.py:echo" for name in ("one", "two", "none"))
    agents, deps, models = load([none, one, one])
    assert [agent.name for agent in agents] == ["echo"] * 3 and deps == 1 and models == {"own": "a model"}
    with pytest.raises(Refused, match="two of these files have `deps`"):
        load([one, two])
    with pytest.raises(Refused, match="there is no nobody in"):
        load([one.replace(":echo", ":nobody")])


def test_interrupted_it_ends_and_keeps_what_was_open(command: list[str], tmp_path: Path) -> None:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "serving" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)  # its input is still open
        assert process.wait(120) == 143


# -- over HTTP, and both ends ours


@asynccontextmanager
async def over_http(server: Any, port: int = 0) -> AsyncGenerator[str]:
    config = Config()
    config.bind, config.errorlog = [f"127.0.0.1:{port}"], None
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        app: Any = server.streamable_http_app()
        (url,) = await nursery.start(partial(serve, app, config, shutdown_trigger=over.wait))
        yield f"{url}/mcp"
        over.set()
        nursery.cancel_scope.cancel()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# The SDK's HTTP client leaves its generators to the collector, which trio says aloud.
leaves_generators = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@leaves_generators
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_an_agent_asks_the_agents_of_another_system_over_http(protocol: str) -> None:
    calls = [Reply.tools(("c1", "there__echo", {"text": "hi", "session": "s"})), Reply.text("ok")] * 2
    async with System.open(":memory:", agents=[echo()]) as there, over_http(agents_server(there)) as url:
        plugin = McpServer.http("there", url, protocol=protocol, headers={"x-who": "me"})
        asker = Agent("asker", model=ScriptedModel(calls), plugins=[plugin])
        async with System.open(":memory:", agents=[asker]) as here:
            ref = await here.spawn(asker, id="a")
            for _ in range(2):
                assert (await ref.ask("go", timeout=120)).ok
            assert [words(result) for result in await results(ref)] == ["1: HI", "2: HI"]


@leaves_generators
async def test_a_session_that_the_server_forgot_is_opened_again() -> None:
    """Over HTTP a restarted server knows no session; it has not run the call either, so whatever it is, it is made again."""
    replies = [Reply.tools(("c1", "there__echo", {"text": "hi", "session": "s"})), Reply.text("ok")] * 2
    async with System.open(":memory:", agents=[echo()]) as there:
        server = agents_server(there)
        async with over_http(server) as url:
            asker = Agent("asker", model=ScriptedModel(replies), plugins=[McpServer.http("there", url, protocol="legacy")])
            async with System.open(":memory:", agents=[asker]) as here:
                ref = await here.spawn(asker, id="a")
                await ref.ask("go", timeout=120)
                server.session_manager._server_instances.clear()
                await ref.ask("go", timeout=120)
                assert [result.error for result in await results(ref)] == [None, None]


@leaves_generators
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_server_over_http_that_dies_in_a_call_costs_one_error_and_is_found_again(protocol: str) -> None:
    calls = [Reply.tools(("c1", "there__echo", {"text": said, "session": "s"})) for said in ("hang", "hi")]
    async with System.open(":memory:", agents=[echo()]) as there:
        port = free_port()
        plugin = McpServer.http("there", f"http://127.0.0.1:{port}/mcp", protocol=protocol, start_s=5)
        asker = Agent("asker", model=ScriptedModel([calls[0], Reply.text("ok"), calls[1], Reply.text("ok")]), plugins=[plugin])
        async with System.open(":memory:", agents=[asker]) as here:
            ref = await here.spawn(asker, id="a")
            with trio.CancelScope() as life:
                async with over_http(agents_server(there), port):
                    await ref.followup("go", message_id="m")
                    with trio.fail_after(120):
                        while not [a async for a in there.agents() if a.status == "running"]:  # noqa: ASYNC110
                            await trio.sleep(0.01)
                    life.cancel()
            assert (await ref.outcome("m", timeout=120)).ok
            await (await there.get("mcp/echo/s")).cancel()
            async with over_http(agents_server(there), port):
                assert (await ref.ask("go", timeout=120)).ok
            lost, found = await results(ref)
            assert lost.error in ("MCP_LOST", "MCP_ERROR") and found.error is None
