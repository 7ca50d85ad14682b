"""Providers that do not exist: one small HTTP server that speaks chat completions and messages, for the tests of the adapters.

What it does depends on what it is told: "fail with 429" fails, "look" calls a tool twice in pieces, "drop" breaks off in the
middle, "babble" is no HTTP, "wait" says half and then nothing. Each connection serves one request, or as many as `keeps` says,
and drops the next.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

Body = dict[str, Any]
ANSWER = '{"word":"hello"}'


class Provider:
    """Where it listens, what it was asked, and how many connections are open."""

    def __init__(self) -> None:
        self.url = ""
        self.keeps: int | None = None
        """So many requests get an answer on each connection, and the one after them an end."""
        self.asked: list[Body] = []
        self.heads: list[dict[str, str]] = []
        self.open = 0
        self.gone = trio.Event()
        """Set when a connection was closed by the other side while it waited."""

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection."""
        self.open += 1
        try:
            with suppress(trio.BrokenResourceError):  # the other side has gone: a cut stream is its right
                for number in range(1 if self.keeps is None else self.keeps + 1):
                    path, head, body = await _read(stream)
                    self.heads.append(head)
                    self.asked.append(body)
                    if number != self.keeps:
                        await self._answer(stream, path, body)
                    if last_said(body) == "drop":
                        break
        finally:
            await trio.aclose_forcefully(stream)
            self.open -= 1

    async def _answer(self, stream: trio.SocketStream, path: str, body: Body) -> None:
        said = last_said(body)
        openai = path.endswith("/chat/completions")
        if status := _status(said):
            await stream.send_all(_failure(status, said, openai, self.heads[-1]))
            return
        if said == "babble":
            await stream.send_all(b"this is no answer\r\n\r\n")
            return
        kind = "text/html" if said == "page" else "text/event-stream"
        how = "close" if self.keeps is None else "keep-alive"
        await stream.send_all(
            f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\nconnection: {how}\r\n\r\n".encode()
        )
        for event in chat_events(said, body) if openai else message_events(said, body):
            await _send(stream, event)
        if said == "wait":
            try:
                await stream.receive_some()
            finally:
                self.gone.set()
        elif said != "drop":
            await stream.send_all(b"0\r\n\r\n")


async def _send(stream: trio.SocketStream, event: str) -> None:
    data = event.encode()
    await stream.send_all(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def last_said(body: Body) -> str:
    """The text of the last message of the user's, results left out."""
    content: Any = body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return next((part["text"] for part in reversed(content) if part["type"] == "text"), "")


def _status(said: str) -> int:
    return 400 if said == "overflow" else int(said.split()[-1]) if said.startswith("fail with ") else 0


def _failure(status: int, said: str, openai: bool, asked: dict[str, str]) -> bytes:
    error: Body = {"type": "rate_limit_error" if status == 429 else "invalid_request_error", "message": f"no, {said}"}
    if status == 401:
        error["message"] = f"Incorrect API key provided: {asked.get('authorization') or asked.get('x-api-key')}"
    if said == "overflow":
        error["message"] = "prompt is too long: 250000 tokens > 200000 maximum"
        error |= {"code": "context_length_exceeded", "message": "too much"} if openai else {}
    body = json.dumps({"error": error} if openai else {"type": "error", "error": error}).encode()
    head = f"HTTP/1.1 {status} No\r\nretry-after: 2\r\nx-request-id: r-7\r\nrequest-id: r-7\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


# -- chat completions


def chat_events(said: str, body: Body) -> Iterator[str]:
    """The stream of an answer to `said`, event by event."""
    for chunk in _chat_chunks(said, body):
        yield f"data: {json.dumps(chunk)}\n\n"
    if said not in ("drop", "wait", "no end"):
        yield "data: [DONE]\n\n"


def _chat_chunks(said: str, body: Body) -> Iterator[Body]:
    yield _chat({"role": "assistant", "content": ""})
    if said == "think":
        yield _chat({"reasoning_content": "Hm"})
        yield _chat({"reasoning_content": "m."})
    if said == "look":
        yield from _chat_calls()
    elif said == "refuse":
        yield _chat({"refusal": "I cannot."})
    elif said != "empty":
        for piece in _pieces(said, body):
            yield _chat({"content": piece})
    if said in ("drop", "wait"):
        return
    if said == "error inside":
        yield {"error": {"message": "The server is overloaded", "type": "server_error"}}
        return
    words = {"look": "tool_calls", "long": "length", "filter": "content_filter", "unheard": "tired"}
    yield _chat({}, words.get(said, "stop"))
    details: Body = {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 1}}
    yield {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14, **details}}


