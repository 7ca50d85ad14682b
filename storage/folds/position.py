"""Where the agent stands: its open turn and step, what the step still owes, and what was cancelled.

This fold is what recovery goes by, and what the running loop goes by too: after any prefix of the log it says what comes next.
It reads no chunks. Of a log that breaks the rules it makes the best it can; it never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from msgspec import Struct

from ..events import (
    ApprovalAnswered,
    ApprovalAsked,
    AssistantMessage,
    Cause,
    CommandResult,
    CommandRun,
    Event,
    InboxClaim,
    InboxDrop,
    InboxPut,
    Note,
    OutboxPut,
    RequestFailed,
    RequestSent,
    Route,
    StepEnd,
    StepStart,
    ToolCalled,
    ToolResult,
    TraceEntry,
    TurnCancel,
    TurnEnd,
    TurnResume,
    TurnStart,
    TurnSuspend,
    UserMessage,
)
from ..messages import NO_USAGE, Failure, Message, PluginSource, ToolCallBlock, Usage
from .fold import Fold, Handler
from .handoffs import handed_to

CONTINUE = PluginSource("continue")
"""The source of a message that asks a model to go on where its output cap cut it: what it says then belongs to what it said."""
INTERRUPTED = "INTERRUPTED"
"""The failure code of an attempt that a crash cut."""


class CallState(Struct):
    """One call of the step's answer. `state`: `waiting` (no record), `started` (a `tool/call`), `done` (a `tool/result`)."""

    id: str
    name: str
    arguments: str
    state: Literal["waiting", "started", "done"] = "waiting"
    effective: str | None = None
    replay: str = "never"
    error: str | None = None
    concludes: bool = False
    seq: int = -1
    """The seq of its `tool/call`."""
    time: int = 0
    """When that was written, Unix ms."""
    context: tuple[Message, ...] = ()
    """What its result adds to the next step, once the batch is whole."""


class OpenRequest(Struct, frozen=True, gc=False):
    """A request that was sent and has no end yet."""

    attempt: int
    seq: int
    digest: str
    time: int = 0
    """When it was sent, Unix ms."""


