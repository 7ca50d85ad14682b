"""Every method: its parameters, its result, the scope it needs, and whether a client may repeat it without asking.

The parameters are the contract: an unknown one is refused by name, since a client that is newer than its service must not have an
option ignored. A *repeatable* method does nothing a second time (it reads, or what it sends has an id), so a client whose
connection broke before the answer came sends it again by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import Raw, Struct

from ...actors.values import AgentInfo, AgentSummary, Approval, Outcome, Receipt, Status, Timer
from ...mailbox.items import Item
from ...storage.messages import File, Image, Message, Settings, TextBlock, ToolSpec, Usage

SUBPROTOCOL = "callboard.v1"
"""The subprotocol that both sides name; another version of the protocol is another name."""
BEARER = "bearer."
"""A subprotocol that begins so carries a token: browsers cannot set headers."""

Scope = Literal["read", "send", "admin"]
WireContent = str | list[TextBlock | Image | File]


class Params(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Parameters of a method."""


class OnAgent(Params, frozen=True, kw_only=True):
    """One agent, by its id."""

    agent: str


class Spawn(Params, frozen=True, kw_only=True):
    """The definition's name; without an `id` the service mints one."""

    name: str
    id: str | None = None
    labels: dict[str, str] | None = None


class Delete(OnAgent, frozen=True, kw_only=True):
    """With `tree`, its children too."""

    tree: bool = True


class Selection(Params, frozen=True, kw_only=True):
    """Agents by the beginning of their ids, and by labels."""

    prefix: str = ""
    labels: dict[str, str] | None = None


class Agents(Selection, frozen=True, kw_only=True):
    """One page; `after` is `upto` of the page before. `text` is a part of the id, or of the definition's name."""

    waiting: str | None = None
    status: Status | None = None
    text: str | None = None
    after: str | None = None
    limit: int = 100


class Answer(Params, frozen=True, kw_only=True):
    """A person's word on a question; with `reply`, `text` is the call's result."""

    id: str
    verdict: Literal["allow", "deny", "reply"]
    by: str
    text: str | None = None


class Send(OnAgent, frozen=True, kw_only=True):
    """A message: a text or blocks, under an id that makes sending it again harmless."""

    content: WireContent
    message_id: str | None = None
    route: dict[str, str | int | None] | None = None
    sender: str | None = None


class Asking(Send, frozen=True, kw_only=True):
    """With `on_cancel: "cancel"` the turn is cancelled when its time is out, when nobody waits any more, or when the connection
    is lost; otherwise it goes on."""

    timeout: float | None = None
    on_cancel: Literal["detach", "cancel"] = "detach"


class OutcomeOf(OnAgent, frozen=True, kw_only=True):
    """Of the turn that took a message, or of a turn by its number."""

    message_id: str | None = None
    turn: int | None = None
    timeout: float | None = None


class Cancel(OnAgent, frozen=True, kw_only=True):
    """What is queued is dropped, or with `keep_inbox` parked."""

    cause: Literal["user", "hook"] = "user"
    keep_inbox: bool = False
    text: str | None = None


class OnMessage(OnAgent, frozen=True, kw_only=True):
    """One pending message."""

    message_id: str


class Replace(OnMessage, frozen=True, kw_only=True):
    """Another content in its place, under an id of its own."""

    content: WireContent
    new_id: str | None = None


class Read(OnAgent, frozen=True, kw_only=True):
    """Records with `after` < seq ≤ `upto`, of these types only; one page."""

    after: int = -1
    upto: int | None = None
    types: list[str] | None = None


class RequestAt(OnAgent, frozen=True, kw_only=True):
    """The request that is record `seq`, or the newest one before it: what an answer, a failure or a call came of. Its messages
    come from place `first` on, as many as fit into one answer."""

    seq: int
    first: int = 0


class Follow(OnAgent, frozen=True, kw_only=True):
    """`stream` is a number of the client's choice; `after` null is "from now on". With a `window`, at most so many frames of the
    stream are under way that the client has not acknowledged."""

    stream: int
    after: int | None = -1
    types: list[str] | None = None
    window: int | None = None


class OnStream(Params, frozen=True, kw_only=True):
    """A stream of this connection."""

    stream: int


class Ack(OnStream, frozen=True, kw_only=True):
    """So many frames of the stream, from its first, have been dealt with."""

    frames: int


class Forget(Params, frozen=True, kw_only=True):
    """The id of a request whose answer nobody waits for any more."""

    id: int | str


class Remind(OnAgent, frozen=True, kw_only=True):
    """Later, in a turn of its own: after seconds or at a time; with `every_s` again and again. The `id` is also the message's."""

    content: WireContent
    after_s: float | None = None
    at: datetime | None = None
    every_s: float | None = None
    id: str | None = None
    route: dict[str, str | int | None] | None = None


class OnTimer(OnAgent, frozen=True, kw_only=True):
    """One reminder."""

    id: str


class Fork(OnAgent, frozen=True, kw_only=True):
    """After seq `at`, or just before `turn`; `definition` names another one for the fork, and `rerun` runs that turn again."""

    at: int | None = None
    id: str | None = None
    turn: int | None = None
    definition: str | None = None
    rerun: bool = False


# -- results


class Known(Struct, frozen=True, omit_defaults=True):
    """An agent that exists: its id, its definition's name, and its status."""

    id: str
    name: str = ""
    status: Status = "idle"


