"""Errors over HTTP: a status for each branch of the tree, and the error in the shape that the protocol has too.

    {"error": {"code": -32011, "message": "the inbox of 'a' is full ...", "data": {"error": "InboxFull", ...}}}

The paths under `/v1/` that speak OpenAI's dialect have that dialect's errors instead: `type`, `code`, `param`. What is no error
of ours is "the service failed", and its own log says why.
"""

from __future__ import annotations

from typing import Any, Literal

from ...storage import errors as e
from ...storage.errors import CallboardError, ServiceError, Unauthorized
from ..access import Throttled
from ..wire.failures import internal, to_wire
from .messages import Response, to_json

Dialect = Literal["callboard", "openai"]

STATUS: tuple[tuple[type[CallboardError], int], ...] = (
    (e.AgentNotFound, 404),
    (e.AgentDeleted, 404),
    (e.DefinitionMissing, 404),
    (e.NameMismatch, 409),
    (e.ApprovalExpired, 409),
    (e.UsageError, 400),
    (e.InboxFull, 429),
    (e.InputRefused, 422),
    (e.InputError, 409),
    (e.AskTimeout, 504),
    (e.TurnFailed, 502),
    (e.ModelError, 502),
    (e.StoreError, 503),
    (e.Unauthorized, 403),
    (e.ServiceError, 503),
    (e.CallboardError, 500),
)
"""The status of each branch of the tree, the narrower first. A missing or wrong token is 401, which the router says itself."""

_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


class Refused(Exception):
    """A request that is answered with this status; `headers` go with the answer."""

    def __init__(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


def stays_out(error: Unauthorized, text: str = "") -> Refused:
    """The answer to one who was not let in: 401, or 429 if the token was not even looked at."""
    if isinstance(error, Throttled):
        return Refused(429, error.message, ("retry-after", str(error.wait_s)))
    return Refused(401, text or error.message, ("www-authenticate", "Bearer"))


def status_of(error: CallboardError) -> int:
    """The status that says most about the error."""
    return next(status for cls, status in STATUS if isinstance(error, cls))


def response_to(error: Exception, dialect: Dialect = "callboard") -> Response:
    """The answer to a request that failed so."""
    if isinstance(error, Refused):
        shape = _openai(error.message, error.status) if dialect == "openai" else to_wire(ServiceError(error.message))
        return to_json({"error": shape}, error.status).with_headers(*error.headers)
    if not isinstance(error, CallboardError):
        shape = _openai("the service failed; its own log says why", 500) if dialect == "openai" else internal()
        return to_json({"error": shape}, 500)
    status = status_of(error)
    shape = _openai(error.message, status, type(error).__name__) if dialect == "openai" else to_wire(error)
    return to_json({"error": shape}, status)


def _openai(message: str, status: int, code: str | None = None) -> dict[str, Any]:
    kind = _TYPES.get(
        status, "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    )
    return {"message": message, "type": kind, "param": None, "code": code}
