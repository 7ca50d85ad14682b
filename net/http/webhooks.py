"""`/v1/channels/NAME`: the way in for services that call back.

Such a service has no token of ours; it signs what it sends, and the channel knows how. So anybody may knock here, and what is
let in is the channel's to say: its `receive` gets the headers and the body as they came, and gives the receipt of a message that
is on disk, or raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from ...actors.system import System
from ...actors.values import Receipt
from .failures import Refused
from .messages import Response, to_json
from .router import Visit


@runtime_checkable
class Receiver(Protocol):
    """A channel that takes webhooks."""

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Receipt | None:
        """Take one; durable on return. None: there was nothing to keep.

        Raises:
            Unauthorized: it is not from whom it says it is.
            CallboardError: it cannot be taken, for the reason that the error says.
        """
        ...


class Webhooks:
    """The handler."""

    def __init__(self, system: Callable[[], System]) -> None:
        self._system = system

    async def receive(self, visit: Visit) -> Response:
        """Hand it to the channel; 202 once it is on disk.

        Raises:
            Refused: 404: there is no such channel, or it takes none.
        """
        name = visit.path["name"]
        channel = self._system().channels.get(name)
        if not isinstance(channel, Receiver):
            raise Refused(404, f"there is no channel {name[:100]!r} that takes webhooks")
        receipt = await channel.receive(visit.request.headers, visit.request.body)
        return to_json(receipt, 202)
