"""Policies in the box, each a small plugin: what the loop leaves open, they decide.

`Retry` sends failed requests again, `LoopGuard` stops a model that runs in circles, `Budget` bounds what is spent, `Permissions`
says which tools may run, `Redact` takes out what must not be kept, `Invariants` checks each request against its log, `Telemetry`
exports spans, `Commands` runs slash commands, `Compaction` summarises what fills the window, `Continue` goes on with answers
that were cut, `EmptyAnswer` asks again for one that is empty. `default_plugins()` is what an agent carries that names none,
`chat_plugins()` one behind a channel.
"""

from __future__ import annotations

from .budget import Budget, Price
from .commands import CommandContext, Commands, command
from .compaction import Compaction
from .continuing import Continue
from .defaults import chat_plugins, default_plugins
from .empty_answer import EmptyAnswer
from .invariants import Invariants
from .loop_guard import LoopGuard
from .permissions import Permissions
from .redact import Redact
from .retry import Retry
from .telemetry import Telemetry

__all__ = [
    "Budget",
    "CommandContext",
    "Commands",
    "Compaction",
    "Continue",
    "EmptyAnswer",
    "Invariants",
    "LoopGuard",
    "Permissions",
    "Price",
    "Redact",
    "Retry",
    "Telemetry",
    "chat_plugins",
    "command",
    "default_plugins",
]