def _chat(delta: Body, finish: str | None = None) -> Body:
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _chat_calls() -> Iterator[Body]:
    """Two calls whose pieces come in turns."""
    for index in (0, 1):
        function = {"name": "look", "arguments": ""}
        yield _chat({"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]})
    for piece in ('{"city":', '"Oslo"}'):
        for index in (0, 1):
            yield _chat({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


def _pieces(said: str, body: Body) -> list[str]:
    if "response_format" in body or "format" in body.get("output_config", {}):
        return [ANSWER[:5], ANSWER[5:]]
    return ["hel"] if said in ("drop", "wait") else ["hel", "lo"]


# -- messages


def message_events(said: str, body: Body) -> Iterator[str]:
    """The stream of an answer to `said`, event by event."""
    for event in _message_parts(said, body):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _message_parts(said: str, body: Body) -> Iterator[Body]:
    usage = {"input_tokens": 7, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2, "output_tokens": 1}
    yield {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage}}
    yield {"type": "ping"}
    if said == "think":
        yield from _block(0, {"type": "thinking", "thinking": "", "signature": ""}, [*_thoughts("Hm", "m."), _signed("sig")])
        yield from _block(1, {"type": "redacted_thinking", "data": "blacked"}, [])
    if said == "look":
        for index in (2, 3):
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"city":', '"Oslo"}')]
            yield from _block(index, {"type": "tool_use", "id": f"c{index - 2}", "name": "look", "input": {}}, deltas)
    elif said not in ("empty", "refuse"):
        whole = said not in ("drop", "wait")
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(said, body)]
        yield from _block(4, {"type": "text", "text": ""}, deltas, ends=whole)
    if said in ("drop", "wait", "no end"):
        return
    if said == "error inside":
        yield {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        return
    words = {"look": "tool_use", "long": "max_tokens", "refuse": "refusal", "unheard": "tired"}
    totals = {"output_tokens": 4, "output_tokens_details": {"thinking_tokens": 1}}
    yield {"type": "message_delta", "delta": {"stop_reason": words.get(said, "end_turn")}, "usage": totals}
    yield {"type": "message_stop"}


def _block(index: int, block: Body, deltas: list[Body], *, ends: bool = True) -> Iterator[Body]:
    yield {"type": "content_block_start", "index": index, "content_block": block}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    if ends:
        yield {"type": "content_block_stop", "index": index}


def _thoughts(*pieces: str) -> list[Body]:
    return [{"type": "thinking_delta", "thinking": piece} for piece in pieces]


def _signed(signature: str) -> Body:
    return {"type": "signature_delta", "signature": signature}


# -- HTTP


async def _read(stream: trio.SocketStream) -> tuple[str, dict[str, str], Body]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some()
        if not more:
            raise trio.BrokenResourceError("the other side has closed")
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers["content-length"]):
        body += await stream.receive_some()
    return first.split()[1], headers, json.loads(body)


@asynccontextmanager
async def provider(port: int = 0) -> AsyncGenerator[Provider]:
    """The server, listening on a port of its own or on this one, for the length of a block."""
    server = Provider()
    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(trio.serve_tcp, server.serve, port)
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield server
        nursery.cancel_scope.cancel()
