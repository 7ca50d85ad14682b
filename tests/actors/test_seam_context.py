"""What a seam's context does for plugins that keep something for a turn: when the turn is over, and what its log holds."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import make, opened, say, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import LimitReached, Plugin
from callboard.actors.answers import Boundary, Enter, Proposal, Reject
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage.errors import AgentNotFound


class Keeps(Plugin):
    """Keeps something for each turn, and gives it back."""

    def __init__(self, then: Exception | None = None) -> None:
        self.kept: set[int] = set()
        self.most = 0
        self.then = then

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        turn = ctx.turn
        self.kept.add(turn)
        self.most = max(self.most, len(self.kept))
        ctx.at_turn_end(lambda: self.kept.discard(turn))
        if self.then is not None:
            raise self.then
        return await next(boundary)


@pytest.mark.parametrize("then", [None, RuntimeError("broken"), LimitReached("mine")])
async def test_it_is_called_when_the_turn_is_over_however_it_ends(then: Exception | None) -> None:
    keeps = Keeps(then)
    async with opened(make(scripted("one", "two"), plugins=[keeps])) as (_, ref):
        await say(ref, "hi")
        await say(ref, "again")
    assert (keeps.kept, keeps.most) == (set(), 1)


@pytest.mark.parametrize("cancel", [True, False], ids=["cancelled", "closed"])
async def test_it_is_called_for_a_turn_that_is_cut(cancel: bool) -> None:
    keeps = Keeps()
    async with opened(make(scripted(Reply.hang()), plugins=[keeps]), grace=0) as (_, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        assert keeps.kept == {1}
        if cancel:
            await ref.cancel()
            await ref.wait_idle()
            assert keeps.kept == set()
    assert keeps.kept == set()


class Throws(Plugin):
    """Fails to give back."""

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        ctx.at_turn_end(self.give_back)
        return await next(boundary)

    def give_back(self) -> None:
        raise KeyError("nothing")


async def test_a_throw_of_it_is_reported_and_nobody_elses_affair(caplog: pytest.LogCaptureFixture) -> None:
    keeps = Keeps()
    async with opened(make(scripted("one", "two"), plugins=[Throws(), keeps])) as (_, ref):
        assert (await ref.ask("hi")).ok
        assert (await ref.ask("hi")).ok
    assert keeps.kept == set()
    assert "at_turn_end" in caplog.text


class Reads(Plugin):
    """Looks at the log before each request."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[str]]] = []
        self.others: list[Any] = []

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
        ctx.note("mine", ctx.turn)
        found = await ctx.records({"note", "request/sent"})
        self.seen.append((ctx.requests, [record.type for record in found]))
        with pytest.raises(AgentNotFound):
            await ctx.records({"note"}, id="nobody")
        self.others.append(await ctx.notes("mine"))
        return await next(proposal)


async def test_the_log_is_read_with_what_was_appended_just_now() -> None:
    reads = Reads()
    async with opened(make(scripted("one", "two"), plugins=[reads])) as (_, ref):
        await say(ref, "hi")
        await say(ref, "again")
    assert reads.seen == [(0, ["note"]), (0, ["note", "request/sent", "note"])]
    assert reads.others == [[1], [1, 2]]
