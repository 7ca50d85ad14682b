"""A person at a terminal that is one end of a pseudo-terminal: what is typed, and what is shown. (In a real one: outside/.)"""

from __future__ import annotations

import logging
import os
import pty
import re
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, Limits, System, tool
from callboard.actors.plugins import Commands, Permissions
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.cli.chatting.session import Session
from callboard.net.cli.chatting.terminal import Terminal
from callboard.storage.engines.memory import MemoryStore

PATIENCE_S = 120
_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Person:
    """The other end: types, and reads what came, without its colours."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.seen = ""

    def type(self, keys: str) -> None:
        """Press these keys."""
        os.write(self._fd, keys.encode())

    async def see(self, pattern: str, *, keep: bool = False) -> str:
        """Read until the pattern has come; what was read is forgotten up to there, unless it is kept."""
        with trio.move_on_after(PATIENCE_S):
            while not re.search(pattern, self.seen):
                await trio.lowlevel.wait_readable(self._fd)
                self.seen += _SEQUENCES.sub("", os.read(self._fd, 65_536).decode().replace("\r", ""))
        found = re.search(pattern, self.seen)
        assert found is not None, f"{pattern!r} did not come; what came: {self.seen!r}"
        self.seen = self.seen if keep else self.seen[found.end() :]
        return found[0]


@asynccontextmanager
async def talking(
    monkeypatch: pytest.MonkeyPatch, *replies: Any, store: MemoryStore | None = None, **options: Any
) -> AsyncGenerator[tuple[Person, Any, trio.Event]]:
    """A session with a scripted agent, the person in front of it, and whether it was left."""
    near, far = pty.openpty()
    given: dict[str, Any] = {"plugins": [Commands()], **options}
    agent: Agent[Any, Any] = Agent("a", model=ScriptedModel(list(replies)), **given)
    left = trio.Event()
    with os.fdopen(far, "r", closefd=False) as stdin, os.fdopen(far, "w") as stdout:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stdout", stdout)
        before = termios.tcgetattr(far)
        try:
            async with System.open(store or MemoryStore(), agents=[agent], grace=0) as system:
                ref = await system.spawn(agent, id="a")
                session = Session(system, ref, Terminal(colour=True), model="scripted:demo", about="a, kept in memory.")

                async def run() -> None:
                    await session.run()
                    left.set()

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(run)
                    person = Person(near)
                    await person.see("a · scripted:demo · ", keep=True)  # from here on keys are keys
                    yield person, ref, left
                    nursery.cancel_scope.cancel()
            assert termios.tcgetattr(far) == before, "the terminal is given back as it was"
        finally:
            os.close(near)


async def test_a_message_is_answered_and_the_last_line_says_what_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking(monkeypatch, Reply.text("It is sunny.", parts=3)) as (person, _, left):
        await person.see("idle · 0 tokens")
        person.type("Oslo?\r")
        await person.see(r"> Oslo\?\n")
        await person.see(r"It is sunny\.\n\na · scripted:demo · idle · [\d,]+ tokens")
        person.type("/status\r")
        await person.see("Model: scripted:demo")
        person.type("\x04")
        await left.wait()


async def test_a_line_typed_meanwhile_is_steered_in(monkeypatch: pytest.MonkeyPatch) -> None:
    go = trio.Event()
    async with talking(monkeypatch, Reply.wait(go, Reply.text("one")), Reply.text("two")) as (person, ref, _):
        person.type("first\r")
        await person.see("turn 1, ")
        person.type("second\r")
        await person.see("> second")
        go.set()
        await person.see(r"one\n")
        await person.see(r"two\n\n")
        assert [message.text for message in await ref.messages()] == ["first", "one", "second", "two"]


async def test_ctrl_c_stops_and_the_second_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking(monkeypatch, Reply.hang("well"), Reply.hang("so")) as (person, ref, left):
        person.type("first\r")
        await person.see("well")
        person.type("\x03")
        await person.see(r"Stopped\.")
        await ref.wait_idle()
        person.type("second\r")
        await person.see("so")
        assert not left.is_set()
        person.type("\x03\x03")
        await left.wait()
        assert ref.status == "idle"


async def test_a_question_is_answered_by_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    calls = [Reply.tools((f"c{n}", "pay", {"cents": n})) for n in range(2)]
    plugins = [Commands(), Permissions(ask=["pay"])]
    async with talking(monkeypatch, *calls, Reply.text("done"), tools=[pay], plugins=plugins) as (person, ref, _):
        person.type("go\r")
        await person.see(r"\? May a call pay with \{\"cents\":0\}\? \(/allow, or /deny\)")
        await person.see("asks you: /allow or /deny")
        person.type("/allow\r")
        await person.see(r"· pay\(\{\"cents\":0\}\)\n  → paid")
        await person.see(r"\? May a call pay")
        person.type("/deny not again\r")
        await person.see("Answered: deny")
        await person.see(r"done\n")
        assert "not again" in str([message.results for message in await ref.messages()])


async def test_what_cannot_be_sent_is_said_and_the_talk_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(message_bytes=300)
    async with talking(monkeypatch, Reply.text("fine"), limits=limits) as (person, _, left):
        person.type("\x1b[200~" + "x" * 400 + "\x1b[201~\r")
        await person.see("more than Limits.message_bytes")
        person.type("short\r")
        await person.see(r"fine\n")
        logging.getLogger("callboard").warning("the disk is %s", "slow")
        await person.see("the disk is slow")
        person.type("/quit\r")
        await left.wait()


async def test_who_comes_back_sees_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    async with talking(monkeypatch, Reply.text("one"), Reply.hang("half an ans"), store=store) as (person, ref, left):
        person.type("first\r")
        await person.see(r"one\n")
        await ref.wait_idle()
        person.type("second\r")
        await person.see("half an ans")
        person.type("\x04")
        await left.wait()
    async with talking(monkeypatch, Reply.text("a whole answer"), store=store) as (person, _, _):
        await person.see(r"> first\none\nThis is where it was:\n")
        await person.see(r"> second\n")
        await person.see(r"half an ans\nThis turn was interrupted, and goes on\.")
        await person.see(r"a whole answer\n")


async def test_keys_that_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking(monkeypatch, Reply.text("heard")) as (person, ref, _):
        person.type("hexlo\x1b[D\x1b[D\x7fl\x0c")
        await person.see("> hello")
        person.type("\r")
        await person.see(r"heard\n")
        await wait_all_tasks_blocked()
        assert (await ref.messages())[0].text == "hello"
        person.type("lost")
        await person.see("> lost")
        person.type("\x03")
        await person.see(r"> \Z")
        person.type("\x03")
        await person.see(r"Ctrl-C again leaves\.")


async def test_what_a_stopped_answer_leaves_waiting_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking(monkeypatch, Reply.hang("Well, "), Reply.text("heard")) as (person, ref, _):
        person.type("tell me\r")
        await person.see("Well, ")
        person.type("and more\rand then\r")
        await person.see("> and then")
        await wait_all_tasks_blocked()
        person.type("\x03")
        await person.see(r"2 messages wait for your next one\.")
        person.type("/status\r")
        await person.see(r"0 waiting, 2 parked\n")
        person.type("/history\r")
        shown = await person.see(r"(?s)You: tell me\n.*idle")
        person.type("go on\r")
        shown += await person.see(r"(?s).*> go on\n.*heard\n")
        assert "\n\n\n" not in shown, "one blank line behind a command"
        await ref.wait_idle()
