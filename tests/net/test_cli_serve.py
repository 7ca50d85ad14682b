"""`callboard serve` as a process: how it ends, and where it takes its tokens from."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from callboard.net.access import tokens_in
from callboard.net.cli import main
from callboard.storage.errors import UsageError

SOURCE = """
import trio
from callboard import Agent, tool
from callboard.actors.testing import Reply, ScriptedModel

@tool(replay="safe")
async def wait() -> str:
    "Wait for a file."
    while not await trio.Path("go").exists():
        await trio.sleep(0.01)
    return "waited"

def answer(request):
    return Reply.text("done") if request.messages[-1].role == "tool" else Reply.tools(("c1", "wait", {}))

slow = Agent("slow", model=ScriptedModel(answer).named("m"), tools=[wait], plugins=[])
"""
ENVIRONMENT = '"a-token" = {scopes = ["admin"]}'


class Service:
    """A process that serves, and requests to it."""

    def __init__(self, folder: Path, *words: str, file: str | None = "slow.py") -> None:
        what = ["state"] if file is None else ["state", file]
        command = [sys.executable, "-P", "-W", "error", "-m", "callboard.net.cli", "serve", *what, "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--json", *words],
            cwd=folder,
            env={**os.environ, "CALLBOARD_TOKENS": ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.said: dict[str, Any] = json.loads(self.process.stdout.readline())

    def ask(self, path: str, body: Any = None, token: str = "a-token") -> Any:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.said["page"].rstrip("/") + path, data, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())


@pytest.fixture
def service(tmp_path: Path) -> Generator[Callable[..., Service]]:
    """Start a service; whatever still runs in the end is killed."""
    (tmp_path / "slow.py").write_text(SOURCE)
    running: list[Service] = []

    def start(*words: str) -> Service:
        running.append(Service(tmp_path, *words))
        return running[-1]

    yield start
    for found in running:
        found.process.kill()
        found.process.communicate()


CHAT = {"model": "slow", "messages": [{"role": "user", "content": "go"}], "user": "u"}


def test_told_to_end_it_lets_the_open_turn_finish(service: Callable[..., Service], tmp_path: Path) -> None:
    served = service("--grace", "20")
    body = json.dumps(CHAT).encode()
    headers = {"authorization": "Bearer a-token", "content-type": "application/json"}
    asked = subprocess.Popen(
        [sys.executable, "-c", _ASK, served.said["page"] + "v1/chat/completions", body.decode(), json.dumps(headers)],
        stdout=subprocess.PIPE,
        text=True,
    )
    _until_running(served)
    served.process.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    out, err = served.process.communicate(timeout=120)
    assert (served.process.returncode, out, err) == (143, "", "")
    assert json.loads(asked.communicate(timeout=120)[0])["choices"][0]["message"]["content"] == "done"


def test_told_twice_it_ends_at_once_and_the_turn_goes_on_at_the_next_start(
    service: Callable[..., Service], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served = service("--grace", "60")
    asked = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _ASK,
            served.said["page"] + "v1/chat/completions",
            json.dumps(CHAT),
            json.dumps({"authorization": "Bearer a-token", "content-type": "application/json"}),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    _until_running(served)
    served.process.send_signal(signal.SIGTERM)
    _until_draining(served)
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(120) == 143
    assert asked.communicate(timeout=120)[0] == "cut\n"
    monkeypatch.chdir(tmp_path)
    assert main(["why", "state", "slow/u"]) == 0
    assert "turn 1 is open" in capsys.readouterr().out
    (tmp_path / "go").touch()
    again = service()
    assert again.ask("/v1/models")["data"][0]["id"] == "slow"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        again.ask("/v1/models", token="other")


def test_a_service_is_listed_and_read_as_its_folder_is(
    service: Callable[..., Service], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "go").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CALLBOARD_TOKEN", "a-token")
    served = service()
    served.ask("/v1/chat/completions", CHAT)

    def said(*words: str) -> str:
        assert main(words) == 0
        return capsys.readouterr().out

    url = served.said["url"]
    for words in (["ls", "--json"], ["log", "slow/u"], ["log", "slow/u", "--json"], ["log", "slow/u", "--trace"]):
        command, *more = words
        assert said(command, url, *more) == said(command, "state", *more) != ""
    assert "slow/u (slow)" in said("ls", url)
    assert main(["log", url, "--search", "x"]) == 2
    assert "a service is not searched" in capsys.readouterr().err


def test_more_connections_than_asked_for_are_turned_away(service: Callable[..., Service]) -> None:
    served = service("--connections", "1")
    with socket.create_connection(("127.0.0.1", served.said["port"])) as holder:
        holder.sendall(_HANDSHAKE)
        assert b" 101 " in holder.recv(1000)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            served.ask("/healthz")


_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer a-token\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: callboard.v1\r\n\r\n"
)
_ASK = """
import json, sys, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), json.loads(sys.argv[3]))
try:
    print(urllib.request.urlopen(request, timeout=120).read().decode())
