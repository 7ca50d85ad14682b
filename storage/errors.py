"""Every error of Callboard, in one tree, named by what failed and grouped by whose fault it is.

    CallboardError
    ├── UsageError               the caller's code asked for something that cannot be
    │   ├── NameMismatch         the id belongs to an agent of another definition
    │   ├── AgentNotFound        no agent has this id
    │   ├── AgentDeleted         the agent was deleted while somebody waited for it
    │   ├── DefinitionMissing    the log names a definition that this system does not know
    │   ├── AskCycle             waiting would close a cycle of agents waiting for each other
    │   └── ApprovalExpired      the question was answered too late
    ├── InputError               a message did not get in, or will not be run
    │   ├── InboxFull            the lane holds as many messages as it may
    │   ├── InputRefused         a plugin or a limit refused the message
    │   ├── InputDropped         the message was withdrawn, replaced or cancelled
    │   └── InputParked          the message waits for a person to wake the agent
    ├── TurnFailed               the turn ended, but not well
    ├── AskTimeout               the turn was not over in time (it goes on)
    ├── ModelError               a model or its adapter failed
    ├── ToolError                a tool's own message to the model
    ├── DeliveryFailed           a channel did not take a reply
    ├── StoreError               the log could not be read or written
    │   ├── StoreInUse           another process owns the folder
    │   ├── StoreFormat          the file is foreign, torn or of another format
    │   ├── CommitFailed         what was appended did not reach the disk
    │   │   └── StoreFull        the disk (or the map) is full
    │   ├── StaleAppend          the log has moved on since this writer looked
    │   ├── FenceLost            another owner has taken the agent over
    │   └── UnknownRecord        the log holds a record this version does not know
    └── ServiceError             a connection to a service failed
        ├── Disconnected
        └── Unauthorized

Each carries the ids it knows (`agent`, `turn`, `step`, `seq`), so that programs need not read texts, and travels by pickle.
This module exists apart so that every floor can raise without importing another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

TRANSIENT_CODES = frozenset({"EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT"})
"""Failure codes of a model call that another try may cure."""
OVERFLOW_CODES = frozenset({"CONTEXT_OVERFLOW", "OVERFLOW"})
"""Failure codes that say: the request holds more than the model can read; a shorter one may be answered."""


class CallboardError(Exception):
    """The root of the tree: what failed, in one sentence, with the ids it concerns.

    `agent`, `turn`, `step` and `seq` are None where they do not apply.
    """

    def __init__(
        self,
        message: str,
        *,
        agent: str | None = None,
        turn: int | None = None,
        step: int | None = None,
        seq: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.agent, self.turn, self.step, self.seq = agent, turn, step, seq

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions with keyword-only arguments do not survive pickle's default of calling the class with `args`.
        return _rebuild, (type(self), self.args, self.__dict__.copy())

    def __str__(self) -> str:
        return str(self.message)  # what a tool or an adapter raises with may be anything


def _rebuild(cls: type[CallboardError], args: tuple[Any, ...], state: dict[str, Any]) -> CallboardError:
    error = cls.__new__(cls, *args)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error


class UsageError(CallboardError):
    """The caller's code asked for something that cannot be."""


class NameMismatch(UsageError):
    """The id belongs to an agent of another definition; choose another id, or list the old name in `formerly`."""


class AgentNotFound(UsageError):
    """No agent has this id; `spawn` creates one."""


class AgentDeleted(UsageError):
    """The agent was deleted while somebody waited for it."""


class DefinitionMissing(UsageError):
    """The log names a definition that this system does not know; pass it in `agents=` or answer it from `resolve`."""


class AskCycle(UsageError):
    """Waiting would close a cycle of agents that wait for each other; `cycle` lists their ids, first and last the same."""

    def __init__(self, cycle: list[str], *, agent: str | None = None, turn: int | None = None) -> None:
        path = " → ".join(cycle)
        super().__init__(f"waiting would close a cycle: {path}; send a message instead of waiting", agent=agent, turn=turn)
        self.cycle = cycle


class ApprovalExpired(UsageError):
    """The question was already answered, withdrawn or expired."""


class InputError(CallboardError):
    """A message did not get in, or will not be run; `message_id` names it."""

    def __init__(self, message: str, *, message_id: str | None = None, **ids: Any) -> None:
        super().__init__(message, **ids)
        self.message_id = message_id


class InboxFull(InputError):
    """The lane holds as many messages as `Limits.pending` allows; send again later. `lane` and `limit` say which."""

    def __init__(self, agent: str, lane: str, limit: int, *, message_id: str | None = None) -> None:
        super().__init__(
            f"the inbox of {agent!r} is full: {lane} holds {limit} messages (Limits.pending); send again later",
            message_id=message_id,
            agent=agent,
        )
        self.lane, self.limit = lane, limit


class InputRefused(InputError):
    """A plugin or a limit refused the message; nothing was written."""


