"""The orders of the main branches, with their joins: which records are one append, so that a crash leaves all of them or none.

`~` in an expected order joins records that must be one append; a blank leaves open whether they are.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import trio
import trio.testing
from helpers import make, notation, opened, records, say, scripted

from callboard.actors import (
    AgentRef,
    Answer,
    Boundary,
    Deny,
    Enter,
    Plugin,
    Proposal,
    Reject,
    Resend,
    ToolContext,
    ToolOutput,
    tool,
)
from callboard.actors.answers import Command, Failed, Stopping, ToolCall, Verdict
from callboard.actors.content import to_message
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.log import Log
from callboard.storage.store import Store

START = "put[t](hi) TS1 claim(hi)~SS1.1~U(hi) H{initial} X Q1"
ROUTE = {"channel": "irc", "chat": "1"}


class Appends:
    """Remembers which seqs were appended together."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, int], int] = {}

    def note(self, agent: str, first: int, count: int) -> None:
        """One append."""
        for seq in range(first, first + count):
            self.of[agent, seq] = first

    async def agree(self, store: Store, expected: str, agent: str = "a") -> None:
        """Check the whole order, and each of its joins."""
        log = [record for record in await records(store, agent) if record.type != "log/created"]
        assert notation(log) == expected.replace("~", " ")
        between = r"[ ~](?![^{]*\})"
        words, seams = re.split(between, expected), re.findall(between, expected)
        firsts = [r for n, r in enumerate(log) if not (n and r.type == log[n - 1].type == "assistant/chunk")]
        assert len(firsts) == len(words) == len(seams) + 1
        for seam, left, right, before, after in zip(seams, words, words[1:], firsts, firsts[1:], strict=False):
            if seam == "~":
                assert self.of[agent, before.seq] == self.of[agent, after.seq], f"{left} and {right} are two appends"


@pytest.fixture
def appends(monkeypatch: pytest.MonkeyPatch) -> Appends:
    """All appends of the test."""
    log_class: Any = Log
    noted, append = Appends(), log_class.append

    def noting(self: Log[Any], *events: Any, blobs: Mapping[str, bytes] | None = None) -> int:
        first: int = append(self, *events, blobs=blobs)
        noted.note(self.agent, first, len(events))
        return first

    monkeypatch.setattr(Log, "append", noting)
    return noted


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


@tool(name="echo", mode="parallel")
async def side(text: str = "") -> str:
    """Say it again, beside others."""
    return f"echo {text}"


@tool
async def tells(text: str) -> ToolOutput:
    """Adds what it is given to the next step."""
    return ToolOutput("ok", context=[text])


@tool
async def steers(ctx: ToolContext) -> str:
    """Steers its own agent."""
    await ctx.agent.steer("more", message_id="more")
    return "ok"


class Denies(Plugin):
    """Denies call 2."""

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        return Deny("no") if call.id == "2" else await next(call)


class Steers(Plugin):
    """Steers once when the turn is about to end."""

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
        if stopping.step == 1:
            await ctx.agent.steer("more", message_id="more")


class Verdicts(Plugin):
    """Answers the boundary by the prompt's text."""

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        match boundary.text:
            case "blocked":
                return Reject("no")
            case "empty":
                return Enter(())
            case "throws":
                raise ValueError("no")
            case _:
                return await next(boundary)

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
        raise ValueError("no")

    async def command(self, ctx: SeamContext, command: Command, next: Next[Command, Any]) -> Any:
        return Answer("ask me")


class Again(Plugin):
    """Sends a failed request again."""

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
        return Resend()


def calls(name: str, *ids: str) -> Reply:
    """A batch of calls of one tool."""
    return Reply.tools(*((id, name, {"text": f"from{id}"}) for id in ids))


