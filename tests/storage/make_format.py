"""Write logs of the present format as fixtures: `python tests/storage/make_format.py FOLDER`, once for each released format.

Two agents and a fork live through most of what a log can say. The logs are kept as they were exported; later versions must read,
verify and export them unchanged (`test_formats.py`).
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import trio

from callboard import Agent, Plugin, System, ToolContext, delegate, tool
from callboard.actors import Ask, Reject
from callboard.actors.plugins import Retry
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import TextBlock, export_log
from callboard.storage.engines.memory import MemoryStore


@tool(replay="safe", mode="parallel")
async def look(ctx: ToolContext, place: str) -> str:
    """Look."""
    ctx.note("looked", {"place": place})
    return f"{place} is fine"


@tool(approval=lambda ctx, call: Ask("Really?"))
async def act(what: str) -> str:
    """Act."""
    return f"did {what}"


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError("it broke")


class Notes(Plugin):
    """Leaves notes, and refuses one prompt."""

    async def pre_step(self, ctx: Any, boundary: Any, next: Any, /) -> Any:
        return Reject("not that") if "forbidden" in boundary.text else await next(boundary)


child = Agent("child", model="fixture:child", plugins=[])
agent = Agent(
    "rich",
    model="fixture:lead",
    system="Be brief.",
    tools=[look, act, fail, delegate(child)],
    context=[lambda ctx: f"turn {ctx.turn + 1}"],
    plugins=[Notes(), Retry(first_s=0, jitter=0)],
)
LEAD = [
    Reply.text("hello", parts=3),
    Reply.tools(("c1", "look", {"place": "Oslo"}), ("c2", "look", {"place": "Bergen"}), ("c3", "nothing", {}), text="I look."),
    Reply.tools(("c4", "fail", {}), ("c5", "act", {"what": "x"})),
    Reply.text("done"),
    Reply.fail("RATE_LIMIT", status=429, after="half an ans"),
    Reply.tools(("c6", "child", {"task": "a small thing"})),
    Reply.text("the child did it"),
    Reply.max_tokens("too lo"),
    Reply.hang("I am still"),
    Reply.fail("AUTH", status=401),
    Reply.text("again"),
]


async def live(store: MemoryStore) -> None:
    """The life whose logs are kept."""
    models = {"fixture:lead": ScriptedModel(LEAD), "fixture:child": ScriptedModel([Reply.text("small thing done")])}
    async with System.open(store, agents=[agent], models=models) as system:
        ref = await system.spawn(agent, id="rich", labels={"customer": "acme"})
        route = {"channel": "chat", "chat": "7", "thread": "t"}
        await ref.ask("hello", message_id="m1", route=route, sender="ann")
        await ref.inject("by the way")
        withdrawn = await ref.inject("never mind")
        await ref.withdraw(withdrawn.message_id)
        queued = await ref.inject([TextBlock("a first version")])
        await ref.replace(queued.message_id, "a second version", new_id="second")
        acting = await ref.followup("do it", message_id="m2")
        await answer_all(system)
        await ref.outcome(acting.message_id)
        await ref.ask("delegate", message_id="m3")
        await ref.ask("talk long", message_id="m4")
        await ref.ask("forbidden", message_id="m5")
        hanging = await ref.followup("hang", message_id="m6")
        async for delta in ref.deltas(after=hanging.seq):
            if delta.kind == "text":
                break
        await ref.cancel("hook", text="that is enough")
        await ref.wait_idle()
        await ref.ask("fail", message_id="m7")
        fork = await ref.fork(turn=2, id="rich-fork")
        await fork.ask("in the fork", message_id="f1")


async def answer_all(system: System) -> None:
    """Say yes to the one question that comes."""
    while True:
        async for approval in system.approvals():
            await system.answer(approval.id, "allow", by="ann")
            return
        await trio.lowlevel.checkpoint()


async def main() -> dict[str, bytes]:
    """Live, and give each log as it is exported."""
    store, logs = MemoryStore(), dict[str, bytes]()
    await live(store)
    for head in await store.agents():
        file = io.BytesIO()
        await export_log(store, head.agent, file)
        logs[head.agent] = file.getvalue()
    return logs


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, log in trio.run(main).items():
        (folder / f"{name.replace('/', '_')}.jsonl").write_bytes(log)
