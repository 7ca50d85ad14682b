"""Plays a life: the agents of a script, their tools, and what these did to the world. A new world is a new process."""

from __future__ import annotations

from collections import Counter
from typing import Any

import trio
from life_plugins import Acting, Retrying, act
from life_scripts import TOOLS, Life, Step
from msgspec import Struct

from callboard.actors import Agent, Limits, System, ToolContext, ToolOutput, delegate, tool
from callboard.actors.answers import Ask
from callboard.actors.seams import SeamContext
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.storage.errors import ApprovalExpired, ToolError
from callboard.storage.messages import Request

LIMITS = Limits(connect_s=2, first_chunk_s=8, chunk_gap_s=8, tool_timeout=20, abandon_s=2)
LOOK_S = 3
"""How often a person looks for questions, by the mock clock."""


class Word(Struct, frozen=True):
    """What an agent with an output answers."""

    word: str


class World:
    """The agents, and how often the body of each effect key ran."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.bodies: Counter[str] = Counter()
        self.requests = 0
        self.answered = 0

    def step(self, agent: str, turn: int, step: int) -> Step:
        """What is played there."""
        return self.life.step(agent, turn, step)

    def agent(self, **options: Any) -> Agent[Any, Any]:
        """The agent `a` of this process."""
        return self.agents(**options)[0]

    def agents(self, **options: Any) -> tuple[Agent[Any, Any], Agent[Any, Any]]:
        """The agents `a` and `b` of this process; the definition of the children comes along."""
        typed: dict[str, Any] = {"output": Word} if self.life.output else {}
        child = self._define("child", _BOX, typed, options)
        delegations = [delegate(child, name="delegating"), delegate(child, name="background", background=True)]
        return self._define("a", [*_BOX, *delegations], typed, options), self._define("b", _BOX, {}, options)

    def _define(self, name: str, tools: list[Any], typed: dict[str, Any], options: dict[str, Any]) -> Agent[Any, Any]:
        def reply(request: Request) -> Reply:
            self.requests += 1
            return self._reply(name, request)

        definition: Agent[Any, Any] = Agent(
            "demo" if name == "a" else name,
            model=ScriptedModel(reply, keep_requests=False),
            tools=tools,
            plugins=[Acting(self), Retrying()],
            context=(self._section,),
            limits=LIMITS,
            after_error=self.life.after_error,
            **typed,
        )
        return definition.replace(**options)

    def _section(self, ctx: SeamContext) -> str | None:
        told = self.life.sections
        return told[(ctx.turn + ctx.step) % len(told)] if told else None

    def _reply(self, name: str, request: Request) -> Reply:
        step = self.step(name, request.turn, request.step)
        if request.attempt <= step.failures:
            return Reply.fail("SERVER", after="half an answer")
        match step.kind:
            case "tools":
                return Reply.tools(*(_call(n, wanted) for n, wanted in enumerate(step.tools)), text="Let me see")
            case "max-tokens":
                return Reply.max_tokens("far too long", ("c0", step.tools[0] if step.tools else "unknown", {}))
            case "empty":
                return Reply.chunks(())
            case "refusal":
                return Reply.refusal("never")
            case "hang":
                return Reply.hang("wait")
            case "answer":
                return Reply.output(Word("yes"))
            case "bad-answer":
                return Reply.output({"world": 1})
            case _ if self.life.output and name != "b":
                return Reply.output(Word(f"{request.turn}.{request.step}"))
            case _:
                return Reply.text(f"answer {request.turn}.{request.step}", parts=2)

    async def answer_questions(self, system: System) -> None:
        """A person who looks now and then whether something is to be decided."""
        while True:
            for question in [question async for question in system.approvals()]:
                verdict = self.life.verdicts[self.answered % len(self.life.verdicts)]
                if verdict == "nobody" and question.expires is not None:
                    continue
                self.answered += 1
                said: Any = "deny" if verdict == "nobody" else verdict
                try:
                    await system.answer(question.id, said, by="ann", text="so it is")
                except ApprovalExpired:  # withdrawn meanwhile
                    self.answered -= 1
            await trio.sleep(LOOK_S)


def _call(number: int, wanted: str) -> tuple[str, str, Any]:
    if wanted == "malformed":
        return f"c{number}", "safe_parallel", '{"word": 1}'
    return f"c{number}", wanted, {"task": "help"} if wanted in ("delegating", "background") else {}


def _tool(name: str) -> Any:
    async def body(ctx: ToolContext[World], word: str = "") -> ToolOutput:
        """A body that counts."""
        world, step = ctx.deps, ctx.deps.step(ctx.agent.id, ctx.turn, ctx.step)
        world.bodies[ctx.effect_key] += 1
        if step.in_tool is not None:
            await act(ctx.agent, step.in_tool, f"tool-{ctx.turn}.{ctx.step}")
        await _work(ctx, name)
        context = [f"{ctx.effect_key} tells"] if name == "telling" else []
        return ToolOutput(f"{name} of {ctx.call_id} {word}", concludes=name == "concluding", context=context)

    mode: Any = "parallel" if name in _PARALLEL else "exclusive"
    approval: Any = Ask("May it?", expires_s=10) if name == "approved" else None
    return tool(name=name, mode=mode, replay=_replay(name), approval=(lambda ctx, call: approval))(body)


async def _work(ctx: ToolContext[World], name: str) -> None:
    other = "b" if ctx.agent.id == "a" else "a"
    match name:
        case "failing":
            raise ToolError("it does not work")
        case "slow" | "never_slow":
            await trio.sleep(1)
        case "replying":
            await ctx.reply("at once")
        case "noting":
            ctx.note("noted", {"by": ctx.effect_key})
        case "mailing":
            await ctx.send(other, "have a look")
        case "asking":
            await ctx.ask(other, "what do you say?", timeout=30)
        case _:
            return


_PARALLEL = ("safe_parallel", "never_parallel", "telling", "slow", "never_slow", "asking", "approved")


def _replay(name: str) -> Any:
    if name == "ask_again":
        return "ask"
    return "safe" if name.startswith(("safe", "telling", "slow", "asking", "mailing", "replying")) else "never"


_BOX = [_tool(name) for name in TOOLS if name not in ("unknown", "malformed", "delegating", "background")]
