"""From a text to a command: the router alone, without an agent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.plugins.commands.router import Found, Misused, Router, Spec, Unknown, correction
from callboard.storage.errors import UsageError

ROUTER = Router(
    [
        Spec("/new", "/new", False, False),
        Spec("/status", "/status", True, False),
        Spec("/model", "/model [NAME]", False, True),
        Spec("/karma", "/karma NAME", False, True),
        Spec("/karma list", "/karma list", False, False),
        Spec("/Karma give", "/karma give NAME", False, True),
    ]
)


@pytest.mark.parametrize("text", ["/new", "/NEW", "  /new  ", "/new@bot", " /New@Bot\n"])
def test_c156_case_blanks_and_one_suffix_do_not_matter(text: str) -> None:
    assert ROUTER.route(text) == Found("/new", "")


@pytest.mark.parametrize("text", ["hello /new", "new", "", "/", "/ new", "//", "/etc/hosts is empty", "/@bot"])
def test_c156_what_is_no_command_is_a_prompt(text: str) -> None:
    assert ROUTER.route(text) is None


def test_c156_two_suffixes_are_an_unknown_command() -> None:
    assert ROUTER.route("/new@a@b") == Unknown("/new@a@b", "", None)


def test_c157_a_command_without_arguments_takes_none() -> None:
    routed = ROUTER.route("/status now")
    assert isinstance(routed, Misused)
    assert routed == Misused("/status", "now")
    assert ROUTER.is_control(routed)
    assert correction(routed) == "/status takes no arguments."


@pytest.mark.parametrize(
    ("text", "closest", "said"),
    [
        ("/zzzz", None, "There is no command /zzzz. /help lists them all."),
        ("/stauts", "/status", "There is no command /stauts; did you mean /status? /help lists them all."),
        ("/STATSU x", "/status", "There is no command /STATSU; did you mean /status? /help lists them all."),
    ],
)
def test_c158_an_unknown_command_is_answered_with_the_closest(text: str, closest: str | None, said: str) -> None:
    routed = ROUTER.route(text)
    assert isinstance(routed, Unknown)
    assert routed.closest == closest
    assert correction(routed) == said
    assert not ROUTER.is_control(routed)


def test_c158_a_name_without_end_is_not_repeated_whole() -> None:
    routed = ROUTER.route("/" + "z" * 10_000)
    assert isinstance(routed, Unknown)
    assert len(correction(routed)) < 100


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/model My  Preset", Found("/model", "My  Preset")),
        ("/MODEL@bot My  Preset ", Found("/model", "My  Preset")),
        ("/model\nMy\nPreset", Found("/model", "My\nPreset")),
        ("/karma", Found("/karma", "")),
        ("/karma list", Found("/karma list", "")),
        ("/karma   LIST", Found("/karma list", "")),
        ("/karma listen", Found("/karma", "listen")),
        ("/karma give  Ann  B", Found("/Karma give", "Ann  B")),
        ("/karma list all", Misused("/karma list", "all")),
    ],
)
def test_c159_the_longest_name_wins_and_arguments_stay_as_typed(text: str, found: Found | Misused) -> None:
    assert ROUTER.route(text) == found


@given(st.text(max_size=60), st.sampled_from(["", "/", "/new", "/model ", "/karma list", "/new@"]))
def test_any_text_at_all_is_routed(text: str, start: str) -> None:
    routed = ROUTER.route(start + text)
    if routed is not None:
        assert (start + text).strip().startswith("/")
        assert routed.arguments in start + text
        assert isinstance(routed, Unknown) or routed.name in {spec.name for spec in ROUTER.specs.values()}


@pytest.mark.parametrize("name", ["karma", "/", "/a b/c", "/a  b", "", "/a@b", "/a\nb"])
def test_a_name_that_cannot_be_typed_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no name of a command"):
        Router([Spec(name, name, False, False)])


def test_two_commands_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two commands '/NEW'"):
        Router([Spec("/new", "", False, False), Spec("/NEW", "", False, False)])
