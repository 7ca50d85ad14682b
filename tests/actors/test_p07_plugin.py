"""docs/examples/p07_plugin.py: the budget counts each turn once, also over a restart; a key is in no record, however it came."""

from __future__ import annotations

import runpy
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from helpers import make, opened, records, scripted
from hypothesis import given
from hypothesis import strategies as st

from callboard import System, tool
from callboard.actors import Agent
from callboard.actors.delegation import delegate
from callboard.actors.models.registry import BUILT_IN
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import chunks as c
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Chunk, ReasoningDelta, TextDelta, ToolCallDelta, Usage

PATH = str(Path(__file__).resolve().parents[2] / "docs" / "examples" / "p07_plugin.py")
EXAMPLE = runpy.run_path(PATH)
Budget, Mask, mask, hold_back = (EXAMPLE[name] for name in ("CustomerBudget", "Mask", "mask", "hold_back"))
KEY = "sk-" + "z9" * 12  # no digits of a digest, in which four of them stand by chance
TEN = Usage(input=7, output=3)


def test_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    call = Reply.tools(("c1", "read_config", {"path": "app.toml"}))
    model = ScriptedModel([call, Reply.text("Paid."), call, Reply.text("Paid again.")], provider="openai")
    monkeypatch.setitem(BUILT_IN, "openai", lambda: model)
    runpy.run_path(PATH, run_name="__main__")
    assert capsys.readouterr().out == "Paid.\nPaid again.\n"
    assert model.requests[0].messages[0].text == "Pay [redacted] with the key in app.toml"
    assert model.requests[1].messages[-1].results == {"c1": "app.toml: key = [key]"}


# -- the budget


async def kind(system: System, agent: Agent[Any, Any], id: str, customer: str) -> str:
    ref = await system.spawn(agent, id=id, labels={"customer": customer})
    outcome = await ref.ask("go")
    await trio.testing.wait_all_tasks_blocked()  # observers are told after the commit
    return outcome.reason.kind


async def test_all_agents_of_a_customer_share_it() -> None:
    agent, budget = make(scripted(*[Reply.text("ok", usage=TEN)] * 3)), Budget(20)
    async with System.open(":memory:", agents=[agent], plugins=[budget]) as system:
        assert await kind(system, agent, "acme/1", "acme") == "completed"
        assert await kind(system, agent, "acme/2", "acme") == "completed"
        assert await kind(system, agent, "acme/3", "acme") == "blocked"
        assert await kind(system, agent, "beta/1", "beta") == "completed"
        assert budget.spent == {"acme": 20, "beta": 10}


async def test_a_restart_and_a_child_are_counted_once() -> None:
    child = make(scripted(Reply.text("found", usage=TEN))).replace(name="child")
    model = scripted(Reply.tools(("c1", "child", {"task": "look"}), usage=TEN), *[Reply.text("ok", usage=TEN)] * 2)
    agent, store = make(model, tools=[delegate(child)]), MemoryStore()
    for spent in (30, 40):
        budget = Budget(100)
        async with System.open(store, agents=[agent], plugins=[budget]) as system:
            assert await kind(system, agent, "acme/1", "acme") == "completed"
            assert budget.spent == {"acme": spent}


# -- secrets


async def test_a_key_is_in_no_record() -> None:
    @tool(replay="safe")
    async def read(key: str) -> str:
        """Read."""
        return f"{key} and {KEY}"

    thought = (
        c.block_start(0, "reasoning"),
        c.reasoning_delta(0, f"so {KEY[:9]}"),
        c.reasoning_delta(0, KEY[9:]),
        c.block_end(0),
    )
    begun = c.tool_call_delta(1, id="c1", name="read", arguments=f'{{"key":"{KEY[:5]}')
    called = (c.block_start(1, "tool-call"), begun, c.tool_call_delta(1, arguments=f'{KEY[5:]}"}}'), c.block_end(1))
    call = Reply.chunks([*thought, *called, c.usage(output=1), c.finish("tool-calls")])
    model, store = scripted(call, Reply.text(f"It is {KEY}, yes.", parts=9)), MemoryStore()
    async with opened(make(model, tools=[read], plugins=[Mask()]), store) as (_, ref):
        outcome = await ref.ask(f"my key is {KEY}")
        assert outcome.text == "It is [key], yes."
        assert model.requests[1].messages[-1].results == {"c1": "[key] and [key]"}
    assert KEY not in repr(await records(store)) and "z9z9" not in repr(await records(store))


@pytest.mark.parametrize("reply", [Reply.hang(f"It is {KEY}"), Reply.fail("AUTH", after=f"It is {KEY}")], ids=repr)
async def test_a_stream_that_is_cut_shows_nothing_that_was_held(reply: Reply) -> None:
    store = MemoryStore()
    async with opened(make(scripted(reply), plugins=[Mask()]), store) as (_, ref):
        receipt = await ref.followup("go")
        await trio.testing.wait_all_tasks_blocked()
        await ref.cancel()
        assert (await ref.outcome(receipt.message_id)).text == ""
    assert "sk-" not in repr(await records(store))


async def replayed(chunks: Iterable[Chunk]) -> AsyncIterator[Chunk]:
    for chunk in chunks:
        yield chunk


def text_of(chunks: Iterable[Chunk]) -> str:
    return "".join(x.arguments if isinstance(x, ToolCallDelta) else getattr(x, "text", "") for x in chunks)


DELTAS: list[Callable[[int, str], Chunk]] = [
    TextDelta,
    ReasoningDelta,
    lambda index, text: c.tool_call_delta(index, arguments=text),
]


@given(
    parts=st.lists(st.sampled_from([KEY, KEY * 9, KEY[:9], "sk-", "a", " ", "hello, ", "\n"]), max_size=12),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    delta=st.sampled_from(DELTAS),
    closed=st.booleans(),
)
def test_whatever_the_pieces_the_whole_is_what_it_would_be(
    parts: list[str], sizes: list[int], delta: Callable[[int, str], Chunk], closed: bool
) -> None:
    text, pieces, at = "".join(parts), list[Chunk](), 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(delta(0, text[at : at + size]))
        at += size
    ends: list[Chunk] = [c.block_end(0), c.finish("stop")] if closed else []

    async def read() -> list[Chunk]:
        return [chunk async for chunk in hold_back(replayed([*pieces, *ends]), mask, window=64)]

    chunks = trio.run(read)
    assert text_of(chunks) == mask(text)
    assert [type(chunk) for chunk in chunks[len(chunks) - len(ends) :]] == [type(end) for end in ends]


async def test_only_the_window_waits() -> None:
    pieces = [TextDelta(0, "0123456789") for _ in range(10)]
    chunks = [chunk async for chunk in hold_back(replayed(pieces), mask, window=64)]
    assert [text_of([chunk]) for chunk in chunks[:8]] == [""] * 6 + ["012345", "6789012345"]
