"""What an agent carries that names no plugins: failures that pass are tried again, and runaways are stopped. One that people talk
to in chats, for months, also takes commands and summarises what was said long ago."""

from __future__ import annotations

from ..seams import Plugin
from .budget import Budget
from .commands import Commands
from .compaction import Compaction
from .loop_guard import LoopGuard
from .retry import Retry


def default_plugins() -> list[Plugin]:
    """Fresh default plugins; add your own with `plugins=[*default_plugins(), Mine()]`."""
    return [Retry(), Budget(), LoopGuard()]


def chat_plugins() -> list[Plugin]:
    """Fresh plugins of an agent behind a channel that names none: the default ones, `Commands` and `Compaction`."""
    return [*default_plugins(), Commands(), Compaction()]
