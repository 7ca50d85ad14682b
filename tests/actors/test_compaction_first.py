"""Compaction before the first request: the adapter says how much its model holds before it was asked anything."""

from __future__ import annotations

import pytest
from helpers import events, make, opened, order, say
from talkers import LONG, WINDOW, full, talker

from callboard.actors import System
from callboard.actors.models import Prepared
from callboard.actors.plugins import Compaction
from callboard.actors.testing import ScriptedModel
from callboard.storage import Message, Request, TextBlock
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import ModelError
from callboard.storage.messages import Failure


@pytest.mark.parametrize("known", [True, False])
async def test_c199_a_history_that_came_with_the_agent_is_shortened_before_anything_is_sent(known: bool) -> None:
    model = talker(window=WINDOW if known else None, refuse=lambda request: full(request) > WINDOW)
    past = [Message(f"h{n}", "user" if n % 2 == 0 else "assistant", (TextBlock(f"{n} {LONG}"),)) for n in range(10)]
    async with System.open(
        store := MemoryStore(), agents=[agent := make(model, plugins=[Compaction(summary_tokens=100)])]
    ) as system:
        ref = await system.spawn(agent, id="a", history=past)
        await say(ref, "And now?", message_id="m1")
    refused = await events(store, e.RequestFailed)
    assert len(refused) == (0 if known else 1)
    assert full(model.requests[-1]) <= WINDOW
    assert "TS1 cut(" in await order(store) if known else True


async def test_a_model_that_cannot_answer_such_a_request_has_no_window() -> None:
    class Picky(ScriptedModel):
        def prepare(self, request: Request) -> Prepared:
            raise ModelError("UNSUPPORTED", "not this")

    async with opened(make(Picky([]), plugins=[Compaction()])) as (system, ref):
        assert (await ref.ask("hi")).reason == e.Errored(Failure("UNSUPPORTED", "not this"))
        assert "compact-failed" not in await order(system.store)
