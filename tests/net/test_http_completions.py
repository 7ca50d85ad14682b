"""Chat completions: OpenAI's own client talks to agents; sessions, streams, failures, repeats, and clients that leave."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import openai
import pytest
import trio
from openai import AsyncOpenAI
from trio.testing import wait_all_tasks_blocked
from web import Reply as Answer
from web import Web, browsing
from wired import make, scripted

from callboard import Agent, System, tool
from callboard.actors.plugins import Budget, Retry
from callboard.actors.testing import every_crash
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.net import Server, serve
from callboard.net.http.completions import BEAT_S
from callboard.storage.messages import Usage
from callboard.storage.verify import verify

TOKENS: dict[str, dict[str, Any]] = {"t-secret": {"scopes": ["read", "send"], "prefix": "acme/"}, "reader": {"scopes": ["read"]}}
HI: list[Any] = [{"role": "user", "content": "hi"}]


ABANDONS = pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning")
"""OpenAI's client leaves its own generators to the garbage collector when a stream has ended."""


@tool(replay="safe")
async def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


@asynccontextmanager
async def client_of(agent: Agent[Any, Any]) -> AsyncGenerator[tuple[AsyncOpenAI, System, Server]]:
    """OpenAI's client, over a real socket."""
    async with System.open(":memory:", agents=[agent]) as system, trio.open_nursery() as nursery:
        server: Server = await nursery.start(partial(serve, system, tokens=TOKENS))
        url = f"http://127.0.0.1:{server.port}/v1"
        async with AsyncOpenAI(base_url=url, api_key="t-secret", max_retries=0) as client:
            yield client, system, server
        nursery.cancel_scope.cancel()
        assert (await verify(system.store)).ok


async def ids(system: System) -> list[str]:
    return [agent.id async for agent in system.agents()]


# -- the real client


async def test_c228_openais_client_asks() -> None:
    async with client_of(make(scripted(Reply.text("hello", usage=Usage(5, 2, cache_read=3, reasoning=1))))) as (
        client,
        system,
        _,
    ):
        answer = await client.chat.completions.create(model="demo", messages=HI)
        assert answer.choices[0].message.content == "hello" and answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None and (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (8, 3)
        assert answer.usage.prompt_tokens_details is not None and answer.usage.prompt_tokens_details.cached_tokens == 3
        assert [id.startswith("acme/demo-") for id in await ids(system)] == [True]
        assert [model.id async for model in client.models.list()] == ["demo"]
        assert (await client.models.retrieve("demo")).owned_by == "callboard"
        with pytest.raises(openai.NotFoundError, match="no definition 'other'; it has demo"):
            await client.chat.completions.create(model="other", messages=HI)


@ABANDONS
async def test_c228_openais_client_streams_and_tools_stay_inside() -> None:
    replies = (
        Reply.text("Let me look.", parts=2, reasoning="hm"),
        Reply.tools(("c1", "weather", {"city": "Oslo"})),
        Reply.text("Take a coat.", parts=3),
    )
    agent = make(scripted(*replies[1:]), tools=[weather])
    async with client_of(agent) as (client, _, _):
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="demo", messages=HI, stream=True, stream_options={"include_usage": True}
            )
        ]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Take a coat."
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens > 0 and not chunks[-1].choices
        assert all(not c.choices[0].delta.tool_calls for c in chunks if c.choices)
        shown: list[Any] = [c.model_extra["callboard"] for c in chunks if c.model_extra and "callboard" in c.model_extra]
        assert shown == [{"tool": "weather"}]


@ABANDONS
async def test_c228_a_failed_turn_is_an_error_of_openai() -> None:
    model = scripted(Reply.fail("RATE_LIMIT", status=429), Reply.fail("SERVER"), "fine")
    async with client_of(make(model)) as (client, _, _):
        with pytest.raises(openai.RateLimitError, match="RATE_LIMIT"):
            await client.chat.completions.create(model="demo", messages=HI)
        with pytest.raises(openai.APIError, match="SERVER"):
            async for _ in await client.chat.completions.create(model="demo", messages=HI, stream=True):
                pass
        with pytest.raises(openai.PermissionDeniedError):
            await client.with_options(api_key="reader").chat.completions.create(model="demo", messages=HI)
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong").chat.completions.create(model="demo", messages=HI)
        answer = await client.chat.completions.create(model="demo", messages=HI)
        assert answer.choices[0].message.content == "fine"


