"""Folds: what a log means, each a pure function of its records that is also kept one record at a time.

`surface` (what the model sees), `headers` (what it is asked with), `position` (where the agent stands), `usage`, `children`,
`outbox`, `timers`, `approvals`, `restarts`, `asks`, `choices`; the inbox is a fold too, one floor up. Each is total (no log makes
it raise), costs O(event), and has `HANDLERS` (what it does with each type it reads; `fold.py`), `apply(seq, time, event)`,
`dump()` and `load(dumped)` for snapshots, and `fork()`, called after the first record of a fork: what belongs to the origin
alone begins anew.
"""

from __future__ import annotations

from .approvals import Approvals, ApprovalsState, Question, Verdict
from .children import Child, Children, ChildrenState
from .choices import Choices, ChoicesState
from .headers import Context, Headers, HeadersState
from .outbox import Lost, Outbox, OutboxState, Unsent
from .pairing import NO_RESULT
from .position import Position
from .restarts import Restarts, RestartsState
from .surface import Surface, SurfaceState
from .timers import Timer, Timers, TimersState
from .usage import UsageFold, UsageState
from .view import MessageView
from .waits import Asks, AsksState, wait_kinds

__all__ = [
    "NO_RESULT",
    "Approvals",
    "ApprovalsState",
    "Asks",
    "AsksState",
    "Child",
    "Children",
    "ChildrenState",
    "Choices",
    "ChoicesState",
    "Context",
    "Headers",
    "HeadersState",
    "Lost",
    "MessageView",
    "Outbox",
    "OutboxState",
    "Position",
    "Question",
    "Restarts",
    "RestartsState",
    "Surface",
    "SurfaceState",
    "Timer",
    "Timers",
    "TimersState",
    "Unsent",
    "UsageFold",
    "UsageState",
    "Verdict",
    "wait_kinds",
]
