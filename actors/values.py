"""What handles give back: outcomes, receipts, what is known of an agent, and what waits for a person or a clock.

All are frozen structs, so that they can be kept, compared, sent over a connection and printed. Points in time that people read
are datetimes with their zone; only records keep the log's Unix milliseconds. Absent is None, never an empty text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, cast

from msgspec import Struct, structs

from ..storage.errors import TurnFailed
from ..storage.events import Aborted, Blocked, Completed, EndReason, Errored, Limited
from ..storage.messages import NO_USAGE, Block, Message, Usage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ..storage.store import Head

    Out = TypeVar("Out", default=str)
else:
    from typing import TypeVar

    # TypeVar defaults exist at run time from Python 3.13 on; only the type checkers need them.
    Out = TypeVar("Out")

Status = Literal["idle", "running", "failed"]
"""`running`: a turn is open, also while it waits for a person. `failed`: the last commit did not reach the disk."""
WaitKind = Literal[
    "approval",
    "model",
    "model-slot",
    "tool",
    "child",
    "ask",
    "retry",
    "commit",
    "timer",
    "definition",
    "wait_idle",
    "dispose",
    "delete",
]
DeltaKind = Literal["text", "reasoning", "tool", "discard", "end"]


def moment(unix_ms: int) -> datetime:
    """A log's time as a datetime with its zone (UTC)."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


# -- outcomes


class Outcome(Struct, Generic[Out], frozen=True, kw_only=True, gc=False):
    """How a turn ended, as its `turn/end` says. A turn that ended badly is an Outcome too; `result` is what raises."""

    agent: str
    turn: int
    reason: EndReason
    """Its `.kind`: completed, max-tokens, blocked, aborted, error, interrupted or limit."""
    text: str = ""
    """The last answer's visible text, also of one that was cut."""
    usage: Usage = NO_USAGE
    output: Out | None = None
    """The answer as a value, for agents with `output=`; `text` is its JSON then."""
    unfit: str | None = None
    """Why the answer in the log is no value of the agent's present `output=`; None if it is one, or none is due."""
    steps: int = 0
    message_id: str | None = None
    """The message that was asked about."""
    seq: int = -1
    """The seq of the `turn/end`."""

    @property
    def ok(self) -> bool:
        """Whether the turn completed; nothing else is success."""
        return isinstance(self.reason, Completed)

    def result(self) -> Out:
        """The output, or the text of an agent without one.

        Raises:
            TurnFailed: the turn did not complete, or its answer is not of the shape that the definition has now; it carries
                this outcome and says why.
        """
        if not self.ok or self.unfit is not None:
            why = explain(self.reason) if self.unfit is None else f"completed, but its answer {self.unfit}; read its text"
            text = f"turn {self.turn} of {self.agent!r} {why}"
            raise TurnFailed(text, outcome=self, agent=self.agent, turn=self.turn, seq=self.seq)
        return cast("Out", self.text) if self.output is None else self.output

    def of_message(self, message_id: str) -> Outcome[Out]:
        """The same outcome, as the answer to this message: one turn may have taken several."""
        return structs.replace(self, message_id=message_id)

    def __str__(self) -> str:
        return self.text if self.ok else f"{self.agent} turn {self.turn} {explain(self.reason)}"


def explain(reason: EndReason) -> str:
    """An end reason as the second half of a sentence: "ended with an error: RATE_LIMIT: slow down"."""
    match reason:
        case Completed():
            return "completed"
        case Blocked(why=why):
            return f"was blocked: {why}"
        case Aborted(cause=cause, error=error):
            text = f": {cause.text}" if cause.text else ""
            beside = f" (beside it {error.code}: {error.message})" if error else ""
            return f"was aborted, cause {cause.kind}{text}{beside}"
        case Errored(error=error):
            return f"ended with an error: {error.code}: {error.message}"
        case Limited(limit=limit, text=text):
            return f"reached the limit {limit}{f': {text}' if text else ''}"
        case _:
            return _EXPLAINED[reason.kind]


_EXPLAINED = {
    "max-tokens": "was cut at the model's output cap; raise max_tokens or ask for less",
    "interrupted": "was interrupted by a crash",
}


class Receipt(Struct, frozen=True, gc=False):
    """A message is on disk: its id, and the seq of its `inbox/put` (of a control command: its `command/run`)."""

    message_id: str
    seq: int


