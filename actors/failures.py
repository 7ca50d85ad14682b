"""From an exception to the `Failure` the log keeps, and back.

A code for programs, a sentence for people, never a traceback: a log is read by strangers and kept for years, and frames
name paths and values that are not theirs. Only our own errors bring a code; a foreign exception's `code` attribute may
mean anything (a number, a method), so it stays `UNKNOWN`, with the chain of its causes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import trio

from ..storage.errors import CallboardError, ModelError
from ..storage.messages import Failure
from .texts import well_formed

UNKNOWN = "UNKNOWN"
LONGEST = 4_000
"""Characters of a failure's message; a provider may answer with a whole page."""

_MOST = 20
"""Errors that one chain of causes names, groups and their members included."""


def flatten(error: BaseException) -> Failure:
    """The error as the log keeps it.

    A `ModelError` keeps code, status, retry_after_s and request id; another error of ours with a code keeps that; anything
    else is `UNKNOWN`, its message the chain of causes, outermost first: `ValueError: x ← KeyError: 'y'`.
    """
    error = _only_member(error)
    if isinstance(error, ModelError):
        return _of_model(error)
    code = getattr(error, "code", None) if isinstance(error, CallboardError) else None
    if isinstance(code, str):
        return Failure(well_formed(code), _sentence(_text(error)))
    return Failure(UNKNOWN, _sentence(causes(error)))


def split_cancelled(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """What of an error is cancellation, and what is not: a nursery in other people's code may raise both at once."""
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(trio.Cancelled)
    return (error, None) if isinstance(error, trio.Cancelled) else (None, error)


def _of_model(error: ModelError) -> Failure:
    # Adapters are other people's code: what has a wrong type is left out, for the log could not be read again with it.
    status = error.status if isinstance(error.status, int) else None
    after = error.retry_after_s if isinstance(error.retry_after_s, int | float) else None
    request_id = well_formed(error.request_id) if isinstance(error.request_id, str) else None
    return Failure(well_formed(str(error.code)), _sentence(_text(error)), status, after, request_id)


def described(error: BaseException) -> str:
    """The error as `Class: text`, fit for a log and for a model, whatever its text is or does."""
    return well_formed(_described(error, {id(error)}))


def said(error: BaseException) -> str:
    """What the error says, fit for a log and for a model; the name of its class if it says nothing."""
    return well_formed(_text(error)) or type(error).__name__


def causes(error: BaseException) -> str:
    """The error and what led to it, outermost first, each as `Class: text`."""
    return well_formed(_causes(error, set()))


def as_error(failure: Failure) -> ModelError:
    """The failure as an exception again, for whoever must raise what the log tells."""
    return ModelError(
        failure.code,
        failure.message,
        status=failure.status,
        retry_after_s=failure.retry_after_s,
        request_id=failure.request_id,
    )


def _only_member(error: BaseException) -> BaseException:
    # A nursery wraps even a single error; the one inside is the one that was meant.
    while len(members := _members(error)) == 1:
        error = members[0]
    return error


def _members(error: BaseException) -> tuple[BaseException, ...]:
    return cast("BaseExceptionGroup[BaseException]", error).exceptions if isinstance(error, BaseExceptionGroup) else ()


def _causes(error: BaseException, seen: set[int]) -> str:
    # One error may be raised to many tasks, and so stand in a group that is its own cause: `seen` is that of the whole walk.
    return " ← ".join(_described(e, seen) for e in _chain(error, seen))


def _chain(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    while error is not None and id(error := _only_member(error)) not in seen and len(seen) < _MOST:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _described(error: BaseException, seen: set[int]) -> str:
    name = type(error).__name__
    text = _text(error)
    if members := _members(error):
        return f"{name}: {text} [{'; '.join(told for member in members if (told := _causes(member, seen)))}]"
    return f"{name}: {text}" if text else name


def _text(error: BaseException) -> str:
    if isinstance(error, trio.Cancelled):
        return ""  # it names a task of this process, by its address
    try:
        return str(error)
    except Exception as broken:  # an exception that cannot be printed must not hide that something failed
        return f"<its text raised {type(broken).__name__}>"


def _sentence(text: str) -> str:
    text = well_formed(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
