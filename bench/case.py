"""A case: a name and a function that takes one sample of it; and the workload that several cases share.

The turn is the same everywhere: one input, one scripted model call that streams 20 chunks, the end. A tool turn begins with a
call that asks for one tool. `agents` of them run at once, each `turns` times one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from .measure import Sample

CHUNKS = tuple(f"tok{i:02d} " for i in range(20))
ANSWER = "".join(CHUNKS)
TOOL_RESULT = "42"


class Case(Struct, frozen=True):
    """`run` takes one sample, in a process of its own. `against` names the case that this one is a share of; `aim` is the
    share to reach. Cases that are not `short` run only in the long form."""

    name: str
    run: Callable[[], Sample]
    unit: str = "turns/s"
    against: str | None = None
    aim: float | None = None
    short: bool = True


class Load(Struct, frozen=True):
    """How much work, and of which kind. `paced`: a scheduler pass for each chunk, as if they came one by one."""

    agents: int
    turns: int
    tool: bool = False
    paced: bool = False

    @property
    def label(self) -> str:
        """`turn x200`, `tool x1`, `paced turn x200`."""
        return f"{'paced ' if self.paced else ''}{'tool' if self.tool else 'turn'} x{self.agents}"


LOADS = (
    Load(1, 300),
    Load(200, 40),
    Load(1, 300, tool=True),
    Load(200, 30, tool=True),
    Load(200, 8, paced=True),
    Load(1000, 10),
)
SHORT = 4
"""The first four loads are in the short form."""
