"""The boxed `Telemetry`: what is exported of a turn, one trace across restarts and down the tree, and what is left out."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import trio
from crashing import image, live
from helpers import check, make, opened, records, say, scripted
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, System, ToolContext, delegate, tool
from callboard.actors.plugins import Permissions, Retry, Telemetry, telemetry
from callboard.actors.sending import send
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import UsageError
from callboard.storage.messages import Message, TextBlock, Usage

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@tool(replay="safe")
async def look(where: str = "") -> str:
    """Look."""
    return "a secret"


class Exported:
    """A provider that keeps what is exported, and the plugin on it."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.plugin = Telemetry(self.provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order in which they ended."""
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        """The one span of this name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    @property
    def tree(self) -> list[str]:
        """Every span as `path of names`, by when it began; the root has none above that was exported."""
        by_id = {_id(span): span for span in self.spans}

        def path(span: ReadableSpan) -> str:
            above = by_id.get(span.parent.span_id) if span.parent is not None else None
            return span.name if above is None else f"{path(above)} > {span.name}"

        return [path(span) for span in sorted(self.spans, key=lambda span: (span.start_time or 0, -(span.end_time or 0)))]

    @property
    def traces(self) -> set[int]:
        """The traces that were exported to."""
        return {span.context.trace_id for span in self.spans if span.context is not None}


def _id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes."""
    return dict(span.attributes or {})


async def test_a_turn_is_a_tree_of_spans_by_the_conventions() -> None:
    out = Exported()
    usage = Usage(input=10, output=5, cache_read=20, reasoning=2)
    script = scripted(Reply.tools(("c1", "look", {"where": "x"}), usage=usage), "done")
    agent = make(script, tools=[look], max_tokens=100)
    store = MemoryStore()
    async with System.open(store, agents=[agent], plugins=[out.plugin]) as system:
        ref = await system.spawn(agent, id="a", labels={"customer": "acme"})
        await say(ref, "a secret, too")
    await check(store)
    assert sorted(out.tree) == [
        "invoke_agent demo",
        "invoke_agent demo > step 1",
        "invoke_agent demo > step 1 > chat demo",
        "invoke_agent demo > step 1 > execute_tool look",
        "invoke_agent demo > step 2",
        "invoke_agent demo > step 2 > chat demo",
    ]
    assert len(out.traces) == 1
    turn, chat, call = out.named("invoke_agent demo"), out.spans[0], out.named("execute_tool look")
    assert attributes(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "demo",
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("tool-calls",),
        "gen_ai.response.time_to_first_chunk": attributes(chat)["gen_ai.response.time_to_first_chunk"],
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "callboard.attempt": 1,
    }
    assert chat.kind is SpanKind.CLIENT and turn.kind is SpanKind.INTERNAL
    assert attributes(call) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
    }
    shown = attributes(turn)
    assert (shown["gen_ai.agent.name"], shown["gen_ai.agent.id"], shown["gen_ai.conversation.id"]) == ("demo", "a", "a")
    assert (shown["callboard.reason"], shown["callboard.turn"], shown["callboard.label.customer"]) == ("completed", 1, "acme")
    assert turn.status.status_code is StatusCode.UNSET
    times = {r.type: r.time * 1_000_000 for r in await records(store)}
    assert (turn.start_time, turn.end_time) == (times["turn/start"], times["turn/end"])
    assert "secret" not in "".join(span.to_json() for span in out.spans)


async def test_failures_retries_and_cut_streams_have_their_codes() -> None:
    out = Exported()
    script = scripted(Reply.fail("SERVER", "broke", status=503), Reply.hang("half"))
    async with opened(make(script, plugins=[Retry(first_s=0, jitter=0), out.plugin])) as (_, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
    first, second = [span for span in out.spans if span.name == "chat demo"]
    assert (attributes(first)["error.type"], attributes(first)["http.response.status_code"]) == ("SERVER", 503)
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "broke")
    assert attributes(second)["gen_ai.response.finish_reasons"] == ("aborted",)
    turn = out.named("invoke_agent demo")
    assert (attributes(turn)["callboard.reason"], attributes(turn)["callboard.cause"]) == ("aborted", "user")
    assert [event.name for event in turn.events] == ["turn/cancel"]


