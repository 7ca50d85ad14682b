"""What a person reads in a debugger or a log line: each thing says which it is."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import make, opened, scripted

from callboard.actors.answers import Command
from callboard.actors.chains import Chains
from callboard.actors.frozen import FrozenDict, frozen_settings
from callboard.actors.models.assembler import Assembler
from callboard.actors.plugins import Budget, Invariants, LoopGuard, Permissions, Redact, Retry
from callboard.actors.seams import Plugin
from callboard.actors.tools.bodies import Strays
from callboard.storage import chunks as c
from callboard.storage.folds.view import MessageView
from callboard.storage.messages import Message, Settings, TextBlock


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (Chains([Plugin(), Retry()]), "Chains([Plugin(), Retry(tries=5, first_s=0.5, max_s=10)])"),
        (LoopGuard(repeats=3), "LoopGuard(repeats=3)"),
        (Permissions(deny=["rm"]), "Permissions(allow=(), deny=('rm',), ask=(), default='allow')"),
        (Redact([r"\d+"]), r"Redact(['\\d+'], by='[redacted]')"),
        (Invariants(), "Invariants()"),
        (Strays(), "<Strays none>"),
        (Assembler(), "<Assembler 0 blocks, open>"),
    ],
)
def test_each_thing_says_which_it_is(thing: Any, text: str) -> None:
    assert repr(thing) == text


def test_what_has_more_to_say_says_it() -> None:
    assembler = Assembler()
    for chunk in (c.text_delta(0, "a"), c.finish("stop")):
        assembler.feed(chunk)
    assert repr(assembler) == "<Assembler 1 blocks, stop>"
    assert "steps=100" in repr(Budget())


async def test_an_agent_in_memory_says_where_it_is() -> None:
    async with opened(make(scripted())) as (system, _):
        assert repr(await system._runtime.registry.actor("a")) == "<Actor 'a' idle, seq 0>"  # pyright: ignore[reportPrivateUsage]


# -- values


def test_a_command_has_the_id_of_its_message() -> None:
    command = Command(Message("m1", "user", (TextBlock("  /ping "),)))
    assert (command.id, command.text) == ("m1", "/ping")


def test_frozen_settings_hand_out_copies_that_may_be_changed() -> None:
    settings = frozen_settings(Settings(extra={"acme": {"tags": ["a", {"deep": 1}]}}))
    extra = settings.extra
    assert isinstance(extra, FrozenDict)
    copy = extra.copy()
    copy["acme"] = 1
    assert extra == {"acme": {"tags": ("a", {"deep": 1})}}
    with pytest.raises(TypeError, match="is frozen at 'acme'"):
        extra["acme"] = 1


def test_a_view_is_equal_to_a_list_of_its_messages() -> None:
    message = Message("m1", "user", (TextBlock("hi"),))
    view = MessageView([message], 1)
    assert view == [message]
    assert view != "hi"
    assert hash(view) == hash(MessageView([message], 1))
