"""What seams are given and what they answer: small frozen values, one for each thing a plugin can say.

A plugin never changes what it was given; it hands a changed copy to `next`, or answers by itself. So the loop can check every
answer by its type and name the plugin that gave a wrong one, and no plugin can reach into the turn behind the log's back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from ..storage.errors import CallboardError, ToolError
from ..storage.events import EndReason, Route
from ..storage.messages import Block, Failure, Message, Request, Settings, TextBlock, ToolResultBlock
from .texts import well_formed


class ToolDefinition(Protocol):
    """What a step can offer to the model: a `Tool`, a delegation, or anything with these three."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> Mapping[str, Any]: ...


class LimitReached(CallboardError):
    """Raised from any seam: the turn ends with `limit`, after the step's calls have results. `text` is for the reader."""

    def __init__(self, limit: str, text: str = "", **ids: Any) -> None:
        super().__init__(text or f"the limit {limit!r} is reached", **ids)
        self.limit, self.text = limit, text


# -- the boundary and the inbox


class Boundary(Struct, frozen=True):
    """What is about to enter the model's view: the messages that this boundary of `turn` takes before `step`."""

    messages: tuple[Message, ...]
    turn: int
    step: int

    @property
    def text(self) -> str:
        """The visible text of all messages, one after the other."""
        return "\n".join(m.text for m in self.messages)


class Enter(Struct, frozen=True):
    """Let these messages enter, in this order; a plugin may have changed, added or left out some."""

    messages: Sequence[Message]


class Reject(Struct, frozen=True):
    """Refuse: the send (`accept`), or all that the boundary claimed (`pre_step`, the turn ends blocked)."""

    why: str


class Replace(Struct, frozen=True):
    """A rewrite of the model's view: what it saw from seq `start` to `end` (None: up to now) gives way to `message`, or to
    nothing. The log keeps the old records; `cause` says what for."""

    message: Message | None = None
    start: int = 0
    end: int | None = None
    cause: str = ""


class Answer(Struct, frozen=True):
    """Answer the sender with `text`, without the model; a command may rewrite the view in the same append.

    `error`: the command failed or was refused, and `text` says so. `ran`: the command's name and arguments, as whoever read them
    understood them. `notes`: the plugin's facts (kind → data) that are written in the same append. `withdraws`: ids of messages
    that wait, and that the same append takes back.
    """

    text: str
    replacement: Replace | None = None
    error: Failure | None = None
    ran: tuple[str, str] | None = None
    notes: Mapping[str, Any] = {}
    withdraws: tuple[str, ...] = ()


class Stop(Answer, frozen=True, kw_only=True):
    """Answer of `accept`: stop what runs, its children too, and park what waits, in one append with the command's records.

    `say` makes the text once nothing can come between: it is given whether a turn ran, how many children did, and how many
    messages wait.
    """

    say: Callable[[bool, int, int], str]


class Decide(Answer, frozen=True, kw_only=True):
    """Answer of `accept`: the sender's word on the oldest question that the agent's calls have put to a person, in one append
    with the command's records.

    `why` is for the model. `say` makes the text: it is given the question, or None if there is none.
    """

    verdict: Literal["allow", "deny"]
    why: str | None = None
    say: Callable[[str | None], str]


class Later(Answer, frozen=True, kw_only=True):
    """Answer of `accept`: let the message in, but in a turn of its own, also if it was steered into a running one. Unless it
    `releases` that, what a stop or a failure has parked stays where it is."""

    message: Message
    releases: bool = True


class Command(Struct, frozen=True):
    """A message that may be a slash command: its text is that of `message`, its id is the message's."""

    message: Message

    @property
    def id(self) -> str:
        """The message's id, which makes running the command idempotent."""
        return self.message.id

    @property
    def text(self) -> str:
        """The message's text, without blanks around it."""
        return self.message.text.strip()


Why = Literal["budget", "step", "overflow", "idle", "command"]
"""Why `compact` is asked: before a turn, before a request of it, after the provider refused one as too long, while the agent
rests, or because a person wants it."""


class Position(Struct, frozen=True):
    """What `compact` decides on: the model's view as (seq, message), what is about to join it, and why it is asked.

    `tokens` is how many the coming request is estimated to have with all of it, prompt and tools included; `context_window` how
    many the model can hold, None if unknown, and `reserved` how many of them its answer may take. `ratio` is how many tokens the
    model counts for each one of `tokens.message_tokens`, by what it reported so far. `fruitless`: how many notes
    `compaction-useless` and `compaction-gave-up` there are since the view was rewritten or has grown.
    """

    entries: Sequence[tuple[int, Message]]
    incoming: Sequence[Message] = ()
    tokens: int | None = None
    context_window: int | None = None
    why: Why = "budget"
    reserved: int = 0
    ratio: float = 1.0
    fruitless: int = 0


