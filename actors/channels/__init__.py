"""Channels: how people reach agents, and how replies reach people.

`Channel` is what to subclass; `MemoryChannel` is for tests, `TerminalChannel` reads and writes lines, `WebhookChannel` posts.
Inside: `lanes` is the order in which replies go out, `delivery` the driver of one channel, `suspects` counts the processes that
ended while a reply was sent, `preview` shows answers that stream, `inbound` is the way in, and `switchboard` ties them to a
system.
"""

from __future__ import annotations

from .channel import Channel
from .losses import lost_replies
from .memory import MemoryChannel
from .terminal import TerminalChannel
from .webhook import WebhookChannel

__all__ = ["Channel", "MemoryChannel", "TerminalChannel", "WebhookChannel", "lost_replies"]
