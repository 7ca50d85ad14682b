"""Section 7 of the conformance cases, C104 to C111: what a request is made of, and who answers it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container
from typing import Any

import msgspec
import pytest
from helpers import check, events, make, opened, order, say, scripted

from callboard.actors import Agent, ModelError, Plugin, Prepared, Proposal, Replace, Resend, System, tool
from callboard.actors.answers import Assembly, Failed
from callboard.actors.content import NO_IMAGE
from callboard.actors.plugins.invariants import Invariants
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryReader, MemoryStore
from callboard.storage.errors import UsageError
from callboard.storage.messages import Chunk, Image, Message, Request, TextBlock

FIRST = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed}"


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


class Owns(Plugin):
    """Answers every request itself."""

    async def stream(self, ctx: SeamContext, request: Request, next: Any) -> AsyncIterator[Chunk]:
        yield c.block_start(0, "text")
        yield c.text_delta(0, f"I am {request.provider}:{request.model}")


async def test_c104_a_plugin_may_own_a_route_that_nobody_knows() -> None:
    agent: Agent[Any, Any] = Agent("demo", model="acme:large", plugins=[Owns()])
    async with opened(agent) as (system, ref):
        outcome = await ref.ask("hi", message_id="hi")
        assert outcome.text == "I am acme:large"
        assert await order(system.store) == FIRST


async def test_c104_a_route_that_nobody_owns_fails_as_a_request() -> None:
    asked: list[str] = []

    class Asked(Plugin):
        async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
            asked.append(failed.failure.code)
            return await next(failed)

    agent: Agent[Any, Any] = Agent("demo", model="acme:large", plugins=[Asked()])
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == ("put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 F1{raise} SE TE1{error}")
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored)
        assert end.reason.error.code == "NO_ADAPTER"
        assert "acme:large" in end.reason.error.message
    assert asked == ["NO_ADAPTER"]


class Refuses(ScriptedModel):
    """An adapter that refuses every request."""

    def prepare(self, request: Request) -> Prepared:
        raise ModelError("BAD_REQUEST", "not like this")


async def test_c104_a_throw_in_prepare_writes_no_header() -> None:
    model = Refuses([])
    async with opened(make(model)) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == "put[t](hi) TS1 claim(hi) SS1.1 U(hi) SE TE1{error}"
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored)
        assert (end.reason.error.code, end.reason.error.message) == ("BAD_REQUEST", "not like this")
    assert model.requests == []


async def test_c105_an_inject_from_the_request_seam_opens_a_further_boundary() -> None:
    class Injects(Plugin):
        async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
            if ctx.step == 1:
                await ctx.agent.inject("more", message_id="more")
            return await next(proposal)

    model = scripted("a", "b")
    async with opened(make(model, plugins=[Injects()])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) put[s](more) H{initial} X Q1 C* A SE "
            "claim(more) SS1.2 U(more) Q1 C* A SE TE1{completed}"
        )
        assert [[m.text for m in request.messages] for request in model.requests] == [["hi"], ["hi", "a", "more"]]


class Routes(Plugin):
    """Sends each turn to the model that the test names."""

    def __init__(self) -> None:
        self.name = "known"

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
        return await next(msgspec.structs.replace(proposal, provider="acme", model=self.name))


class Windows(ScriptedModel):
    """Knows the window that the test sets."""

    window: int | None = 1000

    def prepare(self, request: Request) -> Prepared:
        return Prepared(request, context_window=self.window)


async def test_c106_the_context_is_written_when_it_differs() -> None:
    routes, model = Routes(), Windows(lambda _: Reply.text("a"), provider="acme", name="known")
    agent = make(model, plugins=[routes])
    async with opened(agent) as (system, ref):
        await say(ref, "m1")
        await say(ref, "m2")
        model.window = 2000
        await say(ref, "m3")
        model.window = None
        await say(ref, "m4")
        await say(ref, "m5")
        routes.name = "other"
        await say(ref, "m6")
        rest = "Q1 C* A SE TE"
        assert await order(system.store) == (
            f"put[t](m1) TS1 claim(m1) SS1.1 U(m1) H{{initial}} X {rest}1{{completed}} "
            f"put[t](m2) TS2 claim(m2) SS2.1 U(m2) {rest}2{{completed}} "
            f"put[t](m3) TS3 claim(m3) SS3.1 U(m3) X {rest}3{{completed}} "
            f"put[t](m4) TS4 claim(m4) SS4.1 U(m4) X {rest}4{{completed}} "
            f"put[t](m5) TS5 claim(m5) SS5.1 U(m5) {rest}5{{completed}} "
            f"put[t](m6) TS6 claim(m6) SS6.1 U(m6) H{{change}} X {rest}6{{completed}}"
        )
        contexts = await events(system.store, e.RequestContext)
        assert [(x.provider, x.model, x.context_window) for x in contexts] == [
            ("acme", "known", 1000),
            ("acme", "known", 2000),
            ("acme", "known", None),
            ("acme", "other", None),
        ]
        assert {m.role for m in await ref.messages()} == {"user", "assistant"}


class Hooked(ScriptedModel):
    """Calls a function when it prepares a request."""

    hook: Callable[[], None] = staticmethod(lambda: None)

    def prepare(self, request: Request) -> Prepared:
        self.hook()
        return super().prepare(request)


async def test_c107_the_adapter_that_prepared_a_request_answers_it() -> None:
    first, second = Hooked([Reply.text("first")]), scripted("second")
    agent: Agent[Any, Any] = Agent("demo", model="scripted:demo", plugins=[])
    store = MemoryStore()
    async with System.open(store, agents=[agent], models={"scripted:demo": first}) as system:
        models = system._runtime.models  # pyright: ignore[reportPrivateUsage]

        def swap() -> None:
            models._given["scripted:demo"] = second  # pyright: ignore[reportPrivateUsage]
            models._bound.clear()  # pyright: ignore[reportPrivateUsage]

        first.hook = swap
        ref = await system.spawn(agent, id="a")
        assert (await ref.ask("hi", message_id="hi")).text == "first"
        assert (await ref.ask("on", message_id="on")).text == "second"
        assert await order(store) == f"{FIRST} put[t](on) TS2 claim(on) SS2.1 U(on) Q1 C* A SE TE2{{completed}}"
    await check(store)


def named(name: str) -> Any:
    """A tool of this name."""

    @tool(name=name)
    async def body() -> str:
        """Nothing."""
        return ""

    return body


async def test_c108_tools_stand_in_one_order_whatever_order_they_came_in() -> None:
    digests: set[str] = set()
    for names in (["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]):
        model = scripted("x")
        async with opened(make(model, tools=[named(name) for name in names])) as (system, ref):
            await say(ref, "hi")
            assert await order(system.store) == FIRST
            assert [spec.name for spec in model.requests[0].tools] == ["a", "b", "c"]
            (header,) = await events(system.store, e.RequestHeader)
            digests.add(header.digest)
    assert len(digests) == 1


async def test_c108_tools_that_a_plugin_adds_stand_in_the_same_order() -> None:
    class Adds(Plugin):
        async def assemble(self, ctx: SeamContext, assembly: Assembly, next: Next[Assembly, Assembly]) -> Assembly:
            return await next(msgspec.structs.replace(assembly, tools=(named("z"), *assembly.tools, named("0"))))

    model = scripted("x")
    async with opened(make(model, tools=[named("b")], plugins=[Adds()])) as (_, ref):
        await say(ref, "hi")
    assert [spec.name for spec in model.requests[0].tools] == ["0", "b", "z"]


def test_c108_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="echo"):
        Agent("demo", tools=[echo, named("echo")])


async def test_c109_another_attempt_sees_a_rewrite_and_keeps_the_assembly() -> None:
    assembled: list[int] = []
    rendered: list[int] = []

    class Overflows(Plugin):
        async def assemble(self, ctx: SeamContext, assembly: Assembly, next: Next[Assembly, Assembly]) -> Assembly:
            assembled.append(ctx.turn)
            return await next(assembly)

        async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
            summary = Message("sum", "user", (TextBlock("summary"),))
            return Resend(replacement=Replace(summary, cause="overflow"))

    def system_text(ctx: SeamContext) -> str:
        rendered.append(ctx.turn)
        return f"render {len(rendered)}"

    model = scripted("a", Reply.fail("CONTEXT_OVERFLOW"), "b")
    async with opened(make(model, plugins=[Overflows()], system=system_text)) as (system, ref):
        await say(ref, "hi")
        await say(ref, "on")
        assert await order(system.store) == (
            f"{FIRST} put[t](on) TS2 claim(on) SS2.1 U(on) H{{change}} Q1 F1{{retry}} cut(5..21) Q2 C* A SE TE2{{completed}}"
        )
        assert [m.text for m in model.requests[2].messages] == ["summary"]
        assert (model.requests[1].system, model.requests[2].system) == ("render 2", "render 2")
    assert (assembled, rendered) == ([1, 2], [1, 2])


@pytest.mark.parametrize("images", [True, False])
async def test_c110_a_picture_for_a_model_that_sees_none(images: bool) -> None:
    model = ScriptedModel([Reply.text("a"), Reply.text("b")], images=images)
    picture = Image.from_bytes(b"\x89PNG", "image/png")
    async with opened(make(model, plugins=[Invariants()])) as (system, ref):
        await ref.followup([TextBlock("hi"), picture], message_id="hi")
        await ref.wait_idle()
        await say(ref, "on")
        assert await order(system.store) == f"{FIRST} put[t](on) TS2 claim(on) SS2.1 U(on) Q1 C* A SE TE2{{completed}}"
        for request in model.requests:
            text, block = request.messages[0].content
            assert text == TextBlock("hi")
            assert isinstance(block, Image) if images else block == TextBlock(NO_IMAGE)
        kept = (await ref.messages())[0].content[1]
        assert isinstance(kept, Image)
        assert kept.blob is not None
        (entered, _) = await events(system.store, e.UserMessage)
        assert isinstance(entered.message.content[1], Image)


class Hides(MemoryStore):
    """A store that shows no header to those who read while `hides` is set."""

    hides = True

    def read(self, agent: str, after: int = -1, upto: int | None = None, types: Container[str] | None = None) -> MemoryReader:
        shown = {type for type in e.EVENTS if type != "request/header" and (types is None or type in types)}
        return super().read(agent, after, upto, shown if self.hides else types)


async def test_c111_a_request_whose_header_is_not_in_the_log_is_not_sent() -> None:
    store, model = Hides(), scripted("a")
    async with opened(make(model, plugins=[Invariants()]), store) as (_, ref):
        await say(ref, "hi")
        store.hides = False
        assert await order(store) == "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 F1{raise} SE TE1{error}"
        (end,) = await events(store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored)
        assert end.reason.error.code == "INVARIANT"
        assert "no request/header is in the log" in end.reason.error.message
        assert model.requests == []
        await say(ref, "on")
        assert (await order(store)).endswith("put[t](on) TS2 claim(on) SS2.1 U(on) Q1 C* A SE TE2{completed}")
