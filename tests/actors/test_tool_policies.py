"""Section 8 of the conformance cases: a model that repeats itself, and a question that nobody can answer."""

from __future__ import annotations

from helpers import events, make, opened, order, say, scripted

from callboard.actors import run_sync, tool
from callboard.actors.plugins import LoopGuard
from callboard.actors.testing import Reply
from callboard.storage import events as e


@tool
async def poll() -> str:
    """Always the same."""
    return "nothing new"


def same(*ids: str) -> Reply:
    """The same call, so often."""
    return Reply.tools(*((id, "poll", "{}") for id in ids))


async def test_c135_a_call_that_repeats_itself_is_noted_and_then_ends_the_turn() -> None:
    script = scripted(same("c1", "c2", "c3"), same("c4"), same("c5", "c6"))
    async with opened(make(script, tools=[poll], plugins=[LoopGuard()])) as (system, ref):
        await say(ref, "hi")
        puts = await events(system.store, e.InboxPut)
        note = puts[1].message.text
        assert "4 times" in note
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A call(c1) res(c1) call(c2) res(c2) call(c3) res(c3) SE "
            f"SS1.2 Q1 C* A call(c4) res(c4) put[s]({note}) SE claim({note}) SS1.3 U({note}) Q1 C* A "
            "call(c5) res(c5) res(c6!NOT_STARTED) SE TE1{limit}"
        )


def test_c119_where_nobody_can_answer_a_question_is_a_refusal_that_says_so() -> None:
    @tool(approval="Really?")
    async def launch() -> str:
        """Cannot be undone."""
        raise AssertionError("nobody allowed it")

    script = scripted(Reply.tools(("c1", "launch", {})), "then not")
    outcome = run_sync(make(script, tools=[launch]), "hi")
    assert (outcome.text, outcome.ok) == ("then not", True)
    (text,) = script.requests[1].messages[-1].results.values()
    assert "approval" in text and "nobody can answer" in text
