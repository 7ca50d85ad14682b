"""The first floor: what waits for an agent, and how agents are named.

`inbox` is the mailbox (two lanes, a fold of the log), `items` what it holds, `addresses` the names that are computed.
"""

from __future__ import annotations

from .addresses import child_id, delivery_id, effect_id, effect_key, parse_child_id, parse_session_key, session_key
from .inbox import LANES, Inbox
from .items import Fate, InboxState, Item

__all__ = [
    "LANES",
    "Fate",
    "Inbox",
    "InboxState",
    "Item",
    "child_id",
    "delivery_id",
    "effect_id",
    "effect_key",
    "parse_child_id",
    "parse_session_key",
    "session_key",
]