class AgentsPage(Struct, frozen=True):
    """Some agents in order of id. For them `looked` agents were looked at, up to the id `upto`; with `more` ask again after that:
    a page looks at some thousands at most, so one of a search may have few agents or none, and not be the last."""

    agents: list[AgentSummary]
    more: bool = False
    upto: str | None = None
    looked: int = 0


class RecordsPage(Struct, frozen=True):
    """Some records, and the seq up to which was looked; `more`: ask again after it."""

    records: list[Raw]
    upto: int
    more: bool = False


class Rebuilt(Struct, frozen=True, kw_only=True):
    """A request as it was sent, rebuilt from the log. `ok`: it has the `digest` that was written when it was sent. `messages` are
    those from place `first` on, of `count` in all: ask again with `first` for the rest. `before` is the seq of the request before
    it, and `kept` how many messages both begin with."""

    seq: int
    turn: int
    step: int
    attempt: int
    provider: str
    model: str
    settings: Settings
    system: str
    tools: tuple[ToolSpec, ...]
    output: dict[str, Any] | None = None
    messages: list[Message]
    first: int = 0
    count: int
    digest: str
    ok: bool
    before: int | None = None
    kept: int = 0


class Followed(Struct, frozen=True):
    """The stream is open, and its records come after this seq."""

    after: int


# -- notifications of the service


class Hello(Struct, frozen=True):
    """The first frame: who serves, what this token may do, and how long a message may be."""

    version: str
    scopes: list[str]
    prefix: str
    max_message: int


class Page(Struct, frozen=True):
    """Records of a stream: all up to `upto` that were asked for. The stream has caught up when `upto` is `head`."""

    stream: int
    upto: int
    head: int
    records: list[Raw]


class Ended(Struct, frozen=True):
    """A stream is over: its agent was deleted, or cannot be read."""

    stream: int
    error: Any


# -- the table


class Method(Struct, frozen=True):
    """A row of the table."""

    name: str
    params: type[Params]
    result: Any
    scope: Scope
    text: str
    repeatable: bool = True


_ROWS = (
    Method("get", OnAgent, Known, "read", "The agent, if it exists; never creates one."),
    Method("agents", Agents, AgentsPage, "read", "Agents in order of their ids, one page."),
    Method("usage", Selection, Usage, "read", "Tokens of all these agents."),
    Method("info", OnAgent, AgentInfo, "read", "All that is known of the agent now, and what it waits for."),
    Method("messages", OnAgent, list[Message], "read", "What the model would see now."),
    Method("pending", OnAgent, list[Item], "read", "What waits in its inbox, in the order in which it would be taken."),
    Method("outcome", OutcomeOf, Outcome[Any], "read", "Waits for a turn's end, and says how it ended."),
    Method("wait_idle", OnAgent, None, "read", "Waits until nothing runs."),
    Method("read", Read, RecordsPage, "read", "Records of the log, one page."),
    Method(
        "request", RequestAt, Rebuilt, "read", "What the model was sent, rebuilt from the log, and whether it is exactly that."
    ),
    Method("follow", Follow, Followed, "read", "Opens a stream of records, now and as they come; they arrive as `records`."),
    Method("unfollow", OnStream, None, "read", "Closes a stream."),
    Method("approvals", Selection, list[Approval], "read", "Calls that wait for a person."),
    Method("spawn", Spawn, Known, "send", "The agent `id` of a definition: created if there is none. Repeatable with an id."),
    Method("ask", Asking, Outcome[Any], "send", "Sends a prompt and waits for the outcome of the turn that takes it."),
    Method("followup", Send, Receipt, "send", "Queues a prompt for a turn of its own. On disk when answered."),
    Method("steer", Send, Receipt, "send", "Sends into the running turn, at its next boundary."),
    Method("inject", Send, Receipt, "send", "Adds context for the next boundary; wakes nobody."),
    Method("withdraw", OnMessage, bool, "send", "Takes a pending message out; false if it is too late.", repeatable=False),
    Method("replace", Replace, Receipt | Literal[False], "send", "Puts another in a pending message's place.", repeatable=False),
    Method(
        "cancel", Cancel, None, "send", "Cancels what the agent and its children do. On disk when answered.", repeatable=False
    ),
    Method("timers", OnAgent, list[Timer], "read", "The reminders that are set."),
    Method("remind", Remind, Timer, "send", "Sets a reminder. On disk when answered. Repeatable with an id."),
    Method("cancel_timer", OnTimer, bool, "send", "Takes a reminder back; false if it has fired.", repeatable=False),
    Method("resume", OnAgent, None, "send", "Takes up the open turn of a fork."),
    Method("compact", OnAgent, bool, "send", "Shortens what an idle agent's model sees; whether it did.", repeatable=False),
    Method("fork", Fork, Known, "send", "An agent that shares this one's records up to a point.", repeatable=False),
    Method("answer", Answer, None, "admin", "Answers a question: the call runs, is refused, or has a result.", repeatable=False),
    Method("dispose", OnAgent, None, "admin", "Stops the agent now and keeps its inbox.", repeatable=False),
    Method("delete", Delete, None, "admin", "Removes the agent and every trace of it.", repeatable=False),
)

METHODS: Mapping[str, Method] = {method.name: method for method in _ROWS}
"""Name → method, in the order of the document."""

NOTES: Mapping[str, type[Params]] = {"ack": Ack, "forget": Forget}
"""Notifications of the client: no answer comes."""
