"""Recall: what was summarised is found again by the agent itself."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import events, make, opened, say, scripted

from callboard.actors import Plugin, Replace, recall
from callboard.actors.testing import Reply
from callboard.storage import Message, TextBlock, UsageError
from callboard.storage import events as e


class Forgets(Plugin):
    """Before the turn of `now`, all that was said gives way to a summary."""

    async def compact(self, ctx: Any, position: Any, next: Any, /) -> Any:
        due = position.entries and position.incoming[-1].text == "now"
        return Replace(Message("s", "user", (TextBlock("they talked about a parrot"),))) if due else None


def asks(words: str, **rest: Any) -> Reply:
    return Reply.tools(("c1", "recall", {"words": words, **rest}))


async def found(*calls: Reply, most: int = 8) -> list[str]:
    script = scripted("Polly, of course.", "A parrot is a parrot.", *calls, "done")
    agent = make(script, tools=[recall(most=most)], plugins=[Forgets()])
    async with opened(agent) as (system, ref):
        await say(ref, "What is the parrot called?")
        await say(ref, "And what is a parrot?")
        await say(ref, "now")
        return [result.content[0].text for result in await events(system.store, e.ToolResult)]  # type: ignore[union-attr]


async def test_what_the_model_does_not_see_any_more_is_found_newest_first() -> None:
    (text,) = await found(asks("PARROT"))
    lines = text.splitlines()
    assert [line.partition(", ")[2] for line in lines] == [
        "you: A parrot is a parrot.",
        "user: And what is a parrot?",
        "user: What is the parrot called?",
    ]
    assert lines[0].startswith("[") and "20" in lines[0]


async def test_all_words_count_wherever_they_stand_and_what_is_seen_is_left_out() -> None:
    assert "user: What is the parrot called?" in (await found(asks("called  Parrot")))[0]
    for words in ("they talked", "now", "parrot elephant"):
        assert (await found(asks(words)))[0].startswith("Nothing that you do not see")


async def test_older_places_are_found_by_the_number_of_the_last_one() -> None:
    (first,) = await found(asks("parrot"), most=1)
    number = int(first[1:].partition("]")[0])
    (second,) = await found(asks("parrot", before=number), most=1)
    assert "A parrot is" in first and "And what is" in second


async def test_no_words_are_an_error_that_the_model_reads() -> None:
    assert await found(asks(" ")) == ["Give some words to search for."]


def test_a_tool_that_could_find_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="most=0"):
        recall(most=0)
    assert recall(name="remember").name == "remember"
