"""Compaction: when the view is rewritten, by whom it is summarised, and when to give up.

It looks at the view before a turn and before each request, counting what is about to join. Past `at` of the model's window a
summary takes the place of the older part: that has to be, and the turn waits for it. So that it rarely waits, a summary by a
model is begun earlier, beside the turn, and put in place when it is needed; what arrived meanwhile is not in it, and stays.

A summary that is no shorter than its source is not used. After two of them no model is asked until the history has grown, or each
step of a busy agent would pay for a summary that helps nobody. A summary that fails changes nothing as long as the view fits, and
no other is asked for in that turn, or a summariser that is down would hold up each of its steps. When the view does not fit, and
when a provider refuses a request as too long, the plain extract stands in, which cannot fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ....storage.errors import OVERFLOW_CODES, UsageError
from ....storage.events import RequestFailed
from ....storage.messages import Message, TextBlock
from ...answers import Failed, LimitReached, Position, Replace, Resend
from ...content import mint_id
from ...failures import described
from ...models.model import Model
from ...seams import Next, Plugin, SeamContext
from ...tokens import message_tokens, text_tokens
from . import prompt
from .drafts import DRAFTS, Draft, ready
from .extract import extract
from .ranges import SOURCE, Range, choose

CAUSE = "compaction"
"""The cause of the `surface/replace` that a summary makes."""
USELESS, GAVE_UP, FAILED = "compaction-useless", "compaction-gave-up", "compaction-failed"
"""Kinds of notes: a summary was no shorter than its source; the second of these; none could be made."""
TRIES = 2
"""Useless summaries until the history has grown."""
AHEAD = 0.85
"""At which share of the limit a summary is begun beside the turn."""
LEAST = 40
"""Fewer tokens are not summarised: no summary is shorter than they are."""
FULL = 0.95
"""A view past this share of the window cannot wait for another try."""
OF_A_VIEW = 0.3
"""How much of the view stays where nobody knows the window, and at most when a person asks to compact."""
CHARACTERS = 200_000
"""The longest transcript for a model whose window is not known."""


class Compaction(Plugin):
    """Summarise the older part of the view when it fills the model's window."""

    every_step = True

    def __init__(
        self,
        *,
        at: float = 0.8,
        model: str | Model | None = None,
        idle_s: float | None = None,
        keep: float = 0.3,
        window: int | None = None,
        summary_tokens: int = 1_000,
    ) -> None:
        """Set when, by whom, and how much stays.

        Args:
            at: share of the window past which a summary is due.
            model: who writes summaries, as "provider:model" or a Model; None for the plain extract.
            idle_s: seconds of rest after which what is not to be kept is summarised, so that the next turn need not; None: never.
            keep: share of the window that the newest messages keep as they are.
            window: of the model, in tokens, where its adapter knows none; of a model that knows more, no more is used. Without
                either, a summary is due only when the provider has refused a request as too long, and from then on before that.
            summary_tokens: the longest summary.

        Raises:
            UsageError: a share is none, `keep` is not below `at`, or a number is not above 0.
        """
        if not 0 < at <= 1 or not 0 <= keep < at:
            raise UsageError(f"Compaction(at={at!r}, keep={keep!r}): both are shares of the window, and keep is the smaller one")
        for name, value in (("window", window), ("summary_tokens", summary_tokens)):
            if value is not None and not value > 0:
                raise UsageError(f"Compaction({name}={value!r}) leaves no room for anything; give a number of tokens")
        if idle_s is not None and not idle_s >= 0:
            raise UsageError(f"Compaction(idle_s={idle_s!r}) is negative; None means never")
        self.idle_s = idle_s
        self._at, self._model, self._keep, self._window, self._limit = at, model, keep, window, summary_tokens
        self._drafts: dict[str, Draft] = {}
        self._failed_in: dict[str, int] = {}
        """The turn in which the last summary of an agent failed."""

    def __repr__(self) -> str:
        by = "an extract" if self._model is None else self._model
        return f"Compaction(at={self._at:g}, by {by})"

    async def on_start(self, system: Any) -> None:
        """Begin with no drafts: those of another system are of its logs."""
        self._drafts, self._failed_in = {}, {}

    # -- the seams

    async def compact(self, ctx: SeamContext, position: Position, next: Next[Position, Replace | None], /) -> Replace | None:
        """A summary for the older part of the view, if one is due."""
        answer = await next(position)
        if answer is not None:
            return answer
        window = self._window_of(position)
        share = 0.0 if window is None else _tokens(position) / window
        must = share >= FULL
        if position.why in ("budget", "step"):
            if self._failed_now(ctx) and not must:
                return None
            if window is None or (position.fruitless >= TRIES and not must):
                return None
            limit = self._due_at(position, window)
            if share < AHEAD * limit:
                return None
            if share < limit:
                self._begin(ctx, position, window)
                return None
        return await self._rewrite(ctx, position, window, must=must)

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None], /) -> Resend | None:
        """The provider says that the request is too long: once in a step it is sent again with a shorter view."""
        answer = await next(failed)
        if answer is not None or failed.failure.code not in OVERFLOW_CODES or await self._was_here(ctx, failed):
            return answer
        position = ctx.position("overflow")
        replacement = await self._rewrite(ctx, position, self._window_of(position), must=True)
        return None if replacement is None else Resend(replacement=replacement)

    async def _was_here(self, ctx: SeamContext, failed: Failed) -> bool:
        """Whether this step has overflowed before, in this process or in one that ended: the log knows."""
        if failed.attempt == 1:
            return False
        for record in await ctx.records({"request/failed"}):
            event = record.event
            if not isinstance(event, RequestFailed) or event.failure.code not in OVERFLOW_CODES:
                continue
            if (event.turn, event.step) == (ctx.turn, ctx.step):
                return True
        return False

    # -- when

    def _window_of(self, position: Position) -> int | None:
        known = [window for window in (position.context_window, self._window) if window is not None]
        return min(known, default=None)

    def _due_at(self, position: Position, window: int) -> float:
        """The share of the window past which a summary is due: it leaves room for the answer, if there is any."""
        return min(self._at, max(1 - position.reserved / window, self._keep + (self._at - self._keep) / 2))

    # -- what

    async def _rewrite(self, ctx: SeamContext, position: Position, window: int | None, *, must: bool) -> Replace | None:
        """The summary in its place; None if there is nothing to summarise, or no use in it."""
        messages = [message for _, message in position.entries]
        tokens = [message_tokens(message) for message in messages]
        draft = self._drafts.pop(ctx.id, None)
        found = None if draft is None else await ready(draft, position)
        if draft is not None and found is not None and not (must and _leaves_full(position, window, found, draft.text or "")):
            return _replace(position, found, draft.text or "")
        found = choose(messages, tokens, keep=self._kept(position, window, sum(tokens)))
        if found is None or found.tokens < LEAST:
            return None
        helpless = must and (self._failed_now(ctx) or position.fruitless >= TRIES)
        text = await self._summary(ctx, messages[found.first : found.last + 1], found.tokens, window, must=must, plain=helpless)
        if not text:
            return None
        if text_tokens(text) < found.tokens:
            return _replace(position, found, text)
        self._note_useless(ctx, position, found, text)
        plain = _plain(messages[found.first : found.last + 1], found.tokens, self._limit) if must else ""
        return _replace(position, found, plain) if plain else None

    def _kept(self, position: Position, window: int | None, view: int) -> int:
        """How many tokens of the newest messages stay, as they are estimated: no more than have room beside the rest."""
        if window is None:
            return round(OF_A_VIEW * view)
        keep = self._keep * window / position.ratio
        if position.why in ("overflow", "command"):
            keep = min(keep, OF_A_VIEW * view)
        rest = _tokens(position) / position.ratio - view + min(self._limit, view // 2)
        return round(max(0, min(keep, self._due_at(position, window) * window / position.ratio - rest)))

    async def _summary(
        self, ctx: SeamContext, messages: Sequence[Message], tokens: int, window: int | None, *, must: bool, plain: bool
    ) -> str:
        extracted = partial(_plain, messages, tokens, self._limit)
        if self._model is None or plain:
            return extracted()
        try:
            return await self._ask(ctx, messages, window)
        except LimitReached:
            raise
        except Exception as error:  # without a summary the turn goes on as it was, if it can
            self._failed(ctx, error)
            return extracted() if must else ""

    def _failed(self, ctx: SeamContext, error: Exception) -> None:
        ctx.note(FAILED, {"error": described(error)})
        self._failed_in[ctx.id] = ctx.turn
        while len(self._failed_in) > DRAFTS:
            del self._failed_in[next(iter(self._failed_in))]

    def _failed_now(self, ctx: SeamContext) -> bool:
        return self._failed_in.get(ctx.id) == ctx.turn

    async def _ask(self, ctx: SeamContext, messages: Sequence[Message], window: int | None) -> str:
        characters = CHARACTERS if window is None else 2 * window
        text = prompt.transcript(messages, characters=characters)
        answer = await ctx.model(text, model=self._model, system=prompt.system(self._limit), max_tokens=self._limit)
        if not answer.text.strip():
            raise UsageError(f"{self._model} wrote an empty summary")
        return answer.text.strip()

    def _note_useless(self, ctx: SeamContext, position: Position, found: Range, text: str) -> None:
        last = position.fruitless + 1 >= TRIES
        ctx.note(GAVE_UP if last else USELESS, {"source": found.tokens, "summary": text_tokens(text)})

    # -- beside the turn

    def _begin(self, ctx: SeamContext, position: Position, window: int | None) -> None:
        """Let a model write the summary that will soon be due, while the turn goes on. An extract needs no time."""
        if self._model is None or ctx.id in self._drafts:
            return
        messages = [message for _, message in position.entries]
        tokens = [message_tokens(message) for message in messages]
        found = choose(messages, tokens, keep=self._kept(position, window, sum(tokens)))
        if found is None or found.tokens < LEAST:
            return
        draft = self._drafts[ctx.id] = Draft(messages[found.first : found.last + 1], found.tokens)
        while len(self._drafts) > DRAFTS:
            del self._drafts[next(iter(self._drafts))]
        ctx.beside(partial(self._write, ctx, draft, window))

    async def _write(self, ctx: SeamContext, draft: Draft, window: int | None) -> None:
        try:
            text = await self._ask(ctx, draft.messages, window)
            if text_tokens(text) < draft.tokens:
                draft.text = text
        except Exception as error:  # it will be tried again when it is due
            self._failed(ctx, error)
        except BaseException:  # cancelled: as if it had not been begun
            if self._drafts.get(ctx.id) is draft:
                del self._drafts[ctx.id]
            raise
        finally:
            draft.done.set()


def _tokens(position: Position) -> int:
    if position.tokens is not None:
        return position.tokens
    view = (message for _, message in position.entries)
    return sum(map(message_tokens, (*view, *position.incoming)))


def _leaves_full(position: Position, window: int | None, found: Range, text: str) -> bool:
    """Whether this summary is too little by now: more has joined since it was begun than it makes room for."""
    saved = position.ratio * (found.tokens - text_tokens(text))
    return window is not None and _tokens(position) - saved >= FULL * window


def _plain(messages: Sequence[Message], tokens: int, limit: int) -> str:
    return extract(messages, limit=min(limit, tokens // 2))


def _replace(position: Position, found: Range, text: str) -> Replace:
    message = Message(mint_id(), "user", (TextBlock(text),), SOURCE)
    start, end = position.entries[found.first][0], position.entries[found.last][0]
    return Replace(message, start, end, CAUSE)
