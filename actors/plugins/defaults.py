"""What an agent carries that names no plugins: failures that pass are tried again, and runaways are stopped."""

from __future__ import annotations

from ..seams import Plugin
from .budget import Budget
from .loop_guard import LoopGuard
from .retry import Retry


def default_plugins() -> list[Plugin]:
    """Fresh default plugins; add your own with `plugins=[*default_plugins(), Mine()]`."""
    return [Retry(), Budget(), LoopGuard()]
