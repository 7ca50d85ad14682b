"""How many tokens a message has, about; and what an agent learns of its models' own counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.gauge import LEAST, MOST, ROUTES, Gauge, GaugeState
from callboard.actors.tokens import FILE, IMAGE, MESSAGE, header_tokens, message_tokens, messages_tokens, text_tokens
from callboard.storage import events as e
from callboard.storage.folds import Headers, Surface
from callboard.storage.messages import (
    Failure,
    File,
    Header,
    Image,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
    Usage,
)

WORDS = "Keep calm and carry on. " * 50


def said(text: str, id: str = "m") -> Message:
    return Message(id, "user", (TextBlock(text),))


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        (WORDS, 250, 400),
        ("Счёт за октябрь оплачен вчера. " * 20, 200, 400),
        ("明日の会議は三時からです。" * 20, 180, 300),
        ("👍" * 10, 10, 30),
        ("naïve café", 2, 6),
        ("\ud800", 1, 3),
    ],
)
def test_a_text_counts_by_its_script(text: str, least: int, most: int) -> None:
    assert least <= text_tokens(text) <= most


@given(st.text(), st.text())
def test_a_longer_text_has_no_fewer_tokens(text: str, more: str) -> None:
    assert text_tokens(text) <= text_tokens(text + more) <= text_tokens(text) + text_tokens(more) + 1


def test_pictures_and_files_are_flat_and_calls_count_with_their_arguments() -> None:
    assert (
        message_tokens(Message("m", "user", (Image("image/png", blob="x"), File("text/csv", blob="y")))) == MESSAGE + IMAGE + FILE
    )
    call = Message("m", "assistant", (ToolCallBlock("c", "look", WORDS),))
    result = Message("m", "tool", (ToolResultBlock("c", (TextBlock(WORDS),)),))
    assert message_tokens(call) > text_tokens(WORDS) and message_tokens(result) > text_tokens(WORDS)
    assert messages_tokens([call, result]) == message_tokens(call) + message_tokens(result)
    tools = (ToolSpec("look", "Look it up.", {"type": "object"}),)
    assert header_tokens(Header("p", "m", system=WORDS, tools=tools, output={"type": "object"})) > text_tokens(WORDS) + 10


class Log:
    """A gauge beside the folds that it looks into."""

    def __init__(self) -> None:
        self.surface, self.headers = Surface(), Headers()
        self.gauge = Gauge(self.surface, self.headers)
        self.seq = 0

    def add(self, *events: e.Event) -> None:
        for event in events:
            self.seq += 1
            for fold in (self.surface, self.headers, self.gauge):
                if isinstance(event, fold.EVENTS):
                    fold.apply(self.seq, 0, event)

    def request(self, model: str = "m") -> None:
        header = Header("p", model, system="Be brief.")
        if self.headers.context is None or self.headers.context.model != model:
            self.add(e.RequestHeader(reason="change", digest=model, header=header), e.RequestContext(provider="p", model=model))
        self.add(e.RequestSent(turn=1, step=1, attempt=1, digest="d", upto=0))

    def answered(self, counted: int | None, text: str = "ok") -> None:
        usage = None if counted is None else Usage(input=counted)
        message = Message(f"a{self.seq}", "assistant", (TextBlock(text),))
        self.add(e.AssistantMessage(turn=1, step=1, message=message, usage=usage))

    def refused(self, code: str = "CONTEXT_OVERFLOW") -> None:
        self.add(e.RequestFailed(turn=1, step=1, attempt=1, failure=Failure(code), action="retry"))


def test_the_gauge_is_the_sum_of_what_the_model_sees() -> None:
    log = Log()
    log.add(e.UserMessage(message=said(WORDS)))
    log.request()
    log.answered(None)
    log.add(e.ToolResult(turn=1, step=1, call_id="c", content=(TextBlock("x"),)))
    whole = log.gauge.tokens([said("more")])
    assert whole == pytest.approx(messages_tokens(m for _, m in log.surface.entries()) + text_tokens("Be brief.") + 5, abs=20)
    log.add(e.SurfaceReplace(start=1, end=1, message=said("short", "s")))
    assert log.gauge.tokens() < whole - text_tokens(WORDS) + 40


def test_a_count_that_is_higher_is_learned_at_once_and_a_lower_one_slowly() -> None:
    log = Log()
    log.add(e.UserMessage(message=said(WORDS)))
    log.request()
    estimate = log.gauge.tokens()
    log.answered(estimate * 2)
    assert log.gauge.ratio == pytest.approx(2, rel=0.02)
    log.request()
    log.answered(log.gauge.tokens() // 2)
    assert 1.7 < log.gauge.ratio < 1.9


@pytest.mark.parametrize(("counted", "ratio"), [(10**9, MOST), (1, 1 - 0.2 * (1 - LEAST)), (0, 1.0), (None, 1.0)])
def test_a_count_that_makes_no_sense_changes_little(counted: int | None, ratio: float) -> None:
    log = Log()
    log.add(e.UserMessage(message=said(WORDS)))
    log.request()
    log.answered(counted)
    assert log.gauge.ratio == pytest.approx(ratio)


def test_what_is_learned_is_of_one_model_and_only_of_some() -> None:
    log = Log()
    log.add(e.UserMessage(message=said(WORDS)))
    for number in range(ROUTES + 2):
        log.request(f"m{number}")
        log.answered(10**9)
    assert log.gauge.ratio == MOST
    log.request("other")
    assert log.gauge.ratio == 1
    assert len(log.gauge.dump().learned) == ROUTES


def test_a_refused_request_is_where_the_window_ends_until_a_longer_one_was_answered() -> None:
    log = Log()
    log.add(e.UserMessage(message=said(WORDS)))
    assert log.gauge.window(None) is None
    log.request()
    full = log.gauge.tokens()
    log.refused("SERVER")
    assert log.gauge.window(None) is None
    log.request()
    log.refused()
    assert log.gauge.window(None) == full
    assert log.gauge.window(10 * full) == 10 * full // 4, "one refusal does not say that a known window is a tenth of itself"
    assert log.gauge.window(full // 2) == full // 2
    log.add(e.UserMessage(message=said("more")))
    log.request()
    log.answered(None)
    assert log.gauge.window(None) == full, "nobody counted it"
    log.request()
    log.answered(full)
    assert log.gauge.window(None) is None


def test_what_was_learned_is_in_the_snapshot_and_a_log_that_nobody_gauged_is_counted_when_asked() -> None:
    log = Log()
    log.add(e.UserMessage(message=said(WORDS)))
    log.request()
    log.answered(10**9)
    log.add(e.Note(kind="compaction-useless"))
    again = Gauge(log.surface, log.headers, log.gauge.dump())
    assert (again.tokens(), again.ratio, again.fruitless) == (log.gauge.tokens(), MOST, 1)
    fresh = Gauge(log.surface, log.headers, GaugeState())
    assert fresh.tokens() * MOST == pytest.approx(log.gauge.tokens())


@pytest.mark.parametrize("asks", [True, False])
def test_what_is_learned_behind_a_rewrite_is_the_same_whether_or_not_somebody_asked(asks: bool) -> None:
    """Or an agent that is folded again after a crash would compact at other places, and forget that a request was refused."""
    log = Log()
    log.add(e.UserMessage(message=said(WORDS)), e.SurfaceReplace(start=1, end=1, message=said("short", "s")))
    assert not asks or log.gauge.tokens() > 0
    assert log.gauge.dump() == GaugeState()
    log.request()
    log.refused()
    assert (log.gauge.window(None) or 0) > messages_tokens(m for _, m in log.surface.entries())
    log.request()
    log.answered(10**9)
    log.answered(None, text="")
    assert log.gauge.ratio == MOST
    kept = log.gauge.dump()
    assert kept.view == messages_tokens(m for _, m in log.surface.entries()), "an answer without a word is not seen"


def test_useless_tries_are_forgotten_once_the_view_has_grown_or_was_rewritten() -> None:
    log = Log()
    log.add(e.UserMessage(message=said(WORDS)), e.Note(kind="compaction-useless"), e.Note(kind="other"))
    assert log.gauge.fruitless == 1
    log.add(e.UserMessage(message=said("hm")), e.Note(kind="compaction-gave-up"))
    assert log.gauge.fruitless == 2
    log.add(e.UserMessage(message=said(WORDS)))
    assert log.gauge.fruitless == 0
    log.add(e.Note(kind="compaction-useless"), e.SurfaceReplace(start=1, end=1))
    assert log.gauge.fruitless == 0
