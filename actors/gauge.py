"""The gauge: how full the model's view is, in tokens, by an estimate that the providers' own counts correct.

A fold. It keeps the estimate of all messages on the surface as a running sum, so that asking costs what is new and not what the
history holds. After a rewrite of the view the sum is made anew by the next request, or by who asks before that; what is learned
and what a snapshot keeps are the same either way, or an agent that was opened again would compact at other places.

When an answer says how many tokens its request had, the share of the two is learned for that model: at once if the estimate was
too low, slowly if it was too high, since a request that does not fit costs more than a summary that came early.
Corrections are bounded: a count that makes no sense must not switch compaction off, or run it with every step.

A request that a provider refused as too long is a count, too: from then on this model's window is taken to end there, until a
longer one was answered. So an agent whose model says nothing of its window learns it the hard way, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from msgspec import Struct

from ..storage.errors import OVERFLOW_CODES
from ..storage.events import (
    AssistantMessage,
    Event,
    Note,
    RequestFailed,
    RequestSent,
    SurfaceReplace,
    ToolResult,
    UserMessage,
)
from ..storage.folds import Headers, Surface
from ..storage.folds.fold import Fold, Handler
from ..storage.folds.pairing import result_message, split
from ..storage.messages import Message, TextBlock, Usage
from .tokens import header_tokens, message_tokens, messages_tokens

LEAST, MOST = 0.5, 4.0
"""A model's count is taken to lie between these shares of the estimate."""
SLOWLY = 0.2
"""How much of an estimate that was too high is corrected by one answer."""
FRUITLESS = frozenset({"compaction-useless", "compaction-gave-up"})
"""Kinds of notes that say: a try to shorten the view came to nothing."""
GROWN = 1.125
"""A view that holds so many times more is another one, and worth another try."""
ROUTES = 16
"""Of how many models an agent remembers what it learned."""


class Learned(Struct, frozen=True, omit_defaults=True):
    """What is known of one model: tokens counted for each one estimated, and the estimate of the shortest request refused."""

    ratio: float = 1.0
    refused: int | None = None


class GaugeState(Struct, frozen=True, omit_defaults=True):
    """The fold as a snapshot keeps it; `learned` in order of use."""

    view: int | None = None
    sent: int | None = None
    learned: tuple[tuple[str, str, Learned], ...] = ()
    fruitless: tuple[int, int] = (0, 0)


UNKNOWN = GaugeState()
"""The state of a log that nobody has gauged."""


