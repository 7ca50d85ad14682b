"""What those who run a service ask it: does it live, may it be sent work, how is it doing.

`/healthz` answers as long as the process does. `/readyz` says 503 while the service recovers or drains, so that a balancer sends
its work elsewhere; whoever has a token hears there what start-up could not take up, too. `/metrics` is for Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from ...actors.system import System
from ...storage.errors import Unauthorized
from ..access import Access
from .messages import Response, to_json
from .router import Visit

State = Literal["recovering", "ready", "draining"]


class Health(Struct, frozen=True):
    """It lives."""

    status: Literal["ok"] = "ok"


class Readiness(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether work may be sent: yes when it is `ready`. Below it, what start-up took up: open turns that go on, agents that had
    input to run, those whose time had come, and those that could not be opened or wait for a definition that is missing."""

    status: State
    resumed: int = 0
    woken: int = 0
    timed: int = 0
    failed: int = 0
    waiting: int = 0
    failures: dict[str, str] = {}
    """Which, and why: for tokens that may read all agents."""


def readiness(state: State, system: System | None, *, whole: bool) -> Readiness:
    """The report of start-up, with the ids of agents only for those who may see them."""
    if system is None:
        return Readiness(status=state)
    report = system.report
    failures = {id: str(error) for id, error in report.failed.items()} | {
        id: f"waits for its child {child}, whose definition is missing" for id, child in report.waiting.items()
    }
    return Readiness(
        status=state,
        resumed=len(report.resumed),
        woken=len(report.woken),
        timed=len(report.timed),
        failed=len(report.failed),
        waiting=len(report.waiting),
        failures=failures if whole else {},
    )


class Probes:
    """The handlers. `state` and `system` say how it stands now."""

    def __init__(self, access: Access, state: Callable[[], State], system: Callable[[], System | None]) -> None:
        self._access, self._state, self._system = access, state, system

    async def live(self, visit: Visit) -> Response:
        """It lives: it answers."""
        return to_json(Health())

    async def ready(self, visit: Visit) -> Response:
        """200 if work may be sent, else 503."""
        state = self._state()
        found = readiness(state, self._system(), whole=self._may_see_all(visit))
        return to_json(found, 200 if state == "ready" else 503)

    def _may_see_all(self, visit: Visit) -> bool:
        try:
            grant = self._access.admit(visit.request.raw, safe=True, peer=visit.request.peer)
            grant.check_scope("read", "/readyz")
        except Unauthorized:
            return False
        return not grant.prefix
