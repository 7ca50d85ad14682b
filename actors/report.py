"""Report: what start-up took up, what it could not, and why."""

from __future__ import annotations

from ..storage.errors import CallboardError


class Report:
    """The readiness report of one start."""

    def __init__(self) -> None:
        self.resumed: list[str] = []
        """Agents whose open turn goes on."""
        self.woken: list[str] = []
        """Agents that had input to run."""
        self.timed: list[str] = []
        """Agents for whom a reminder, or input that waited for its time, had come due while nobody ran."""
        self.failed: dict[str, CallboardError] = {}
        """Agents that could not be opened; their logs are untouched."""
        self.waiting: dict[str, str] = {}
        """Agents whose open turn waits for a child of a definition that is missing, and that child."""
        self.channels: dict[str, str] = {}
        """Channels whose `run` has ended since, and why it did the last time. (It was started again.)"""

    @property
    def ok(self) -> bool:
        """Whether everything that had something to do is doing it."""
        return not self.failed

    def __repr__(self) -> str:
        return f"<Report {len(self.resumed)} resumed, {len(self.woken)} woken, {len(self.failed)} failed>"
