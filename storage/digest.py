"""The canonical form of a request, and its digest.

One line of JSON for each message, then one line for the header (provider, model, settings, system, tools, the schema of the
answer if there is one, and which settings were defaulted); the digest is the sha256 of those lines. It is the plain digest of the
whole form, so that `verify` recomputes it simply, and a running hash over the message lines (`folds.surface`) costs only what is
new.

The form depends on nothing but the values: not on the order of dictionaries, not on the order in which tools were registered,
not on the process or the version of Python, and not on whether a value has been through the log (a whole number where a
fraction is meant, a list where a tuple is meant).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from .messages import Header, Message, Request

_encoder = msgspec.json.Encoder(order="deterministic")
_to_log = msgspec.msgpack.Encoder()
_from_log = msgspec.msgpack.Decoder(Header)


def message_line(message: Message) -> bytes:
    """One message in canonical form, with its newline."""
    return _encoder.encode(message) + b"\n"


def canonical_header(header: Header) -> Header:
    """The header with tools and defaulted settings in order of name, and every value as the log gives it back."""
    return _in_order(_to_log.encode(header))


def _in_order(raw: bytes) -> Header:
    # `temperature=1` is written as 1 and read back as 1.0: only what has been through the log has one form.
    header = _from_log.decode(raw)
    return msgspec.structs.replace(
        header,
        tools=tuple(sorted(header.tools, key=lambda tool: tool.name)),
        defaulted=tuple(sorted(header.defaulted)),
    )


@lru_cache(maxsize=256)
def _line_and_digest(raw: bytes) -> tuple[bytes, str]:
    # Nearly every request has the header of the one before, and its line costs the schemas of all tools: so it is kept, by the
    # bytes it was made from.
    line = _encoder.encode(_in_order(raw)) + b"\n"
    return line, hashlib.sha256(line).hexdigest()


def header_line(header: Header) -> bytes:
    """The header in canonical form, with its newline."""
    return _line_and_digest(_to_log.encode(header))[0]


def header_digest(header: Header) -> str:
    """The sha256 of the header's line, in hex: the name under which `request/header` repeats it."""
    return _line_and_digest(_to_log.encode(header))[1]


def request_digest(messages: Iterable[Message], header: Header) -> str:
    """The sha256 of a request in canonical form, in hex, computed from the start."""
    running = hashlib.sha256()
    for message in messages:
        running.update(message_line(message))
    running.update(header_line(header))
    return running.hexdigest()


def header_of(request: Request, defaulted: Iterable[str] = ()) -> Header:
    """All of a request but its messages, as `request/header` records it."""
    return Header(
        provider=request.provider,
        model=request.model,
        settings=request.settings,
        defaulted=tuple(defaulted),
        system=request.system,
        tools=request.tools,
        output=request.output,
    )
