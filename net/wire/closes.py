"""Why a connection is closed: the codes of WebSocket itself, and two of our own."""

from __future__ import annotations

from collections.abc import Mapping

NORMAL, GOING_AWAY, VANISHED, TOO_LONG, FAULT, NO_PROTOCOL, NOT_READING = 1000, 1001, 1006, 1009, 1011, 4400, 4408

CLOSES: Mapping[int, str] = {
    NORMAL: "The client is done.",
    GOING_AWAY: "The service closes. Turns go on with its next start; connect again.",
    VANISHED: "Nobody said why: the connection broke. Connect again; streams resume by seq.",
    TOO_LONG: "A message was over twice as long as `max_message`, or took far too long. Sent again it would end the same way.",
    FAULT: "A ping was not answered in time. Connect again.",
    NO_PROTOCOL: "Five frames in a row were not of this protocol. The client is of another version, or has a fault.",
    NOT_READING: "A frame was not read in time (30 s). Connect again and resume; a `window` keeps one slow stream from it.",
}
"""Code → what it means and what to do."""
