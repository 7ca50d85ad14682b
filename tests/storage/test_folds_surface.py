"""The surface: pairs of calls and results, replaces, shared views, the running digest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_script import HEADER, Script, asking, fold, other_events, surface_events, text

from callboard.storage import events as e
from callboard.storage import messages as m
from callboard.storage.digest import header_line, message_line, request_digest
from callboard.storage.errors import StoreError
from callboard.storage.folds import NO_RESULT, Surface, SurfaceState
from callboard.storage.folds import surface as surface_module

LINE = header_line(HEADER)
EVENTS = st.lists(surface_events, max_size=25)


def shown(surface: Surface) -> list[str]:
    """The surface in short: ids of messages, results as call=text."""
    out: list[str] = []
    for message in surface.messages():
        out.append("".join(f"{call}={text}" for call, text in message.results.items()) or message.id)
    return out


def result(call: str, content: str = "ok") -> e.ToolResult:
    return e.ToolResult(turn=1, step=1, call_id=call, content=(m.TextBlock(content),))


def said(message: m.Message) -> e.AssistantMessage:
    return e.AssistantMessage(turn=1, step=1, message=message)


def user(id: str) -> e.UserMessage:
    return e.UserMessage(message=text(id))


def built(*events: e.Event) -> Surface:
    surface: Surface = fold(Surface(), events)
    return surface


# -- totality


def test_c140_results_stand_after_their_answer_in_the_models_order() -> None:
    surface = built(user("u"), said(asking("a", "c1", "c2")), result("c2", "two"), result("c1", "one"), user("v"))
    assert shown(surface) == ["u", "a", "c1=one", "c2=two", "v"]


def test_c140_a_call_without_result_gets_a_stand_in_that_is_an_error() -> None:
    surface = built(said(asking("a", "c1", "c2")), result("c2", "two"))
    assert shown(surface) == ["a", f"c1={NO_RESULT}", "c2=two"]
    block = surface.messages()[1].content[0]
    assert isinstance(block, m.ToolResultBlock) and block.is_error


def test_c140_unknown_and_second_results_are_left_out() -> None:
    surface = built(result("c0"), said(asking("a", "c1")), result("c1", "first"), result("c1", "second"), result("c9"), user("u"))
    assert shown(surface) == ["a", "c1=first", "u"]


def test_c140_a_second_result_is_left_out_while_others_are_missing() -> None:
    surface = built(said(asking("a", "c1", "c2")), result("c1", "first"), result("c1", "second"), result("c2", "two"))
    assert shown(surface) == ["a", "c1=first", "c2=two"]


def test_c140_empty_answers_stay_out() -> None:
    surface = built(user("u"), said(m.Message("a", "assistant")), said(m.Message("b", "assistant", (m.TextBlock(""),))))
    assert shown(surface) == ["u"]


def test_c140_a_result_that_comes_late_takes_the_place_of_its_stand_in() -> None:
    surface = built(said(asking("a", "c1")), user("u"))
    before = surface.messages()
    assert shown(surface) == ["a", f"c1={NO_RESULT}", "u"]
    surface.apply(9, 0, result("c1", "late"))
    assert shown(surface) == ["a", "c1=late", "u"]
    assert before[1].text == NO_RESULT


def test_c140_an_id_that_a_later_answer_uses_again_belongs_to_that_answer() -> None:
    surface = built(
        said(asking("a", "c1")), result("c1", "one"), said(asking("b", "c1")), result("c1", "two"), result("c1", "three")
    )
    assert shown(surface) == ["a", "c1=one", "b", "c1=two"]


def test_c140_two_calls_with_one_id_in_one_answer_are_one_call() -> None:
    surface = built(said(asking("a", "c1", "c1")), result("c1", "one"))
    assert shown(surface) == ["a", "c1=one"]
    assert [call.id for call in surface.messages()[0].calls] == ["c1"]


def test_c284_a_history_given_as_user_messages_is_shown_by_role() -> None:
    both = m.Message(
        "r", "tool", (m.ToolResultBlock("c1", (m.TextBlock("one"),)), m.ToolResultBlock("c2", (m.TextBlock("two"),)))
    )
    history = [text("u"), asking("a", "c1", "c2"), both, text("b", "assistant")]
    surface = built(*(e.UserMessage(message=message) for message in history))
    assert shown(surface) == ["u", "a", "c1=one", "c2=two", "b"]


def test_a_failed_result_is_marked_and_keeps_only_what_a_model_can_read() -> None:
    content = (m.TextBlock("no"), m.ReasoningBlock("hidden"), m.Image("image/png", url="u"))
    event = e.ToolResult(turn=1, step=1, call_id="c1", content=content, error="DENIED")
    block = built(said(asking("a", "c1")), event).messages()[1].content[0]
    assert block == m.ToolResultBlock("c1", (m.TextBlock("no"), m.Image("image/png", url="u")), is_error=True)


def check_total(messages: Sequence[m.Message]) -> None:
    """Every call has one result, directly behind its answer, in its order; nothing else has one; nothing is empty."""
    owed: list[str] = []
    for message in messages:
        assert message.content
        if message.role == "tool":
            assert list(message.results) == owed[:1], messages
            owed.pop(0)
        else:
            assert owed == [] and not message.results
            owed = [call.id for call in message.calls]
            assert len(set(owed)) == len(owed) and (message.role == "assistant" or not owed)
    assert owed == []


@given(EVENTS)
def test_c140_the_surface_of_any_log_is_total(events: list[e.Event]) -> None:
    surface = Surface()
    for seq, event in enumerate(events):
        surface.apply(seq, 0, event)
        check_total(surface.messages())


@given(EVENTS, st.data())
def test_c141_records_that_are_not_messages_change_nothing(events: list[e.Event], data: st.DataObject) -> None:
    mixed: list[tuple[int, e.Event]] = []
    for seq, event in enumerate(events):
        mixed += [(seq, other) for other in data.draw(st.lists(other_events, max_size=2))]
        mixed.append((seq, event))
    surface = Surface()
    for seq, event in mixed:
        surface.apply(seq, 0, event)
    assert surface.messages() == built(*events).messages()


@given(EVENTS, st.integers(0, 25))
def test_c142_whole_step_by_step_and_from_a_snapshot_are_the_same(events: list[e.Event], at: int) -> None:
    whole = built(*events)
    packed = msgspec.msgpack.encode(built(*events[:at]).dump())
    rest: Surface = fold(Surface.load(msgspec.msgpack.decode(packed, type=SurfaceState)), events[at:], first=len(events[:at]))
    assert rest.messages() == whole.messages() and rest.entries() == whole.entries()
    lazy: Surface = fold(Surface.packed(msgspec.Raw(packed)), events[at:], first=len(events[:at]))
    assert lazy.is_packed, "nobody has looked"
    assert lazy.messages() == whole.messages() and lazy.entries() == whole.entries() and lazy.dump() == whole.dump()
    assert bytes(Surface.packed(msgspec.Raw(packed)).pack()) == packed
    # A snapshot taken at the end arranges everything anew: the one-record-at-a-time way must have come to the same.
    assert Surface.load(whole.dump()).messages() == whole.messages()
    assert Surface.load(whole.dump()).digest(LINE) == whole.digest(LINE)


def hashed(surface: Surface) -> str:
    return surface.digest(LINE)


def checked(surface: Surface) -> str | None:
    return surface.check_replace(1, 1)


@pytest.mark.parametrize("look", [len, Surface.messages, Surface.entries, Surface.dump, hashed, checked])
def test_whoever_looks_at_a_packed_surface_sees_all_of_it(look: Callable[[Surface], object]) -> None:
    loaded = built(user("u"), said(asking("a", "c1")), user("v"))
    assert look(Surface.packed(loaded.pack())) == look(loaded)


def test_a_history_that_cannot_be_read_is_said_to_be_so() -> None:
    broken = Surface.packed(msgspec.Raw(msgspec.msgpack.encode({"seqs": [0], "messages": ["no message"]})))
    for _ in range(2):
        with pytest.raises(StoreError, match="history in a snapshot cannot be read"):
            broken.messages()


@given(EVENTS)
def test_c098_the_running_digest_is_that_of_the_whole_at_every_moment(events: list[e.Event]) -> None:
    surface = Surface()
    for seq, event in enumerate(events):
        surface.apply(seq, 0, event)
        assert surface.digest(LINE) == request_digest(surface.messages(), HEADER)


@given(EVENTS, st.sets(st.integers(0, 25)))
def test_a_snapshot_that_encodes_what_is_new_alone_is_the_whole_one(events: list[e.Event], packed_at: set[int]) -> None:
    surface = Surface()
    for seq, event in enumerate(events):
        surface.apply(seq, 0, event)
        if seq in packed_at:
            assert bytes(surface.pack()) == msgspec.msgpack.encode(surface.dump())


def test_a_snapshot_behind_a_replace_holds_nothing_of_what_was_replaced() -> None:
    surface = built(user("u1"), said(text("a1", "assistant")), user("u2"))
    assert b"u1" in bytes(surface.pack())
    surface.apply(3, 0, e.SurfaceReplace(start=0, end=1, message=text("summary")))
    assert bytes(surface.pack()) == msgspec.msgpack.encode(surface.dump())


@pytest.mark.parametrize("count", [15, 16, (1 << 16) - 1, 1 << 16])
def test_a_snapshot_of_many_messages_can_be_read(count: int) -> None:
    surface = Surface.load(SurfaceState(tuple(range(count)), (text("m"),) * count))
    assert bytes(surface.pack()) == msgspec.msgpack.encode(surface.dump())
    assert len(Surface.packed(surface.pack())) == count


@given(EVENTS)
def test_a_view_never_changes(events: list[e.Event]) -> None:
    surface = Surface()
    kept: list[tuple[Sequence[m.Message], list[m.Message]]] = []
    for seq, event in enumerate(events):
        surface.apply(seq, 0, event)
        kept.append((surface.messages(), list(surface.messages())))
    assert all(view == copy and list(view) == copy for view, copy in kept)


# -- replacing


def test_c137_a_summary_stands_for_what_it_replaces() -> None:
    surface = built(user("u1"), said(text("a1", "assistant")), user("u2"))
    assert surface.check_replace(0, 1) is None
    surface.apply(3, 0, e.SurfaceReplace(start=0, end=1, message=text("summary")))
    assert shown(surface) == ["summary", "u2"]
    assert [seq for seq, _ in surface.entries()] == [3, 2]


def test_c139_a_replace_over_an_earlier_replace_leaves_one_message() -> None:
    surface = built(user("u1"), user("u2"), user("u3"), e.SurfaceReplace(start=0, end=1, message=text("s1")))
    assert surface.check_replace(3, 2) is None
    surface.apply(4, 0, e.SurfaceReplace(start=3, end=2, message=text("s2")))
    assert shown(surface) == ["s2"]


def test_c263_a_replace_without_a_message_makes_the_range_vanish() -> None:
    surface = built(user("u1"), user("u2"), user("u3"), e.SurfaceReplace(start=0, end=1))
    assert shown(surface) == ["u3"]


def test_c138_what_is_no_range_is_refused_and_says_why() -> None:
    surface = built(
        user("u1"), user("u2"), said(m.Message("empty", "assistant")), said(asking("a", "c1")), result("c1"), user("u3")
    )
    why = {range: surface.check_replace(*range) for range in [(0, 9), (2, 5), (1, 0), (0, 3), (4, 5)]}
    assert why == {
        (0, 9): "seq 9 is not on the surface; take start and end from the entries that are",
        (2, 5): "seq 2 is not on the surface; take start and end from the entries that are",
        (1, 0): "seq 1 stands after seq 0; give the range in the order of the surface",
        (0, 3): "seqs 0 to 3 would separate the call in seq 3 from its result; move the range",
        (4, 5): "seqs 4 to 5 would separate the call in seq 3 from its result; move the range",
    }
    assert surface.check_replace(3, 4) is None and surface.check_replace(0, 5) is None


def test_c138_a_call_that_still_waits_for_its_result_cannot_be_replaced() -> None:
    surface = built(user("u"), said(asking("a", "c1")))
    assert surface.check_replace(0, 1) is not None and surface.check_replace(0, 0) is None
    surface.apply(2, 0, user("v"))
    assert surface.check_replace(0, 1) is None


def test_c138_a_bad_range_in_a_log_changes_nothing() -> None:
    events = (user("u1"), user("u2"))
    for replace in (e.SurfaceReplace(start=1, end=0), e.SurfaceReplace(start=0, end=7, message=text("s"))):
        assert built(*events, replace).messages() == built(*events).messages()


# -- sharing and counting


def test_c262_a_view_shares_the_list() -> None:
    surface = built(*(user(f"u{n}") for n in range(5)))
    first = surface.messages()
    surface.apply(5, 0, user("more"))
    second = surface.messages()
    assert (len(first), len(second)) == (5, 6)
    assert first[-1] is second[4] and first[1:3] == (second[1], second[2])
    assert first._items is second._items  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(IndexError):
        first[5]


def test_c262_a_request_digests_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = 0

    def counted(message: m.Message) -> bytes:
        nonlocal lines
        lines += 1
        return message_line(message)

    monkeypatch.setattr(surface_module, "message_line", counted)
    surface = built(*(user(f"u{n}") for n in range(5000)))
    assert lines == 0
    surface.digest(LINE)
    assert lines == 5000
    surface.apply(5000, 0, user("x"))
    surface.apply(5001, 0, said(text("y", "assistant")))
    assert surface.digest(LINE) == request_digest(surface.messages(), HEADER)
    assert lines == 5002
    surface.apply(5002, 0, e.SurfaceReplace(start=0, end=4999, message=text("s")))
    surface.digest(LINE)
    assert lines == 5005
    surface.digest(LINE)
    assert lines == 5005


def test_c002_the_second_request_is_the_first_and_two_messages_more() -> None:
    script = Script()
    script.simple("one")
    first = list(script.surface.messages())
    script.begin("two")
    assert list(script.surface.messages()) == [*first, text("two")]


def test_the_surface_knows_whether_it_shows_media() -> None:
    picture = m.Image(media_type="image/png", blob="0" * 64)
    shows = e.UserMessage(message=msgspec.structs.replace(text("p"), content=(m.TextBlock("look"), picture)))
    assert not built(user("u"), said(asking("a", "c1")), result("c1")).has_media
    surface = built(user("u"), shows)
    assert surface.has_media and Surface.load(surface.dump()).has_media and Surface.packed(surface.pack()).has_media
    surface.apply(9, 0, e.SurfaceReplace(start=1, end=1, message=text("there was a picture")))
    assert not surface.has_media
    in_a_result = e.ToolResult(turn=1, step=1, call_id="c1", content=(picture,))
    assert built(said(asking("a", "c1")), in_a_result).has_media
