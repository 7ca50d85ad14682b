"""A service for the tests of the inspector's page: real sockets in a thread of their own, agents whose model does as told.

The model is one function of the request: words in the newest message of a person say what it does (`look up`, `refund`, `fail`,
`team`, `slowly`), so each test writes the history it needs by sending. What `slowly` says comes from the test, piece by piece.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from callboard.actors import Agent, Ask, ToolCall, ToolContext, delegate, tool
from callboard.actors.models.model import Model, Prepared, RetryPolicy
from callboard.actors.plugins import Retry
from callboard.actors.seams import SeamContext
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.net.service import Server, serve
from callboard.storage import chunks as c
from callboard.storage.messages import Chunk, Message, Request, Usage
from callboard.storage.store import Store

T = TypeVar("T")


def asks(ctx: SeamContext, call: ToolCall) -> Ask:
    """Every refund is asked about."""
    return Ask(f"Refund {call.args['cents'] / 100:.2f} EUR for order {call.args['order']}?")


@tool(replay="safe")
async def lookup(city: str) -> str:
    """The weather of a city, as the met office has it."""
    return f"{city}: 4 °C, rain from the west until the evening"


@tool
async def breaks(why: str) -> str:
    """A tool that fails."""
    raise ValueError(why)


@tool(approval=asks)
async def refund(ctx: ToolContext[Any], order: str, cents: int) -> str:
    """Give money back."""
    return f"{cents / 100:.2f} EUR are on their way for order {order}"


class Director(Model):
    """Does what the newest message of a person says."""

    provider = "stage"

    def __init__(self) -> None:
        self.name = "large"
        self._send, self._pieces = trio.open_memory_channel[str | None](1000)

    def prepare(self, request: Request) -> Prepared:
        """Nothing to refuse; a retry comes soon."""
        return Prepared(request, context_window=200_000, retry=RetryPolicy(tries=3, first_s=0.01))

    def say(self, text: str | None) -> None:
        """Another piece of what `slowly` says; None ends it."""
        self._send.send_nowait(text)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """The answer."""
        asked = next((m for m in reversed(request.messages) if m.role == "user"), None)
        text = asked.text if asked else ""
        if "slowly" in text and not _answered(request, asked):
            async for chunk in self._slowly():
                yield chunk
            return
        reply = _reply(request, asked, text)
        for chunk in reply.chunks_for(request):
            yield chunk
        if error := reply.error():
            raise error

    async def _slowly(self) -> AsyncIterator[Chunk]:
        yield c.block_start(0, "reasoning")
        yield c.reasoning_delta(0, "The question is broad; I begin with the harbour and go inland.")
        yield c.block_end(0)
        yield c.block_start(1, "text")
        while (piece := await self._pieces.receive()) is not None:
            yield c.text_delta(1, piece)
        yield c.block_end(1)
        yield c.usage(input=812, output=96, reasoning=20)
        yield c.finish("stop")


def _answered(request: Request, asked: Message | None) -> bool:
    """Whether a tool has answered since the person wrote."""
    return bool(request.messages) and request.messages[-1].role == "tool" and asked is not None


def _reply(request: Request, asked: Message | None, text: str) -> Reply:
    usage = Usage(input=40 * len(request.messages), output=60, cache_read=1200)
    if _answered(request, asked):
        results = [m for m in request.messages[-3:] if m.role == "tool"]
        return Reply.text(f"Done. {_said(results[-1])}", parts=6, usage=usage)
    if "look up" in text:
        city = text.split("look up", 1)[1].strip() or "Oslo"
        return Reply.tools((f"c{len(request.messages)}", "lookup", {"city": city}), text="Let me look.", usage=usage)
    if "refund" in text:
        return Reply.tools((f"r{len(request.messages)}", "refund", {"order": "17", "cents": 8000}), usage=usage)
    if "break" in text:
        return Reply.tools((f"b{len(request.messages)}", "breaks", {"why": "the drawer is stuck"}), usage=usage)
    if "team" in text:
        tasks = ["the harbour", "the museums", "where to eat"]
        calls = [(f"d{n}-{len(request.messages)}", "scout", {"task": f"look up {task}"}) for n, task in enumerate(tasks)]
        return Reply.tools(*calls, text="I send three scouts.", usage=usage)
    if "fail once" in text and request.attempt < 2:
        return Reply.fail("RATE_LIMIT", "slow down", status=429)
    if "fail" in text and "once" not in text:
        return Reply.fail("BAD_REQUEST", "the model does not take this", status=400, request_id="req_7f3")
    return Reply.text(f"You said: {text}", parts=4, reasoning="A plain question.", usage=usage)


def _said(message: Message) -> str:
    return " ".join(
        getattr(part, "text", "") for block in message.content for part in (getattr(block, "content", None) or (block,))
    )


def cast(director: Director) -> Sequence[Agent[Any, Any]]:
    """The definitions."""
    scout = Agent("scout", model=director, system="Find one thing out.", tools=[lookup], plugins=[Retry()])
    desk = Agent(
        "desk",
        model=director,
        system="You help guests of a hotel.\nBe brief and exact.\nNever promise a refund before it is allowed.",
        tools=[lookup, refund, breaks, delegate(scout)],
        plugins=[Retry()],
    )
    return desk, scout


class Stage:
    """A running service, and its hands: `do` runs a coroutine beside it."""

    def __init__(self, store: str | Store, *, port: int = 0, tokens: Any = None) -> None:
        self.store, self.port, self.tokens = store, port, tokens
        self.director = Director()
        self.agents = cast(self.director)
        self._up = threading.Event()
        self._token: trio.lowlevel.TrioToken
        self._stop: trio.CancelScope
        self.system: System
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="stage")

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._failed = error
        finally:
            self._up.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._stop:
            async with System.open(self.store, agents=self.agents, grace=0) as self.system, trio.open_nursery() as nursery:
                server: Server = await nursery.start(partial(serve, self.system, port=self.port, tokens=self.tokens))
                self.port = server.port
                self._up.set()
                await trio.sleep_forever()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/"

    def do(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run it in the service's own loop, and wait for what it gives."""
        return trio.from_thread.run(work, *args, trio_token=self._token)

    def call(self, work: Callable[..., T], *args: Any) -> T:
        """The same, for a plain function."""
        return trio.from_thread.run_sync(work, *args, trio_token=self._token)

    def say(self, *pieces: str | None) -> None:
        """What the model that speaks slowly says next; None ends it."""
        for piece in pieces:
            self.call(self.director.say, piece)

    def ask(self, id: str, *texts: str, name: str = "desk", **how: Any) -> None:
        """Send these, one after the other, and wait for the end of each."""
        self.do(self._ask, id, texts, name, how)

    async def _ask(self, id: str, texts: Sequence[str], name: str, how: dict[str, Any]) -> None:
        ref = await self.system.spawn(self.system.definitions[name], id=id, labels=how.get("labels"))
        for text in texts:
            await ref.ask(text, route=how.get("route"))

    def send(self, id: str, text: str, **how: Any) -> None:
        """Send, and do not wait for more than the receipt."""
        self.do(self._send, id, text, how)

    async def _send(self, id: str, text: str, how: dict[str, Any]) -> None:
        ref = await self.system.spawn(self.system.definitions["desk"], id=id)
        await ref.followup(text, **how)

    def __enter__(self) -> Stage:
        self._thread.start()
        self._up.wait()
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(self, *exc: object) -> None:
        self._token.run_sync_soon(self._stop.cancel)
        self._thread.join(120)
        assert not self._thread.is_alive(), "the service does not end"
        if self._failed is not None:
            raise self._failed
