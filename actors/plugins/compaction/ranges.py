"""Which messages a summary may stand for. Pure.

A view is a row of groups: a message, or an answer that calls tools with the results behind it, which never part. From the end as
many groups stay as fit into what is to be kept, and always the last one: the model may not have read it. Open questions, those
behind the last final answer, stay as well, word by word. What is left may go, and of that the largest run without a gap does. So
a long turn can be compacted behind its own question, and one rewrite after the other always gets somewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

from ....storage.messages import AgentSource, Message, PluginSource, UserSource

SOURCE = PluginSource("compaction")
"""The source of summaries."""
QUESTIONS = 8
"""So many open questions stay as they are: the first and the newest. With more of them some have to go, or nothing ever could."""


class Range(Struct, frozen=True):
    """Messages from the index `first` up to `last`, and their tokens together."""

    first: int
    last: int
    tokens: int


def choose(messages: Sequence[Message], tokens: Sequence[int], *, keep: int) -> Range | None:
    """What a summary should stand for, if about `keep` tokens at the end stay; None if there is nothing, or nothing new.

    Args:
        messages: the view, in its order.
        tokens: of each of them.
        keep: how many tokens of the newest messages stay; the last group stays whatever it has.
    """
    groups = _groups(messages)
    questions = open_questions(messages)
    sums = [0, *accumulate(tokens)]
    best: Range | None = None
    for first, last in _runs(groups[: _kept_from(groups, sums, keep)], questions):
        found = Range(first, last, sums[last + 1] - sums[first])
        nothing_new = first == last and messages[first].source == SOURCE
        if not nothing_new and (best is None or found.tokens > best.tokens):
            best = found
    return best


def open_questions(messages: Sequence[Message]) -> frozenset[int]:
    """The indices of what was asked and has no final answer behind it."""
    asked: list[int] = []
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "assistant" and not message.calls:
            break
        if message.role == "user" and isinstance(message.source, UserSource | AgentSource):
            asked.append(index)
    return frozenset((*asked[: QUESTIONS - 1], *asked[-1:]))


def _groups(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """First and last index of each group."""
    groups: list[tuple[int, int]] = []
    for index, message in enumerate(messages):
        if message.role == "tool" and groups:
            groups[-1] = groups[-1][0], index
        else:
            groups.append((index, index))
    return groups


def _kept_from(groups: Sequence[tuple[int, int]], sums: Sequence[int], keep: int) -> int:
    """The first group that stays because it is new."""
    at = len(groups) - 1
    while at > 0 and sums[-1] - sums[groups[at - 1][0]] <= keep:
        at -= 1
    return max(at, 0)


def _runs(groups: Sequence[tuple[int, int]], stay: frozenset[int]) -> list[tuple[int, int]]:
    """Neighbouring groups without any message that has to stay, as first and last index."""
    runs: list[tuple[int, int]] = []
    joined = False
    for first, last in groups:
        free = not any(index in stay for index in range(first, last + 1))
        if free and joined:
            runs[-1] = runs[-1][0], last
        elif free:
            runs.append((first, last))
        joined = free
    return runs
