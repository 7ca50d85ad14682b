"""Reviving: agents that this process could not go on with, opened again as soon as that may work.

A full disk fails the logs of those who were writing; what memory held of them is given up, and whoever needs one next reads it
from disk. But a turn that was cut has nobody who needs it: it would stay open until somebody asks. So the system looks again by
itself, at one agent, with pauses that double: a store that is still full costs it one try each time. Once one of them has
written, the others follow.

An agent whose definition is missing waits for that, and for nothing else: also one whose child has ended meanwhile, of which only
its own log may say so. No record is kept of any of this; after a restart the index names them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from ..storage.errors import (
    AgentDeleted,
    AgentNotFound,
    CallboardError,
    CommitFailed,
    DefinitionMissing,
    FenceLost,
    StaleAppend,
    StoreError,
    StoreFull,
    UnknownRecord,
)
from .initiator import start_fresh
from .reconciling import reconcile

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime import Runtime

FIRST_S, LONGEST_S = 0.25, 30.0
"""The pause before a look at what failed, and the longest one."""
PROOF_S = 10
"""How long the first one may take to write anything."""
AT_ONCE = 32
"""How many are opened side by side once one could write."""
_log = logging.getLogger("callboard")


def may_heal(error: CallboardError) -> bool:
    """Whether it was the store that failed: not another owner, who has the agent now, nor what an agent wrote."""
    if not isinstance(error, CommitFailed) or isinstance(error.__cause__, FenceLost | StaleAppend):
        return False
    return isinstance(error, StoreFull) or error.__cause__ is not None


class Reviver:
    """Ids of agents to be opened again, and the one task that does it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._wanted: dict[str, None] = {}
        self._undefined: dict[str, None] = {}
        self._trying = 0
        """How many are being looked at now."""
        self._lot = trio.lowlevel.ParkingLot()
        self._pause_s = FIRST_S

    def __len__(self) -> int:
        return len(self._wanted) + len(self._undefined) + self._trying

    def want(self, id: str) -> None:
        """Open the agent when the store, or its definition, is there again."""
        self._wanted[id] = None
        self._lot.unpark_all()

    def definitions_changed(self) -> None:
        """Look again at those that had none."""
        self._wanted.update(self._undefined)
        self._undefined.clear()
        if self._wanted:
            self._lot.unpark_all()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """The task, until cancelled."""
        while True:
            while not self._wanted:
                await self._lot.park()
            await trio.sleep(self._pause_s)
            if self._runtime.closing:
                return
            ids, self._wanted = list(self._wanted), {}
            self._trying = len(ids)
            healed = await self._round(ids)
            self._trying = 0
            self._pause_s = FIRST_S if healed else min(2 * self._pause_s, LONGEST_S)

    async def _round(self, ids: list[str]) -> bool:
        """Try the first and, if that goes well, all; whether nothing is left."""
        while ids:
            id = ids.pop(0)
            try:
                proved = await self._revive(id, proof=True)
            except StoreError as error:
                _log.info("agent %r waits for the store: %s", id, error)
                proved = False
            if proved is False:
                self._wanted = dict.fromkeys((*ids, *self._wanted, id))
                return False
            if proved:
                break
        slots = trio.CapacityLimiter(AT_ONCE)
        async with trio.open_nursery() as nursery:
            for id in ids:
                start_fresh(nursery, self._follow, id, slots, initiator=id)
        return not self._wanted  # one that fails for a reason of its own must not be tried without a pause

    @trio.lowlevel.enable_ki_protection
    async def _follow(self, id: str, slots: trio.CapacityLimiter) -> None:
        async with slots:
            try:
                await self._revive(id, proof=False)
            except StoreError:
                self.want(id)

    async def _revive(self, id: str, *, proof: bool) -> bool | None:
        """Open it; whether it could write (False: not yet), or None where it has nothing to write."""
        runtime = self._runtime
        try:
            head = await runtime.store.head(id)
            if head is None or not (head.summary.attention or head.summary.timer is not None):
                return None  # (what waits for its time was taken up, and the clock has forgotten it)
            actor = await runtime.registry.actor(id)
        except (AgentNotFound, AgentDeleted, UnknownRecord):
            return None
        except DefinitionMissing:
            self._undefined[id] = None
            return None
        except StoreError:
            raise
        except Exception:  # of a plugin that starts, or a closing system: not the store's doing, and no reason to try again
            runtime.log_throw(id, "opening it again")
            return None
        with actor.held():
            await reconcile(actor)
            return await _writes(actor) if proof else None


async def _writes(actor: Actor) -> bool | None:
    """Whether the agent's next commit reaches the disk."""
    committed = actor.log.committed
    with trio.move_on_after(PROOF_S):
        while actor.log.failed is None and actor.status == "running" and actor.log.committed == committed:
            await actor.log.moved.park()
    if actor.log.failed is not None:
        return False
    return actor.log.committed > committed or None