class Gauge(Fold):
    """How many tokens the next request would have."""

    __slots__ = ("_fruitless", "_header", "_headers", "_learned", "_rewritten", "_sent", "_surface", "_view")

    def __init__(self, surface: Surface, headers: Headers, state: GaugeState | None = None) -> None:
        self._surface, self._headers = surface, headers
        self._view: int | None = 0 if state is None else state.view
        """The estimate of all messages; None after a rewrite, until it is needed: opening an agent reads no history."""
        self._rewritten = self._view is None
        """Whether no request was sent since the last rewrite."""
        self._sent: int | None = None if state is None else state.sent
        """The estimate of the request that has no end yet."""
        self._learned = {} if state is None else {(provider, model): known for provider, model, known in state.learned}
        self._header: tuple[str | None, int] = None, 0
        self._fruitless: tuple[int, int] = (0, 0) if state is None else state.fruitless
        """How many tries to shorten the view came to nothing, and what it held at the last of them."""

    # -- asking

    def tokens(self, incoming: Iterable[Message] = ()) -> int:
        """How many tokens the next request would have, under the last header, with these messages joining the view."""
        return round(self.ratio * (self._estimate() + self._head() + messages_tokens(incoming)))

    @property
    def ratio(self) -> float:
        """Tokens counted for each one estimated, of the model that was asked last."""
        return self._known().ratio

    def window(self, known: int | None) -> int | None:
        """The window of the model that was asked last, in tokens: what is `known` of it, or where it refused a request."""
        learned = self._known()
        if learned.refused is None:
            return known
        ends = round(learned.refused * learned.ratio)
        return ends if known is None else max(known // 4, min(known, ends))

    @property
    def fruitless(self) -> int:
        """How many tries to shorten the view came to nothing since it was rewritten or has grown."""
        times, held = self._fruitless
        return times if times and self._estimate() <= held * GROWN else 0

    def _known(self) -> Learned:
        context = self._headers.context
        return Learned() if context is None else self._learned.get((context.provider, context.model), Learned())

    def _estimate(self) -> int:
        if self._view is None:
            self._view = messages_tokens(message for _, message in self._surface.entries())
        return self._view

    def _head(self) -> int:
        digest = self._headers.current_digest
        if self._header[0] != digest:
            self._header = digest, header_tokens(self._headers.current)
        return self._header[1]

    # -- the fold; the surface and the headers have each record already

    def _user(self, seq: int, time: int, event: UserMessage) -> None:
        self._add(event.message)

    def _result(self, seq: int, time: int, event: ToolResult) -> None:
        self._add(result_message(seq, event))

    def _answer(self, seq: int, time: int, event: AssistantMessage) -> None:
        if event.usage is not None and not event.interrupted:
            self._count(event.usage)
        self._sent = None
        self._add(event.message)

    def _replace(self, seq: int, time: int, event: SurfaceReplace) -> None:
        self._view, self._rewritten, self._fruitless = None, True, (0, 0)

    def _note(self, seq: int, time: int, event: Note) -> None:
        if event.kind in FRUITLESS:
            self._fruitless = self.fruitless + 1, self._estimate()

    def _request(self, seq: int, time: int, event: RequestSent) -> None:
        self._sent, self._rewritten = self._estimate() + self._head(), False

    def _failed(self, seq: int, time: int, event: RequestFailed) -> None:
        if event.failure.code in OVERFLOW_CODES and self._sent:
            self._refuse(self._sent)
        self._sent = None

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {
        UserMessage: _user,
        AssistantMessage: _answer,
        ToolResult: _result,
        SurfaceReplace: _replace,
        RequestSent: _request,
        RequestFailed: _failed,
        Note: _note,
    }

    def _add(self, message: Message) -> None:
        if self._view is not None and _is_shown(message):
            self._view += message_tokens(message)

    def _count(self, usage: Usage) -> None:
        counted = usage.input + usage.cache_read + usage.cache_write
        if not self._sent or counted <= 0:
            return
        known, share = self._known(), min(MOST, max(LEAST, counted / self._sent))
        ratio = share if share > known.ratio else known.ratio + SLOWLY * (share - known.ratio)
        refused = known.refused if known.refused is not None and self._sent < known.refused else None
        self._keep(Learned(ratio, refused))

    def _refuse(self, sent: int) -> None:
        known = self._known()
        self._keep(Learned(known.ratio, sent if known.refused is None else min(sent, known.refused)))

    def _keep(self, learned: Learned) -> None:
        context = self._headers.context
        if context is None:
            return
        key = context.provider, context.model
        self._learned.pop(key, None)
        self._learned[key] = learned
        while len(self._learned) > ROUTES:
            del self._learned[next(iter(self._learned))]

    def fork(self) -> None:
        """A fork sees what its origin saw, and knows what it had learned."""

    def dump(self) -> GaugeState:
        """The state for a snapshot."""
        learned = tuple((*key, known) for key, known in self._learned.items())
        return GaugeState(None if self._rewritten else self._view, self._sent, learned, self._fruitless)


def _is_shown(message: Message) -> bool:
    """Whether it stands on the surface: an answer without a word does not."""
    if message.role != "assistant":
        return True
    first = message.content[0] if message.content else None
    return (type(first) is TextBlock and bool(first.text)) or split(message).shown is not None