class Stopping(Struct, frozen=True):
    """A turn that is about to end: its last step is over and nothing waits in next-step. `text` is the answer so far.

    `said` is what the last step said, and `finish` how it ended; `replied`: a tool has answered the route by itself.
    """

    turn: int
    step: int
    reason: EndReason
    text: str = ""
    said: str = ""
    finish: str = "stop"
    replied: bool = False


# -- the request


class Proposal(Struct, frozen=True):
    """Where the next request goes and how it samples; None where nobody has said so yet."""

    provider: str | None = None
    model: str | None = None
    settings: Settings = Settings()


class Assembly(Struct, frozen=True):
    """What a step is made of: the system prompt, the tools offered, and the rendered sections of runtime context."""

    system: Any = ""
    tools: tuple[ToolDefinition, ...] = ()
    context: tuple[str, ...] = ()


class Failed(Struct, frozen=True):
    """A failed attempt (from 1) of a step's request; `policy` is what the adapter prepared for retries, if anything."""

    provider: str
    failure: Failure
    attempt: int
    policy: Any = None
    request: Request | None = None


class Resend(Struct, frozen=True):
    """Build the request again and send it after `after_s` seconds; `replacement` rewrites the view first, in one append."""

    after_s: float = 0
    replacement: Replace | None = None


# -- tool calls


class ToolCall(Struct, frozen=True):
    """A call as the model asked for it; `arguments` is the model's own text (or a plugin's in its place)."""

    id: str
    name: str
    arguments: str = ""

    @property
    def args(self) -> dict[str, Any]:
        """The arguments, decoded; no text at all means no arguments.

        Raises:
            ToolError: the text is not a JSON object.
        """
        if not self.arguments.strip():
            return {}
        try:
            return msgspec.json.decode(self.arguments, type=dict[str, Any])
        except msgspec.DecodeError as e:
            text = f"The arguments of {self.name!r} are not a JSON object ({e}); send one object that fits the schema."
            raise ToolError(text, code="INVALID_ARGUMENTS") from e

    def rewritten(self, arguments: Mapping[str, Any] | str | None) -> ToolCall:
        """The same call with other arguments; None leaves them as they are."""
        if arguments is None:
            return self
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        return ToolCall(self.id, self.name, well_formed(text))


class Allow(Struct, frozen=True):
    """Let the call run, with other `arguments` if given (both texts are logged)."""

    arguments: Mapping[str, Any] | str | None = None


class Deny(Struct, frozen=True):
    """Refuse the call; the model reads `why`."""

    why: str


class Ask(Struct, frozen=True):
    """Let a person decide; without an answer in `expires_s` seconds the call is refused. With `arguments` it is these that the
    person sees, and that run. With a `route` (the turn's own is `ctx.route`) the question is said there, too."""

    question: str
    expires_s: float | None = None
    arguments: Mapping[str, Any] | str | None = None
    route: Mapping[str, Any] | Route | None = None


class CallResult(Struct, frozen=True):
    """What a call gave. `error` is a code if it failed; `concludes` ends the turn after this step; `context` enters the next."""

    content: tuple[Block, ...] = ()
    error: str | None = None
    concludes: bool = False
    context: tuple[Message, ...] = ()
    meta: dict[str, Any] | None = None

    @classmethod
    def of(cls, text: str, *, error: str | None = None, concludes: bool = False) -> CallResult:
        """A result of plain text."""
        return cls((TextBlock(text),), error, concludes)

    @property
    def text(self) -> str:
        """The visible text."""
        return "".join(b.text for b in self.content if isinstance(b, TextBlock | ToolResultBlock))


class Done(Struct, frozen=True):
    """A call and its result, before the result is logged."""

    call: ToolCall
    result: CallResult

    def map_text(self, change: Callable[[str], str]) -> Done:
        """A copy in which every visible text of the result went through `change`."""
        content = Message("", "tool", self.result.content).map_text(change).content
        return Done(self.call, msgspec.structs.replace(self.result, content=content))

    def with_text(self, text: str, *, error: str | None = None) -> Done:
        """A copy whose result is this text; what the call's own result was is not logged, with an `error` nothing of it."""
        if error is not None:
            return Done(self.call, CallResult.of(text, error=error))
        return Done(self.call, msgspec.structs.replace(self.result, content=(TextBlock(text),), error=None))


Verdict = Allow | Deny | Ask
"""What `tool_before` answers."""
