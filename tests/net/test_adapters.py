"""The adapters against a server on this machine: every rule of `check_model`, turns of agents, failures, cancellation, keys."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import traceback
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from providers import ANSWER, Provider, provider

from callboard import Agent, Limits, System, run_sync, tool
from callboard.actors import AgentRef, Model, ModelError
from callboard.actors.testing import check_model, every_crash
from callboard.net.adapters import Anthropic, OpenAI
from callboard.storage import events as e
from callboard.storage import verify
from callboard.storage.messages import (
    Chunk,
    FinishChunk,
    Message,
    ReasoningBlock,
    Request,
    Settings,
    TextBlock,
    ToolCallBlock,
    Usage,
    UsageChunk,
)

KEY = "sk-secret-0123456789"
BOTH = pytest.mark.parametrize("kind", [OpenAI, Anthropic], ids=["openai", "anthropic"])
Kind = type[OpenAI] | type[Anthropic]


def adapter(kind: Kind, server: Provider, **options: Any) -> Model:
    url = f"{server.url}/v1" if kind is OpenAI else server.url
    return kind(key=KEY, base_url=url, schema=True, **options)


@asynccontextmanager
async def opened(kind: Kind) -> AsyncGenerator[tuple[Provider, Model]]:
    async with provider() as server:
        model = adapter(kind, server)
        yield server, model
        await model.aclose()


@asynccontextmanager
async def agent(kind: Kind, **options: Any) -> AsyncGenerator[tuple[Provider, AgentRef[Any]]]:
    async with opened(kind) as (server, model):
        planner: Agent[Any, Any] = Agent("planner", model=model.named("large"), plugins=(), **options)
        async with System.open(":memory:", agents=[planner]) as system:
            yield server, await system.spawn(planner, id="t")
            assert (await verify(system.store)).ok


def asking(model: Model, said: str) -> Request:
    return Request(model.provider, "large", messages=(Message("m", "user", (TextBlock(said),)),))


async def read(model: Model, said: str) -> list[Chunk]:
    return [chunk async for chunk in model.stream(asking(model, said))]


@tool(replay="safe", mode="parallel")
async def look(city: str) -> str:
    """Look at a city."""
    return f"{city}: rain"


# -- the contract


@BOTH
async def test_it_keeps_every_rule(kind: Kind) -> None:
    failures = {
        "fail with 401": "AUTH",
        "fail with 429": "RATE_LIMIT",
        "fail with 500": "SERVER",
        "overflow": "CONTEXT_OVERFLOW",
        "drop": "TRANSPORT",
        "error inside": "SERVER",
        "empty": "EMPTY_RESPONSE",
        "unheard": "BAD_RESPONSE",
        "page": "BAD_RESPONSE",
    }
    async with opened(kind) as (server, model):
        await check_model(model, "large", failures=failures)
        await trio.testing.wait_all_tasks_blocked()
        assert server.open == 0


@BOTH
async def test_a_cut_that_the_transport_does_not_notice_is_one(kind: Kind) -> None:
    async with opened(kind) as (_, model):
        if kind is OpenAI:
            assert await read(model, "no end")  # its finish was there, and only the mark of the end is missing
        else:
            with pytest.raises(ModelError, match="in the middle of the answer") as caught:
                await read(model, "no end")
            assert caught.value.code == "TRANSPORT"


@BOTH
async def test_usage_is_told_in_disjoint_counts(kind: Kind) -> None:
    async with opened(kind) as (_, model):
        last = [c.usage for c in await read(model, "hello") if isinstance(c, UsageChunk)][-1]
        assert last == (Usage(7, 3, 3, 0, 1) if kind is OpenAI else Usage(7, 3, 3, 2, 1))


# -- turns of an agent


@BOTH
async def test_an_agent_calls_tools_in_parallel_and_reads_their_results(kind: Kind) -> None:
    async with agent(kind, system="Be brief.", tools=[look]) as (server, ref):
        assert (await ref.ask("look")).result() == "hello"
        first, second = server.asked
        if kind is OpenAI:
            assert first["messages"][0] == {"role": "system", "content": "Be brief."}
            assert [c["function"] for c in second["messages"][2]["tool_calls"]] == [
                {"name": "look", "arguments": '{"city":"Oslo"}'}
            ] * 2
            assert [(m["tool_call_id"], m["content"]) for m in second["messages"][3:]] == [
                ("c0", "Oslo: rain"),
                ("c1", "Oslo: rain"),
            ]
        else:
            assert first["system"] == "Be brief."
            assert [b["input"] for b in second["messages"][1]["content"]] == [{"city": "Oslo"}] * 2
            assert [b["tool_use_id"] for b in second["messages"][2]["content"]] == ["c0", "c1"]
        (call,) = [m for m in await ref.messages() if m.calls]
        assert [c.id for c in call.calls] == ["c0", "c1"]


@BOTH
async def test_thoughts_are_kept_and_given_back_only_where_they_are_signed(kind: Kind) -> None:
    async with agent(kind) as (server, ref):
        assert (await ref.ask("think")).text == "hello"
        blocks = (await ref.messages())[1].content
        assert blocks[0] == ReasoningBlock("Hmm.", "sig" if kind is Anthropic else None) and [
            b.text for b in blocks if isinstance(b, TextBlock)
        ] == ["hello"]
        await ref.ask("and?")
        sent = server.asked[1]["messages"][-2]["content"]
        if kind is OpenAI:
            assert sent == "hello"
        else:
            assert sent == [
                {"type": "thinking", "thinking": "Hmm.", "signature": "sig"},
                {"type": "redacted_thinking", "data": "blacked"},
                {"type": "text", "text": "hello"},
            ]


@BOTH
async def test_a_refusal_ends_the_turn_and_a_cap_says_so(kind: Kind) -> None:
    async with agent(kind) as (_, ref):
        refused = await ref.ask("refuse")
        assert (refused.reason.kind, refused.text) == ("completed", "I cannot." if kind is OpenAI else "")
        assert (await ref.ask("long")).reason.kind == "max-tokens"
        finishes = [r.event.finish async for r in ref.read() if isinstance(r.event, e.AssistantMessage)]
        assert finishes == ["refusal", "max-tokens"]


class Word(msgspec.Struct):
    word: str


@BOTH
async def test_typed_output_goes_by_the_providers_schema(kind: Kind) -> None:
    async with agent(kind, output=Word) as (server, ref):
        assert (await ref.ask("Say a word.")).result() == Word("hello")
        asked = server.asked[0]
        made = asked["response_format"]["json_schema"] if kind is OpenAI else asked["output_config"]["format"]
        assert made["schema"]["required"] == ["word"] and made["schema"]["additionalProperties"] is False
        assert "tools" not in asked and ANSWER == '{"word":"hello"}'


@BOTH
async def test_a_failure_of_the_provider_is_one_of_the_turn(kind: Kind) -> None:
    async with agent(kind) as (_, ref):
        reason = (await ref.ask("fail with 429")).reason
        assert isinstance(reason, e.Errored)
        failure = reason.error
        assert (failure.code, failure.message, failure.status) == ("RATE_LIMIT", "no, fail with 429", 429)
        assert (failure.retry_after_s, failure.request_id) == (2, "r-7")


@BOTH
async def test_a_cancel_closes_the_socket_at_once_and_leaves_no_task(kind: Kind) -> None:
    async with agent(kind) as (server, ref):
        await ref.ask("hello")
        tasks, sockets = trio.lowlevel.current_statistics().tasks_living, len(os.listdir("/proc/self/fd"))
        receipt = await ref.followup("wait")
        async for delta in ref.deltas(after=receipt.seq):
            assert delta.text == "hel"
            await ref.cancel()
            break
        await server.gone.wait()
        outcome = await ref.outcome(receipt.message_id)
        assert outcome.reason.kind == "aborted" and outcome.text == "hel"
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert len(os.listdir("/proc/self/fd")) == sockets


@BOTH
async def test_a_silence_that_is_too_long_is_a_failure_and_closes_the_socket(kind: Kind) -> None:
    async with agent(kind, limits=Limits(chunk_gap_s=0.05)) as (server, ref):
        outcome = await ref.ask("wait")
        assert isinstance(outcome.reason, e.Errored)
        assert (outcome.reason.error.code, outcome.text) == ("TIMEOUT", "hel")
        await server.gone.wait()


@BOTH
async def test_a_stream_that_is_closed_half_read_leaves_nothing_to_the_garbage_collector(kind: Kind) -> None:
    async with opened(kind) as (server, model):
        await read(model, "hello")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            stream: Any = model.stream(asking(model, "wait"))
            while not isinstance(chunk := await anext(stream), FinishChunk):
                if getattr(chunk, "text", "") == "hel":
                    break
            await stream.aclose()
            del stream
            gc.collect()
            await trio.testing.wait_all_tasks_blocked()
        assert [str(w.message) for w in caught if issubclass(w.category, ResourceWarning)] == []
        await server.gone.wait()


@BOTH
async def test_a_turn_goes_on_after_a_kill_at_any_commit(kind: Kind) -> None:
    async with provider() as server:
        planner: Agent[Any, Any] = Agent("planner", model="real:large", tools=[look])

        async def scenario(store: Any) -> tuple[str, str]:
            model = adapter(kind, server, provider="real")
            async with System.open(store, agents=[planner], models={"real": model}) as system:
                ref = await system.spawn(planner, id="t")
                outcome = await ref.ask("look", message_id="m1")
                return outcome.text, outcome.reason.kind

        async for crash in every_crash(scenario):
            assert crash.result == ("hello", "completed"), crash


# -- the adapter alone


@BOTH
async def test_it_can_be_closed_and_used_again(kind: Kind) -> None:
    async with opened(kind) as (_, model):
        await read(model, "hello")
        await model.aclose()
        assert await read(model.named("other"), "hello")


@BOTH
def test_it_serves_one_run_after_the_other_though_nobody_closed_it(kind: Kind) -> None:
    models: list[Model] = []
    port = 0

    async def once() -> list[Chunk]:
        nonlocal port
        async with provider(port) as server:
            port = int(server.url.rpartition(":")[2])
            models.append(models[0] if models else adapter(kind, server))
            return await read(models[-1], "hello")

    assert trio.run(once) == trio.run(once)
    assert models[0] is models[1]


@BOTH
async def test_the_name_of_a_model_is_enough_also_in_a_run_of_its_own(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    async with provider() as server:
        name = kind.provider.upper()
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
        monkeypatch.setenv(f"{name}_BASE_URL", f"{server.url}/v1" if kind is OpenAI else server.url)
        hello: Agent[Any, str] = Agent("hello", model=f"{kind.provider}:large", system="Be brief.", tools=[look])
        assert await trio.to_thread.run_sync(lambda: run_sync(hello, "look").result()) == "hello"
        assert [asked["model"] for asked in server.asked] == ["large", "large"]


@BOTH
async def test_keys_are_in_no_error_no_log_and_no_repr(
    kind: Kind, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_LOG", "debug")
    with caplog.at_level(logging.DEBUG):
        async with opened(kind) as (server, model):
            await read(model, "hello")
            with pytest.raises(ModelError) as caught:
                await read(model, "fail with 401")
            assert KEY in f"{server.heads[0]}", "it was sent"
            assert "provided" in str(caught.value)
            assert KEY not in f"{model!r} {vars(model)} {''.join(traceback.format_exception(caught.value))}"
    assert KEY not in caplog.text


@BOTH
async def test_no_server_is_sent_the_key_of_another(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("MY_OWN_API_KEY", "sk-own-0123456789")
    async with provider() as server:
        url = f"{server.url}/v1" if kind is OpenAI else server.url
        for name in ("other", "my.own", kind.provider):
            model = kind(base_url=url, provider=name)
            await read(model, "hello")
            await model.aclose()
        sent = [head.get("x-api-key") or head["authorization"].removeprefix("Bearer ") for head in server.heads]
        assert sent == ["unused", "sk-own-0123456789", KEY]


@BOTH
async def test_a_server_that_is_not_there_is_a_transport_failure(kind: Kind) -> None:
    model = kind(key=KEY, base_url="http://127.0.0.1:9", provider="nowhere")
    with pytest.raises(ModelError, match="the connection to nowhere failed: ") as caught:
        await read(model, "hello")
    assert caught.value.code == "TRANSPORT" and caught.value.transient
    await model.aclose()


@BOTH
async def test_without_a_key_one_sentence_says_what_to_set(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    model = kind()
    planner: Agent[Any, Any] = Agent("planner", model=f"{model.provider}:large")
    async with System.open(":memory:", agents=[planner]) as system:
        outcome = await (await system.spawn(planner, id="t")).ask("hello")
        assert isinstance(outcome.reason, e.Errored)
        assert outcome.reason.error.code == "AUTH"
        assert outcome.reason.error.message == (
            f"there is no key for {model.provider!r}: set {model.provider.upper()}_API_KEY in the environment, "
            f"or pass {kind.__name__}(key=...)"
        )


@BOTH
async def test_without_the_sdk_the_extra_is_named(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> object | None:
        return None if name in ("openai", "anthropic") else object()

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(ModelError, match=rf"pip install 'callboard\[{kind.provider}\]'") as caught:
        await read(kind(key=KEY), "hello")
    assert caught.value.code == "NO_ADAPTER", "a batch does not count it, and tries again once the package is there"


@BOTH
async def test_settings_of_the_agents_own_may_not_take_over(kind: Kind) -> None:
    model = kind(key=KEY)
    refused: list[tuple[Any, str]] = [({"messages": []}, "sets 'messages'"), ([1], "give a mapping")]
    for extra, says in refused:
        request = msgspec.structs.replace(asking(model, "hi"), settings=Settings(extra={model.provider: extra}))
        with pytest.raises(ModelError, match=says) as caught:
            model.prepare(request)
        assert caught.value.code == "BAD_REQUEST"


async def test_a_client_of_ones_own_is_used_without_its_retries_and_stays_open() -> None:
    import openai

    async with provider() as server, openai.AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1", max_retries=3) as client:
        model = OpenAI(client=client)
        with pytest.raises(ModelError):
            await read(model, "fail with 429")
        assert len(server.asked) == 1
        await model.aclose()
        assert not client.is_closed()
        assert server.asked[0]["stream"] is True


async def test_calls_of_two_pieces_come_out_whole() -> None:
    async with agent(OpenAI) as (_, ref):
        outcome = await ref.ask("look")  # the agent has no such tool: what matters is what it asked for
        assert outcome.ok
        calls = [b for m in await ref.messages() for b in m.content if isinstance(b, ToolCallBlock)]
        assert [(b.id, b.arguments) for b in calls] == [("c0", '{"city":"Oslo"}'), ("c1", '{"city":"Oslo"}')]
