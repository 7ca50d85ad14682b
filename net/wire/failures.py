"""Errors on the wire: an error of the tree leaves as an object and arrives as itself, with its class and its ids.

`data.error` names the class and `data.kinds` those above it, so that a client which does not know the class raises the nearest
one that it knows. Everything else in `data` are the error's own fields. What is no error of ours crosses as "internal error"
alone: a traceback, or a text that a library made, may hold what a client must not see.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ...actors.answers import LimitReached
from ...actors.values import Outcome
from ...storage import errors
from ...storage.errors import CallboardError, ServiceError, UsageError

PARSE, INVALID, NO_METHOD, BAD_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
"""The codes that JSON-RPC names itself."""

CODES: tuple[tuple[type[CallboardError], int], ...] = (
    (errors.Unauthorized, -32018),
    (errors.ServiceError, -32017),
    (errors.StoreError, -32016),
    (errors.ToolError, -32015),
    (errors.ModelError, -32014),
    (errors.AskTimeout, -32013),
    (errors.TurnFailed, -32012),
    (errors.InputError, -32011),
    (errors.UsageError, -32010),
    (errors.CallboardError, -32000),
)
"""One code for each branch of the tree, the narrower first. Programs go by `data.error`."""

_CLASSES: dict[str, type[CallboardError]] = {
    name: value
    for name, value in {**vars(errors), "LimitReached": LimitReached}.items()
    if isinstance(value, type) and issubclass(value, CallboardError)
}


class WireError(Struct, frozen=True, omit_defaults=True):
    """The `error` member of an answer."""

    code: int
    message: str
    data: dict[str, Any] = {}


def to_wire(error: CallboardError, code: int | None = None) -> WireError:
    """The error as it is sent; `code` where JSON-RPC itself has one for it."""
    kinds = [cls.__name__ for cls in type(error).__mro__ if issubclass(cls, CallboardError)]
    fields = {key: value for key, value in error.__dict__.items() if key != "message" and value is not None}
    data = {
        "error": kinds[0],
        "kinds": kinds[1:],
        **{key: msgspec.to_builtins(value, enc_hook=repr) for key, value in fields.items()},
    }
    return WireError(code or next(number for cls, number in CODES if isinstance(error, cls)), error.message, data)


def internal() -> WireError:
    """The error of a fault in the service: what it was is in the service's own log."""
    return to_wire(ServiceError("the service failed at this call; its own log says why"), INTERNAL)


def from_wire(wire: WireError) -> CallboardError:
    """The error that was sent, as an instance of its class or of the nearest one known here."""
    kinds = [wire.data.get("error"), *_texts(wire.data.get("kinds"))]
    cls = next((_CLASSES[kind] for kind in kinds if isinstance(kind, str) and kind in _CLASSES), None)
    if cls is None:
        cls = UsageError if wire.code in (NO_METHOD, BAD_PARAMS) else ServiceError
    error = cls.__new__(cls, wire.message)
    CallboardError.__init__(error, wire.message)
    for key, value in wire.data.items():
        if key.isidentifier() and not key.startswith("_") and key not in ("error", "kinds", "args", "message"):
            error.__dict__[key] = _outcome(value) if key == "outcome" else value
    return error


def _texts(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _outcome(value: object) -> object:
    try:
        return msgspec.convert(value, Outcome[Any])
    except msgspec.ValidationError:
        return value
