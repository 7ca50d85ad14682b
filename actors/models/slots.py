"""Model slots: how many model calls run at once, for each provider, and who is next.

Ten thousand agents that wake together must not open ten thousand connections. A slot is held from dispatch to the last chunk, and
never while its holder waits for anything else, so slots cannot lock each other. Where they are all taken, families of agents (an
agent and all that it delegated to) take turns: one that starts a hundred children delays another by one call, not by a hundred.
Within a family who came first goes first. A model call that a plugin makes while its agent holds a slot takes none of its own.

What waits for a slot is on disk already, and is seen as waiting for `model-slot`.
"""

from __future__ import annotations

import contextvars
import resource
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

import trio

from ...storage.errors import UsageError

MOST = 1024
"""The default of a machine that sets no bound of its own."""
_holding: contextvars.ContextVar[bool] = contextvars.ContextVar("callboard.model-slot", default=False)


def slots_of_machine() -> int:
    """A quarter of the files that this process may open, each call being a connection; 1,024 at most, 16 at least."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(max(files // 4, 16), MOST)


class _Waiter:
    """Somebody who waits for a slot, and whether it was given one."""

    __slots__ = ("event", "given")

    def __init__(self) -> None:
        self.event, self.given = trio.Event(), False


class Slots:
    """Those of one provider."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._queues: OrderedDict[str, deque[_Waiter]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._queues.values()))

    def take_nowait(self) -> bool:
        """Take a slot if one is free."""
        if self.used >= self.limit:
            return False
        self.used += 1
        return True

    async def take(self, family: str) -> None:
        """Wait for a slot, in the family's turn."""
        waiter = _Waiter()
        self._queues.setdefault(family, deque()).append(waiter)
        try:
            await waiter.event.wait()
        except BaseException:
            if waiter.given:  # in the moment in which it was cancelled
                self.release()
            else:
                self._leave(family, waiter)
            raise

    def _leave(self, family: str, waiter: _Waiter) -> None:
        queue = self._queues[family]
        queue.remove(waiter)
        if not queue:
            del self._queues[family]

    def release(self) -> None:
        """Give the slot to whose turn it is, or back."""
        self.used -= 1
        if not self._queues or self.used >= self.limit:
            return
        family, queue = self._queues.popitem(last=False)
        waiter = queue.popleft()
        if queue:
            self._queues[family] = queue  # behind the other families
        self.used += 1
        waiter.given = True
        waiter.event.set()


class Held:
    """A slot, for the length of a block; a class, since it is entered for every request."""

    __slots__ = ("_all", "_family", "_mark", "_provider", "_slots")

    def __init__(self, slots: ModelSlots, provider: str, family: str) -> None:
        self._all, self._provider, self._family = slots, provider, family
        self._slots: Slots | None = None

    async def __aenter__(self) -> None:
        if _holding.get():
            return
        slots = self._all.of(self._provider)
        if not slots.take_nowait():
            await slots.take(self._family)
        self._slots, self._mark = slots, _holding.set(True)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._slots is not None:
            _holding.reset(self._mark)
            self._slots.release()


class ModelSlots:
    """The slots of all providers of a system."""

    def __init__(self, given: int | Mapping[str, int] | None = None) -> None:
        """Slots.

        Args:
            given: how many for each provider; or by provider, "*" for all others; None for what suits the machine.

        Raises:
            UsageError: a number is none, or negative.
        """
        by_name: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"*": given}
        for name, limit in by_name.items():
            if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
                raise UsageError(f"model_slots has {limit!r} for {name!r}; give a whole number, 0 or more")
        self._given = by_name
        self._slots: dict[str, Slots] = {}

    def of(self, provider: str) -> Slots:
        """A provider's."""
        slots = self._slots.get(provider)
        if slots is None:
            limit = self._given.get(provider, self._given.get("*"))
            slots = self._slots[provider] = Slots(slots_of_machine() if limit is None else limit)
        return slots

    def held(self, provider: str, family: str) -> Held:
        """Hold a slot for the length of an `async with` block, unless this task holds one already."""
        return Held(self, provider, family)

    def statistics(self) -> Mapping[str, Mapping[str, int]]:
        """By provider: how many slots there are, are taken, and are waited for."""
        return {name: {"limit": slots.limit, "used": slots.used, "waiting": slots.waiting} for name, slots in self._slots.items()}