class InputDropped(InputError):
    """The message was withdrawn, replaced or dropped by a cancel before any turn took it; `why` says which."""

    def __init__(self, message: str, *, why: str = "withdrawn", **rest: Any) -> None:
        super().__init__(message, **rest)
        self.why = why


class InputParked(InputError):
    """The message waits behind a cancelled or failed turn; the next message wakes the agent, which runs it then."""


class TurnFailed(CallboardError):
    """The turn ended, but not well; `outcome` holds the reason and whatever text there was."""

    def __init__(self, message: str, *, outcome: Any = None, **ids: Any) -> None:
        super().__init__(message, **ids)
        self.outcome = outcome


class AskTimeout(CallboardError, TimeoutError):
    """The turn was not over in time. It goes on: ask again with the same message id to wait for its outcome."""


class ModelError(CallboardError):
    """A model or its adapter failed.

    `code` is one of ours (`RATE_LIMIT`, `TIMEOUT`, `BAD_REQUEST`, ...); `status` the HTTP status; `retry_after_s` what the
    provider asked for, in seconds; `request_id` the provider's own name for the call.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        request_id: str | None = None,
        **ids: Any,
    ) -> None:
        super().__init__(message or code, **ids)
        self.code, self.status, self.retry_after_s, self.request_id = code, status, retry_after_s, request_id

    @property
    def transient(self) -> bool:
        """Whether another try may cure it."""
        return self.code in TRANSIENT_CODES

    @classmethod
    def from_http(cls, status: int, body: bytes | str, headers: Mapping[str, str]) -> ModelError:
        """The error behind an HTTP answer: code by status, Retry-After and request id from its headers."""
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        lower = {k.lower(): v for k, v in headers.items()}
        return cls(
            _code_of(status),
            text[:2000] or f"HTTP {status}",
            status=status,
            retry_after_s=_retry_after(lower),
            request_id=lower.get("x-request-id") or lower.get("request-id"),
        )


_LONGEST_WAIT_S = 10 * 365 * 86_400


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds until a request may come again, whichever way the headers say it; None if they do not, or say nonsense."""
    try:
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1000
        else:
            seconds = _seconds(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < _LONGEST_WAIT_S else None


def _seconds(text: str) -> float:
    """A header's delay: a number of seconds, or the date until which to wait (one that has passed: not at all)."""
    try:
        return float(text)
    except ValueError:
        import time
        from email.utils import parsedate_to_datetime

        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)


def _code_of(status: int) -> str:
    named = {
        401: "AUTH",
        403: "AUTH",
        402: "QUOTA",
        404: "NOT_FOUND",
        408: "TIMEOUT",
        413: "CONTEXT_OVERFLOW",
        429: "RATE_LIMIT",
    }
    if status in named:
        return named[status]
    return "SERVER" if status >= 500 else "BAD_REQUEST"


class ToolError(CallboardError):
    """Raised in a tool: its text is what the model reads, without class name or traceback. `code` goes to the log."""

    def __init__(self, message: str, *, code: str = "TOOL_ERROR", **ids: Any) -> None:
        super().__init__(message, **ids)
        self.code = code


class DeliveryFailed(CallboardError):
    """Raised by a channel that did not take a reply: it is tried again, not before `retry_after_s`; or, `final`, it never is."""

    FINAL: ClassVar[str] = "REFUSED"
    RETRY: ClassVar[str] = "NOT_TAKEN"

    def __init__(self, message: str, *, retry_after_s: float | None = None, final: bool = False, **ids: Any) -> None:
        super().__init__(message, **ids)
        self.retry_after_s, self.final = retry_after_s, final


class StoreError(CallboardError):
    """The log could not be read or written."""


class StoreInUse(StoreError):
    """Another process (or another System of this one) owns the folder; `pid` is its process id where known."""

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class StoreFormat(StoreError):
    """The folder holds something that is not a store of this version: foreign, torn, or from a newer Callboard."""


class CommitFailed(StoreError):
    """What was appended did not reach the disk; the agent is read again from disk at the next access."""


class StoreFull(CommitFailed):
    """The disk is full. Nothing acknowledged is lost; free some space and send again."""


class StaleAppend(StoreError):
    """The log has moved on since this writer looked; nothing of its unit was written."""


class FenceLost(StoreError):
    """Another owner has taken the agent over; nothing of this unit was written."""


class UnknownRecord(StoreError):
    """The log holds a record of a type this version does not know: it can be read, not written. `type` names it."""

    def __init__(self, message: str, *, type: str = "", **ids: Any) -> None:
        super().__init__(message, **ids)
        self.type = type


class ServiceError(CallboardError):
    """A connection to a service failed."""


class Disconnected(ServiceError):
    """The connection is gone; reconnect and resume by seq."""


class Unauthorized(ServiceError):
    """The token is missing, wrong, or lacks the scope."""
