"""Step: one model call and its batch of tools.

A step goes on from wherever its log stands: without an answer it sends a request (another attempt, after a crash), with an
answer whose calls are open it runs them. It is over when every call has its result; the boundary after it writes `step/end`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .attempt import answer
from .batch import run_batch
from .boundary import assemble

if TYPE_CHECKING:
    from .turn import Turn


async def run_step(turn: Turn) -> None:
    """Bring the open step to where it can be closed."""
    if turn.assembly is None:  # taken up in the middle of a step
        await assemble(turn)
    if not turn.position.answered:
        await answer(turn)
    if turn.position.open_calls:
        await run_batch(turn)
