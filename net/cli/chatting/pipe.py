"""`callboard chat` without a terminal: each line that comes in is a message, each answer goes out as it streams.

The next line is read when the answer to the one before is there, so that a file of questions is a conversation. For programs
(`--json`) both ways are JSON, one object a line. What would wait for a person is refused: nobody is there.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import trio

from ....actors.ref import AgentRef
from ....actors.system import System
from ....actors.values import Outcome
from ....storage.errors import CallboardError, InputError
from ....storage.records import Record
from ..output import Output
from ..problems import FAILED, OK, Refused
from .transcript import SEEN, Piece, Transcript


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message as a program sends it. The same id again is the same message."""

    text: str
    id: str | None = None


async def pipe(system: System, ref: AgentRef[Any], output: Output) -> int:
    """Answer every line of standard input; 1 if any turn ended badly."""
    system.refuse_questions()
    printer = Printer(ref, output)
    code = OK
    async with trio.open_nursery() as nursery:
        nursery.start_soon(printer.run)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            message = read_line(line, json=output.json)
            if message is not None and not await _answer(ref, message, printer):
                code = FAILED
        nursery.cancel_scope.cancel()
    return code


async def _answer(ref: AgentRef[Any], line: Line, printer: Printer) -> bool:
    try:
        receipt = await ref.followup(line.text, message_id=line.id)
        printer.transcript.sent.add(receipt.message_id)
        outcome: Outcome[Any] = await ref.outcome(receipt.message_id)
    except InputError as error:
        printer.failed(error)
        return False
    await printer.wait_shown(outcome.seq)
    return outcome.ok


def read_line(line: str, *, json: bool) -> Line | None:
    """The message in a line; None if there is nothing in it.

    Raises:
        Refused: a program sent what is no message.
    """
    if not line.strip():
        return None
    if not json:
        return Line(line.rstrip("\n"))
    try:
        return msgspec.json.decode(line, type=Line)
    except msgspec.DecodeError as error:
        raise Refused(f'{line.strip()[:60]!r} is no message ({error}); write a line such as {{"text": "hello"}}') from error


class Printer:
    """Prints the conversation as it is committed."""

    def __init__(self, ref: AgentRef[Any], output: Output) -> None:
        self._ref, self._output = ref, output
        self.transcript = Transcript()
        self._after = ref.source().last()
        self._shown = self._after
        self._moved = trio.lowlevel.ParkingLot()
        self._column = False
        """Whether the last line of text has no end yet."""

    async def run(self) -> None:
        """Print until cancelled."""
        async for record in self._ref.follow(self._after, SEEN):
            for piece in self.transcript.feed(record):
                if self._output.json and piece.kind == "break":
                    continue
                if self._output.json:
                    self._output.value(self._value(record, piece))
                else:
                    self._print(piece)
            self._output.flush()
            self._shown = record.seq
            self._moved.unpark_all()

    async def wait_shown(self, seq: int) -> None:
        """Return when everything up to a seq is printed."""
        while self._shown < seq:
            await self._moved.park()

    def failed(self, error: CallboardError) -> None:
        """A message that was not taken."""
        self._output.value({"kind": "error", "text": error.message})
        self._output.notice(error.message)

    def _value(self, record: Record, piece: Piece) -> dict[str, Any]:
        value: dict[str, Any] = {
            "kind": piece.kind,
            "seq": record.seq,
            "turn": getattr(record.event, "turn", self.transcript.turn),
        }
        if piece.text:
            value["text"] = piece.text
        if piece.kind == "end":
            value |= {"reason": getattr(record.event, "reason", None), "usage": getattr(record.event, "usage", None)}
        return value

    def _print(self, piece: Piece) -> None:
        if piece.kind == "text" and piece.streams:
            self._output.text(piece.text, end="")
            self._column = not piece.text.endswith("\n")
            return
        if piece.kind == "reasoning":
            return
        if self._column:
            self._output.text("")
            self._column = False
        if piece.kind in ("text", "command"):
            self._output.text(piece.text)
        elif piece.text and piece.kind != "message":
            self._output.notice(piece.text)