async def test_openais_client_does_not_repeat_a_turn_that_has_failed() -> None:
    model = scripted(Reply.fail("SERVER"), "never")
    async with client_of(make(model)) as (client, system, _):
        with pytest.raises(openai.InternalServerError):
            await client.with_options(max_retries=5).chat.completions.create(model="demo", messages=HI)
        assert len(model.requests) == 1 and len(await ids(system)) == 1


async def test_a_user_is_a_session_and_only_what_is_new_is_sent() -> None:
    model = scripted("one", "two", "three")
    async with client_of(make(model)) as (client, system, _):
        create = partial(client.chat.completions.create, model="demo")
        await create(messages=HI, user="ann")
        told: list[Any] = [*HI, {"role": "assistant", "content": "one"}, {"role": "user", "content": "again"}]
        answer = await create(messages=told, user="ann")
        assert answer.choices[0].message.content == "two"
        assert [m.text for m in model.requests[1].messages] == ["hi", "one", "again"]
        headers = {"x-callboard-session": "acme/demo/ann"}
        await create(messages=[{"role": "user", "content": "and"}], extra_headers=headers)
        assert await ids(system) == ["acme/demo/ann"] and len(model.requests[2].messages) == 5
        with pytest.raises(openai.PermissionDeniedError):
            await create(messages=HI, extra_headers={"x-callboard-session": "zeta/1"})