class Origin(Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a message that waits came from: the route its answer takes, and who sent it."""

    route: Route | None = None
    sender: str | None = None


def _turn_start(at: Position, seq: int, time: int, event: TurnStart) -> None:
    at.turn, at.open, at.started, at.start_seq, at.route = event.turn, True, time, seq, event.route
    at.reply, at.sender = event.route, None
    at.cancel, at.suspended, at.trace, at.resumes, at.claimed = None, False, (), 0, ()
    at.step, at.step_open, at.sent, at.max_tokens, at.text, at.usage = 0, False, 0, False, "", NO_USAGE
    at.command, at.unsaid, at.deliveries, at.answered_route = None, "", (), False
    _fresh_step(at)


def _entered(at: Position, seq: int, time: int, event: UserMessage) -> None:
    if at.cut is not None and event.message.source == CONTINUE:
        at.joining, at.max_tokens, at.cut = at.cut, False, None


def _noted(at: Position, seq: int, time: int, event: Note) -> None:
    at.handed_over = at.handed_over or handed_to(event) is not None


def _fresh_step(at: Position) -> None:
    at.cut = at.said if at.finish == "max-tokens" else None
    at.joining = at.said if at.joining and at.calls else ""  # calls and results do not end what was begun
    at.attempts, at.interrupted, at.request, at.failure, at.retry_at = 0, 0, None, None, None
    at.answered, at.finish, at.calls, at.forked_calls, at.said, at.asking = False, "stop", [], False, "", ()


def _turn_cancel(at: Position, seq: int, time: int, event: TurnCancel) -> None:
    if at.open and event.turn == at.turn and at.cancel is None:
        at.cancel = event.cause
    _forget(at, event.ids)


def _turn_suspend(at: Position, seq: int, time: int, event: TurnSuspend) -> None:
    at.suspended, at.trace = True, event.trace


def _turn_resume(at: Position, seq: int, time: int, event: TurnResume) -> None:
    if not at.suspended and not _only_asked(at):
        at.resumes += 1
    at.suspended = False


def _only_asked(at: Position) -> bool:
    """Whether nothing ran but questions to people: that the process ended meanwhile is not the turn's doing."""
    asked = {call for _, call in at.asking}
    return bool(asked) and all(call.id in asked for call in at.calls if call.state == "started")


def _asked(at: Position, seq: int, time: int, event: ApprovalAsked) -> None:
    at.asking = (*at.asking, (event.id, event.call_id))


def _decided(at: Position, seq: int, time: int, event: ApprovalAnswered) -> None:
    at.asking = tuple(asked for asked in at.asking if asked[0] != event.id)


def _turn_end(at: Position, seq: int, time: int, event: TurnEnd) -> None:
    at.open = at.step_open = at.suspended = False
    at.request, at.cancel, at.command, at.retry_at, at.trace = None, None, None, None, ()


def _put(at: Position, seq: int, time: int, event: InboxPut) -> None:
    if event.route is not None or event.sender is not None:
        at.origins.setdefault(event.message.id, Origin(event.route, event.sender))


def _drop(at: Position, seq: int, time: int, event: InboxDrop) -> None:
    _forget(at, event.ids)


def _forget(at: Position, ids: tuple[str, ...]) -> None:
    for id in ids:
        at.origins.pop(id, None)


def _claim(at: Position, seq: int, time: int, event: InboxClaim) -> None:
    at.claimed = (*at.claimed, *event.ids)
    for id in event.ids:
        origin = at.origins.pop(id, None)
        if origin is not None and (origin.route is not None or at.sender is None):
            at.sender = origin.sender
        if origin is not None and origin.route is not None:
            # Another question: what was said before, in whatever way, is no answer to it, nor the beginning of one.
            at.reply, at.answered_route, at.unsaid, at.finish = origin.route, False, "", "stop"


def _step_start(at: Position, seq: int, time: int, event: StepStart) -> None:
    at.step, at.step_open = event.step, True
    _fresh_step(at)


def _step_end(at: Position, seq: int, time: int, event: StepEnd) -> None:
    at.step_open, at.request, at.resumes, at.asking = False, None, 0, ()


def _sent(at: Position, seq: int, time: int, event: RequestSent) -> None:
    at.attempts, at.sent, at.handed_over = event.attempt, at.sent + 1, False
    at.request, at.failure, at.retry_at = OpenRequest(event.attempt, seq, event.digest, time), None, None


def _failed(at: Position, seq: int, time: int, event: RequestFailed) -> None:
    at.request = None
    at.failure = event.failure if event.action == "raise" else None
    at.retry_at = time + int((event.delay_s or 0) * 1000) if event.action == "retry" else None
    at.interrupted += event.failure.code == INTERRUPTED
    if event.usage is not None:
        at.usage = at.usage + event.usage


def _answer(at: Position, seq: int, time: int, event: AssistantMessage) -> None:
    at.request, at.resumes = None, 0
    if event.usage is not None:
        at.usage = at.usage + event.usage
    said = at.joining + event.message.text
    at.text = said or at.text
    if event.interrupted:
        return
    at.answered, at.finish = True, event.finish
    at.max_tokens = at.max_tokens or event.finish == "max-tokens"
    at.calls = [CallState(b.id, b.name, b.arguments) for b in event.message.content if type(b) is ToolCallBlock]
    at.said = said
    at.unsaid = (not at.calls and said) or at.unsaid


def _called(at: Position, seq: int, time: int, event: ToolCalled) -> None:
    call = _call(at, event.call_id)
    if call is not None and call.state == "waiting":
        call.state, call.effective, call.replay, call.seq, call.time = "started", event.effective, event.replay, seq, time


def _result(at: Position, seq: int, time: int, event: ToolResult) -> None:
    at.resumes = 0
    call = _call(at, event.call_id)
    if call is not None:
        call.state, call.error = "done", event.error
        call.concludes = event.concludes and event.error is None
        call.context = event.context or ()


def _call(at: Position, call_id: str) -> CallState | None:
    return next((c for c in at.calls if c.id == call_id), None)


def _command(at: Position, seq: int, time: int, event: CommandRun) -> None:
    if at.open and event.id in at.claimed:
        at.command = event.id


def _command_result(at: Position, seq: int, time: int, event: CommandResult) -> None:
    if event.id == at.command:
        at.command = None


def _reply(at: Position, seq: int, time: int, event: OutboxPut) -> None:
    if at.open and event.turn == at.turn:
        at.deliveries = (*at.deliveries, event.delivery)
        # Answers that the loop gives lie between two steps or behind the turn.
        at.answered_route = at.answered_route or (at.step_open and event.route == at.reply)
        at.unsaid = at.unsaid if at.step_open else ""


class Position(Fold, Struct):
    """The fold's state; also its own snapshot."""

    turn: int = 0
    """The last turn's number; 0 before the first."""
    open: bool = False
    started: int = 0
    """When the turn opened, Unix ms."""
    start_seq: int = -1
    route: Route | None = None
    """The turn's, fixed when it opened."""
    reply: Route | None = None
    """Where its next answer goes: the route of the last message it took that has one."""
    sender: str | None = None
    """Who sent that message."""
    origins: dict[str, Origin] = {}
    """Those of the messages that wait, by id."""
    cancel: Cause | None = None
    """Why the open turn was cancelled; the first cause wins."""
    suspended: bool = False
    trace: tuple[TraceEntry, ...] = ()  # how it walked before it was suspended
    resumes: int = 0
    """Resumes of this turn that a crash made necessary and after which nothing was finished."""
    claimed: tuple[str, ...] = ()
    """Ids of all messages this turn took."""
    step: int = 0
    """The last step's number within the turn; 0 before the first."""
    step_open: bool = False
    attempts: int = 0
    """Requests sent in this step."""
    interrupted: int = 0
    """How many of them a crash cut; retry budgets do not count those."""
    sent: int = 0
    """Requests sent in this turn."""
    handed_over: bool = False
    """Whether the log was handed to another definition since the last of them: its model is not the one to ask next."""
    request: OpenRequest | None = None
    failure: Failure | None = None
    """The failure of the step's last attempt, if it was raised."""
    retry_at: int | None = None
    """When the step's next attempt is due, Unix ms, if the last one is to be repeated."""
    answered: bool = False
    """Whether the step has its assistant message."""
    said: str = ""
    """The visible text of that message."""
    finish: str = "stop"
    calls: list[CallState] = []
    cut: str | None = None
    """What the step before said, if the output cap cut it and this step may go on with it."""
    joining: str = ""
    """What this step goes on with: its own text belongs behind it, without a blank."""
    max_tokens: bool = False
    """Whether any step of the turn ran into the output cap, and none went on with it."""
    text: str = ""
    """The turn's last visible answer that is not empty, also one that was cut."""
    usage: Usage = NO_USAGE
    command: str | None = None
    """The id of a command that ran and has no result."""
    unsaid: str = ""
    """The last visible answer that the loop has not put in the outbox yet; text beside calls is none."""
    deliveries: tuple[str, ...] = ()
    """Ids of the replies that this turn has put in the outbox."""
    answered_route: bool = False
    """Whether a tool has answered that message itself, on its route."""
    asking: tuple[tuple[str, str], ...] = ()
    """Open questions to people, each with its call."""
    forked_calls: bool = False
    """Whether calls open in the shared prefix of a fork are in doubt."""

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {
        TurnStart: _turn_start,
        TurnCancel: _turn_cancel,
        TurnSuspend: _turn_suspend,
        UserMessage: _entered,
        Note: _noted,
        TurnResume: _turn_resume,
        TurnEnd: _turn_end,
        InboxPut: _put,
        InboxDrop: _drop,
        InboxClaim: _claim,
        StepStart: _step_start,
        StepEnd: _step_end,
        RequestSent: _sent,
        RequestFailed: _failed,
        AssistantMessage: _answer,
        ToolCalled: _called,
        ToolResult: _result,
        ApprovalAsked: _asked,
        ApprovalAnswered: _decided,
        CommandRun: _command,
        CommandResult: _command_result,
        OutboxPut: _reply,
    }

    def dump(self) -> Position:
        """Itself."""
        return self

    @classmethod
    def load(cls, dumped: Position) -> Position:
        """Itself."""
        return dumped

    def fork(self) -> None:
        """The rest of the log is a fork's own: a call that was open in the prefix is in doubt for ever."""
        self.forked_calls = any(c.state == "started" for c in self.calls)
        self.asking = ()
        self.origins = {}

    @property
    def open_calls(self) -> list[CallState]:
        """Calls of the open step without a result, in the model's order."""
        return [c for c in self.calls if c.state != "done"]

    @property
    def concludes(self) -> bool:
        """Whether a result of the last step ends the turn."""
        return any(c.concludes for c in self.calls)

    @property
    def terminal(self) -> bool:
        """Whether the last step left nothing for the model to read: no calls, or one that concludes."""
        return self.answered and (not self.calls or self.concludes)