async def test_a_request_that_was_cut_with_nothing_to_show_ends_with_its_step() -> None:
    out = Exported()
    async with opened(make(scripted(Reply.hang()), plugins=[out.plugin])) as (_, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
    assert attributes(out.named("chat demo"))["error.type"] == "ABORTED"
    assert len(out.spans) == 3


async def test_a_turn_that_failed_and_a_call_that_was_refused_say_why() -> None:
    out = Exported()
    script = scripted(Reply.tools(("c1", "look", {})), Reply.fail("AUTH", "no key"))
    agent = make(script, tools=[look], plugins=[Permissions(deny=["look"]), out.plugin])
    async with opened(agent) as (_, ref):
        await say(ref, "hi")
    turn, call = out.named("invoke_agent demo"), out.named("execute_tool look")
    assert (attributes(turn)["error.type"], turn.status.description) == ("AUTH", "no key")
    assert (attributes(call)["error.type"], call.status.status_code) == ("DENIED", StatusCode.ERROR)


async def test_a_question_is_a_span_with_its_verdict() -> None:
    out = Exported()
    script = scripted(Reply.tools(("c1", "look", {})), "done")
    async with opened(make(script, tools=[look], plugins=[Permissions(ask=["look"]), out.plugin])) as (system, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        async for approval in system.approvals():
            await system.answer(approval.id, "allow", by="ann")
        await ref.wait_idle()
    assert "invoke_agent demo > step 1 > approval" in out.tree
    assert attributes(out.named("approval"))["callboard.approval.verdict"] == "allow"


@pytest.mark.parametrize("place", ["TS1", "SS1.1", "Q1", "A", "call(c1)", "res(c1)"])
async def test_one_trace_goes_across_a_restart_and_no_span_twice(place: str) -> None:
    whole = Exported()

    def agent(*replies: Any) -> Any:
        return make(scripted(*replies), tools=[look])

    async def hi(ref: Any) -> None:
        await say(ref, "hi")

    uncut = await live(agent(Reply.tools(("c1", "look", {})), "done"), hi, plugins=[whole.plugin])
    store = await image(uncut.records, uncut.upto(place))
    out = Exported()
    rest = (
        [Reply.text("done")] if place in ("A", "call(c1)", "res(c1)") else [Reply.tools(("c1", "look", {})), Reply.text("done")]
    )
    async with opened(agent(*rest), store, plugins=[out.plugin]) as (_, ref):
        await ref.wait_idle()
    assert out.traces == whole.traces
    turn, before = out.named("invoke_agent demo"), whole.named("invoke_agent demo")
    assert (_id(turn), turn.start_time) == (_id(before), before.start_time)
    assert [event.name for event in turn.events] == ["turn/resume"]
    exported = [_id(span) for span in out.spans]
    assert len(exported) == len(set(exported))
    above = {span.parent.span_id for span in out.spans if span.parent is not None}
    assert above <= {_id(span) for span in (*out.spans, *whole.spans)}, "every parent is exported by somebody"
    if place == "Q1":
        cut = [span for span in out.spans if attributes(span).get("error.type") == "INTERRUPTED"]
        assert [(span.name, span.start_time) for span in cut] == [("chat demo", whole.spans[0].start_time)]


async def test_a_delegated_childs_turn_is_under_the_parents_call_also_after_a_restart() -> None:
    def tree(parent: Any, child: Any) -> Any:
        return make(parent, tools=[delegate(Agent("child", model=child, plugins=(), tools=[look]))])

    script = scripted(Reply.tools(("c1", "child", {"task": "t"})), "done")
    first, second = Exported(), Exported()
    store = MemoryStore()
    waiting = tree(script, scripted(Reply.tools(("c1", "look", {})), Reply.hang()))
    async with opened(waiting, store, plugins=[first.plugin], grace=0) as (_, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
    async with opened(tree(scripted("done"), scripted("found")), store, plugins=[second.plugin]) as (_, ref):
        await ref.wait_idle()
    call = "invoke_agent demo > step 1 > execute_tool child"
    assert call in second.tree
    assert f"{call} > invoke_agent child > step 2 > chat demo" in second.tree
    assert len(first.traces | second.traces) == 1


async def test_a_trace_that_comes_with_the_message_is_gone_on_with() -> None:
    out = Exported()
    async with opened(make(scripted("done"), plugins=[out.plugin])) as (system, ref):
        message = Message("m1", "user", (TextBlock("hi"),))
        put = e.InboxPut(message=message, lane="next-turn", context={"traceparent": TRACEPARENT, "scope": "/tmp"})
        runtime: Any = system._runtime  # pyright: ignore[reportPrivateUsage]
        await send(runtime, "a", put, look_up=True)
        await ref.wait_idle()
    assert out.traces == {0x0AF7651916CD43DD8448EB211C80319C}
    turn = out.named("invoke_agent demo")
    assert turn.parent is not None and turn.parent.span_id == 0xB7AD6B7169203331


@pytest.mark.parametrize("junk", [{"traceparent": "nonsense"}, {"traceparent": 7}, {"other": "x"}])
async def test_a_trace_that_makes_no_sense_is_left_alone(junk: Any) -> None:
    out = Exported()
    async with opened(make(scripted("done"), plugins=[out.plugin])) as (system, ref):
        put = e.InboxPut(message=Message("m1", "user", (TextBlock("hi"),)), lane="next-turn", context=junk)
        runtime: Any = system._runtime  # pyright: ignore[reportPrivateUsage]
        await send(runtime, "a", put, look_up=True)
        await ref.wait_idle()
    assert out.named("invoke_agent demo").parent is None


@pytest.mark.parametrize(("sampler", "exported"), [(ALWAYS_OFF, 0), (TraceIdRatioBased(1.0), 6), (TraceIdRatioBased(0.0), 0)])
async def test_a_trace_is_sampled_whole_or_not_at_all(sampler: Any, exported: int) -> None:
    out = Exported(sampler=ParentBased(sampler))
    script = scripted(Reply.tools(("c1", "look", {})), "done")
    async with opened(make(script, tools=[look], plugins=[out.plugin])) as (_, ref):
        await say(ref, "hi")
    assert len(out.spans) == exported


async def test_agents_at_rest_are_forgotten_and_go_on_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "KEEP", 3)
    out = Exported()
    agent = make(scripted(*["done"] * 20), plugins=[out.plugin])
    async with System.open(":memory:", agents=[agent]) as system:
        for _ in range(2):
            for n in range(10):
                await say(await system.spawn(agent, id=str(n)), f"hi {_} {n}")
                await wait_all_tasks_blocked()
        assert len(out.plugin._trails) <= 4  # pyright: ignore[reportPrivateUsage]
    assert len([span for span in out.spans if span.name == "invoke_agent demo"]) == 20
    assert len(out.traces) == 20
    assert {span.name for span in out.spans} == {"invoke_agent demo", "step 1", "chat demo"}


async def test_without_opentelemetry_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(UsageError, match=r"callboard\[telemetry\]"):
        Telemetry()
    await trio.lowlevel.checkpoint()


async def test_the_global_provider_is_taken_if_none_is_given_and_none_set_means_nothing() -> None:
    async with opened(make(scripted("done")), plugins=[Telemetry()]) as (_, ref):
        await say(ref, "hi")


async def test_a_child_that_was_only_spawned_has_traces_of_its_own() -> None:
    out = Exported()
    child = Agent("child", model=scripted("found"), plugins=())

    @tool
    async def hire(ctx: ToolContext[Any]) -> str:
        """Spawn a child and write to it."""
        ref = await ctx.spawn(child)
        await ctx.send(ref, "work")
        return "hired"

    script = scripted(Reply.tools(("c1", "hire", {})), "done")
    async with opened(make(script, tools=[hire], plugins=[]), plugins=[out.plugin]) as (system, ref):
        await say(ref, "hi")
        for id in [agent.id async for agent in system.agents()]:
            await (await system.get(id)).wait_idle()
    assert out.named("invoke_agent child").parent is None
    assert len(out.traces) == 2
