"""The assembler: what a stream comes to, whole or cut, whatever the order of its chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.models import Assembled, Assembler, without_calls
from callboard.storage import chunks as c
from callboard.storage.messages import (
    Block,
    BlockEnd,
    BlockStart,
    Chunk,
    Failure,
    Finish,
    FinishChunk,
    Image,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    ToolResultBlock,
    Usage,
    UsageChunk,
)


def fed(chunks: Iterable[Chunk]) -> Assembler:
    assembler = Assembler()
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler


def whole(*chunks: Chunk) -> Assembled:
    return fed(chunks).result()


def cut(*chunks: Chunk) -> tuple[Block, ...]:
    return fed(chunks).cut()


def text(index: int, *pieces: str) -> list[Chunk]:
    return [c.block_start(index, "text"), *(c.text_delta(index, p) for p in pieces), c.block_end(index)]


def call(index: int, id: str, arguments: str = "{}", name: str = "t") -> list[Chunk]:
    start = c.block_start(index, ToolCallBlock(id, name))
    return [start, c.tool_call_delta(index, arguments=arguments), c.block_end(index)]


def ids(assembled: Assembled) -> list[str]:
    return [b.id for b in assembled.blocks if isinstance(b, ToolCallBlock)]


# -- whole answers


def test_c003_deltas_join_to_the_text() -> None:
    got = whole(*text(0, "a", "b", "c"), c.usage(input=1, output=3), c.finish("stop"))
    assert got == Assembled((TextBlock("abc"),), "stop", Usage(1, 3))


def test_c006_a_finish_without_any_block_gives_no_blocks() -> None:
    assert whole(c.finish("stop")) == Assembled()


def test_c006_blocks_that_hold_nothing_are_left_out() -> None:
    assert whole(*text(0, ""), c.block_start(1, "reasoning"), c.block_end(1), c.finish("stop")).blocks == ()


def test_c007_no_finish_is_a_normal_one() -> None:
    assert whole(*text(0, "a")) == Assembled((TextBlock("a"),), "stop")


def test_c008_no_chunk_at_all_is_an_empty_answer() -> None:
    assert whole() == Assembled()


def test_c009_a_finish_that_speaks_of_calls_makes_none() -> None:
    assert whole(*text(0, "a"), c.finish("tool-calls")).calls == ()


def test_c010_blocks_decide_about_calls_not_the_finish() -> None:
    got = whole(*call(0, "c1", '{"x":1}'), c.finish("stop"))
    assert got.calls == (ToolCallBlock("c1", "t", '{"x":1}'),)


def test_blocks_stand_in_the_order_in_which_their_index_was_first_seen() -> None:
    got = whole(c.text_delta(7, "b"), c.text_delta(2, "a"), c.text_delta(7, "b"), c.block_end(2), c.block_end(7))
    assert got.blocks == (TextBlock("bb"), TextBlock("a"))


def test_a_delta_without_a_start_opens_its_block() -> None:
    got = whole(
        c.reasoning_delta(0, "h", signature="s"),
        c.reasoning_delta(0, "m"),
        c.text_delta(1, "a"),
        c.tool_call_delta(2, id="c1", name="t", arguments="{"),
        c.tool_call_delta(2, arguments="}"),
    )
    assert got.blocks == (ReasoningBlock("hm", "s"), TextBlock("a"), ToolCallBlock("c1", "t", "{}"))


def test_the_first_close_of_a_block_wins() -> None:
    got = whole(
        *text(0, "a"),
        c.text_delta(0, "late"),
        c.block_end(0, meta={"late": True}),
        *call(1, "c1"),
        c.tool_call_delta(1, id="late", arguments="late"),
        c.reasoning_delta(2, "r"),
        c.block_end(2),
        c.reasoning_delta(2, "late", signature="late"),
    )
    assert got.blocks == (TextBlock("a"), ToolCallBlock("c1", "t", "{}"), ReasoningBlock("r"))


LATE_IMAGE = BlockStart(6, Image("image/png", url="https://x.test/a.png"))


@pytest.mark.parametrize(
    "late", [LATE_IMAGE, c.text_delta(0, "x"), c.text_delta(5, "x"), c.tool_call_delta(1, arguments="x"), *call(6, "z")]
)
def test_a_finish_closes_all_blocks_and_opens_none(late: Chunk) -> None:
    got = whole(c.text_delta(0, "a"), c.tool_call_delta(1, id="c1", name="t"), c.finish("stop"), late)
    assert got.blocks == (TextBlock("a"), ToolCallBlock("c1", "t"))


def test_usage_counts_after_the_finish_too_and_the_last_one_wins() -> None:
    got = fed([c.usage(input=1), c.finish("stop"), c.usage(input=2)])
    assert (got.usage, got.result().usage) == (Usage(2), Usage(2))


def test_a_second_start_is_ignored() -> None:
    got = whole(
        c.block_start(0, TextBlock("a", {"first": 1})),
        c.block_start(0, TextBlock("b", {"second": 2})),
        c.block_start(1, ReasoningBlock("r", "s1")),
        c.block_start(1, ReasoningBlock("q", "s2")),
        c.block_start(2, ToolCallBlock("c1", "t", "{}")),
        c.block_start(2, ToolCallBlock("c2", "u", "{}")),
    )
    assert got.blocks == (TextBlock("a", {"first": 1}), ReasoningBlock("r", "s1"), ToolCallBlock("c1", "t", "{}"))


def test_an_adapter_that_counts_calls_apart_from_text_loses_nothing() -> None:
    got = whole(c.text_delta(0, "a"), c.tool_call_delta(0, id="c1", name="t"), c.block_end(0), c.text_delta(0, "late"))
    assert got.blocks == (TextBlock("a"), ToolCallBlock("c1", "t"))


def test_meta_of_start_and_end_are_kept_with_their_block() -> None:
    got = whole(c.block_start(0, TextBlock("", {"a": 1, "b": 1})), c.text_delta(0, "x"), c.block_end(0, meta={"b": 2}))
    assert got.blocks == (TextBlock("x", {"a": 1, "b": 2}),)


def test_an_empty_block_with_meta_or_a_signature_is_kept() -> None:
    blocks: tuple[Block, ...] = (
        TextBlock("", {"thought": "s"}),
        ReasoningBlock("", "s"),
        ReasoningBlock("", None, {"redacted": "x"}),
    )
    assert whole(*(BlockStart(i, b) for i, b in enumerate(blocks))).blocks == blocks


def test_an_id_repeated_or_emptied_by_later_deltas_stays() -> None:
    got = whole(
        c.tool_call_delta(0, id="c1", name="t", arguments="{"),
        c.tool_call_delta(0, id="", name="", arguments="}"),
        c.tool_call_delta(0, id="c1", name="t"),
    )
    assert got.blocks == (ToolCallBlock("c1", "t", "{}"),)


def test_a_picture_is_kept_and_a_tool_result_is_not_the_models_to_make() -> None:
    picture = Image("image/png", url="https://x.test/a.png")
    start = BlockStart(0, picture)
    assert whole(start, BlockStart(1, ToolResultBlock("c1"))).blocks == (picture,)
    assert cut(start) == (picture,)


# -- ids


def test_c128_a_second_call_with_the_same_id_gets_its_own() -> None:
    assert ids(whole(*call(0, "c"), *call(1, "c"), *call(2, "c"))) == ["c", "c~2", "c~3"]


def test_c128_a_made_up_id_never_takes_that_of_a_later_call() -> None:
    assert ids(whole(*call(0, "c"), *call(1, "c"), *call(2, "c~2"))) == ["c", "c~3", "c~2"]
    assert ids(whole(*call(0, ""), *call(1, "call_0"))) == ["call_0~2", "call_0"]


def test_a_call_without_an_id_is_named_by_its_index() -> None:
    assert ids(whole(*text(0, "a"), *call(1, ""), *call(4, ""))) == ["call_1", "call_4"]


# -- finishes that forbid calls, and those that fail


@pytest.mark.parametrize("finish", ["max-tokens", "refusal", "content-filter"])
def test_c071_c072_such_a_finish_leaves_calls_out_whole_or_half(finish: Finish) -> None:
    half = c.tool_call_delta(2, id="c2", arguments='{"x":')
    got = whole(*text(0, "a"), *call(1, "c1"), half, c.usage(output=9), c.finish(finish))
    assert (got.content, got.calls, got.usage) == ((TextBlock("a"),), (), Usage(output=9))
    assert got.content == without_calls(got.blocks)


def test_c071_max_tokens_with_nothing_but_a_call_is_empty() -> None:
    assert whole(*call(0, "c1"), c.usage(output=1), c.finish("max-tokens")).content == ()


def test_c072_meta_is_cut_with_its_block() -> None:
    got = whole(c.text_delta(0, "a"), c.block_end(0, meta={"m": 0}), *call(1, "c1"), c.block_end(1), c.finish("max-tokens"))
    assert got.content == (TextBlock("a", {"m": 0}),)


def test_c081_a_failed_finish_brings_its_failure() -> None:
    failure = Failure("RATE_LIMIT", "slow down", 429, 2.0, "req_1")
    assert whole(c.finish("error", failure=failure)).failure == failure


def test_c082_an_aborted_finish_is_a_failure_with_that_code() -> None:
    failure = whole(*text(0, "a"), c.finish("aborted")).failure
    assert failure is not None
    assert failure.code == "ABORTED"


def test_an_error_finish_without_a_failure_is_unknown() -> None:
    failure = whole(c.finish("error")).failure
    assert failure is not None
    assert failure.code == "UNKNOWN"


def test_a_failure_beside_a_normal_finish_is_none_and_the_last_finish_counts() -> None:
    assert whole(c.finish("stop", failure=Failure("X"))).failure is None
    assert whole(c.finish("error"), c.finish("stop")).finish == "stop"


# -- cut streams


def test_c050_a_cut_stream_keeps_what_was_seen() -> None:
    assert cut(c.block_start(0, "text"), c.text_delta(0, "par"), c.text_delta(0, "tial")) == (TextBlock("partial"),)


def test_c051_reasoning_and_usage_are_kept() -> None:
    assembler = fed([c.reasoning_delta(0, "hm"), c.usage(input=3)])
    assert (assembler.cut(), assembler.usage) == ((ReasoningBlock("hm"),), Usage(3))


def test_c052_a_cut_stream_keeps_no_call() -> None:
    half = c.tool_call_delta(2, id="c2", name="t", arguments='{"x":')
    assert cut(*text(0, "a"), *call(1, "c1"), half) == (TextBlock("a"),)


@pytest.mark.parametrize("seen", [[], text(0, " \n"), [c.text_delta(0, "\t")], [c.tool_call_delta(0, id="c1", arguments="{")]])
def test_c053_nothing_visible_leaves_nothing(seen: list[Chunk]) -> None:
    assert cut(*seen) == ()


def test_c083_c086_a_failed_attempt_keeps_its_text_and_no_call() -> None:
    chunks = [*text(0, "a"), c.tool_call_delta(1, id="c1"), c.finish("error", failure=Failure("SERVER"))]
    assert cut(*chunks) == (TextBlock("a"),)


# -- any stream

indexes = st.integers(-1, 3)
texts = st.text(max_size=3)
names = st.one_of(st.none(), st.sampled_from(["", "c", "c~2", "call_0"]))
metas = st.one_of(st.none(), st.dictionaries(texts, st.integers(), max_size=1))
blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(TextBlock, texts, metas),
    st.builds(ReasoningBlock, texts, names, metas),
    st.builds(ToolCallBlock, st.sampled_from(["", "c", "c~2"]), texts, texts, metas),
    st.builds(ToolResultBlock, texts),
    st.builds(Image, texts),
)
any_chunk: st.SearchStrategy[Chunk] = st.one_of(
    st.builds(BlockStart, indexes, blocks),
    st.builds(TextDelta, indexes, texts),
    st.builds(ReasoningDelta, indexes, texts, names),
    st.builds(ToolCallDelta, indexes, names, names, texts),
    st.builds(BlockEnd, indexes, metas),
    st.builds(UsageChunk, st.builds(Usage, st.integers(0, 9))),
    st.builds(FinishChunk, st.sampled_from(["stop", "tool-calls", "max-tokens", "error", "aborted"])),
)
streams = st.lists(any_chunk, max_size=20)


def holds(invariant: Callable[[list[Chunk]], None]) -> None:
    given(streams)(invariant)()


def test_any_stream_assembles_with_ids_used_once_and_given() -> None:
    def invariant(chunks: list[Chunk]) -> None:
        got = ids(fed(chunks).result())
        assert len(set(got)) == len(got)
        assert "" not in got

    holds(invariant)


def test_any_stream_has_a_failure_exactly_if_it_failed() -> None:
    def invariant(chunks: list[Chunk]) -> None:
        got = fed(chunks).result()
        assert (got.failure is not None) == (got.finish in ("error", "aborted"))

    holds(invariant)


def test_any_prefix_cut_shows_no_call_and_no_blank_and_asking_changes_nothing() -> None:
    def invariant(chunks: list[Chunk]) -> None:
        asked, plain = Assembler(), fed(chunks)
        for chunk in chunks:
            asked.feed(chunk)
            assert all(b.text.strip() if isinstance(b, TextBlock | ReasoningBlock) else isinstance(b, Image) for b in asked.cut())
            asked.result()
        assert asked.result() == plain.result()

    holds(invariant)


def test_any_stream_keeps_all_text_that_came_before_its_close() -> None:
    def invariant(chunks: list[Chunk]) -> None:
        deltas = [x for x in chunks if isinstance(x, TextDelta)]
        by_index = sorted(deltas, key=lambda x: [d.index for d in deltas].index(x.index))
        got = fed(deltas).result()
        assert "".join(b.text for b in got.blocks if isinstance(b, TextBlock)) == "".join(x.text for x in by_index)

    holds(invariant)
