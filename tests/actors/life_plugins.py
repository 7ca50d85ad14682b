"""The plugin of a life: at every seam it does what the script says there, and nothing where it says nothing.

A seam is keyed by the step that it is about: what comes before a step (the boundary, a command, a compaction) belongs to the
coming one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from life_chat import route_of
from life_scripts import DOES

from callboard.actors.answers import (
    Allow,
    Answer,
    Ask,
    Assembly,
    Boundary,
    CallResult,
    Command,
    Deny,
    Done,
    Enter,
    Failed,
    LimitReached,
    Position,
    Proposal,
    Reject,
    Replace,
    Resend,
    Stopping,
    ToolCall,
)
from callboard.actors.content import to_message
from callboard.actors.seams import Next, Plugin, SeamContext
from callboard.actors.testing.scripted import Reply
from callboard.storage.errors import OVERFLOW_CODES, CommitFailed, InputRefused
from callboard.storage.messages import Chunk, Message, Request, TextDelta

if TYPE_CHECKING:
    from life_world import World

BEFORE_A_STEP = ("accept", "compact", "command", "assemble", "pre_step")


async def act(ref: Any, does: str, id: str) -> Any:
    """Do it to the agent, once however often the script comes here; gives the receipt of a message."""
    match does:
        case "cancel":
            await ref.cancel()
        case "park":
            await ref.cancel(keep_inbox=True)
        case "hook":
            await ref.cancel("hook", text="a hook stops this")
        case "dispose":
            await ref.dispose()
        case "withdraw" | "replace":
            waiting = await ref.pending()
            if waiting and does == "withdraw":
                await ref.withdraw(waiting[-1].id)
            elif waiting:
                await ref.replace(waiting[0].id, f"another {id}", new_id=f"{waiting[0].id}!")
        case _ if does.startswith("/"):
            return await ref.followup(does, message_id=id, route=route_of(id))
        case _:
            text = id if id.startswith("/") else f"{does} {id}"
            return await getattr(ref, does)(text, message_id=id, route=route_of(id) if does != "inject" else None)
    return None


async def from_outside(ref: Any, does: str, id: str) -> Any:
    """The same, by a person, who takes a refusal as an answer, and a full disk as a reason to say it again."""
    while True:
        try:
            return await act(ref, does, id)
        except InputRefused as refusal:
            assert "was refused" in str(refusal)
            return None
        except CommitFailed:
            await trio.sleep(1)


class Acting(Plugin):
    """Does what the script says."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def _does(self, ctx: SeamContext, seam: str) -> str | None:
        """Do what is to be done there, raise what is to be raised; what is left is how the seam answers."""
        step = ctx.step + (seam in BEFORE_A_STEP)
        answer = None
        turn = ctx.turn or 1  # what is accepted before any turn belongs to the first
        for where, does in self._world.step(ctx.id, turn, step).seams:
            if where != seam:
                continue
            if does == "throw":
                raise RuntimeError(f"{seam} of step {step} throws")
            if does == "limit":
                raise LimitReached("script", f"{seam} of step {step} says that it is enough")
            if does in DOES:
                await act(ctx.agent, does, f"{seam}-{turn}.{step}")
            else:
                answer = does
        return answer

    async def accept(self, ctx: SeamContext, message: Message, next: Next[Message, Any]) -> Any:
        match await self._does(ctx, "accept"):
            case "reject":
                return Reject("not now")
            case "answer":
                return Answer("at once")
            case "rewrite":
                return await next(message.map_text(_marked))
            case _:
                return await next(message)

    async def compact(self, ctx: SeamContext, position: Position, next: Next[Position, Replace | None]) -> Replace | None:
        does = await self._does(ctx, "compact")
        return _replacement(position) if does == "rewrite" and position.entries else await next(position)

    async def command(
        self, ctx: SeamContext, command: Command, next: Next[Command, Answer | Replace | None]
    ) -> Answer | Replace | None:
        match await self._does(ctx, "command"):
            case "answer":
                return Answer("done")
            case "rewrite":
                return Replace(to_message("what was before"), cause="script")
            case _:
                return await next(command)

    async def assemble(self, ctx: SeamContext, assembly: Assembly, next: Next[Assembly, Assembly]) -> Assembly:
        if await self._does(ctx, "assemble") == "rewrite":
            assembly = msgspec.structs.replace(assembly, system="Be kind.", context=(*assembly.context, "at night"))
        return await next(assembly)

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        match await self._does(ctx, "pre_step"):
            case "reject":
                return Reject("not this")
            case "rewrite":
                return Enter(tuple(message.map_text(_marked) for message in boundary.messages))
            case "add":
                return Enter((*boundary.messages, to_message("one more thing")))
            case "drop":
                return Enter(())
            case _:
                return await next(boundary)

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
        proposal = await next(proposal)
        match await self._does(ctx, "request"):
            case "rewrite":
                warmer = msgspec.structs.replace(proposal.settings, temperature=ctx.step / 8)
                return msgspec.structs.replace(proposal, settings=warmer)
            case "lost":
                return msgspec.structs.replace(proposal, provider="nobody")
            case _:
                return proposal

    async def stream(self, ctx: SeamContext, request: Request, next: Any) -> AsyncIterator[Chunk]:
        does, seen = self._world.step(ctx.id, request.turn, request.step).streaming, 0
        answer = await self._does(ctx, "stream") if request.attempt == 1 else None
        source = _alone(request) if answer == "alone" else next(request)
        async for chunk in source:
            seen += 1
            if answer == "rewrite" and isinstance(chunk, TextDelta):
                chunk = TextDelta(chunk.index, _marked(chunk.text))
            yield chunk
            if does is not None and seen <= 2:
                await act(ctx.agent, does, f"stream-{request.turn}.{request.step}")

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
        match await self._does(ctx, "request_error"):
            case "resend" if failed.attempt < 3:
                return Resend(after_s=5)
            case "rewrite" if failed.attempt < 3:
                return Resend(replacement=Replace(to_message("what was before"), cause="script"))
            case "raise":
                return None
            case _:
                return await next(failed)

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
        await self._does(ctx, "turn_stopping")

    async def respond(self, ctx: SeamContext, text: str, next: Next[str, str | None]) -> str | None:
        match await self._does(ctx, "respond"):
            case "rewrite":
                return _marked(text)
            case "silent":
                return None
            case _:
                return await next(text)

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Any]) -> Any:
        match await self._does(ctx, "tool_before"):
            case "deny":
                return Deny("not this one")
            case "rewrite":
                return Allow({"word": "rewritten"})
            case "ask":
                return Ask("May it run?", expires_s=10)
            case "ask-rewritten":
                return Ask("May it run so?", expires_s=10, arguments={"word": "rewritten"})
            case _:
                return await next(call)

    async def guard(self, ctx: SeamContext, call: ToolCall) -> str | None:
        return "guarded" if await self._does(ctx, "guard") == "deny" else None

    async def tool_around(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, CallResult]) -> CallResult:
        does = await self._does(ctx, "tool_around")
        if does == "alone":
            return CallResult.of("instead of it")
        result = await next(call)
        return CallResult.of(_marked(result.text), error=result.error) if does == "rewrite" else result

    async def tool_after(self, ctx: SeamContext, done: Done, next: Next[Done, Done]) -> Done:
        done = await next(done)
        match await self._does(ctx, "tool_after"):
            case "rewrite":
                return done.with_text("something else")
            case "block":
                return done.with_text("not to be seen", error="BLOCKED")
            case "add":
                added = (*done.result.context, to_message("remember this"))
                return Done(done.call, msgspec.structs.replace(done.result, context=added))
            case "conclude":
                return Done(done.call, msgspec.structs.replace(done.result, concludes=True))
            case _:
                return done


class Retrying(Plugin):
    """Tries three times, with pauses; what is too long for the model is sent again by others."""

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
        again = failed.attempt < 3 and failed.failure.code not in OVERFLOW_CODES
        return Resend(after_s=0.1) if again else await next(failed)


def _marked(text: str) -> str:
    return f"{text} (marked)"


def _replacement(position: Position) -> Replace:
    return Replace(to_message("what was before"), 0, position.entries[-1][0], "script")


async def _alone(request: Request) -> AsyncIterator[Chunk]:
    for chunk in Reply.text("all by itself").chunks_for(request):
        yield chunk
