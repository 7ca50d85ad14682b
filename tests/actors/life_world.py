"""Plays a life: the agents of a script, their tools, and what these did to the world. A new world is a new process."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import trio
from life_chat import OWN, Chat
from life_plugins import Acting, Retrying, act
from life_scripts import DELEGATIONS, TOOLS, Life, Step
from msgspec import Struct

from callboard.actors import Agent, Limits, System, ToolContext, ToolOutput, delegate, handoff, tool
from callboard.actors.answers import Ask
from callboard.actors.plugins.commands import Commands
from callboard.actors.plugins.compaction import Compaction
from callboard.actors.plugins.compaction.ranges import choose
from callboard.actors.plugins.continuing import Continue
from callboard.actors.plugins.empty_answer import EmptyAnswer
from callboard.actors.seams import Plugin, SeamContext
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.actors.tokens import header_tokens, message_tokens
from callboard.storage.errors import ApprovalExpired, CommitFailed, ToolError
from callboard.storage.messages import Request, Usage

LIMITS = Limits(connect_s=2, first_chunk_s=8, chunk_gap_s=8, tool_timeout=20, abandon_s=2)
LONG = " and so on" * 120
"""What answers end with where the window is small: 300 tokens."""
SUMMARY = 200
"""Tokens of the longest summary: what is no longer is not worth another."""


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
        self.models: dict[str, ScriptedModel] = {}
        """What `/model` may choose."""
        self.acknowledged: list[tuple[str, str]] = []
        """Messages that people sent and that were taken: agent and id."""
        self.chat: Chat | None = None
        self.too_long: list[tuple[str, int, int, int, int]] = []
        """Requests that were longer than the window and need not have been: agent, turn, step, attempt, tokens."""

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
        expert = self._define("expert", [*_BOX, handoff("demo", name="handing")], {}, options)
        others = [
            delegate(child, name="delegating"),
            delegate(child, name="background", background=True),
            delegate(child, name="supervised", background=True, restarts=(2, 60.0)),
        ]
        a = self._define("a", [*_BOX, *others, handoff(expert, name="handing")], typed, options)
        if self.life.chat:
            self.chat = Chat(self.life.chat, edits=self.life.edits) if self.chat is None else self.chat
            self.chat.begin(a)
        return a, self._define("b", _BOX, {}, options)

    def without_a(self, **options: Any) -> list[Agent[Any, Any]]:
        """What is known where the definition of `a` is missing: the peer and the children."""
        typed: dict[str, Any] = {"output": Word} if self.life.output else {}
        return [self._define("b", _BOX, {}, options), self._define("child", _BOX, typed, options)]

    def _define(self, name: str, tools: list[Any], typed: dict[str, Any], options: dict[str, Any]) -> Agent[Any, Any]:
        def reply(request: Request) -> Reply:
            self.requests += 1
            return self._weighed(request, self._reply(name, request))

        definition: Agent[Any, Any] = Agent(
            "demo" if name == "a" else name,
            model=ScriptedModel(reply, keep_requests=False, context_window=self.life.window or None),
            tools=tools,
            plugins=[Acting(self), *self._plugins(name), Retrying()],
            context=(self._section,),
            limits=LIMITS,
            after_error=self.life.after_error,
            **typed,
        )
        self.models[f"other-{name}"] = ScriptedModel(reply, provider=f"other-{name}", name="it", keep_requests=False)
        return definition.replace(**options)

    def _plugins(self, name: str) -> list[Plugin]:
        plugins: list[Plugin] = []
        if self.life.commands:
            plugins.append(Commands(*OWN, models={"other": f"other-{name}:it"}))
        if self.life.window:
            by = None if self.life.summary == "plain" else ScriptedModel(self._summarise, provider="sum", keep_requests=False)
            plugins.append(Compaction(model=by, idle_s=2 if self.life.idle_compaction else None, summary_tokens=SUMMARY))
        return [*plugins, Continue(), EmptyAnswer()] if self.life.again else plugins

    def _summarise(self, request: Request) -> Reply:
        match self.life.summary:
            case "empty":
                return Reply.text("  ")
            case "failing":
                return Reply.fail("SERVER", after="The")
            case "longer":
                return Reply.text("word " * 20_000)
            case "hanging":
                return Reply.hang("The")
            case "calling":
                return Reply.tools(("c0", "failing", {}), text="I call")
            case _:
                return Reply.text("They spoke of this and that.")

    def _section(self, ctx: SeamContext) -> str | None:
        told = self.life.sections
        return told[(ctx.turn + ctx.step) % len(told)] if told else None

    def _reply(self, name: str, request: Request) -> Reply:
        step = self.step("a" if name == "expert" else name, request.turn, request.step)
        if request.attempt <= step.failures:
            return Reply.fail("SERVER", after="half an answer")
        match step.kind:
            case "tools":
                return Reply.tools(*(_call(n, wanted) for n, wanted in enumerate(step.tools)), text=f"Let me see{self._long}")
            case "overflow" if request.attempt == step.failures + 1:
                return Reply.fail("CONTEXT_OVERFLOW", "too long")
            case "max-tokens":
                return Reply.max_tokens(f"far too long{self._long}", ("c0", step.tools[0] if step.tools else "unknown", {}))
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
            case _ if self.life.output and name in ("a", "child"):
                return Reply.output(Word(f"{request.turn}.{request.step}"))
            case _:
                return Reply.text(f"answer {request.turn}.{request.step}{self._long}", parts=2)

    def _weighed(self, request: Request, reply: Reply) -> Reply:
        """The reply of a model that counts as the runtime does, and remembers what did not fit and could have."""
        if not self.life.window:
            return reply
        header: Any = request
        tokens = [message_tokens(message) for message in request.messages]
        whole = header_tokens(header) + sum(tokens)
        left = choose(request.messages, tokens, keep=0)
        if whole > self.life.window and left is not None and left.tokens > SUMMARY:
            self.too_long.append((request.agent, request.turn, request.step, request.attempt, whole))
        return msgspec.structs.replace(reply, usage=Usage(input=whole, output=10))

    @property
    def _long(self) -> str:
        return LONG if self.life.window else ""

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
                except (ApprovalExpired, CommitFailed):  # withdrawn meanwhile, or not written
                    self.answered -= 1
            await trio.sleep(self.life.look_s)


def _call(number: int, wanted: str) -> tuple[str, str, Any]:
    if wanted == "malformed":
        return f"c{number}", "safe_parallel", '{"word": 1}'
    return f"c{number}", wanted, {"task": "help"} if wanted in ("delegating", "background", "supervised") else {}


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


_BOX = [_tool(name) for name in TOOLS if name not in ("unknown", "malformed", *DELEGATIONS)]
