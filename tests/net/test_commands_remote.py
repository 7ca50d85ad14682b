"""Commands over a connection: a receipt names the command's record, and its answer is the message's outcome."""

from __future__ import annotations

import pytest
from trio.testing import wait_all_tasks_blocked
from wired import make, scripted, wired

from callboard.actors.plugins import Commands
from callboard.actors.testing.scripted import Reply
from callboard.storage.errors import UsageError


@pytest.mark.usefixtures("autojump_clock")
async def test_c162_c163_control_commands_of_a_client_are_answered_while_a_turn_runs() -> None:
    async with wired(make(scripted(Reply.hang("so"), "two"), plugins=[Commands(authority=["ann"])])) as w:
        ref = await w.client.spawn("demo", id="a")
        await ref.followup("go", message_id="go", sender="ann")
        await wait_all_tasks_blocked(0.1)
        receipt = await ref.followup("/status", message_id="s", sender="bob")
        log = [record async for record in ref.read()]
        assert log[receipt.seq].type == "command/run"
        outcome = await ref.outcome("s")
        assert (outcome.turn, outcome.ok, outcome.seq) == (0, True, receipt.seq + 1)
        assert "turn 1, step 1" in outcome.text
        assert (await ref.ask("/stop", message_id="no", sender="bob")).text == "bob may not run /stop here."
        assert (await ref.ask("/stop", sender="ann")).text == "Stopped."
        await ref.wait_idle()
        assert (await ref.outcome("go")).reason.kind == "aborted"
        assert await ref.followup("/status", message_id="s", sender="bob") == receipt, "the same id is the same command"
        info = await ref.info()
        assert (info.parked, info.unsent, info.lost) == (0, 0, ())
        assert info.context_tokens is not None


@pytest.mark.usefixtures("autojump_clock")
async def test_other_commands_of_a_client_have_a_turn_of_their_own() -> None:
    async with wired(make(scripted("one"), plugins=[Commands()])) as w:
        ref = await w.client.spawn("demo", id="a")
        await ref.ask("hello")
        outcome = await ref.ask("/undo", message_id="u")
        assert (outcome.turn, outcome.text, outcome.steps) == (2, "Taken back: hello", 0)
        assert await ref.messages() == []
        delta = await anext(ref.deltas(after=outcome.seq - 5))
        assert (delta.kind, delta.text, delta.turn) == ("text", "Taken back: hello", 2)
        with pytest.raises(UsageError, match="has no message 'x'"):
            await ref.outcome("x")
