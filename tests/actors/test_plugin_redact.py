"""The boxed `Redact`: what must not be kept is on no disk and in front of no model, whichever way it was sent."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from helpers import history, make, opened, records, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Answer, Plugin, Reject
from callboard.actors.plugins import Redact
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage.errors import InputRefused, UsageError
from callboard.storage.messages import Message, TextBlock

SECRET = "sk-abcdefghijklmnopqrstuvwx"
PIN = "1234" * 5  # too long to stand in a digest by chance, as four digits now and then do
MASK = Redact([r"sk-\w{20,}", re.compile(r"\bmy pin is \d+\b", re.IGNORECASE)])


async def kept(store: Any) -> str:
    """All that is on disk of an agent, as one text."""
    return msgspec.json.encode([msgspec.to_builtins(r.event) for r in await records(store)]).decode()


TEXT = f"key {SECRET}, My PIN is {PIN}."


@pytest.mark.parametrize(
    ("how", "content"),
    [
        ("ask", TEXT),
        ("followup", TEXT),
        ("steer", [TextBlock(f"key {SECRET}, "), TextBlock(f"My PIN is {PIN}.")]),
        ("followup", Message("m1", "user", (TextBlock(TEXT),))),
    ],
    ids=["ask", "followup", "blocks", "message"],
)
async def test_it_is_taken_out_before_anything_is_kept(how: str, content: Any) -> None:
    model = scripted("done")
    async with opened(make(model, plugins=[MASK])) as (system, ref):
        await getattr(ref, how)(content)
        await ref.wait_idle()
        assert await history(ref) == ["user key [redacted], [redacted].", "assistant done"]
        on_disk = await kept(system.store)
        assert SECRET not in on_disk and PIN not in on_disk
    assert SECRET not in str(model.requests[0].messages)


async def test_it_is_taken_out_of_context_and_of_what_replaces_another() -> None:
    async with opened(make(scripted(Reply.hang()), plugins=[MASK]), grace=0) as (system, ref):
        await ref.inject(f"context {SECRET}")
        await ref.followup("first")
        await wait_all_tasks_blocked()
        receipt = await ref.followup("second")
        assert await ref.replace(receipt.message_id, f"third {SECRET}")
        assert [item.message.text for item in await ref.pending()] == ["third [redacted]"]
        assert SECRET not in await kept(system.store)


class Refuses(Plugin):
    """Refuses some and answers some by itself."""

    async def accept(
        self, ctx: SeamContext, message: Message, next: Next[Message, Message | Reject | Answer]
    ) -> Message | Reject | Answer:
        match message.text:
            case "/no [redacted]":
                return Reject("not that")
            case "/stop":
                return Answer("stopped")
            case _:
                return await next(message)


async def test_a_replacement_is_accepted_like_any_other_message() -> None:
    async with opened(make(scripted(Reply.hang()), plugins=[MASK, Refuses()]), grace=0) as (_, ref):
        await ref.followup("first")
        await wait_all_tasks_blocked()
        receipt = await ref.followup("second")
        with pytest.raises(InputRefused, match="not that"):
            await ref.replace(receipt.message_id, f"/no {SECRET}")
        with pytest.raises(InputRefused, match="control command"):
            await ref.replace(receipt.message_id, "/stop")
        assert [item.message.text for item in await ref.pending()] == ["second"]


async def test_what_stands_for_it_is_taken_as_it_is() -> None:
    async with opened(make(scripted("done"), plugins=[Redact(["secret"], by=r"\g<0>\1")])) as (_, ref):
        await ref.ask("a secret")
        assert (await history(ref))[0] == r"user a \g<0>\1"


@pytest.mark.parametrize("wrong", ["one text", ["(unclosed"], [re.compile(b"bytes")]])
def test_patterns_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="Redact"):
        Redact(wrong)
