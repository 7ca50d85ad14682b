"""Seams: nesting, what may be answered, and what a plugin sees."""

from __future__ import annotations

import timeit
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from callboard.actors.answers import (
    Allow,
    Boundary,
    CallResult,
    Deny,
    Done,
    Enter,
    Failed,
    LimitReached,
    Position,
    Reject,
    Resend,
    Stopping,
    ToolCall,
    Verdict,
    Why,
)
from callboard.actors.chains import Chains
from callboard.actors.seams import SEAMS, Next, Plugin, SeamContext
from callboard.storage.errors import CallboardError, ToolError, UsageError
from callboard.storage.events import Completed, Route
from callboard.storage.messages import Failure, Message, TextBlock
from callboard.storage.records import Record


class Port:
    """A runtime for a context: everything is fixed, notes are kept."""

    id, labels, turn, step = "a", {"customer": "acme"}, 3, 2
    route, sender, deps, agent = Route(chat="1"), "ann", {"db": 1}, "handle"

    way, model_name, compacts = None, "acme:small", False

    def __init__(self) -> None:
        self.written: list[tuple[str, Any]] = []
        self.asked: list[tuple[Any, Mapping[str, Any]]] = []

    @property
    def requests(self) -> int:
        return len(self.asked)

    def peer(self, id: str) -> str:
        return f"peer {id}"

    def find_model(self, name: str) -> str | None:
        return name if name in self.model_names() else None

    def model_names(self) -> tuple[str, ...]:
        return ("acme:small",)

    def choice(self, name: str) -> Any:
        return dict(self.written).get(f"choice/{name}")

    async def compact(self) -> None:
        return None

    def position(self, why: Why) -> Position:
        return Position((), why=why)

    def beside(self, call: Callable[[], Awaitable[None]]) -> None:
        raise AssertionError("nobody asked for it")

    def owner_of(self, plugin: Any) -> str:
        return type(plugin).__name__

    def now(self) -> datetime:
        return datetime(2026, 12, 1, tzinfo=UTC)

    def note(self, kind: str, data: Any) -> None:
        self.written.append((kind, data))

    async def notes(self, kind: str) -> list[Any]:
        return [data for k, data in self.written if k == kind]

    async def records(self, types: Collection[str], id: str | None) -> list[Record]:
        return []

    async def call_model(self, messages: str | Sequence[Message], options: Mapping[str, Any]) -> Message:
        self.asked.append((messages, options))
        return Message("m", "assistant", (TextBlock("yes"),))


CTX = SeamContext(Port())
BOUNDARY = Boundary((Message("m1", "user", (TextBlock("hi"),)),), 1, 1)
CALL = ToolCall("c1", "lookup", '{"city": "Oslo"}')


