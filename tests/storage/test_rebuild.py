"""rebuild: one request out of the log, as it was sent, beside the one before it."""

from __future__ import annotations

import msgspec
import pytest
from log_script import HEADER, Script, text

from callboard.storage import events as e
from callboard.storage.digest import request_digest
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentNotFound, UsageError
from callboard.storage.rebuild import Rebuilt, rebuild
from callboard.storage.store import Batch, Summary


async def rebuilt(script: Script, seq: int) -> Rebuilt:
    store = MemoryStore()
    epoch = await store.own("a")
    await store.commit([(Batch("a", epoch, -1, tuple(script.records), Summary()),)])
    return await rebuild(store, "a", seq)


def sent(script: Script) -> list[int]:
    return [record.seq for record in script.records if isinstance(record.event, e.RequestSent)]


async def test_every_request_of_a_log_is_rebuilt() -> None:
    script = Script()
    script.with_tools("one", "c1", "c2")
    script.simple("two")
    found = [await rebuilt(script, seq) for seq in sent(script)]
    assert [request.ok for request in found] == [True] * 3
    assert [len(request.messages) for request in found] == [1, 4, 6]
    assert [request.before for request in found] == [None, *sent(script)[:2]]
    assert [request.kept for request in found] == [0, 1, 4]
    assert found[0].header == HEADER


async def test_the_seq_of_what_came_of_a_request_finds_it() -> None:
    script = Script()
    script.with_tools("one", "c1")
    first, second = sent(script)
    assert (await rebuilt(script, second - 1)).seq == first
    assert (await rebuilt(script, script.last)).seq == second


async def test_a_replace_and_another_header_between_two_requests() -> None:
    script = Script()
    script.simple("one")
    script.begin("two")
    entries = script.surface.entries()
    script.add(e.SurfaceReplace(start=entries[0][0], end=entries[1][0], message=text("summary")))
    script.header = msgspec.structs.replace(HEADER, system="Be short.")
    script.headers("change")
    second = script.send()
    found = await rebuilt(script, second)
    assert found.ok and found.kept == 0 and found.header.system == "Be short."
    assert [message.id for message in found.messages] == ["summary", "two"]
    assert (await rebuilt(script, sent(script)[0])).header.system == "Be kind."


async def test_what_was_written_after_upto_is_not_in_it() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    upto, digest = script.last, request_digest(script.surface.messages(), HEADER)
    script.add(e.UserMessage(message=text("late")))
    found = await rebuilt(script, script.send(digest=digest, upto=upto))
    assert found.ok and [message.id for message in found.messages] == ["one"]


async def test_a_request_that_is_not_what_was_sent_says_so() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    found = await rebuilt(script, script.send(digest="0" * 64))
    assert not found.ok and found.digest != found.sent.digest


async def test_before_the_first_request_and_without_an_agent() -> None:
    script = Script()
    script.begin("one")
    with pytest.raises(UsageError, match="'a' has sent no request up to seq 3"):
        await rebuilt(script, 3)
    with pytest.raises(AgentNotFound, match="no agent 'z'"):
        await rebuild(MemoryStore(), "z", 3)
