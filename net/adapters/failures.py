"""From what a provider answers when it fails to a `ModelError`: pure, by status, error code and words.

The status alone is too coarse. 400 is a mistake of the caller or a context that overflowed, which compaction cures; 429 is a
rate limit, which a retry cures, or a spent quota, which nothing cures. So the error in the body decides first. No text leaves
here with a key in it: providers echo what they were sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from ...storage.errors import ModelError
from .reading import items

_LONGEST = 2_000
"""Characters of a provider's message that are kept."""

_CODES = {
    # OpenAI and those who follow it, by `code` or `type`
    "context_length_exceeded": "CONTEXT_OVERFLOW",
    "exceed_context_size_error": "CONTEXT_OVERFLOW",
    "string_above_max_length": "CONTEXT_OVERFLOW",
    "request_too_large": "CONTEXT_OVERFLOW",
    "insufficient_quota": "QUOTA",
    "billing_hard_limit_reached": "QUOTA",
    "billing_error": "QUOTA",
    "rate_limit_exceeded": "RATE_LIMIT",
    "rate_limit_error": "RATE_LIMIT",
    "invalid_api_key": "AUTH",
    "authentication_error": "AUTH",
    "permission_error": "AUTH",
    "model_not_found": "NOT_FOUND",
    "not_found_error": "NOT_FOUND",
    "content_filter": "CONTENT_FILTER",
    "content_policy_violation": "CONTENT_FILTER",
    "overloaded_error": "SERVER",
    "timeout_error": "TIMEOUT",
}

_VAGUE = {"invalid_request_error": "BAD_REQUEST", "server_error": "SERVER", "api_error": "SERVER"}
"""Names that say less than a status: they count where there is none, in the middle of a stream."""

_OVERFLOW = re.compile(
    r"prompt is too long|maximum context length|context (?:length|size|window)|input length and `max_tokens` exceed"
    r"|too many (?:input )?tokens|input is too long|exceeds? the (?:available|model'?s?) context",
    re.IGNORECASE,
)
"""How providers and local servers say that a request does not fit; they have no code for it, or each its own."""

_QUOTA = re.compile(r"credit balance is too low|exceeded your current quota|insufficient (?:balance|credits)", re.IGNORECASE)
_KEYS = re.compile(r"\b(?:sk|pk|rk)-[\w*-]{6,}|\bBearer\s+\S+", re.IGNORECASE)


def from_response(status: int, body: bytes | str, headers: Mapping[str, str], *, secrets: Iterable[str] = ()) -> ModelError:
    """The error behind an HTTP answer that is none of the good ones."""
    plain = ModelError.from_http(status, body, headers)
    error = _error_in(body)
    message = scrubbed(_message(error) or plain.message, secrets)
    code = _code(error, message, plain.code, status)
    return ModelError(code, message, status=status, retry_after_s=plain.retry_after_s, request_id=plain.request_id)


def from_event(error: Any, *, secrets: Iterable[str] = ()) -> ModelError:
    """The error that a provider sent in the middle of its stream; what it does not name is a fault of its server."""
    error = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
    message = scrubbed(_message(error) or "the provider broke the stream off", secrets)
    status = error.get("code") if isinstance(error.get("code"), int) else None
    plain = ModelError.from_http(status, "", {}).code if status is not None and status >= 400 else "SERVER"
    return ModelError(_code(error, message, plain, status or 0), message, status=status)


def scrubbed(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without any key, and not longer than a log should keep."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[key]")
    return _KEYS.sub("[key]", text)[:_LONGEST]


def _error_in(body: bytes | str) -> dict[str, Any]:
    """The error object in a body, wherever the provider puts it; empty if there is none."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    listed = items(found)
    found = listed[0] if listed else found  # Google's compatible endpoint answers with a list of one
    if not isinstance(found, dict):
        return {}
    outer = cast("dict[str, Any]", found)
    inner = outer.get("error", outer)
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else {"message": inner}


def _message(error: Mapping[str, Any]) -> str:
    message = error.get("message") or error.get("detail")
    return message if isinstance(message, str) else ""


def _code(error: Mapping[str, Any], message: str, plain: str, status: int) -> str:
    if _QUOTA.search(message):
        return "QUOTA"
    if status in (0, 400, 413, 422, 500) and plain != "RATE_LIMIT" and _OVERFLOW.search(message):
        return "CONTEXT_OVERFLOW"
    for field in ("code", "type"):
        named = error.get(field)
        if isinstance(named, str) and named in _CODES:
            return _CODES[named]
    return plain if status else _VAGUE.get(str(error.get("type")), plain)