AFTER = "SE SS1.2 Q1 C* A SE TE1{completed}"
CASES: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "first turn": (["a"], {}, f"{START} C* A SE TE1{{completed}}"),
    "one tool": ([calls("echo", "1"), "a"], {"tools": [echo]}, f"{START} C* A call(1) res(1) {AFTER}"),
    "serial tools": (
        [calls("echo", "1", "2"), "a"],
        {"tools": [echo]},
        f"{START} C* A call(1) res(1) call(2) res(2) {AFTER}",
    ),
    "parallel tools": (
        [calls("echo", "1", "2", "3"), "a"],
        {"tools": [side]},
        f"{START} C* A call(1) call(2) call(3) res(1) res(2) res(3) {AFTER}",
    ),
    "one of them refused": (
        [calls("echo", "1", "2", "3"), "a"],
        {"tools": [side], "plugins": [Denies()]},
        f"{START} C* A call(1) call(3) res(1) call(2)~res(2!DENIED) res(3) {AFTER}",
    ),
    "one of them unknown": (
        [Reply.tools(("1", "echo", {}), ("2", "nobody", {}), ("3", "echo", {})), "a"],
        {"tools": [side]},
        f"{START} C* A call(1) call(3) res(1) call(2)~res(2!UNKNOWN_TOOL) res(3) {AFTER}",
    ),
    "one of them malformed": (
        [Reply.tools(("1", "echo", {}), ("2", "echo", "{"), ("3", "echo", {})), "a"],
        {"tools": [side]},
        f"{START} C* A call(1) call(3) res(1) call(2)~res(2!INVALID_ARGUMENTS) res(3) {AFTER}",
    ),
    "tools adding context": (
        [calls("tells", "1", "2"), "a"],
        {"tools": [tells]},
        f"{START} C* A call(1) res(1) call(2) res(2)~put[s](from1)~put[s](from2) SE "
        "claim(from1,from2)~SS1.2~U(from1)~U(from2) Q1 C* A SE TE1{completed}",
    ),
    "steer during tools": (
        [Reply.tools(("1", "steers", {})), "a"],
        {"tools": [steers]},
        f"{START} C* A call(1) put[s](more) res(1) SE claim(more)~SS1.2~U(more) Q1 C* A SE TE1{{completed}}",
    ),
    "steer at the stop": (
        ["a", "b"],
        {"plugins": [Steers()]},
        f"{START} C* A SE put[s](more) claim(more)~SS1.2~U(more) Q1 C* A SE TE1{{completed}}",
    ),
    "throw inside a step": (
        [],
        {"plugins": [Verdicts()]},
        "put[t](hi) TS1 claim(hi)~SS1.1~U(hi) SE~TE1{error}",
    ),
    "failed request": ([Reply.fail("QUOTA")], {}, f"{START} F1{{raise}} SE~TE1{{error}}"),
    "failed request that has shown something": (
        [Reply.fail("QUOTA", after="part")],
        {},
        f"{START} C* F1{{raise}} A{{cut}}~SE~TE1{{error}}",
    ),
    "retried request": (
        [Reply.fail("SERVER", after="part"), "a"],
        {"plugins": [Again()]},
        f"{START} C* F1{{retry}} Q2 C* A SE TE1{{completed}}",
    ),
    "max-tokens": ([Reply.max_tokens("a")], {}, f"{START} C* A SE TE1{{max-tokens}}"),
}


@pytest.mark.parametrize(("script", "options", "expected"), CASES.values(), ids=CASES)
async def test_order_of(script: list[Any], options: dict[str, Any], expected: str, appends: Appends) -> None:
    async with opened(make(scripted(*script), **options)) as (system, ref):
        await say(ref, "hi")
        await appends.agree(system.store, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("blocked", "put[t](blocked) TS1 claim(blocked)~TE1{blocked}~out"),
        ("empty", "put[t](empty) TS1 claim(empty)~TE1{completed}~out"),
        ("throws", "put[t](throws) TS1 claim(throws)~TE1{error}~out"),
        ("/help", "put[t](/help) TS1 claim(/help)~cmd~cmdres TE1{completed}~out"),
    ],
)
async def test_order_without_a_step(text: str, expected: str, appends: Appends) -> None:
    async with opened(make(scripted(), plugins=[Verdicts()])) as (system, ref):
        await say(ref, text, route=ROUTE)
        await appends.agree(system.store, expected)


