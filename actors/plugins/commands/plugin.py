"""Commands: the plugin that runs them.

A control command acts at `accept`, while whatever runs goes on. Any other is a prompt like any other until its turn comes, and is
answered there by the `command` seam, without the model; steered into a running turn it would be read by the model, so it is let
in as a turn of its own. It lets nothing run that a stop has held: only a message does. Internal messages (timers, results of
children) are never commands, whatever they begin with.

A command that fails or may not be run is answered and recorded; the agent lives on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from ....storage.errors import CallboardError, UsageError
from ....storage.messages import Failure, Message, UserSource
from ...answers import Answer, Command, Later, LimitReached, Proposal, Reject, Replace
from ...failures import flatten
from ...seams import Next, Plugin, SeamContext
from .authority import Authority, allowed, policy
from .context import CommandContext
from .conversation import CONVERSATION
from .deciding import DECISIONS
from .declared import Said, UserCommand
from .router import Found, Routed, Router, correction
from .talk import MODEL, ModelCommand, split_model, talk

NOT_ALLOWED = "NOT_ALLOWED"
LONGEST = 65_536
"""Characters of a control command, which no limit of the inbox applies to."""


class Commands(Plugin):
    """The built-in commands, and those given."""

    def __init__(
        self,
        *commands: UserCommand,
        authority: Authority = None,
        models: Sequence[str] | Mapping[str, str] | None = None,
        decisions: bool = False,
    ) -> None:
        """Take commands of your own; one with a built-in name replaces that.

        Args:
            commands: made by `command`.
            authority: who may run which: a function `allow(ctx, name, sender) -> bool` (sync or async), or the senders who may
                run what changes the conversation; without it everybody may run everything.
            models: what `/model` may choose: names like "openai:gpt-5", or your names for them; without it any model that the
                system has an adapter for.
            decisions: add `/allow` and `/deny`, by which who writes decides about calls that wait for a person.

        Raises:
            UsageError: something that is no command, a name that is there twice, or models that cannot be.
        """
        for given in commands:
            if not isinstance(given, UserCommand):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"Commands({given!r}): decorate the function with @command('/name')")
        own = {given.spec.name.lower() for given in commands}
        built_in = [*talk(ModelCommand(models)), *CONVERSATION, *(DECISIONS if decisions else [])]
        listed = [*(each for each in built_in if each.spec.name not in own), *commands]
        self._router = Router(each.spec for each in listed)
        self._commands = {each.spec.name: each for each in listed}
        self._allow = policy(authority)

    def __repr__(self) -> str:
        return f"Commands({', '.join(self._commands)})"

    async def accept(
        self, ctx: SeamContext, message: Message, next: Next[Message, Message | Reject | Answer], /
    ) -> Message | Reject | Answer:
        """Answer a control command at once, and keep any other out of the running turn."""
        taken = await next(message)
        if not isinstance(taken, Message) or ctx.way not in ("followup", "steer") or not isinstance(taken.source, UserSource):
            return taken
        routed = self._router.route(taken.text)
        if routed is None:
            return taken
        if self._router.is_control(routed):
            if len(taken.text) > LONGEST:
                return Reject(f"a command has at most {LONGEST:,} characters")
            return await self._answer(ctx, routed, taken.id, at_once=True)
        return Later("", message=taken, releases=False)

    async def command(
        self, ctx: SeamContext, command: Command, next: Next[Command, Answer | Replace | None], /
    ) -> Answer | Replace | None:
        """Answer the command that this turn is about."""
        routed = self._router.route(command.text)
        return await next(command) if routed is None else await self._answer(ctx, routed, command.id)

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal], /) -> Proposal:
        """A turn begins with the model that was chosen, and keeps the one it began with."""
        chosen = ctx.choice(MODEL)
        if isinstance(chosen, str) and ctx.requests == 0:
            provider, name = split_model(chosen)
            proposal = structs.replace(proposal, provider=provider, model=name)
        return await next(proposal)

    # -- running one

    async def _answer(self, ctx: SeamContext, routed: Routed, message_id: str, *, at_once: bool = False) -> Answer:
        try:
            answer = await self._run(ctx, routed, message_id)
            if at_once and answer.replacement is not None:
                raise UsageError(f"{routed.name} rewrites the model's view, so it cannot be a control command: drop control=True")
        except Exception as error:  # of a command: it is answered, and the agent lives on
            if isinstance(error, LimitReached) and not at_once:
                raise  # it ends the turn; what acts at once has none, and whoever sent it hears of it
            failure = flatten(error)
            said = error.message if isinstance(error, CallboardError) else failure.message
            answer = Answer(f"{routed.name} failed: {said}", error=failure)
        return structs.replace(answer, ran=(routed.name, routed.arguments))

    async def _run(self, ctx: SeamContext, routed: Routed, message_id: str) -> Answer:
        if not isinstance(routed, Found):
            return Answer(correction(routed))
        if not await allowed(self._allow, ctx, routed.name):
            who = f"{ctx.sender} may" if ctx.sender else "You may"
            return Answer(f"{who} not run {routed.name} here.", error=Failure(NOT_ALLOWED, f"{routed.name} was refused"))
        specs = [spec for spec in self._router.specs.values() if await allowed(self._allow, ctx, spec.name)]
        context = CommandContext(ctx, message_id, specs=specs)
        return _as_answer(routed.name, await self._commands[routed.name].run(context, routed.arguments))


def _as_answer(name: str, said: Said) -> Answer:
    match said:
        case Answer():
            return said
        case Replace():
            return Answer("Done.", said)
        case None:
            return Answer("Done.")
        case str():
            return Answer(said)
        case _:  # pyright: ignore[reportUnnecessaryComparison]  (handlers are other people's code)
            raise UsageError(f"{name} gave a {type(said).__name__}; a command returns a text, an Answer, a Replace or None")
