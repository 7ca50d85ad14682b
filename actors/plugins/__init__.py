"""Policies in the box, each a small plugin: what the loop leaves open, they decide.

`Retry` sends failed requests again, `LoopGuard` stops a model that runs in circles. `default_plugins()` is what an agent carries
that names none.
"""

from __future__ import annotations

from .defaults import default_plugins
from .loop_guard import LoopGuard
from .retry import Retry

__all__ = ["LoopGuard", "Retry", "default_plugins"]
