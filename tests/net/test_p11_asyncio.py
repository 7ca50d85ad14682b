"""docs/examples/p11_asyncio.py: an asyncio program with agents, as it stands; run again, it remembers."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import trio
from looped import threads_of_systems

from callboard.actors.models.registry import BUILT_IN
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import open_store, verify

PATH = str(Path(__file__).resolve().parents[2] / "docs" / "examples" / "p11_asyncio.py")


def test_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "terms.txt").write_text("Two weeks.", encoding="utf-8")
    calls = Reply.tools(("c1", "orders", {"customer": "Ann"}), ("c2", "parse", {"path": "terms.txt"}))
    model = ScriptedModel([calls, Reply.text("It is shipped.", parts=5), Reply.text(" As I said.")], provider="openai")
    monkeypatch.setitem(BUILT_IN, "openai", lambda: model)
    for _ in range(2):
        runpy.run_path(PATH, run_name="__main__")
        assert not threads_of_systems()
    assert capsys.readouterr().out == "It is shipped. As I said."
    results = {id: text for message in model.requests[1].messages for id, text in message.results.items()}
    assert results == {"c1": '[{"order":17,"customer":"Ann","state":"shipped"}]', "c2": '"Two weeks."'}
    assert [m.text for m in model.requests[2].messages if m.role == "user"] == ["Where is my order?"] * 2

    async def look() -> bool:
        async with open_store("state", readonly=True) as store:
            return (await verify(store)).ok

    assert trio.run(look)


def test_a_turn_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel([Reply.fail("AUTH", "the key is wrong")], provider="openai")
    monkeypatch.setitem(BUILT_IN, "openai", lambda: model)
    runpy.run_path(PATH, run_name="__main__")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "c-1 turn 1 ended with an error: AUTH: the key is wrong\n")
