"""A request as it was sent, rebuilt from the log: for people who ask what the model saw, and what was new in it.

`verify` compares digests and forgets; here one request is kept, with its header, its messages and the place of the request before
it. Two readings of the log: one of headers and requests, to find the two; one of the records that messages are folded from, which
ends where the request says that it was derived from. Chunks are never read. The log is only read, whoever runs its agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from msgspec import Struct

from .digest import header_line
from .errors import AgentNotFound, UsageError
from .events import EVENTS, Event, RequestSent
from .folds.headers import Headers
from .folds.surface import Surface
from .messages import Header, Message
from .store import Store
from .verify import SURFACE

_REQUESTS = tuple(type for type, event in EVENTS.items() if event in (*Headers.EVENTS, RequestSent))


class Rebuilt(Struct, frozen=True):
    """A request out of the log."""

    seq: int
    """Of its `request/sent`."""
    sent: RequestSent
    header: Header
    messages: Sequence[Message]
    digest: str
    """Of what was rebuilt."""
    before: int | None = None
    """The seq of the request before it, whatever became of that."""
    kept: int = 0
    """How many of its first messages the request before it had, too."""

    @property
    def ok(self) -> bool:
        """Whether this is what was sent: it has the digest that was written at dispatch."""
        return self.digest == self.sent.digest


class _Found(Struct):
    """The request that is looked for, the one before it, and the header in force."""

    seq: int
    sent: RequestSent
    header: Header
    before: tuple[int, RequestSent] | None


async def rebuild(store: Store, agent: str, seq: int) -> Rebuilt:
    """The newest request at or before `seq`: the one that is `seq`, or the one behind an answer, a failure or a call.

    Raises:
        AgentNotFound: there is no such agent.
        UsageError: no request was sent up to there.
    """
    if await store.head(agent) is None:
        raise AgentNotFound(f"there is no agent {agent!r}; `callboard ls` lists those there are", agent=agent)
    found = await _find(store, agent, seq)
    surface, earlier = Surface(), None
    for at, event in await _events(store, agent, found.sent.upto, SURFACE):
        if found.before is not None and earlier is None and at > found.before[1].upto:
            earlier = surface.messages()  # a view: what is folded in later does not change it
        surface.apply(at, 0, event)
    messages, digest = surface.messages(), surface.digest(header_line(found.header))
    if found.before is None:
        return Rebuilt(found.seq, found.sent, found.header, messages, digest)
    kept = _shared(messages if earlier is None else earlier, messages)
    return Rebuilt(found.seq, found.sent, found.header, messages, digest, found.before[0], kept)


async def _find(store: Store, agent: str, seq: int) -> _Found:
    headers, newest, found = Headers(keep=None), None, None
    for at, event in await _events(store, agent, seq, _REQUESTS):
        if not isinstance(event, RequestSent):
            headers.apply(at, 0, event)
        elif headers.current is not None:
            found, newest = _Found(at, event, headers.current, newest), (at, event)
    if found is None:
        raise UsageError(f"{agent!r} has sent no request up to seq {seq}; give the seq of one, or of its answer", agent=agent)
    return found


async def _events(store: Store, agent: str, upto: int, types: Sequence[str]) -> list[tuple[int, Event]]:
    async with aclosing(store.read(agent, upto=upto, types=types)) as reader:
        return [(record.seq, record.event) async for record in reader if isinstance(record.event, Event)]


def _shared(earlier: Sequence[Message], later: Sequence[Message]) -> int:
    """How many messages both begin with."""
    for place, (one, other) in enumerate(zip(earlier, later, strict=False)):
        if one is not other and one != other:
            return place
    return min(len(earlier), len(later))
