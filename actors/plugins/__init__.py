"""Policies in the box, each a small plugin: what the loop leaves open, they decide.

`Retry` sends failed requests again, `LoopGuard` stops a model that runs in circles, `Budget` bounds what is spent, `Permissions`
says which tools may run, `Redact` takes out what must not be kept, `Invariants` checks each request against its log, `Telemetry`
exports spans. `default_plugins()` is what an agent carries that names none.
"""

from __future__ import annotations

from .budget import Budget, Price
from .compaction import Compaction
from .defaults import default_plugins
from .invariants import Invariants
from .loop_guard import LoopGuard
from .permissions import Permissions
from .redact import Redact
from .retry import Retry
from .telemetry import Telemetry

__all__ = ["Budget", "Compaction", "Invariants", "LoopGuard", "Permissions", "Price", "Redact", "Retry", "Telemetry", "default_plugins"]
