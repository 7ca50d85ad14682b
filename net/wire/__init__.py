"""The wire protocol, without I/O: JSON-RPC 2.0 in WebSocket text frames, subprotocol `callboard.v1`. Texts in, values out.

frames      the envelopes: requests, answers, notifications, and what may be wrong with them
methods     every method with its parameters, its result and the scope it needs; docs/protocol.md says the same in words
closes      why connections are closed
failures    errors that travel as themselves
server      one connection as the service sees it
client      the same connection as the client sees it
"""

from __future__ import annotations

from .client import ClientEnd
from .methods import METHODS, SUBPROTOCOL, Method
from .server import ServerEnd

__all__ = ["METHODS", "SUBPROTOCOL", "ClientEnd", "Method", "ServerEnd"]