class Tagged(Plugin):
    """Adds its tag on the way in and on the way out."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def __repr__(self) -> str:
        return f"Tagged({self.tag})"

    async def respond(self, ctx: SeamContext, text: str, next: Next[str, str | None]) -> str | None:
        return f"{await next(f'{text}{self.tag}')}{self.tag}"


async def echo(value: Any) -> Any:
    return value


async def enter(boundary: Boundary) -> Enter:
    return Enter(boundary.messages)


# -- waterfalls


async def test_c029_the_first_registered_is_the_outermost() -> None:
    assert await Chains([Tagged("1"), Tagged("2")]).run("respond", CTX, "x", echo) == "x1221"


async def test_c029_one_that_does_not_call_next_answers_alone() -> None:
    class Refuse(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
            return Reject("closed")

    class Unreached(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
            raise AssertionError

    assert await Chains([Refuse(), Unreached()]).run("pre_step", CTX, BOUNDARY, enter) == Reject("closed")


async def test_a_seam_nobody_overrides_is_the_loops_own_work() -> None:
    chains = Chains([Tagged("1"), Plugin()])
    pending = chains.run("pre_step", CTX, BOUNDARY, enter)
    assert getattr(pending, "__name__", "") == "enter"  # the loop's own coroutine, with nothing around it
    assert await pending == Enter(BOUNDARY.messages)
    assert chains.has("respond")
    assert not chains.has("pre_step")


def test_a_seam_nobody_overrides_costs_almost_nothing() -> None:
    chains = Chains([Tagged("1")])

    def terminal(value: str) -> str:
        return value

    run: Any = chains.run
    fast = min(timeit.repeat(lambda: run("pre_step", CTX, "x", terminal), number=2000, repeat=7)) / 2000
    bare = min(timeit.repeat(lambda: terminal("x"), number=2000, repeat=7)) / 2000
    assert fast - bare < 2e-6, f"{(fast - bare) * 1e6:.2f} us"  # measured 0.1; the bound only catches a change of kind


async def test_an_inherited_seam_counts_as_overridden() -> None:
    class Child(Tagged):
        pass

    assert await Chains([Child("1")]).run("respond", CTX, "x", echo) == "x11"


async def test_next_may_be_called_again() -> None:
    class Twice(Plugin):
        async def tool_around(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, CallResult]) -> CallResult:
            first = await next(call)
            return first if first.error is None else await next(call.rewritten({"city": "Bergen"}))

    calls: list[str] = []

    async def body(call: ToolCall) -> CallResult:
        calls.append(call.args["city"])
        return CallResult.of("rain", error=None if len(calls) == 2 else "TOOL_ERROR")

    assert (await Chains([Twice()]).run("tool_around", CTX, CALL, body)).error is None
    assert calls == ["Oslo", "Bergen"]


async def test_a_forgotten_return_names_plugin_and_seam() -> None:
    class Forgot(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Any) -> Any:
            await next(boundary)

    with pytest.raises(UsageError, match=r"Forgot\(\) answered None in pre_step, which takes Enter or Reject; did you forget"):
        await Chains([Tagged("1"), Forgot()]).run("pre_step", CTX, BOUNDARY, enter)


async def test_a_wrong_value_handed_on_names_plugin_and_seam() -> None:
    class Wrong(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Any) -> Any:
            return await next(list(boundary.messages))

    with pytest.raises(UsageError, match=r"Wrong\(\) handed on a list in pre_step, which takes Boundary"):
        await Chains([Wrong()]).run("pre_step", CTX, BOUNDARY, enter)


async def test_none_is_an_answer_where_the_seam_says_so() -> None:
    class Silent(Plugin):
        async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
            return None

    failed = Failed("acme", Failure("SERVER"), 1)
    assert await Chains([Silent()]).run("request_error", CTX, failed, echo) is None


async def test_a_throw_passes_through_unchanged() -> None:
    class Spent(Plugin):
        async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
            raise LimitReached("tokens", "the budget is spent")

    with pytest.raises(LimitReached, match="the budget is spent") as caught:
        await Chains([Spent()]).run("tool_before", CTX, CALL, echo)
    assert caught.value.limit == "tokens"
    assert isinstance(caught.value, CallboardError)


# -- guards, serial seams, observers


async def test_all_guards_must_pass_and_the_first_reason_wins() -> None:
    asked: list[str] = []

    class Guard(Plugin):
        def __init__(self, name: str, reason: Any) -> None:
            self.name, self.reason = name, reason

        async def guard(self, ctx: SeamContext, call: ToolCall) -> Any:
            asked.append(self.name)
            return self.reason

    assert await Chains([]).guard(CTX, CALL) is None
    assert await Chains([Guard("1", None), Guard("2", "no"), Guard("3", "never")]).guard(CTX, CALL) == "no"
    assert asked == ["1", "2"]
    with pytest.raises(UsageError, match="answered a bool in guard"):
        await Chains([Guard("4", False)]).guard(CTX, CALL)


async def test_turn_stopping_tells_one_after_the_other() -> None:
    told: list[str] = []

    class Ear(Tagged):
        async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
            told.append(f"{self.tag}{stopping.reason.kind}")

    await Chains([Ear("1"), Plugin(), Ear("2")]).turn_stopping(CTX, Stopping(1, 1, Completed()))
    assert told == ["1completed", "2completed"]


def test_observers_are_those_who_watch() -> None:
    class Watch(Plugin):
        async def on_status(self, ctx: SeamContext, status: str) -> None: ...

    watch = Watch()
    chains = Chains([Plugin(), watch])
    assert chains.observers("on_status") == (watch.on_status,)
    assert chains.observers("on_event") == () == chains.observers("on_error")


# -- mistakes in a plugin's class


def test_a_plain_function_for_a_seam_is_found_when_the_class_is_made() -> None:
    def pre_step(self: Any, ctx: Any, boundary: Any, next: Any) -> Any:
        return next(boundary)

    with pytest.raises(UsageError, match=r"Sync.pre_step is a plain function; write `async def pre_step`"):
        type("Sync", (Plugin,), {"pre_step": pre_step})


def test_a_generator_for_a_seam_is_found_when_the_class_is_made() -> None:
    async def pre_step(self: Any, ctx: Any, boundary: Any, next: Any) -> AsyncIterator[Any]:
        yield boundary

    with pytest.raises(UsageError, match=r"Gen.pre_step yields; only `stream` is a generator"):
        type("Gen", (Plugin,), {"pre_step": pre_step})


def test_every_seam_is_a_documented_method_of_plugin() -> None:
    options = {"every_step", "idle_s", "inherited", "innermost"}
    assert {name for name in vars(Plugin) if not name.startswith("_")} - options == SEAMS
    assert all(getattr(Plugin, seam).__doc__ for seam in SEAMS)


async def test_an_unchanged_plugin_passes_everything_through() -> None:
    plugin: Any = Plugin()
    for seam in ("accept", "compact", "command", "respond", "assemble", "pre_step", "request", "request_error"):
        assert await getattr(plugin, seam)(CTX, "value", echo) == "value"
    for seam in ("tool_before", "tool_around", "tool_after"):
        assert await getattr(plugin, seam)(CTX, "value", echo) == "value"
    assert await plugin.guard(CTX, CALL) is None
    assert plugin.stream(CTX, "request", str.upper) == "REQUEST"


# -- the context and the values


async def test_a_context_shows_what_the_runtime_knows() -> None:
    port = Port()
    ctx = SeamContext(port)
    assert (ctx.id, ctx.labels["customer"], ctx.turn, ctx.step, ctx.sender) == ("a", "acme", 3, 2, "ann")
    assert (ctx.route, ctx.deps, ctx.agent, ctx.now.year) == (Route(chat="1"), {"db": 1}, "handle", 2026)
    ctx.note("spent", 5)
    ctx.note("other")
    assert await ctx.notes("spent") == [5]
    assert (await ctx.model("well?", model="acme:small")).text == "yes"
    assert port.asked[0][1]["model"] == "acme:small"
    ctx.local["key"] = 1
    assert repr(ctx) == "<SeamContext 'a' turn 3 step 2>"


def test_a_call_decodes_its_arguments_when_asked() -> None:
    assert CALL.args == {"city": "Oslo"}
    assert ToolCall("c1", "lookup", " ").args == {}
    assert CALL.rewritten(None) is CALL
    assert CALL.rewritten('{"city":"Bergen"}').args == {"city": "Bergen"}
    with pytest.raises(ToolError, match="not a JSON object") as caught:
        _ = ToolCall("c1", "lookup", "[1]").args
    assert caught.value.code == "INVALID_ARGUMENTS"


def test_a_result_can_be_changed_and_replaced() -> None:
    done = Done(CALL, CallResult.of("a secret", concludes=True))
    assert done.map_text(lambda text: text.replace("secret", "***")).result == CallResult.of("a ***", concludes=True)
    replaced = done.with_text("no secret").result
    assert (replaced.text, replaced.error, replaced.concludes) == ("no secret", None, True)
    blocked = done.with_text("denied", error="DENIED").result
    assert (blocked.text, blocked.error, blocked.concludes) == ("denied", "DENIED", False)


def test_verdicts_and_boundaries_are_plain_values() -> None:
    assert Allow() == Allow(None)
    assert Deny("no").why == "no"
    assert BOUNDARY.text == "hi"
