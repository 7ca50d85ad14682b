"""`callboard run`: an agent in a file answers, durably; what cannot run is a sentence."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import trio.testing

from callboard import Agent, System, tool
from callboard.actors.models.registry import BUILT_IN
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.cli import main
from callboard.net.cli.output import Output
from callboard.net.cli.run import Questions

SOURCE = """
from callboard.actors.agent import Agent
from callboard.actors.testing.scripted import Reply, ScriptedModel

echo = Agent("echo", model=ScriptedModel(lambda r: Reply.text("you said " + r.messages[-1].text)), plugins=[])
broken = Agent("broken", model=ScriptedModel(lambda r: Reply.fail("AUTH", message="no key")), plugins=[])
"""


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "shop_agents.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "shop_agents.py")


def test_an_answer_is_printed_and_kept(agents: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "state", f"{agents}:echo", "hello", "--id", "a/1"]) == 0
    assert capsys.readouterr() == ("you said hello\n", "")
    assert main(["log", "state", "a/1", "--types", "turn/end"]) == 0
    assert "turn 1 completed" in capsys.readouterr().out


def test_the_same_message_id_is_answered_once(agents: str, capsys: pytest.CaptureFixture[str]) -> None:
    values: list[dict[str, object]] = []
    for text in ("hello", "something else"):
        assert main(["run", "state", f"{agents}:echo", text, "--message-id", "m1", "--json"]) == 0
        values.append(json.loads(capsys.readouterr().out))
    assert values[0] == values[1]
    assert (values[0]["agent"], values[0]["text"], values[0]["turn"]) == ("echo", "you said hello", 1)


def test_another_model_can_be_named(agents: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    other = ScriptedModel(lambda _: Reply.text("from another"), provider="acme")
    monkeypatch.setitem(BUILT_IN, "acme", lambda: other)
    assert main(["run", ":memory:", f"{agents}:echo", "hello", "--model", "acme:large"]) == 0
    assert capsys.readouterr().out == "from another\n"
    assert other.requests[0].model == "large"
    assert main(["run", ":memory:", f"{agents}:echo", "hello", "--model", "gpt-5"]) == 2
    assert "openai:gpt-5" in capsys.readouterr().err


def test_without_a_key_one_sentence_says_which(
    agents: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert main(["run", ":memory:", f"{agents}:echo", "hello", "--model", "openai:gpt-5"]) == 1
    err = capsys.readouterr().err
    assert "there is no key for 'openai': set OPENAI_API_KEY in the environment" in err and err.count("\n") == 1


def test_text_from_standard_input(agents: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    assert main(["run", ":memory:", f"{agents}:echo", "-"]) == 0
    assert capsys.readouterr().out == "you said from a pipe\n"


def test_a_turn_that_fails_is_an_exit_code_and_a_sentence(agents: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "state", f"{agents}:broken", "hello"]) == 1
    err = capsys.readouterr().err
    assert "AUTH" in err and "no key" in err and "`callboard log state broken`" in err and "Traceback" not in err
    assert main(["run", "state", f"{agents}:broken", "hello", "--id", "b2", "--json"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert (json.loads(out)["ok"], json.loads(out)["reason"]["kind"]) == (False, "error")


def test_c230_what_cannot_run_is_one_sentence(agents: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, part in (
        (["run", "state", f"{agents}:ecko", "x"], 2, "did you mean echo?"),
        (["run", "state", f"{agents}:echo", "  "], 2, "nothing to say"),
        (["run", "state", "none.py:echo", "x"], 2, "there is no file"),
        (["run", "state", f"{agents}:echo"], 2, "TEXT"),
    ):
        assert main(words) == code
        out, err = capsys.readouterr()
        assert out == "" and part in err and err.count("\n") == 1
    assert not Path("state").exists()


def test_c230_an_id_of_another_definition_is_one_sentence(agents: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "state", f"{agents}:echo", "x", "--id", "one"]) == 0
    capsys.readouterr()
    assert main(["run", "state", f"{agents}:broken", "x", "--id", "one"]) == 2
    err = capsys.readouterr().err
    assert "one" in err and err.count("\n") == 1


async def test_a_call_that_waits_for_a_person_is_said_with_what_to_do() -> None:
    @tool(approval="May I?")
    async def act() -> str:
        """Acts."""
        return "done"

    errors = io.StringIO()
    agent = Agent("clerk", model=ScriptedModel([Reply.tools(("c1", "act", {}))]), tools=[act], plugins=[])
    questions = Questions("state", "run it again", Output(errors=errors))
    async with System.open(":memory:", agents=[agent], plugins=[questions], grace=0) as system:
        await (await system.spawn(agent, id="a")).followup("go")
        await trio.testing.wait_all_tasks_blocked()
    said = errors.getvalue()
    assert said.startswith("a waits for a person's word: May I?")
    assert "callboard answer state 'a!" in said


SURROUNDED = """
from callboard import Agent, ToolContext, tool
from callboard.actors.testing import Reply, ScriptedModel

deps = "the shop"

@tool(replay="safe")
async def look(ctx: ToolContext) -> str:
    "Look."
    return ctx.deps

def answer(request):
    last = request.messages[-1]
    return Reply.text(f"saw {last.text}") if last.role == "tool" else Reply.tools(("c1", "look", {}))

models = {"own": ScriptedModel(answer)}
clerk = Agent("clerk", model="own:small", tools=[look])
"""


@pytest.mark.parametrize(
    "words", [["run", ":memory:", "shop.py:clerk", "Look."], ["chat", ":memory:", "--agent", "shop.py:clerk"]]
)
def test_a_file_brings_the_deps_and_the_models_of_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (tmp_path / "shop.py").write_text(SURROUNDED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("Look.\n"))
    assert main(words) == 0
    assert capsys.readouterr().out == "saw the shop\n"