async def test_without_a_session_the_conversation_is_what_the_client_says_it_was() -> None:
    model = scripted("ok")
    async with client_of(make(model, system="Be brief.")) as (client, _, _):
        messages: list[Any] = [
            {"role": "system", "content": "The user is called Ann."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": [{"type": "text", "text": "Who am I?"}]},
            {"role": "user", "content": "Quick."},
        ]
        await client.chat.completions.create(model="demo", messages=messages)
        seen = [(m.role, m.text) for m in model.requests[0].messages]
        assert seen == [
            ("user", "The user is called Ann."),
            ("user", "hi"),
            ("assistant", "hello"),
            ("user", "Who am I?Quick."),
        ]
        assert model.requests[0].system == "Be brief."


# -- what a client hears, word by word


async def chat(web: Web, headers: dict[str, str] | None = None, **more: Any) -> Answer:
    return await web.post("/v1/chat/completions", {"model": "demo", "messages": HI, **more}, **(headers or {}))


def events(answer: Answer) -> list[Any]:
    """The data of server-sent events."""
    lines = [line for line in answer.body.decode().split("\n\n") if line.startswith("data: ")]
    return [line if line.endswith("[DONE]") else json.loads(line.removeprefix("data: ")) for line in lines]


def said(answer: Answer) -> str:
    found = [event["choices"][0]["delta"].get("content", "") for event in events(answer)[:-1] if event.get("choices")]
    return "".join(found)


async def test_a_stream_ends_with_its_reason_and_done(autojump_clock: object) -> None:
    async with browsing(make(scripted(Reply.text("abc", parts=3), Reply.max_tokens("half")))) as web:
        answer = await chat(web, stream=True)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-callboard-agent"].startswith("demo-")
        found = events(answer)
        assert [event["choices"][0]["delta"] for event in found[:-1]] == [
            {"role": "assistant", "content": ""},
            {"content": "a"},
            {"content": "b"},
            {"content": "c"},
            {},
        ]
        assert found[-2]["choices"][0]["finish_reason"] == "stop" and found[-1] == "data: [DONE]"
        cut = await chat(web)
        assert cut.json["choices"][0]["finish_reason"] == "length" and cut.json["choices"][0]["message"]["content"] == "half"


async def test_steps_and_attempts_are_told_apart(autojump_clock: object) -> None:
    model = scripted(
        Reply.tools(("c1", "weather", {"city": "Oslo"})),
        Reply.fail("SERVER", after="It is "),
        Reply.text("It rains.", reasoning="hm"),
    )
    async with browsing(make(model, tools=[weather], plugins=[Retry()])) as web:
        answer = await chat(web, stream=True)
        assert said(answer) == "It is \n\nIt rains."
        shown = [event["callboard"] for event in events(answer)[:-1] if "callboard" in event]
        assert shown == [{"tool": "weather"}, {"discard": True}]
        reasoning = [event["choices"][0]["delta"].get("reasoning_content") for event in events(answer)[:-1]]
        assert "hm" in reasoning


async def test_a_quiet_stream_says_that_somebody_is_there(autojump_clock: object) -> None:
    async with browsing(make(scripted(Reply.hang("so"), "later"))) as web, web.line() as line:
        body = json.dumps({"model": "demo", "messages": HI, "stream": True, "user": "u"}).encode()
        await line.send("POST", "/v1/chat/completions", body, content_type="application/json")
        begun, heard = trio.current_time(), b""
        while b": waiting" not in heard:
            heard += await line.stream.receive_some()
        assert trio.current_time() - begun == pytest.approx(BEAT_S, abs=1)
        await (await web.system.get("demo/u")).cancel()
        while b"aborted" not in heard:
            heard += await line.stream.receive_some()
        assert b"[DONE]" not in heard


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (Reply.fail("RATE_LIMIT", status=429, retry_after_s=2.5), 429, "RATE_LIMIT"),
        (Reply.fail("CONTEXT_OVERFLOW"), 400, "CONTEXT_OVERFLOW"),
        (Reply.fail("SERVER"), 502, "SERVER"),
    ],
)
async def test_a_failed_turn_has_a_status(autojump_clock: object, reply: Reply, status: int, code: str) -> None:
    async with browsing(make(scripted(reply, reply))) as web:
        answer = await chat(web)
        assert (answer.status, answer.error["code"]) == (status, code)
        assert answer.headers["x-should-retry"] == "false"
        assert answer.headers.get("retry-after") == ("3" if status == 429 else None)
        streamed = events(await chat(web, stream=True))
        assert streamed[-1]["error"]["code"] == code


async def test_a_turn_at_its_limit_says_which(autojump_clock: object) -> None:
    model = scripted(Reply.tools(("c1", "weather", {"city": "Oslo"})), "never")
    async with browsing(make(model, tools=[weather], plugins=[Budget(steps=1)])) as web:
        answer = await chat(web)
        assert (answer.status, answer.error["code"], answer.error["type"]) == (429, "limit_steps", "rate_limit_error")


async def test_the_same_key_has_the_same_answer(autojump_clock: object) -> None:
    model = scripted("once")
    async with browsing(make(model)) as web:
        first = await chat(web, {"idempotency_key": "k1"})
        again = await chat(web, {"idempotency_key": "k1"})
        streamed = await chat(web, {"idempotency_key": "k1"}, stream=True)
        assert first.json["choices"] == again.json["choices"] and first.json["id"] == again.json["id"] == "chatcmpl-k1"
        assert said(streamed) == "once" and len(model.requests) == 1


async def test_who_leaves_loses_the_answer_and_not_the_work(autojump_clock: object) -> None:
    model = scripted(Reply.hang("so far"), Reply.hang("so far"))
    async with browsing(make(model)) as web:
        for user, header in (("stays", "detach"), ("goes", "cancel")):
            async with web.line() as line:
                body = json.dumps({"model": "demo", "messages": HI, "user": user}).encode()
                more = {"content_type": "application/json", "x_callboard_on_disconnect": header}
                await line.send("POST", "/v1/chat/completions", body, **more)
                await wait_all_tasks_blocked()
            await wait_all_tasks_blocked()
        assert (await web.system.get("demo/stays")).status == "running"
        gone = await web.system.get("demo/goes")
        await gone.wait_idle()
        assert (await gone.outcome(turn=1)).reason.kind == "aborted"
        assert not web.server.site.waiting
        await (await web.system.get("demo/stays")).cancel()
        assert (await chat(web, {"x_callboard_on_disconnect": "maybe"})).status == 400


