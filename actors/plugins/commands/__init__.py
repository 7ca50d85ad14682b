"""Slash commands: what people tell an agent's runtime, and not its model.

`Commands` is the plugin, `command` makes one of your own. Inside: `router` finds the command a text names (pure), `declared` is
the decorator, `context` what a command is given, `authority` who may run which; `talk`, `conversation` and `deciding` are the
built-in ones, `status` the words of `/status` (pure).
"""

from __future__ import annotations

from .context import CommandContext
from .declared import UserCommand, command
from .plugin import Commands

__all__ = ["CommandContext", "Commands", "UserCommand", "command"]
