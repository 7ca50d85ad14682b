"""`callboard chat` without a terminal, the model that answers offline, and what the command refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.testing import check_model
from callboard.net.cli import main
from callboard.net.cli.chatting.offline import INTRODUCTION, Parrot, answer
from callboard.storage.messages import Message, ModelSource, ReasoningBlock, TextBlock, ToolCallBlock

AGENT = '''
from callboard.actors import Agent, tool
from callboard.actors.plugins import Permissions
from callboard.actors.testing import Reply, ScriptedModel

@tool
async def pay() -> str:
    """Pay."""
    return "paid"

def model():
    return ScriptedModel([Reply.tools(("c1", "pay", {})), Reply.text("so be it"), Reply.fail("BAD_REQUEST", "no")])

desk = Agent("desk", model=model(), tools=[pay], plugins=[Permissions(ask=["pay"])])
'''


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.net.cli.chat.Parrot", lambda: Parrot(word_s=0))


def chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: str, *words: str, code: int = 0
) -> tuple[str, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    assert main(["chat", *words]) == code
    out, err = capsys.readouterr()
    return out, err


@pytest.mark.usefixtures("slow")
def test_each_line_is_answered_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = str(tmp_path / "state")
    out, err = chat(monkeypatch, capsys, "count to 3\n\n/history\nwhat time is it?\n", state)
    assert out.startswith("1 2 3\nYou: count to 3\n\nAgent: 1 2 3\nLet me look.\nThe clock says: ")
    assert err.startswith("clock({})\n")
    again, _ = chat(monkeypatch, capsys, "/history 2\n", state)
    assert again.startswith("Agent: Let me look.\n\nAgent: The clock says"), "it is all kept"


@pytest.mark.usefixtures("slow")
def test_programs_talk_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = '{"text": "count to 2", "id": "m1"}\n{"text": "/status"}\n{"text": "count to 2", "id": "m1"}\n'
    out, err = chat(monkeypatch, capsys, lines, str(tmp_path / "state"), "--json")
    values: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert err == ""
    assert [value["kind"] for value in values] == ["text", "text", "end", "command"], "the same id is the same message"
    assert "".join(value.get("text", "") for value in values[:2]) == "1 2"
    assert values[2]["reason"] == {"kind": "completed"}
    assert values[2]["usage"]["output"] == 2
    assert [value["turn"] for value in values] == [1, 1, 1, None]
    assert values[3]["text"].startswith("chat: idle after turn 1")


def test_a_program_that_sends_no_message_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = chat(monkeypatch, capsys, "hello\n", str(tmp_path / "state"), "--json", code=2)
    assert "'hello' is no message" in json.loads(out)["error"]["message"]


def test_an_agent_of_a_file_has_commands_and_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "desk_of_chat.py"
    file.write_text(AGENT)
    words = (str(tmp_path / "state"), "--agent", f"{file}:desk", "--id", "d")
    out, err = chat(monkeypatch, capsys, "pay\nagain\n/help\n", *words, code=1)
    assert out.splitlines()[0] == "so be it"
    assert "/status" in out
    assert "The turn ended with an error: BAD_REQUEST: no." in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--model", "gpt-5"], "write --model openai:gpt-5"),
        (["--model", "openai"], "write --model openai:NAME"),
        (["--model", "openai:x", "--agent", "y.py:z"], "leave --model away"),
        (["--agent", "nowhere.py:z"], "there is no file nowhere.py"),
    ],
)
def test_what_cannot_be_is_said(
    words: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = chat(monkeypatch, capsys, "", str(tmp_path / "state"), *words, code=2)
    assert text in err


# -- the model that needs no key


async def test_it_keeps_the_rules_of_models() -> None:
    await check_model(Parrot(word_s=0), "parrot")


def ask(*texts: str, tools: tuple[str, ...] = ("clock",)) -> list[Any]:
    messages = [Message(str(n), "user", (TextBlock(text),)) for n, text in enumerate(texts)]
    return answer(messages, tools=tools)


def test_what_it_says() -> None:
    assert ask("hello") == [TextBlock(INTRODUCTION)]
    assert ask("") == [TextBlock(INTRODUCTION)]
    assert ask("count to 4") == [TextBlock("1 2 3 4")]
    assert len(ask("count to 999999999")[0].text) < 5000
    assert ask("I like my cat.") == [TextBlock("You say: I like my cat. So tell me, why do you say you like your cat?")]
    assert ask("count to 2", "hello") == [TextBlock(f"1 2 {INTRODUCTION}")]
    assert isinstance(ask("think about cats")[0], ReasoningBlock)
    assert isinstance(ask("what time is it")[1], ToolCallBlock)
    assert len(ask("what time is it", tools=())) == 1


def test_it_answers_what_was_said_since_its_last_answer() -> None:
    before = Message("a", "assistant", (TextBlock("1"),), ModelSource("offline", "parrot"))
    messages = [Message("u", "user", (TextBlock("count to 1"),)), before, Message("v", "user", (TextBlock("count to 2"),))]
    assert answer(messages) == [TextBlock("1 2")]
