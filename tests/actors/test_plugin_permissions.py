"""The boxed `Permissions`: whose word counts, what a person is shown, and that exactly this runs."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import events, make, opened, order, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Allow, Ask, Deny, Plugin, System, tool
from callboard.actors.answers import ToolCall, Verdict
from callboard.actors.plugins import Permissions
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, trio_wall
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import UsageError

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A"
REST = "SE SS1.2 Q1 C* A SE TE1{completed}"
RAN: list[str] = []


@tool(mode="parallel")
async def read_file(path: str = "") -> str:
    """Read."""
    RAN.append(f"read {path}")
    return "read"


@tool(mode="parallel")
async def write_file(path: str = "") -> str:
    """Write."""
    RAN.append(f"write {path}")
    return "written"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:  # pyright: ignore[reportUnusedFunction]
    RAN.clear()


def agent(call: str, *plugins: Plugin, path: str = "a") -> Any:
    """An agent that calls one of the two."""
    script = scripted(Reply.tools(("c1", call, {"path": path})), "done")
    return make(script, tools=[read_file, write_file], plugins=plugins)


async def outcome(agent: Any) -> str:
    """What became of the call: a code, `ran`, or `asked`."""
    async with opened(agent, grace=0) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        if [approval async for approval in system.approvals()]:
            return "asked"
        (result,) = await events(system.store, e.ToolResult)
        return result.error or "ran"


@pytest.mark.parametrize(
    ("rules", "call", "expected"),
    [
        ({}, "write_file", "ran"),
        ({"deny": ["write_*"]}, "write_file", "DENIED"),
        ({"deny": ["write_*"]}, "read_file", "ran"),
        ({"ask": ["*_file"]}, "read_file", "asked"),
        ({"ask": ["write_file"]}, "read_file", "ran"),
        ({"allow": ["read_?ile"], "default": "deny"}, "read_file", "ran"),
        ({"allow": ["read_?ile"], "default": "deny"}, "write_file", "DENIED"),
        ({"allow": ["read_file"], "default": "ask"}, "write_file", "asked"),
        ({"allow": ["*"], "ask": ["write_file"]}, "write_file", "asked"),
        ({"allow": ["*"], "ask": ["*"], "deny": ["write_file"]}, "write_file", "DENIED"),
        ({"deny": ["WRITE_*"]}, "write_file", "ran"),
    ],
)
async def test_denial_beats_a_question_and_a_question_permission(rules: Any, call: str, expected: str) -> None:
    assert await outcome(agent(call, Permissions(**rules))) == expected
    assert len(RAN) == (expected == "ran")


async def test_a_denied_call_is_a_result_and_the_turn_goes_on() -> None:
    async with opened(agent("write_file", Permissions(deny=["write_*"]))) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} call(c1) res(c1!DENIED) {REST}"
        (result,) = await events(system.store, e.ToolResult)
        assert "write_file is not permitted" in getattr(result.content[0], "text", "")


class Elsewhere(Plugin):
    """Further in: sends every call to another path, on its way in or out, or has a word of its own."""

    def __init__(self, word: Verdict | None = None) -> None:
        self.word = word

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        return self.word or await next(call.rewritten({"path": "elsewhere"}))


@pytest.mark.parametrize("word", [None, Allow({"path": "elsewhere"}), Allow('{"path":"elsewhere"}')], ids=["in", "out", "text"])
async def test_c119_what_the_person_sees_is_what_runs(word: Verdict | None) -> None:
    store = MemoryStore()
    asking = agent("write_file", Permissions(ask=["*"]), Elsewhere(word))
    async with opened(asking, store) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        (approval,) = [approval async for approval in system.approvals()]
        assert approval.arguments == '{"path":"elsewhere"}'
        assert approval.question == 'May a call write_file with {"path":"elsewhere"}?'
        await system.answer(approval.id, "allow", by="ann")
        await ref.wait_idle()
        (call,) = await events(store, e.ToolCalled)
        assert (call.arguments, call.effective) == ('{"path":"a"}', '{"path":"elsewhere"}')
    assert RAN == ["write elsewhere"]


@pytest.mark.parametrize("later", [(), (Permissions(ask=["*"]), Elsewhere(Allow({"path": "else"})))], ids=["nobody", "another"])
async def test_c136_what_was_asked_about_runs_whoever_rewrites_after_the_restart(later: Any) -> None:
    store = MemoryStore()
    async with opened(agent("write_file", Permissions(ask=["*"]), Elsewhere()), store, grace=0) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
    changed = make(scripted("done"), tools=[read_file, write_file], plugins=later)
    async with opened(changed, store) as (system, ref):
        (approval,) = [approval async for approval in system.approvals()]
        assert approval.arguments == '{"path":"elsewhere"}'
        await system.answer(approval.id, "allow", by="ann")
        await ref.wait_idle()
    assert RAN == ["write elsewhere"]


@pytest.mark.parametrize(("word", "expected"), [(Deny("no"), "DENIED"), (Ask("Really?"), "asked"), (Allow(), "ran")])
async def test_what_is_allowed_may_still_be_refused_further_in(word: Verdict, expected: str) -> None:
    assert await outcome(agent("write_file", Permissions(allow=["*"]), Elsewhere(word))) == expected


async def test_a_question_expires_by_the_permissions_own_time(autojump_clock: MockClock) -> None:
    asking = agent("write_file", Permissions(ask=["*"], expires_s=90))
    async with opened(asking, now=trio_wall("2026-12-01T08:00Z")) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await ref.wait_idle()
        (question,) = await events(system.store, e.ApprovalAsked)
        (put,) = [r.time async for r in ref.read(types={"approval/asked"})]
        assert question.expires == put + 90_000
        assert await order(system.store) == f"{OPEN} asked answered call(c1) res(c1!EXPIRED) {REST}"
    assert RAN == []


async def test_long_arguments_are_shortened_in_the_question_alone() -> None:
    async with opened(agent("write_file", Permissions(ask=["*"]), path="x" * 2000), grace=0) as (system, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        (approval,) = [approval async for approval in system.approvals()]
        assert len(approval.question) < 400 and approval.question.endswith("…?")
        assert len(approval.arguments) > 2000


async def test_nobody_is_asked_about_arguments_that_do_not_fit() -> None:
    async with opened(agent("write_file", Permissions(ask=["*"]), Elsewhere(Allow({"nonsense": 1})))) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} call(c1) res(c1!INVALID_ARGUMENTS) {REST}"


@pytest.mark.parametrize(
    "wrong", [{"deny": "write_*"}, {"allow": "x"}, {"ask": "x"}, {"default": "alow"}, {"default": None}, {"expires_s": -1}]
)
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Permissions(**wrong)


async def test_one_plugin_serves_a_whole_system() -> None:
    async with System.open(":memory:", agents=[], plugins=[Permissions(deny=["*"])]) as system:
        ref = await system.spawn(agent("read_file"), id="a")
        assert (await ref.ask("hi")).ok
    assert RAN == []
