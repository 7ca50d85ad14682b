"""The program p02_team: a team led by a model and by code, with scripted models; killed behind every commit, and run again."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

import msgspec
import pytest
from trio.testing import MockClock

from callboard.actors.models.registry import BUILT_IN
from callboard.actors.testing import Reply, ScriptedModel, every_crash, trio_wall
from callboard.storage import Request, Store, verify
from callboard.storage.engines.memory import MemoryStore

PROGRAM = Path(__file__).resolve().parent.parent.parent / "docs" / "examples" / "p02_team.py"


def team(request: Request) -> Reply:
    """The whole team: a planner with two questions, workers of whom one fails and one is vague, a strict reviewer."""
    asked = next(m.text for m in reversed(request.messages) if m.role == "user")
    results = [text for message in request.messages for text in message.results.values()]
    if request.model == "claude":
        return Reply.output({"verdict": "again", "notes": "be exact"} if "vague" in asked else {"verdict": "accept"})
    if request.model == "gpt-5-mini":
        tries = sum(m.text == asked for m in request.messages if m.role == "user")
        if asked == "Who drinks it?" and tries == 1:
            return Reply.fail("BAD_REQUEST")
        if not request.messages[-1].results:
            return Reply.tools(("c1", "search", {"words": asked.rstrip("?")}))
        claim = "vague" if asked == "Where does it grow?" else f"about {asked}"
        return Reply.output({"claim": claim, "sources": msgspec.json.decode(results[-1])})
    if not results:
        return Reply.tools(*((f"q{n}", "worker", {"task": q}) for n, q in enumerate(("Where does it grow?", "Who drinks it?"))))
    if len(results) == 2:
        return Reply.tools(*((f"r{n}", "reviewer", {"task": text}) for n, text in enumerate(results)))
    if len(results) == 4:
        notes = next(r["notes"] for r in map(msgspec.json.decode, results[2:]) if r["verdict"] == "again")
        return Reply.tools(("again", "worker", {"task": f"Where does it grow exactly? {notes}"}))
    return Reply.text(" / ".join(msgspec.json.decode(results[n])["claim"] for n in (1, 4)))


@pytest.fixture
def team_model(monkeypatch: pytest.MonkeyPatch) -> dict[str, ScriptedModel]:
    """The team's models under the names of the providers."""
    models = {name: ScriptedModel(team, provider=name) for name in ("openai", "anthropic")}
    for name in models:
        monkeypatch.setitem(BUILT_IN, name, partial(models.__getitem__, name))
    return models


async def test_p02_a_model_leads_and_a_supervisor_restarts_what_failed(
    autojump_clock: MockClock, team_model: dict[str, ScriptedModel]
) -> None:
    program, store = runpy.run_path(str(PROGRAM)), MemoryStore()
    wall = trio_wall("2026-12-01T08:00Z")
    answer = await program["by_model"]("coffee", store, wall)
    assert answer == "about Who drinks it? / about Where does it grow exactly? be exact"
    asked = len(team_model["openai"].requests)
    assert await program["by_model"]("coffee", store, wall) == answer
    assert len(team_model["openai"].requests) == asked, "the second run reads the answer"
    drinks = [record async for record in store.read("topic/coffee/1.1.q1", types={"inbox/put", "turn/end"})]
    assert [record.type for record in drinks] == ["inbox/put", "turn/end", "inbox/put", "turn/end"], "put again"
    assert (await verify(store)).ok


async def test_p02_survives_a_kill_behind_every_commit(autojump_clock: MockClock, team_model: dict[str, ScriptedModel]) -> None:
    program, wall = runpy.run_path(str(PROGRAM)), trio_wall("2026-12-01T08:00Z")

    async def by_model(store: Store) -> str:
        return str(await program["by_model"]("coffee", store, wall))

    async for crash in every_crash(by_model):
        assert crash.result == "about Who drinks it? / about Where does it grow exactly? be exact", crash


async def test_p02_code_leads_and_work_that_is_done_is_read(
    autojump_clock: MockClock, team_model: dict[str, ScriptedModel]
) -> None:
    program, store = runpy.run_path(str(PROGRAM)), MemoryStore()
    questions = ["Where does it grow?", "Why?"]
    found = await program["by_code"]("tea", questions, store)
    assert [f.claim for f in found] == ["about Again, please: be exact", "about Why?"]
    assert found[1].sources == ["https://example.org/why"]
    asked = len(team_model["openai"].requests)
    assert await program["by_code"]("tea", questions, store) == found
    assert len(team_model["openai"].requests) == asked
    remembers = next(r for r in team_model["openai"].requests if r.messages[-1].text == "Again, please: be exact")
    assert remembers.messages[0].text == "Where does it grow?", "it went into the same worker"
