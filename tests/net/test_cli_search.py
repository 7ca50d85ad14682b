"""`log --search`: what was said, in one agent's log or in all of them, also what a summary stands for since."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from callboard import Agent, System
from callboard.actors import Plugin, Replace
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.cli import main


class Forgets(Plugin):
    """Nothing said before a turn is seen in it."""

    async def compact(self, ctx: object, position: object, next: object, /) -> Replace | None:
        return Replace() if getattr(position, "entries", ()) else None


async def fill(state: Path) -> None:
    model = ScriptedModel(lambda request: Reply.text(f"You said {request.messages[-1].text}"))
    agent = Agent("desk", model=model, plugins=[Forgets()])
    async with System.open(state, agents=[agent]) as system:
        for id in ("ann", "bob"):
            ref = await system.spawn(agent, id=id)
            await ref.ask(f"The parrot of {id}\x1b[2J is green")
            await ref.ask("Next")


@pytest.fixture
def state(tmp_path: Path) -> str:
    trio.run(fill, tmp_path / "state")
    return str(tmp_path / "state")


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert main(words) == code
    out, err = capsys.readouterr()
    return out, err


def test_what_was_replaced_is_found_with_its_place_and_its_time(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "log", state, "ann", "--search", "PARROT of")
    put, answer = out.splitlines()
    assert not err and "inbox/put" in put and "assistant/message" in answer
    assert put.split()[0] == "1" and put.split()[1].startswith("20")
    assert "The parrot of ann\\x1b[2J is green" in put, "nothing in a log steers the terminal"


def test_all_agents_are_searched_where_none_is_named(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, "log", state, "--search", "green", "--types", "assistant/message", "--json")
    hits = [json.loads(line) for line in out.splitlines()]
    assert [(hit["agent"], hit["type"]) for hit in hits] == [("ann", "assistant/message"), ("bob", "assistant/message")]
    assert {"seq", "time", "context"} <= set(hits[0])
    people, _ = said(capsys, "log", state, "--search", "green")
    assert [line.split()[0] for line in people.splitlines()] == ["ann", "ann", "bob", "bob"]


def test_what_stands_nowhere_is_said(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "log", state, "--search", "elephant") == ("", "'elephant' stands nowhere\n")
    assert said(capsys, "log", state, "--search", "elephant", "--json") == ("", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [(("log",), "of which agent"), (("log", "--search", " "), "nothing to search"), (("log", "carl", "--search", "x"), "carl")],
)
def test_mistakes_are_one_sentence(words: tuple[str, ...], text: str, state: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main((words[0], state, *words[1:]))
    assert code != 0 and text in capsys.readouterr().err