class Delta(Struct, frozen=True, gc=False):
    """A piece of what an agent shows while it works; resume after `seq`.

    `text` of a "tool" is the tool's name. "discard": drop what this step has shown so far, its attempt failed. "end" has the
    turn's `reason`.
    """

    seq: int
    turn: int
    step: int
    kind: DeltaKind
    text: str = ""
    reason: EndReason | None = None


# -- what is known of an agent


class Wait(Struct, frozen=True):
    """One thing that an agent waits for: what kind, what exactly, since when, and until when at the latest."""

    kind: WaitKind
    what: str
    since: datetime | None = None
    until: datetime | None = None


class AgentSummary(Struct, frozen=True, kw_only=True):
    """An agent as the index knows it, without its log being read."""

    id: str
    name: str
    """The name of its definition."""
    labels: Mapping[str, str] = {}
    parent: str | None = None
    status: Status = "idle"
    head: int = -1
    """The seq of its last record."""
    turn: int = 0
    usage: Usage = NO_USAGE
    waits: tuple[str, ...] = ()
    """What it waits for, in the kinds that the index has: approval, ask, child, retry, timer."""
    updated: datetime | None = None

    @classmethod
    def of(cls, head: Head, status: Status | None = None) -> AgentSummary:
        """The summary in an index entry; without a `status` it is what the entry says: a turn is open, or none is."""
        known = head.summary
        return cls(
            id=head.agent,
            name=known.name,
            labels=known.labels or {},
            parent=known.parent,
            status=status or ("running" if known.open else "idle"),
            head=head.last,
            turn=known.turn,
            usage=known.usage,
            waits=known.waits,
            updated=moment(head.time),
        )


class AgentInfo(Struct, frozen=True, kw_only=True):
    """All that is known of one agent now."""

    id: str
    definition: str
    """The name of its definition, as its log has it."""
    labels: Mapping[str, str] = {}
    parent: str | None = None
    depth: int = 0
    status: Status = "idle"
    turn: int = 0
    step: int = 0
    pending: int = 0
    """Messages in both lanes that no turn has taken."""
    parked: int = 0
    """How many of them wait for the next message: a turn was stopped or failed before them."""
    context_tokens: int | None = None
    """What the next request would hold by estimate, in tokens; None if nobody counts."""
    context_window: int | None = None
    """What the model can hold, in tokens; None if unknown."""
    unsent: int = 0
    """Replies on their way to a channel."""
    lost: tuple[str, ...] = ()
    """The newest replies that did not arrive, a sentence each."""
    children: tuple[str, ...] = ()
    usage: Usage = NO_USAGE
    waits: tuple[Wait, ...] = ()


# -- people, clocks, channels


class Approval(Struct, frozen=True, kw_only=True):
    """A question that waits for a person: may this call run?"""

    id: str
    agent: str
    turn: int
    call_id: str
    tool: str
    arguments: str
    """The call's arguments as text, as they would run."""
    question: str
    asked: datetime
    expires: datetime | None = None


class Timer(Struct, frozen=True, kw_only=True):
    """A durable reminder: when it is due, and what it will say."""

    id: str
    due: datetime
    message: Message
    every_s: float | None = None
    route: Mapping[str, str] | None = None


class Delivery(Struct, frozen=True, kw_only=True):
    """A reply for a channel. It comes again under the same `delivery` id until the channel takes it without raising."""

    delivery: str
    route: Mapping[str, str]
    """Its `channel` and `chat`; `thread` and `message` where there are any."""
    content: tuple[Block, ...]
    text: str
    agent: str
    turn: int
    streamed: bool = False
    """Whether the channel has shown this text already, by edits."""


class Inbound(Protocol):
    """A channel's way in: what its `run` is given."""

    async def put(
        self,
        content: str | Sequence[Block] | Message,
        *,
        route: Mapping[str, Any],
        sender: str | None = None,
        message_id: str | None = None,
    ) -> Receipt | None:
        """Send a message to the agent of the route's chat, opened on its first; on disk on return, so acknowledge then. None: it
        was refused (empty, too large, a full inbox, a plugin's word) and would be again; acknowledge it, too."""
        ...

    def ready(self) -> None:
        """The channel can receive."""
        ...
