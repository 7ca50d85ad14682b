"""Report: what start-up took up, what it could not, and why; and what of that has mended since.

Start-up is over in a moment, and what it could not do may be done minutes later: a definition comes, a disk has room again. So
what failed is what fails now; whoever looks at it an hour after the start sees what needs a person.
"""

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
        """Agents that have something to do and cannot be opened; nothing of their logs is lost."""
        self.later: list[str] = []
        """Agents that failed so at first, and were opened since."""
        self.waiting: dict[str, str] = {}
        """Agents whose open turn waits for a child of a definition that is missing, and that child."""
        self.channels: dict[str, str] = {}
        """Channels whose `run` has ended since, and why it did the last time. (It was started again.)"""

    @property
    def ok(self) -> bool:
        """Whether everything that had something to do is doing it."""
        return not self.failed

    def opened(self, id: str) -> None:
        """The agent is open, or gone: it has failed no more."""
        if self.failed.pop(id, None) is not None:
            self.later.append(id)

    def __repr__(self) -> str:
        return f"<Report {len(self.resumed)} resumed, {len(self.woken)} woken, {len(self.failed)} failed>"
