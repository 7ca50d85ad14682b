"""A case: a name and a function that takes one sample of it; and the workload that several cases share.

The turn is the same everywhere: one input, one scripted model call that streams 20 chunks, the end. A tool turn begins with a
call that asks for one tool. `agents` of them run at once, each `turns` times one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

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
    """How much work, and of which kind. `paced`: a scheduler pass for each chunk, as if they came one by one. `gc`: how Python's
    garbage collector is tuned, as in `System.open`."""

    agents: int
    turns: int
    tool: bool = False
    paced: bool = False
    gc: Literal["server"] | None = None

    @property
    def label(self) -> str:
        """`turn x200`, `tool x1`, `paced turn x200`, `turn x5000, gc server`."""
        kind = f"{'paced ' if self.paced else ''}{'tool' if self.tool else 'turn'} x{self.agents}"
        return kind if self.gc is None else f"{kind}, gc {self.gc}"


LOADS = (
    Load(1, 300),
    Load(200, 40),
    Load(1, 300, tool=True),
    Load(200, 30, tool=True),
    Load(200, 8, paced=True),
    Load(1000, 10),
    Load(200, 40, gc="server"),
    Load(200, 30, tool=True, gc="server"),
    Load(1000, 10, gc="server"),
    Load(5000, 4, gc="server"),
)
SHORT = 4
"""The first four loads are in the short form."""
