"""The wait graph: who waits for whom, so that a wait that could never end fails at once.

An agent that waits from inside its turn (`ask`, `delegate`, `wait_idle`, `dispose`, `delete`) holds its turn while it does. If
the one it waits for waits for it in turn, through however many others, none of them ever goes on. There is one graph for a
System; adding an edge looks for the way back and raises `AskCycle` with the cycle written out, before anything has been sent.

Two waits between the same two agents are two edges: the first to end must not remove the other's. No trio in here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct

from ..storage.errors import AskCycle

EdgeKind = Literal["ask", "delegate", "wait_idle", "dispose", "delete"]


class Edge(Struct, frozen=True, eq=False):
    """One wait; `since` in Unix ms, if the caller said when."""

    waiter: str
    target: str
    kind: EdgeKind
    since: int | None = None


class WaitGraph:
    """All waits between agents of one System."""

    def __init__(self) -> None:
        # A dict as an ordered set: edges are compared by identity, so equal waits are counted apart.
        self._edges: dict[str, dict[Edge, None]] = {}

    @contextmanager
    def edge(self, waiter: str, target: str, kind: EdgeKind, *, since: int | None = None) -> Generator[Edge]:
        """Hold an edge for as long as the wait lasts.

        Raises:
            AskCycle: it would close a cycle; nothing was added.
        """
        edge = self.add(waiter, target, kind, since=since)
        try:
            yield edge
        finally:
            self.remove(edge)

    def add(self, waiter: str, target: str, kind: EdgeKind, *, since: int | None = None) -> Edge:
        """Add an edge that `remove` takes away again; for waits that are no `with` block.

        Raises:
            AskCycle: it would close a cycle; nothing was added.
        """
        way = self._way(target, waiter)
        if way is not None:
            raise AskCycle([waiter, *way], agent=waiter)
        edge = Edge(waiter, target, kind, since)
        self._edges.setdefault(waiter, {})[edge] = None
        return edge

    def remove(self, edge: Edge) -> None:
        """Take away exactly this edge."""
        edges = self._edges[edge.waiter]
        del edges[edge]
        if not edges:
            del self._edges[edge.waiter]

    def of(self, agent: str) -> tuple[Edge, ...]:
        """What the agent waits for, oldest first."""
        return tuple(self._edges.get(agent, ()))

    def waiters(self, agent: str) -> tuple[Edge, ...]:
        """Who waits for the agent."""
        return tuple(edge for edges in self._edges.values() for edge in edges if edge.target == agent)

    def __len__(self) -> int:
        return sum(len(edges) for edges in self._edges.values())

    def __repr__(self) -> str:
        waits = ", ".join(f"{e.waiter} → {e.target} ({e.kind})" for edges in self._edges.values() for e in edges)
        return f"<WaitGraph {waits or 'empty'}>"

    def _way(self, start: str, goal: str) -> list[str] | None:
        """A way along the waits from `start` to `goal`, both included; the shortest, so that the error is readable."""
        came_from: dict[str, str | None] = {start: None}
        frontier = [start]
        while frontier:
            if goal in came_from:
                return _walk_back(came_from, goal)
            frontier = list(self._next(frontier, came_from))
        return None

    def _next(self, frontier: list[str], came_from: dict[str, str | None]) -> Iterator[str]:
        for agent in frontier:
            for edge in self._edges.get(agent, ()):
                if edge.target not in came_from:
                    came_from[edge.target] = agent
                    yield edge.target


def _walk_back(came_from: dict[str, str | None], goal: str) -> list[str]:
    way: list[str] = []
    at: str | None = goal
    while at is not None:
        way.append(at)
        at = came_from[at]
    return way[::-1]
