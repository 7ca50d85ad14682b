"""`/v1/channels/NAME`: the way in for services that call back.

Such a service has no token of ours; it signs what it sends, and the channel knows how. So anybody may knock at a channel that
says it is `signed`; at any other one needs a token that may send. What is let in is the channel's to say: its `receive` gets the
headers and the body as they came, and gives the receipt of a message that is on disk, or raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from ...actors.system import System
from ...actors.values import Receipt
from ...storage.errors import Unauthorized
from ..access import Access
from .failures import Refused, stays_out
from .messages import Response, to_json
from .router import Visit


@runtime_checkable
class Receiver(Protocol):
    """A channel that takes webhooks. With a true attribute `signed` it says that it checks by itself who sends."""

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Receipt | None:
        """Take one; durable on return. None: there was nothing to keep.

        Raises:
            Unauthorized: it is not from whom it says it is.
            CallboardError: it cannot be taken, for the reason that the error says.
        """
        ...


class Webhooks:
    """The handler."""

    def __init__(self, access: Access, system: Callable[[], System]) -> None:
        self._access, self._system = access, system

    async def receive(self, visit: Visit) -> Response:
        """Hand it to the channel; 202 once it is on disk.

        Raises:
            Refused: 404: there is no such channel, or it takes none; 401: neither it nor a token says who sends.
            Unauthorized: the token is not for this.
        """
        name = visit.path["name"]
        channel = self._system().channels.get(name)
        if not isinstance(channel, Receiver):
            raise Refused(404, f"there is no channel {name[:100]!r} that takes webhooks")
        if not getattr(channel, "signed", False):
            self._check(visit, name)
        receipt = await channel.receive(visit.request.headers, visit.request.body)
        return to_json(receipt, 202)

    def _check(self, visit: Visit, name: str) -> None:
        try:
            grant = self._access.admit(visit.request.raw, peer=visit.request.peer)
        except Unauthorized as error:
            text = f"the channel {name!r} has no secret by which it would know who sends: {error.message}"
            raise stays_out(error, text) from error
        grant.check_scope("send", visit.request.path)
        grant.check_agent(f"{name}:")
