"""Section 6 of the conformance cases: the boxed `Retry`, under a mock clock and, but for one test, without jitter."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from crashing import image, live, restart
from helpers import events, make, notation, opened, order, say, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.answers import Failed, Resend
from callboard.actors.models.model import RetryPolicy
from callboard.actors.plugins import Retry
from callboard.actors.seams import Next, Plugin, SeamContext
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import events as e
from callboard.storage.errors import TRANSIENT_CODES, UsageError
from callboard.storage.messages import Failure

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X"
"""How every turn here begins."""
EXACT = Retry(jitter=0)


def failing(times: int, code: str = "SERVER", **options: Any) -> ScriptedModel:
    """A model that fails so often, and then answers."""
    return scripted(*(Reply.fail(code, f"number {n}", **options) for n in range(1, times + 1)), "done")


async def delays(store: Any) -> list[float | None]:
    """What the log says of the waits."""
    return [failed.delay_s for failed in await events(store, e.RequestFailed)]


async def test_c087_one_transient_failure_is_tried_again_after_half_a_second(mock_clock: MockClock) -> None:
    model = failing(1)
    async with opened(make(model, plugins=[EXACT])) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        mock_clock.jump(0.49)
        await wait_all_tasks_blocked()
        assert len(model.requests) == 1
        mock_clock.jump(0.01)
        await ref.wait_idle()
        assert len(model.requests) == 2
        assert await order(system.store) == f"{OPEN} Q1 F1{{retry}} Q2 C* A SE TE1{{completed}}"
        assert await delays(system.store) == [0.5]


async def test_c088_delays_double_and_the_fifth_failure_stands(autojump_clock: MockClock) -> None:
    async with opened(make(failing(9), plugins=[EXACT])) as (system, ref):
        await say(ref, "hi")
        tried = " ".join(f"Q{n} F{n}{{retry}}" for n in range(1, 5))
        assert await order(system.store) == f"{OPEN} {tried} Q5 F5{{raise}} SE TE1{{error}}"
        assert await delays(system.store) == [0.5, 1, 2, 4, None]
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored) and end.reason.error.message == "number 5"


async def test_c088_with_more_tries_the_delay_stays_at_its_longest(autojump_clock: MockClock) -> None:
    async with opened(make(failing(9), plugins=[Retry(tries=8, jitter=0)])) as (system, ref):
        await say(ref, "hi")
        assert await delays(system.store) == [0.5, 1, 2, 4, 8, 10, 10, None]


@pytest.mark.parametrize("code", ["AUTH", "QUOTA", "BAD_REQUEST", "NO_ADAPTER", "CONTEXT_OVERFLOW", "UNKNOWN"])
async def test_c089_what_will_not_pass_is_not_tried_again(code: str) -> None:
    async with opened(make(failing(1, code), plugins=[EXACT])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{raise}} SE TE1{{error}}"


@pytest.mark.parametrize("code", ["EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT"])
async def test_c089_what_may_pass_is(code: str, autojump_clock: MockClock) -> None:
    assert code in TRANSIENT_CODES and len(TRANSIENT_CODES) == 5
    async with opened(make(failing(1, code), plugins=[EXACT])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{retry}} Q2 C* A SE TE1{{completed}}"


async def test_c090_a_provider_that_asks_for_too_long_is_not_waited_for() -> None:
    async with opened(make(failing(1, "RATE_LIMIT", retry_after_s=10.5), plugins=[EXACT])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{raise}} SE TE1{{error}}"
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored) and end.reason.error.retry_after_s == 10.5


@pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (0.1, 0.5), (10.0, 10.0)])
async def test_c090_else_its_word_is_honoured(asked: float, waited: float, autojump_clock: MockClock) -> None:
    async with opened(make(failing(1, "RATE_LIMIT", retry_after_s=asked), plugins=[EXACT])) as (system, ref):
        before = trio.current_time()
        await say(ref, "hi")
        assert await delays(system.store) == [waited]
        assert trio.current_time() - before == pytest.approx(waited)  # pyright: ignore[reportUnknownMemberType]


async def test_c091_a_cancel_during_the_wait_ends_the_turn_with_the_failure_beside(mock_clock: MockClock) -> None:
    model = failing(1)
    async with opened(make(model, plugins=[EXACT])) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} Q1 F1{{retry}} TC1 SE TE1{{aborted user}}"
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Aborted) and end.reason.error is not None
        assert (end.reason.error.code, end.reason.error.message) == ("SERVER", "number 1")
        mock_clock.jump(20)
        await wait_all_tasks_blocked()
        assert len(model.requests) == 1


async def test_attempts_that_a_crash_cut_are_not_counted(autojump_clock: MockClock) -> None:
    async def hi(ref: Any) -> None:
        await say(ref, "hi")

    def agent(model: ScriptedModel) -> Any:
        return make(model, plugins=[Retry(tries=2, jitter=0)])

    first = await live(agent(failing(1)), hi)
    cut = first.upto("Q2")
    after = await restart(agent(failing(1)), await image(first.records, cut))
    # Q1 failed, Q2 was cut: had the cut one counted, the failure of Q3 would be the third of two.
    assert notation(after.records, cut) == "TR1 F2{retry} H{resume} Q3 F3{raise} SE TE1{error}"
    again = await restart(agent(scripted("done")), await image(first.records, first.upto("Q1")))
    assert notation(again.records, first.upto("Q1")) == "TR1 F1{retry} H{resume} Q2 C* A SE TE1{completed}"


async def test_a_first_attempt_that_a_crash_cut_leaves_all_tries(autojump_clock: MockClock) -> None:
    async def hi(ref: Any) -> None:
        await say(ref, "hi")

    def agent(model: ScriptedModel) -> Any:
        return make(model, plugins=[Retry(tries=2, jitter=0)])

    first = await live(agent(scripted("done")), hi)
    cut = first.upto("Q1")
    after = await restart(agent(failing(1)), await image(first.records, cut))
    assert notation(after.records, cut) == "TR1 F1{retry} H{resume} Q2 F2{retry} Q3 C* A SE TE1{completed}"
    assert [r.event.delay_s for r in after.records if isinstance(r.event, e.RequestFailed)] == [None, 0.5]


async def test_the_providers_own_policy_is_followed(autojump_clock: MockClock) -> None:
    model = ScriptedModel([Reply.fail("SERVER")] * 3 + [Reply.text("done")], retry=RetryPolicy(tries=3, first_s=3, max_s=4))
    async with opened(make(model, plugins=[EXACT])) as (system, ref):
        await say(ref, "hi")
        assert await delays(system.store) == [3, 4, None]


class Elsewhere(Plugin):
    """Answers for itself."""

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
        return Resend(0)


async def test_a_plugin_further_in_has_the_first_word() -> None:
    async with opened(make(failing(1, "QUOTA"), plugins=[EXACT, Elsewhere()])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{retry}} Q2 C* A SE TE1{{completed}}"


@pytest.mark.parametrize("tries", [0, 1])
async def test_no_more_tries_than_asked_for(tries: int) -> None:
    async with opened(make(failing(1), plugins=[Retry(tries=tries)])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{raise}} SE TE1{{error}}"


async def _asked(retry: Retry, attempt: int, retry_after_s: float | None = None) -> float:
    async def nobody(failed: Failed) -> Resend | None:
        return None

    context: Any = None
    failed = Failed("p", Failure("SERVER", retry_after_s=retry_after_s), attempt)
    answer = await retry.request_error(context, failed, nobody)
    assert answer is not None
    return answer.after_s


async def test_jitter_spreads_delays_and_keeps_to_the_bounds() -> None:
    retry = Retry(tries=10**9, jitter=0.5)
    own = {await _asked(retry, 9) for _ in range(50)}
    assert len(own) > 10 and all(5 <= delay <= 10 for delay in own)
    told = {await _asked(retry, 1, 8.0) for _ in range(50)}
    assert len(told) > 10 and all(8 <= delay <= 12 for delay in told), "never before the provider said"
    assert await _asked(Retry(tries=10**9, jitter=0), 10_000) == 10, "no overflow"


@pytest.mark.parametrize("wrong", [{"tries": -1}, {"first_s": -0.1}, {"max_s": float("nan")}, {"jitter": 1.5}, {"jitter": -1}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Retry(**wrong)
