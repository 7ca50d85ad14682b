"""The adapters against aimock, a server of both protocols that nobody here wrote: streams, tools, limits, cancels and kills."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from callboard import Agent, System, tool
from callboard.actors import AgentRef, Model, ModelError
from callboard.actors.plugins import Retry
from callboard.actors.testing import check_model, every_crash
from callboard.net.adapters import Anthropic, OpenAI
from callboard.storage import StoreError, open_store, verify
from callboard.storage import events as e
from callboard.storage.messages import Chunk, FinishChunk, Message, ReasoningBlock, Request, TextBlock, TextDelta

pytestmark = pytest.mark.outside
BOTH = pytest.mark.parametrize("kind", [OpenAI, Anthropic], ids=["openai", "anthropic"])
Kind = type[OpenAI] | type[Anthropic]

ROOT = Path(__file__).resolve().parents[3]
LETTERS = "abcdefghijklmnopqrstuvwxyz" * 3
SLOW: dict[str, Any] = {"chunkSize": 1, "latency": 300}
"""LETTERS take 23 seconds: whatever is to happen in the middle has the time for it on a slow machine."""
PATIENCE_S = 120


def says(said: str, response: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"match": {"userMessage": said}, "response": response, **fields}


def tells(name: str) -> list[dict[str, Any]]:
    """Slowly when it is asked for the first time, and at once from then on."""
    said = f"a story for {name}"
    first = {"match": {"userMessage": said, "sequenceIndex": 0}, "response": {"content": LETTERS}, **SLOW}
    return [first, says(said, {"content": LETTERS})]


FIXTURES: list[dict[str, Any]] = [
    {
        "match": {"userMessage": "weather", "hasToolResult": False},
        "response": {"toolCalls": [{"name": "look", "arguments": {"city": c}} for c in ("Oslo", "Bergen")]},
    },
    {"match": {"userMessage": "weather", "hasToolResult": True}, "response": {"content": "Rain in both."}},
    {"match": {"userMessage": "And so?"}, "response": {"content": "Take a coat."}},
    says("cut", {"content": "This is a trunca", "finishReason": "length"}),
    says(
        "ratelimit",
        {"error": {"message": "Rate limited", "type": "rate_limit_error", "code": "rate_limit"}, "status": 429, "retryAfter": 2},
    ),
    says("drop", {"content": LETTERS}, chunkSize=5, latency=20, truncateAfterChunks=4),
    says(
        "think",
        {
            "content": "So.",
            "reasoning": "Hm.",
            "reasoningSignature": "sig",
            "redactedThinking": ["blacked"],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "input_tokens": 11, "output_tokens": 7},
        },
    ),
    *tells("openai"),
    *tells("anthropic"),
    says("slow", {"content": LETTERS}, **SLOW),
    says("hello", {"content": "Hi there! How are you today?"}, chunkSize=5),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """aimock, listening on a port of its own."""
    folder = tmp_path_factory.mktemp("aimock")
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": FIXTURES}), encoding="utf-8")
    program = ROOT / ".venv" / "npm" / "node_modules" / ".bin" / "llmock"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program, "-p", "0", "-f", str(folder)], stdout=log, stderr=log)
        try:
            yield address_in(folder / "log", server)
        finally:
            server.terminate()
            server.wait(PATIENCE_S)


def address_in(log: Path, server: subprocess.Popen[bytes]) -> str:
    """Where it says that it listens, on a port that nobody could take before it."""
    end = time.monotonic() + PATIENCE_S
    while (found := re.search(r"listening on (http://\S+)", said := log.read_text(encoding="utf-8"))) is None:
        assert server.poll() is None and time.monotonic() < end, said
        time.sleep(0.05)
    return found[1]


def adapter(kind: Kind, url: str, **options: Any) -> Model:
    return kind(key="sk-test-0123456789", base_url=f"{url}/v1" if kind is OpenAI else url, **options)


@asynccontextmanager
async def agent(kind: Kind, url: str, **options: Any) -> AsyncGenerator[AgentRef[Any]]:
    plain: Agent[Any, Any] = Agent("planner", model="real:large", plugins=())
    planner = plain.replace(**options)
    async with System.open(":memory:", agents=[planner], models={"real": adapter(kind, url, provider="real")}) as system:
        yield await system.spawn(planner, id="t")
        assert (await verify(system.store)).ok


@tool(replay="safe", mode="parallel")
async def look(city: str) -> str:
    """Look at a city."""
    return f"{city}: rain"


async def read(model: Model, said: str) -> list[Chunk]:
    request = Request(model.provider, "large", messages=(Message("m", "user", (TextBlock(said),)),))
    return [chunk async for chunk in model.stream(request)]


@BOTH
async def test_it_keeps_every_rule(kind: Kind, url: str) -> None:
    model = adapter(kind, url)
    await check_model(model, "large", failures={"ratelimit": "RATE_LIMIT", "drop": "TRANSPORT"})
    await model.aclose()


@BOTH
async def test_a_stream_comes_in_pieces_and_a_cap_says_so(kind: Kind, url: str) -> None:
    model = adapter(kind, url)
    pieces = [chunk.text for chunk in await read(model, "hello") if isinstance(chunk, TextDelta)]
    assert "".join(pieces) == "Hi there! How are you today?" and len(pieces) > 3
    (last,) = [chunk for chunk in await read(model, "cut") if isinstance(chunk, FinishChunk)]
    assert last.reason == "max-tokens"
    await model.aclose()


@BOTH
async def test_a_limit_says_when_to_come_again(kind: Kind, url: str) -> None:
    model = adapter(kind, url)
    with pytest.raises(ModelError, match="Rate limited") as caught:
        await read(model, "ratelimit")
    error = caught.value
    assert (error.code, error.status, error.retry_after_s) == ("RATE_LIMIT", 429, 2) and error.request_id
    await model.aclose()


@BOTH
async def test_thoughts_come_with_their_signature_go_back_and_are_counted(kind: Kind, url: str) -> None:
    async with agent(kind, url) as ref:
        outcome = await ref.ask("think")
        assert (outcome.text, outcome.usage.input, outcome.usage.output) == ("So.", 11, 7)
        thoughts = [b for b in (await ref.messages())[1].content if isinstance(b, ReasoningBlock)]
        if kind is OpenAI:
            assert thoughts == [ReasoningBlock("Hm.")]
        else:
            blacked = ReasoningBlock("", meta={"anthropic": {"redacted": "blacked"}})
            assert sorted(thoughts, key=lambda b: b.text) == [blacked, ReasoningBlock("Hm.", "sig")]
        assert (await ref.ask("think")).ok


@BOTH
async def test_an_agent_takes_a_round_of_tools(kind: Kind, url: str) -> None:
    async with agent(kind, url, tools=[look]) as ref:
        outcome = await ref.ask("weather")
        assert (outcome.result(), outcome.steps) == ("Rain in both.", 2)
        results = {k: v for m in await ref.messages() for k, v in m.results.items()}
        assert sorted(results.values()) == ["Bergen: rain", "Oslo: rain"]


@BOTH
async def test_a_dropped_stream_is_tried_again_and_its_cost_is_a_failed_attempt(kind: Kind, url: str) -> None:
    async with agent(kind, url, plugins=[Retry(tries=2, first_s=0)]) as ref:
        outcome = await ref.ask("drop")
        assert isinstance(outcome.reason, e.Errored) and outcome.reason.error.code == "TRANSPORT"
        assert outcome.text.startswith("abcde")
        actions = [r.event.action async for r in ref.read() if isinstance(r.event, e.RequestFailed)]
        assert actions == ["retry", "raise"]


@BOTH
async def test_a_cancel_in_a_slow_stream_closes_the_socket_at_once_and_leaves_no_task(kind: Kind, url: str) -> None:
    async with agent(kind, url) as ref:
        await ref.ask("cut")
        tasks = trio.lowlevel.current_statistics().tasks_living
        before = connections(url)
        receipt = await ref.followup("slow")
        async for delta in ref.deltas(after=receipt.seq):
            assert delta.text == "a"
            break
        since = trio.current_time()
        await ref.cancel()
        outcome = await ref.outcome(receipt.message_id)
        assert outcome.reason.kind == "aborted" and LETTERS.startswith(outcome.text)
        assert trio.current_time() - since < 10, "the stream would have taken longer"
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert connections(url) <= before


def connections(url: str) -> int:
    """Open sockets of this process to the server."""
    port = int(url.rpartition(":")[2])
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            is_socket = os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
        except FileNotFoundError:
            continue  # the listing's own
        if is_socket:
            with socket.socket(fileno=os.dup(int(descriptor))) as copy:
                count += copy.family in (socket.AF_INET, socket.AF_INET6) and peer_of(copy) == port
    return count


def peer_of(connected: socket.socket) -> int:
    try:
        return int(connected.getpeername()[1])
    except OSError:
        return 0


@BOTH
async def test_a_kill_after_any_commit_is_recovered_from(kind: Kind, url: str) -> None:
    planner: Agent[Any, Any] = Agent("planner", model="real:large", tools=[look])

    async def scenario(store: Any) -> str:
        models = {"real": adapter(kind, url, provider="real")}
        async with System.open(store, agents=[planner], models=models) as system:
            return (await (await system.spawn(planner, id="t")).ask("weather", message_id="m1")).text

    async for crash in every_crash(scenario):
        assert crash.result == "Rain in both.", crash


@BOTH
async def test_a_process_killed_in_the_middle_of_a_stream_goes_on(kind: Kind, url: str, tmp_path: Path) -> None:
    program = f"from callboard import Agent\nteller = Agent('teller', model='{kind.provider}:large')\n"
    (tmp_path / "teller.py").write_text(program, encoding="utf-8")
    command = [str(Path(sys.executable).parent / "callboard"), "run", "state", "teller.py:teller"]
    command += [f"a story for {kind.provider}", "--message-id", "m1"]
    name, base = kind.provider.upper(), f"{url}/v1" if kind is OpenAI else url
    environment = {**os.environ, f"{name}_API_KEY": "sk-test-0123456789", f"{name}_BASE_URL": base}
    first = await trio.lowlevel.open_process(command, cwd=tmp_path, env=environment)
    try:
        await wait_for_chunks(tmp_path / "state")
    finally:
        first.kill()
        await first.wait()
    done = await trio.run_process(command, cwd=tmp_path, env=environment, capture_stdout=True, capture_stderr=True)
    assert done.stdout.decode().strip() == LETTERS, done.stderr
    async with open_store(tmp_path / "state", readonly=True) as store:
        assert (await verify(store)).ok
        failed = [r.event.failure.code async for r in store.read("teller") if isinstance(r.event, e.RequestFailed)]
    assert failed == ["INTERRUPTED"]


async def wait_for_chunks(state: Path) -> None:
    """Until some of the answer is on disk."""
    with trio.fail_after(PATIENCE_S):
        while True:
            await trio.sleep(0.05)
            with suppress(StoreError):  # it is only just being made
                async with open_store(state, readonly=True) as store:
                    if await store.head("teller") and [r async for r in store.read("teller", types={"assistant/chunk"})][3:]:
                        return
