"""Computed names: lossless, stable, never too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.mailbox.addresses import (
    LONGEST,
    child_id,
    delivery_id,
    effect_id,
    effect_key,
    parse_child_id,
    parse_session_key,
    session_key,
)

TEXT = st.text(st.sampled_from("ab:/%#~25AF3é"), max_size=12)


@given(TEXT, TEXT, st.none() | TEXT)
def test_c185_a_session_key_names_channel_chat_and_thread_without_loss(channel: str, chat: str, thread: str | None) -> None:
    assert parse_session_key(session_key(channel, chat, thread)) == (channel, chat, thread)


def test_a_session_key_reads_as_channel_and_chat() -> None:
    assert session_key("irc", "#a:b%c") == "irc:#a:b%c"
    assert session_key("a:b%", "c") == "a%3Ab%25:c"
    assert session_key("irc", "#a", "t:1") == "irc::#a:t:1"
    assert session_key("irc", ":a") == "irc:%3Aa"
    assert parse_session_key("plain") is None
    assert parse_session_key("irc::half a thread") is None


@given(st.text(min_size=1).map(lambda part: part * 300), st.text(), st.none() | st.text())
def test_a_long_session_key_ends_in_a_hash_and_fits_a_key(channel: str, chat: str, thread: str | None) -> None:
    key = session_key(channel, chat, thread)
    assert len(key.encode()) <= LONGEST
    assert key != session_key(channel, chat + "x", thread)


@given(TEXT, TEXT)
def test_a_child_id_names_parent_and_call_without_loss(parent: str, call: str) -> None:
    assert parse_child_id(child_id(parent, call)) == (parent, call)


def test_a_child_id_reads_as_a_path() -> None:
    assert child_id(child_id("lead", "c1"), "c/2") == "lead/c1/c%2F2"
    assert parse_child_id("lead") is None


@given(st.text(min_size=1).map(lambda part: part * 300), st.text())
def test_a_long_child_id_ends_in_a_hash_and_fits_a_key(parent: str, call: str) -> None:
    id = child_id(parent, call)
    assert len(id.encode()) <= LONGEST
    assert id != child_id(parent, call + "x")


def test_c175_an_effect_key_depends_on_agent_turn_step_and_call_alone() -> None:
    assert effect_key("a", 1, 2, "c") == "48541c37cccecd52cbd0938b7dee5fab"
    parts = [("a", 1, 2, "c"), ("b", 1, 2, "c"), ("a", 2, 2, "c"), ("a", 1, 1, "c"), ("a", 1, 2, "d")]
    keys = {effect_key(*each) for each in parts}
    assert len(keys) == 5
    assert delivery_id("a", 1, 0, 2) not in keys


def test_c273_messages_of_a_tool_are_numbered_under_its_key() -> None:
    assert effect_id("k", 2) == "k#2"