async def test_who_leaves_a_stream(autojump_clock: object) -> None:
    async with browsing(make(scripted(Reply.hang("so far")))) as web:
        async with web.line() as line:
            body = json.dumps({"model": "demo", "messages": HI, "user": "u", "stream": True}).encode()
            more = {"content_type": "application/json", "x_callboard_on_disconnect": "cancel"}
            await line.send("POST", "/v1/chat/completions", body, **more)
            while b"so far" not in await line.stream.receive_some():
                pass
        gone = await web.system.get("demo/u")
        await gone.wait_idle()
        assert (await gone.outcome(turn=1)).reason.kind == "aborted"


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "nothing to answer"),
    ({"messages": [{"role": "assistant", "content": "hi"}]}, "nothing to answer"),
    ({"messages": [{"role": "user", "content": ""}]}, "nothing to answer"),
    ({"messages": [{"role": "tool", "content": "x"}, *HI]}, "tool calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}, *HI]}, "tool calls"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "'input_audio' cannot be taken"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x,y"}}]}]}, "base64"),
    ({"tools": [{"type": "function"}]}, "own tools"),
    ({"n": 2}, "one answer"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
]


@pytest.mark.parametrize(("more", "says"), BROKEN)
async def test_what_cannot_be_kept_is_not_promised(autojump_clock: object, more: dict[str, Any], says: str) -> None:
    async with browsing(make(scripted())) as web:
        answer = await chat(web, **more)
        assert answer.status == 400 and answer.error["type"] == "invalid_request_error"
        assert says in answer.error["message"]
        assert await ids(web.system) == []


async def test_a_picture_comes_along(autojump_clock: object) -> None:
    model = scripted("a dot")
    async with browsing(make(model)) as web:
        url = "data:image/png;base64,aGVsbG8="
        parts: list[Any] = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
        assert (await chat(web, messages=[{"role": "user", "content": parts}])).status == 200
        image = model.requests[0].messages[0].content[1]
        assert getattr(image, "media_type", None) == "image/png"


async def test_a_closing_service_lets_go_of_who_waits(autojump_clock: object) -> None:
    async with browsing(make(scripted(Reply.hang("so far")))) as web, web.line() as line:
        body = json.dumps({"model": "demo", "messages": HI, "user": "u"}).encode()
        await line.send("POST", "/v1/chat/completions", body, content_type="application/json")
        await wait_all_tasks_blocked()
        web.server.site.let_go()
        answer = await line.answer()
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        ref = await web.system.get("demo/u")
        assert ref.status == "running"
        await ref.cancel()


async def test_a_request_that_is_repeated_after_a_kill_is_answered_once() -> None:
    """Killed after every commit, started again, and asked again under the same key: one agent, one turn, one answer."""

    @tool(replay="never")
    async def book(city: str) -> str:
        """Book it."""
        return "booked"

    def answer(request: Any) -> Reply:
        last = request.messages[-1]
        return Reply.text(f"It is {last.text}.") if last.role == "tool" else Reply.tools(("c1", "book", {"city": "Oslo"}))

    agent = make(ScriptedModel(answer), tools=[book])

    async def scenario(store: Any) -> Any:
        async with browsing(agent, store=store) as web:
            found = await chat(web, {"idempotency_key": "k1"})
            agents = await ids(web.system)
            turns = [(await (await web.system.get(id)).info()).turn for id in agents]
            return found.json["choices"][0]["message"]["content"], turns

    seen: set[str] = set()
    async for crash in every_crash(scenario):
        text, turns = crash.result
        assert turns == [1] and (text == "It is booked." or "unknown" in text), crash
        seen.add(text)
    assert len(seen) == 2, "cut before the call, and in it"
