"""Shared by the tests of approvals: a tool that needs a person, and what was done with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers import events, make, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Ask, System, ToolContext, tool
from callboard.actors.agent import Agent
from callboard.actors.testing import Reply
from callboard.actors.values import Approval
from callboard.storage import events as e

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A"
"""How every turn here begins."""
REST = "SE SS1.2 Q1 C* A SE TE1{completed}"
RESUMED = "SE SS1.2 H{resume} Q1 C* A SE TE1{completed}"


def within(expires_s: float | None) -> Callable[[Any, Any], Ask]:
    """An approval that waits so long for its answer."""
    return lambda _ctx, _call: Ask("Pay?", expires_s)


def how_much(_ctx: Any, call: Any) -> Ask:
    """An approval that looks into the arguments."""
    return Ask(f"Pay {call.args['cents']}?")


class Shop:
    """A tool that needs a person, and what was done with it."""

    def __init__(self, **options: Any) -> None:
        self.keys: list[str] = []
        self.options: dict[str, Any] = {"approval": "Pay?", **options}

    @property
    def tool(self) -> Any:
        @tool(**self.options)
        async def pay(ctx: ToolContext[Any], cents: int = 1) -> str:
            """Pay."""
            self.keys.append(ctx.effect_key)
            return f"paid {cents}"

        return pay

    def agent(self, *replies: Any, **options: Any) -> Agent[Any, Any]:
        """One whose model pays first."""
        script = replies or (Reply.tools(("c1", "pay", {"cents": 7})), "done")
        return make(scripted(*script), tools=[self.tool], **options)


async def listed(system: System, **options: Any) -> list[Approval]:
    """All open questions."""
    return [approval async for approval in system.approvals(**options)]


async def asked(system: System, ref: Any) -> Approval:
    """Send, and wait for the one question."""
    await ref.followup("hi", message_id="hi")
    await wait_all_tasks_blocked()
    (approval,) = await listed(system)
    return approval


async def result_text(store: Any, nth: int = 0) -> tuple[str, str | None]:
    """What the model reads of the nth result, and its code."""
    result = (await events(store, e.ToolResult))[nth]
    return "".join(getattr(block, "text", "") for block in result.content), result.error
