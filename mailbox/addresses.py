"""Names that are computed, never minted: session keys, child ids, delivery ids, effect keys.

A name that depends on its parts alone is the same when the work is done again: a message that arrives twice names one agent, a
delegation that runs again after a crash finds the same child, a tool that runs again shows the outside world the same key.

Names made of texts are lossless: the separator is escaped in every part but the last. A hash takes over only where a
name would be longer than an engine's keys may be.
"""

from __future__ import annotations

import hashlib

import msgspec

LONGEST = 480
"""The most bytes that an agent's id may have: a key of LMDB has 511."""

_json = msgspec.json.Encoder()


def session_key(channel: str, chat: str, thread: str | None = None) -> str:
    """The agent that a chat of a channel talks to: `channel:chat`; of a thread in it, `channel::chat:thread`. Past 480 bytes its
    tail is a hash of the whole."""
    if thread is not None:
        return _bounded(f"{_escape(channel, ':')}::{_escape(chat, ':')}:{thread}")
    # A chat that begins like the mark of a thread (or like an escape of that) has its first character escaped, and only that.
    first = chat[:1]
    return _bounded(f"{_escape(channel, ':')}:{_escape(first, ':') if first in (':', '%') else first}{chat[1:]}")


def parse_session_key(key: str) -> tuple[str, str, str | None] | None:
    """Channel, chat and thread of a session key that was not too long to keep them; None if it is none."""
    channel, separator, rest = key.partition(":")
    if not separator:
        return None
    if rest.startswith(":"):
        chat, separator, thread = rest[1:].partition(":")
        return (_unescape(channel), _unescape(chat), thread) if separator else None
    return _unescape(channel), _unescape(rest[:3]) + rest[3:], None


def child_id(parent: str, call_id: str) -> str:
    """The child that a call of `parent` delegates to: `parent/call`. Past 480 bytes its tail is a hash of the whole."""
    return _bounded(f"{parent}/{_escape(call_id, '/')}")


def parse_child_id(child: str) -> tuple[str, str] | None:
    """Parent and call of a child's id, unless it was too long to keep them; None if it is no child's."""
    parent, separator, call = child.rpartition("/")
    return (parent, _unescape(call)) if separator else None


def effect_key(agent: str, turn: int, step: int, call_id: str) -> str:
    """What a tool shows the outside world so that an effect happens once; the same for every attempt of one call."""
    return _digest("effect", agent, turn, step, call_id)


def effect_id(key: str, number: int) -> str:
    """The id of the `number`th message (from 1) that a tool sends: a body that runs again sends nothing twice."""
    return f"{key}#{number}"


def delivery_id(agent: str, turn: int, started: int, number: int) -> str:
    """The id under which a channel sees the `number`th reply of a turn, however often it is tried. `started`, the time of the
    turn's `turn/start` in Unix ms, tells it from the same turn of an agent that was deleted and made again under its id."""
    return _digest("delivery", agent, turn, started, number)


def letter_id(effect: str, started: int) -> str:
    """The id of a letter to another agent; `effect` is the `effect_id` made for it. `started` is that of `delivery_id`: the
    receiver still knows the letters of an agent that was deleted and made again under its id."""
    return f"{effect}@{started}"


def reply_delivery_id(effect: str, started: int) -> str:
    """The same for a reply that a tool of that turn gives itself; `effect` is the `effect_id` made for it."""
    return "reply#" + _digest("reply", effect, started)


def command_key(agent: str, message_id: str) -> str:
    """What a command shows the outside world so that an effect happens once, however often its message is tried."""
    return _digest("command", agent, message_id)


def command_delivery_id(agent: str, message_id: str, time: int) -> str:
    """The id under which a channel sees the answer of a control command, which belongs to no turn; `time`: when, Unix ms."""
    return _digest("answer", agent, message_id, time)


def question_delivery_id(question: str, time: int) -> str:
    """The id under which a channel sees a question that waits for a person, said in a chat; `time`: when, Unix ms."""
    return _digest("question", question, time)


def _bounded(whole: str) -> str:
    encoded = whole.encode()
    if len(encoded) <= LONGEST:
        return whole
    tail = f"~{hashlib.sha256(encoded).hexdigest()[:40]}"
    return encoded[: LONGEST - len(tail)].decode("utf-8", "ignore") + tail


def _digest(*parts: str | int) -> str:
    return hashlib.sha256(_json.encode(parts)).hexdigest()[:32]


def _escape(text: str, separator: str) -> str:
    return text.replace("%", "%25").replace(separator, f"%{ord(separator):02X}")


def _unescape(text: str) -> str:
    return text.replace("%3A", ":").replace("%2F", "/").replace("%25", "%")
