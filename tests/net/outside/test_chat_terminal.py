"""`callboard chat` in a real terminal, driven by tmux: what a person types, and what stands on the screen."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.outside

PATIENCE_S = 120
LONG = 150
"""A count to it takes seven seconds and a half: what is typed in the middle is typed in the middle, on a slow machine too."""
WRAPPED = '"$@"; echo "[exit $?]"; exec sleep 600'
"""A shell that says how the command ended, and keeps the screen."""


class Tmux:
    """A terminal of 80 by 40 in which one command runs; how it ended stands on the screen."""

    def __init__(self, folder: Path, *words: str, environment: dict[str, str] | None = None) -> None:
        assert shutil.which("tmux"), "run make outside, which installs it"
        self._folder = folder
        self._server = ("tmux", "-S", str(folder / "tmux"), "-f", "/dev/null")
        variables = {"TERM": "xterm-256color", "PYTHONWARNINGS": "ignore"} | (environment or {})
        self._words = (
            "env",
            *(f"{name}={value}" for name, value in variables.items()),
            sys.executable,
            "-m",
            "callboard.net.cli",
            *words,
        )
        self._do("new-session", "-d", "-x", "80", "-y", "40", "sleep", "600")
        self._do("set-option", "-g", "history-limit", "10000")
        self.start()

    def _do(self, *words: str) -> str:
        return subprocess.run((*self._server, *words), check=True, capture_output=True, text=True).stdout

    def start(self) -> None:
        """Run the command (again), on an empty screen."""
        self._do("respawn-pane", "-k", "-c", str(self._folder), "sh", "-c", WRAPPED, "sh", *self._words)
        self._do("clear-history")

    def type(self, text: str) -> None:
        """Type a line and press enter."""
        self._do("send-keys", "-l", text)
        self._do("send-keys", "Enter")

    def press(self, key: str) -> None:
        """Press a key, by its name in tmux."""
        self._do("send-keys", key)

    def paste(self, text: str) -> None:
        """Paste, as a terminal does that marks what is pasted."""
        self._do("set-buffer", text)
        self._do("paste-buffer", "-p")

    def screen(self, *, escapes: bool = False) -> str:
        """All that stands on the screen, and what scrolled off."""
        return self._do("capture-pane", "-p", "-S", "-", *(["-e"] if escapes else [])).rstrip()

    def wait(self, pattern: str, *, times: int = 1) -> str:
        """The screen, once it has this as often."""
        deadline = time.monotonic() + PATIENCE_S
        while len(re.findall(pattern, screen := self.screen())) < times:
            assert time.monotonic() < deadline, f"{pattern!r} did not come; the screen:\n{screen}"
            time.sleep(0.03)
        return screen

    def kill(self) -> None:
        """End the command as a power cut would."""
        os.kill(int((self._folder / "state" / "lock").read_text()), signal.SIGKILL)
        assert self.wait_ended() == 128 + signal.SIGKILL

    def wait_ended(self) -> int:
        """The exit code of the command."""
        (code,) = re.findall(r"\[exit (\d+)\]", self.wait(r"\[exit \d+\]"))
        return int(code)

    def close(self) -> None:
        """End all of it."""
        subprocess.run((*self._server, "kill-server"), check=False, capture_output=True)


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Tmux]:
    terminal = Tmux(tmp_path, "chat", "state")
    try:
        terminal.wait("idle · 0 tokens")
        yield terminal
    finally:
        terminal.close()


def test_an_answer_streams_and_is_steered_while_it_does(chat: Tmux) -> None:
    assert "No model was named: a small program answers." in chat.screen()
    chat.type(f"count to {LONG}")
    assert str(LONG) not in chat.wait(r"\b1 2 3\b").replace(f"count to {LONG}", "")
    chat.wait(r"turn 1, \d+ s")
    chat.type("hello")
    screen = chat.wait("I am no language model but a small program", times=1)
    places = [screen.index(text) for text in (f"count to {LONG}", "> hello", f"{LONG - 1}", "I am no language")]
    assert places == sorted(places)
    chat.wait(r"idle · \d+ tokens")
    chat.type("/history 4")
    chat.wait("You: hello")
    assert "turn 1" not in chat.wait(f"idle after turn|You: count to {LONG}")


def test_ctrl_c_stops_the_turn_and_the_second_leaves(chat: Tmux) -> None:
    chat.type("count to 300")
    chat.wait(r"\b1 2 3\b")
    chat.press("C-c")
    chat.wait("Stopped.")
    screen = chat.wait("idle")
    assert "300" not in screen.replace("count to 300", "")
    chat.type("count to 3")
    chat.wait(r"\n1 2 3\n\nchat .* idle")
    chat.type("count to 300")
    chat.wait(r"turn 3,")
    chat.press("C-c")
    chat.wait("Stopped.", times=2)
    chat.press("C-c")
    assert chat.wait_ended() == 0


def test_ctrl_c_takes_a_line_back_and_twice_leaves_an_idle_chat(chat: Tmux) -> None:
    chat.press("x")
    chat.wait("> x")
    chat.press("C-c")
    chat.wait(r"> *\Z")
    chat.press("C-c")
    chat.wait("Ctrl-C again leaves.")
    chat.press("C-c")
    assert chat.wait_ended() == 0


def test_commands(chat: Tmux) -> None:
    chat.type("/help")
    chat.wait("/undo            Go back to before your last message.")
    chat.type("count to 3")
    chat.wait(r"\n1 2 3\n")
    chat.wait("idle")
    chat.type("/status")
    chat.wait("Model: offline:parrot")
    chat.type("count to 300")
    chat.wait(r"\n1 2 3 4")
    chat.type("/status")
    chat.wait("chat: turn 3, step 1")
    chat.type("/stop")
    chat.wait("Stopped.", times=2)  # the command's answer, and the turn's end
    chat.wait("idle")
    chat.type("/undo")
    chat.wait("Taken back: count to 300")
    chat.type("/history 2")
    chat.wait("You: count to 3")
    chat.type("/new")
    chat.wait("A new conversation begins.")
    chat.type("/history")
    chat.wait("Nothing was said yet.")
    chat.type("/stauts")
    chat.wait("did you mean /status?")
    chat.type("/quit")
    assert chat.wait_ended() == 0


def test_a_kill_and_a_restart_show_where_it_was_and_go_on(chat: Tmux) -> None:
    chat.type("count to 4")
    chat.wait(r"\n1 2 3 4\n")
    chat.type(f"count to {LONG}")
    chat.wait(r"\n1 2 3 4 5 6 7")
    chat.kill()
    chat.start()
    screen = chat.wait("This turn was interrupted, and goes on.")
    assert screen.index("> count to 4") < screen.index("This is where it was:") < screen.index(f"> count to {LONG}")
    assert re.search(rf"> count to {LONG}\n1 2 3 4 5 6", screen), "what had been shown is shown"
    chat.wait(r"The answer broke off \(INTERRUPTED\); another try follows")
    chat.wait(rf"{LONG - 1}\s{LONG}\n")
    chat.wait(r"idle · \d+ tokens")
    chat.press("C-d")
    assert chat.wait_ended() == 0


def test_leaving_in_the_middle_of_an_answer_loses_nothing(chat: Tmux) -> None:
    chat.type(f"count to {LONG}")
    chat.wait(r"\n1 2 3")
    chat.press("C-d")
    assert chat.wait_ended() == 0
    chat.start()
    chat.wait("This is where it was:")
    chat.wait(rf"{LONG - 1}\s{LONG}\n")


def test_a_paste_of_many_lines_is_one_message(chat: Tmux) -> None:
    chat.paste("one line\nand another\nand a third")
    chat.wait("> one line\n  and another\n  and a third")
    chat.press("Enter")
    chat.wait("You say: one line\nand another\nand a third So tell me")
    chat.wait("idle")
    chat.type("/history 9")
    chat.wait("You: one line\nand another")


def test_tools_and_reasoning_are_shown_dim(chat: Tmux) -> None:
    chat.type("what time is it?")
    chat.wait(r"· clock\(\{\}\)")
    chat.wait("The clock says:")
    chat.type("think about cats")
    chat.wait("nothing came of it.")
    assert "\x1b[2mSomebody wants me to think" in chat.screen(escapes=True)


def test_no_color(tmp_path: Path) -> None:
    terminal = Tmux(tmp_path, "chat", "state", environment={"NO_COLOR": "1"})
    try:
        terminal.wait("idle")
        terminal.type("think about cats")
        terminal.wait("nothing came of it.")
        assert "\x1b[" not in terminal.screen(escapes=True)
    finally:
        terminal.close()


def test_a_store_in_use_is_said_and_the_terminal_is_left_as_it_was(chat: Tmux, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    other = Tmux(second, "chat", str(tmp_path / "state"))
    try:
        assert other.wait_ended() == 3
        assert "callboard: " in other.screen()
    finally:
        other.close()
