"""Commands that tell, and the one that chooses the model: `/help`, `/status`, `/history`, `/model`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from ....storage.errors import CallboardError, UsageError
from ....storage.folds.choices import PREFIX
from ....storage.messages import Message, UserSource
from ...answers import Answer
from .context import CommandContext
from .declared import UserCommand, command
from .router import Spec
from .status import status_text

MODEL = "model"
"""The name of the choice that `/model` makes."""
HISTORY = 10
"""How many texts `/history` shows."""
MOST = 1000


def talk(model: ModelCommand) -> list[UserCommand]:
    """These commands."""
    return [help_command, status, history, model.as_command()]


@command("/help", usage="/help [COMMAND]")
async def help_command(ctx: CommandContext, args: str) -> str:
    """What you can say that the model does not read."""
    specs = sorted(ctx.specs, key=lambda spec: spec.name)
    if args:
        wanted = f"/{args.removeprefix('/').lower()}"
        specs = [spec for spec in specs if spec.name.lower() == wanted]
        if not specs:
            return f"There is no command {wanted}; /help lists them all."
    width = max(len(spec.usage) for spec in specs)
    return "\n".join(_help_line(spec, width) for spec in specs)


def _help_line(spec: Spec, width: int) -> str:
    return f"{spec.usage:<{width}}  {spec.about}".rstrip()


@command("/status", control=True)
async def status(ctx: CommandContext) -> str:
    """What runs and what waits, the model, and what was used."""
    return status_text(await ctx.agent.info(), model=_current(ctx), now=ctx.now)


@command("/history", usage="/history [N]")
async def history(ctx: CommandContext, args: str) -> str:
    """The newest texts of the conversation."""
    if args and not (args.isascii() and args.isdecimal()):
        return f"{args[:40]!r} is no number; write /history 5."
    count = min(int(args or HISTORY), MOST)
    messages = await ctx.agent.messages()
    said = [message for message in messages if _was_said(message)]
    if not said:
        return "Nothing was said yet."
    lines = [f"{'You' if message.role == 'user' else 'Agent'}: {message.text}" for message in said[len(said) - count :] if count]
    return "\n\n".join(lines) or "Nothing to show."


def _was_said(message: Message) -> bool:
    """By a person or the model: no results of tools, no summaries, no runtime context."""
    by_person = message.role == "user" and isinstance(message.source, UserSource)
    return bool(message.text.strip()) and (by_person or message.role == "assistant")


def _current(ctx: CommandContext) -> str | None:
    chosen = ctx.seam.choice(MODEL)
    return chosen if isinstance(chosen, str) else ctx.seam.model_name


def split_model(model: str) -> tuple[str, str]:
    """Provider and name."""
    provider, _, name = model.partition(":")
    return provider, name


class ModelCommand:
    """`/model`: from the next turn on another model answers, for this agent alone, also after a restart."""

    def __init__(self, models: Sequence[str] | Mapping[str, str] | None) -> None:
        """Take the models to choose from; a mapping gives them names of your own.

        Raises:
            UsageError: one of them is no `provider:name`.
        """
        if isinstance(models, str):
            raise UsageError(f"models={models!r} is one model; give a list: models=[{models!r}]")
        named = dict(models) if isinstance(models, Mapping) else {name: name for name in models or ()}
        for name in named.values():
            if not all(split_model(name)):
                raise UsageError(f"models= names {name!r}; write provider and model with a colon between, such as 'openai:gpt-5'")
        self._named, self._open = named, models is None

    def as_command(self) -> UserCommand:
        """The command."""
        return command("/model", usage="/model [NAME]")(self._choose)

    async def _choose(self, ctx: CommandContext, args: str) -> Answer:
        """The model that answers from the next turn on."""
        names = self._names(ctx)
        listed = f"There are: {', '.join([*names, 'default'])}." if names else "`/model default` goes back to the agent's own."
        if not args:
            return Answer(f"The model is {_current(ctx) or 'none'}. {listed}")
        if args.lower() == "default":
            return Answer(f"From the next turn on {ctx.seam.model_name or 'no model'} answers.", notes={PREFIX + MODEL: None})
        chosen, why = self._find(ctx, names, args)
        if chosen is None:
            near = difflib.get_close_matches(args, names, n=1)
            guess = f" Did you mean {near[0]}?" if near else ""
            return Answer(f"There is no model {args!r}{why}.{guess} {listed}")
        return Answer(f"From the next turn on {chosen} answers.", notes={PREFIX + MODEL: chosen})

    def _names(self, ctx: CommandContext) -> dict[str, str]:
        if not self._open:
            return self._named
        own = [name for name in (ctx.seam.model_name, *ctx.seam.model_names) if name]
        return {name: name for name in dict.fromkeys(own)}

    def _find(self, ctx: CommandContext, names: Mapping[str, str], wanted: str) -> tuple[str | None, str]:
        if wanted in names:
            return names[wanted], ""
        by_case = [model for name, model in names.items() if name.lower() == wanted.lower()]
        if len(by_case) == 1:
            return by_case[0], ""
        if not self._open or not all(split_model(wanted)):
            return None, ""
        try:
            return ctx.seam.find_model(wanted), ""
        except CallboardError as error:
            return None, f" ({error.message})"