except OSError:
    print("cut")
"""


def _until_running(served: Service) -> None:
    figures = ""
    headers = {"authorization": "Bearer a-token"}
    while "callboard_agents_running 1.0" not in figures:
        request = urllib.request.Request(served.said["page"] + "metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            figures = answer.read().decode()


def _until_draining(served: Service) -> None:
    while True:
        try:
            served.ask("/readyz")
        except urllib.error.HTTPError as error:
            assert error.code == 503
            return


def test_tokens_in_the_environment_are_toml_and_never_quoted() -> None:
    assert tokens_in({}) is None
    assert tokens_in({"CALLBOARD_TOKENS": ENVIRONMENT}) == {"a-token": {"scopes": ["admin"]}}
    with pytest.raises(UsageError, match=r"\$CALLBOARD_TOKENS is no TOML") as caught:
        tokens_in({"CALLBOARD_TOKENS": "a-secret"})
    assert "a-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--key", "k.pem"], "--key goes with --cert: give the certificate, too"),
        (["--cert", "none.pem"], "none.pem cannot be read (No such file or directory): TLS needs a certificate and its key"),
        (["--cert", __file__], "cannot be used: give both in PEM form"),
        (["--drain", "x"], "invalid choice"),
        (["--proxy", "front"], "name a proxy by its address"),
        (["--tokens", "none.toml"], "cannot be read (No such file or directory): write a file with a table for each"),
        (["--host", "0.0.0.0"], "give it tokens (a TOML file), or bind 127.0.0.1"),
        (["--host", "192.0.2.1", "--tokens", "good.toml"], "'192.0.2.1' is no address of this machine: bind 127.0.0.1"),
        (["--tokens", "bad.toml"], "bad.toml: token 2 is wrong (Invalid enum value 'reed' - at `$.scopes[0]`): give it scopes"),
        (["--bogus"], "see `callboard serve --help`"),
    ],
)
def test_c230_what_cannot_be_served_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SOURCE)
    Path("good.toml").write_text('["a"]\nscopes = ["read"]\n')
    Path("bad.toml").write_text('["a"]\nscopes = ["read"]\n["b"]\nscopes = ["reed"]\n')
    assert main(["serve", "state", "slow.py", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1\n", 'there is no Agent in agents.py; write one at its top level: NAME = Agent("NAME", model="PROVIDER:MODEL")'),
        ("class Desk: ...\na = Agent('a', deps=Desk)\n", "expects `deps` of Desk, and it has none; write deps = Desk(...) there"),
        ("class Desk: ...\na = Agent('a', deps=Desk)\ndeps = 5\n", "expects `deps` of Desk, and its `deps` is a int"),
        ("a = Agent('a')\nb = Agent('a', model='x:y')\n", "two definitions are named 'a'"),
        ("a = Agent('a')\nchannels = {'c': 3}\n", "give a Channel, or an async function"),
    ],
)
def test_c230_a_file_that_cannot_be_served_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agents.py").write_text(f"from callboard import Agent\n{source}")
    assert main(["serve", "state", "agents.py", "--port", "0"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1


def test_c230_a_file_in_the_place_of_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agents.py").write_text("")
    assert main(["serve", "agents.py"]) == 2
    assert "agents.py is a Python file; before it comes any folder" in capsys.readouterr().err


def test_c230_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SOURCE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "state", "slow.py", "--port", port]) == 2
    assert f"port {port} of 127.0.0.1 is taken by another process: choose another one, or 0" in capsys.readouterr().err


def test_without_a_file_nothing_runs_and_what_ran_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "echo.py").write_text(
        "from callboard import Agent\nfrom callboard.actors.testing import Reply, ScriptedModel\n"
        "echo = Agent('echo', model=ScriptedModel([Reply.text('hi')]), plugins=[])\n"
    )
    assert main(["run", "state", "echo.py:echo", "hello", "--id", "e"]) == 0
    served = Service(tmp_path, file=None)
    try:
        assert served.said["agents"] == []
        assert main(["why", served.said["url"], "e", "--token", "a-token"]) == 0
        assert "waits for a definition, of: echo" in capsys.readouterr().out
    finally:
        served.process.kill()
        served.process.communicate()
    assert main(["serve", "nowhere", "--port", "0"]) == 2
    assert "there is no store nowhere to look at" in capsys.readouterr().err
