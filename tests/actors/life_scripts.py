"""Any life of one agent, for properties: a script that a model plays by (turn, step, attempt), and what happens meanwhile.

A script is a value, so the same one plays again after a crash: an action of a step has an id made of its place, and the effects
of tool bodies are counted by their effect key. Whatever turn and step a recovery comes to, the script has an answer, and every
turn ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Literal

from helpers import make
from hypothesis import strategies as st
from msgspec import Struct

from callboard.actors.agent import Agent
from callboard.actors.answers import Failed, Resend, Stopping
from callboard.actors.seams import Plugin
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.actors.tools import ToolContext, ToolOutput, tool
from callboard.storage.errors import ToolError
from callboard.storage.messages import Chunk, Request

Do = Literal["steer", "inject", "followup", "cancel", "park"]
Kind = Literal["text", "tools", "max-tokens", "empty", "refusal"]
TOOLS = ("safe_parallel", "safe_alone", "never_parallel", "never_alone", "concluding", "failing", "unknown", "telling")


class Step(Struct, frozen=True):
    """What the model does in one step: fails so often, then answers; and what happens while it does."""

    kind: Kind = "text"
    tools: tuple[str, ...] = ()
    failures: int = 0
    streaming: Do | None = None
    """While the answer streams."""
    in_tool: Do | None = None
    """In the first body that runs."""
    stopping: Do | None = None
    """When the turn is about to stop, once."""


class Life(Struct, frozen=True):
    """Turns of steps; what lies beyond the script is a text, and nothing happens meanwhile."""

    turns: tuple[tuple[Step, ...], ...]
    prompts: int

    def step(self, turn: int, step: int) -> Step:
        """What is played there."""
        steps = self.turns[turn - 1] if turn <= len(self.turns) else ()
        return steps[step - 1] if step <= len(steps) else Step()


dos = st.sampled_from([None, None, None, "steer", "inject", "followup", "cancel", "park"])
steps = st.builds(
    Step,
    kind=st.sampled_from(["text", "tools", "tools", "tools", "max-tokens", "empty", "refusal"]),
    tools=st.lists(st.sampled_from(TOOLS), min_size=1, max_size=4).map(tuple),
    failures=st.sampled_from([0, 0, 0, 1, 2, 3]),
    streaming=dos,
    in_tool=dos,
    stopping=dos,
)
lives = st.builds(
    Life,
    turns=st.lists(st.lists(steps, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple),
    prompts=st.integers(1, 2),
)


class World:
    """Plays a life: the agent, and what its tools did to the world. A new one is a new process."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.bodies: Counter[str] = Counter()
        """How often the body of each effect key ran."""
        self.requests = 0

    def agent(self, **options: Any) -> Agent[Any, Any]:
        """The definition, fresh for this process."""
        model = ScriptedModel(self._reply)
        return make(model, tools=_BOX, plugins=[_Acting(self), _Retrying()]).replace(**options)

    def _reply(self, request: Request) -> Reply:
        self.requests += 1
        step = self.life.step(request.turn, request.step)
        if request.attempt <= step.failures:
            return Reply.fail("SERVER", after="half an answer")
        match step.kind:
            case "tools":
                return Reply.tools(*((f"c{n}", name, "{}") for n, name in enumerate(step.tools)), text="Let me see")
            case "max-tokens":
                return Reply.max_tokens("far too long", ("c0", step.tools[0], {}))
            case "empty":
                return Reply.chunks(())
            case "refusal":
                return Reply.refusal("never")
            case _:
                return Reply.text(f"answer {request.turn}.{request.step}", parts=2)


def _tool(name: str) -> Any:
    async def body(ctx: ToolContext[World]) -> ToolOutput:
        """A body that counts."""
        world, step = ctx.deps, ctx.deps.life.step(ctx.turn, ctx.step)
        world.bodies[ctx.effect_key] += 1
        if step.in_tool is not None:
            await act(ctx.agent, step.in_tool, f"tool-{ctx.turn}.{ctx.step}")
        if name == "failing":
            raise ToolError("it does not work")
        context = [f"{ctx.effect_key} tells"] if name == "telling" else []
        return ToolOutput(f"{name} of {ctx.call_id}", concludes=name == "concluding", context=context)

    mode: Any = "parallel" if name in ("safe_parallel", "never_parallel", "telling") else "exclusive"
    return tool(name=name, mode=mode, replay="safe" if name.startswith(("safe", "telling")) else "never")(body)


_BOX = [_tool(name) for name in TOOLS if name != "unknown"]


async def act(ref: Any, do: Do, id: str) -> None:
    """Do it to the agent, once however often the script comes here."""
    match do:
        case "cancel":
            await ref.cancel()
        case "park":
            await ref.cancel(keep_inbox=True)
        case _:
            route = {"channel": "irc", "chat": "#docs"} if do != "inject" else None
            await getattr(ref, do)(f"{do} {id}", message_id=id, route=route)


class _Acting(Plugin):
    def __init__(self, world: World) -> None:
        self._world = world

    async def stream(self, ctx: Any, value: Request, next: Any) -> AsyncIterator[Chunk]:
        do = self._world.life.step(value.turn, value.step).streaming
        async for chunk in next(value):
            yield chunk
            if do is not None:
                await act(ctx.agent, do, f"stream-{value.turn}.{value.step}")

    async def turn_stopping(self, ctx: Any, value: Stopping) -> None:
        do = self._world.life.step(value.turn, value.step).stopping
        if do is not None:
            await act(ctx.agent, do, f"stop-{value.turn}.{value.step}")


class _Retrying(Plugin):
    async def request_error(self, ctx: Any, value: Failed, next: Any) -> Resend | None:
        return Resend(after_s=0.1) if value.attempt < 3 else None