async def test_order_on_a_route(appends: Appends) -> None:
    async with opened(make(scripted("a", "b"), plugins=[Steers()])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        await appends.agree(
            system.store,
            f"{START} C* A SE put[s](more) out~claim(more)~SS1.2~U(more) Q1 C* A SE TE1{{completed}}~out",
        )


async def test_order_of_two_queued_prompts(appends: Appends) -> None:
    async with opened(make(scripted("a", "b"))) as (system, ref):
        # Both before the driver starts, which two senders can only do by luck.
        actor = await system._runtime.registry.actor("a")  # pyright: ignore[reportPrivateUsage]
        for text in ("hi", "on"):
            actor.log.append(e.InboxPut(message=to_message(text, id=text), lane="next-turn"))
            actor.wake()
        await ref.wait_idle()
        await appends.agree(
            system.store,
            f"put[t](hi) put[t](on) {START.removeprefix('put[t](hi) ')} C* A SE TE1{{completed}} "
            "TS2 claim(on)~SS2.1~U(on) Q1 C* A SE TE2{completed}",
        )


async def test_order_of_an_idle_inject(appends: Appends) -> None:
    async with opened(make(scripted())) as (system, ref):
        await ref.inject("fact", message_id="fact")
        await trio.testing.wait_all_tasks_blocked()
        await appends.agree(system.store, "put[s](fact)")
        assert ref.status == "idle"


async def test_order_of_a_fork(appends: Appends) -> None:
    async with opened(make(scripted("a", "b"))) as (system, ref):
        await say(ref, "hi")
        fork = await ref.fork(id="b")
        for seq in range(1, 99):  # what the fork shares was appended to its origin
            if ("a", seq) in appends.of:
                appends.of["b", seq] = appends.of["a", seq]
        await say(fork, "on")
        await appends.agree(
            system.store,
            f"{START} C* A SE TE1{{completed}} "
            "forked put[t](on) TS2 claim(on)~SS2.1~U(on) H{resume} Q1 C* A SE TE2{completed}",
            "b",
        )


@tool
async def hangs() -> str:
    """Wait for ever."""
    await trio.sleep_forever()
    return ""


async def cancelled(ref: AgentRef[Any], act: Callable[[], Awaitable[object]]) -> None:
    """Send, wait until all is quiet, act, and wait until the agent is idle."""
    await ref.followup("hi", message_id="hi")
    await trio.testing.wait_all_tasks_blocked()
    await act()
    await ref.wait_idle()


async def test_order_of_a_cancel_in_a_stream(appends: Appends) -> None:
    async with opened(make(scripted(Reply.hang("part")))) as (system, ref):
        await cancelled(ref, ref.cancel)
        await appends.agree(system.store, f"{START} C* TC1 A{{cut}}~SE~TE1{{aborted user}}")


async def test_order_of_a_cancel_in_tools(appends: Appends) -> None:
    script = scripted(Reply.tools(("1", "hangs", {}), ("2", "hangs", {})))
    async with opened(make(script, tools=[hangs])) as (system, ref):
        await cancelled(ref, ref.cancel)
        await appends.agree(
            system.store,
            f"{START} C* A call(1) TC1 res(1!ABORTED)~res(2!ABORTED_BEFORE_DISPATCH)~SE~TE1{{aborted user}}",
        )


async def test_order_of_a_cancel_before_the_turn(appends: Appends) -> None:
    async with opened(make(scripted())) as (system, ref):
        actor = await system._runtime.registry.actor("a")  # pyright: ignore[reportPrivateUsage]
        actor.log.append(e.InboxPut(message=to_message("hi", id="hi"), lane="next-turn"))
        actor.wake()
        await ref.cancel()
        await ref.wait_idle()
        await appends.agree(system.store, "put[t](hi) drop(hi){cancelled}")
