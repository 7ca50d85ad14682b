"""An adapter may fill in settings; what the model reads is the log's alone."""

from __future__ import annotations

import msgspec
from helpers import make, opened

from callboard.actors import Prepared
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import Request


class Meddler(ScriptedModel):
    """Leaves out what was said first."""

    def prepare(self, request: Request) -> Prepared:
        return Prepared(msgspec.structs.replace(request, messages=request.messages[1:]))


class Copies(ScriptedModel):
    """Hands on equal messages in a list of its own."""

    def prepare(self, request: Request) -> Prepared:
        return Prepared(msgspec.structs.replace(request, messages=tuple(request.messages)))


async def test_messages_changed_in_prepare_end_the_turn_and_nothing_is_sent() -> None:
    model = Meddler([Reply.text("never")])
    async with opened(make(model)) as (_, ref):
        outcome = await ref.ask("hello")
    assert "changed the messages in `prepare`" in str(outcome)
    assert model.requests == []


async def test_equal_messages_in_another_list_are_the_same_request() -> None:
    async with opened(make(Copies([Reply.text("hi")]))) as (_, ref):
        assert (await ref.ask("hello")).result() == "hi"
