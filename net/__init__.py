"""The third floor: agents as a service, and the command line.

`serve` puts a system's agents behind a port; `connect` is the client, with the same surface. `wire` is the protocol between
them, without I/O; `cli` the commands, `demo` the team of agents that reads a folder. What a name needs is imported when it is
asked for: the command line must not pay for the service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import Client, connect
    from .limits import ServiceLimits
    from .service import Server, serve

_HOMES = {"Client": "client", "Server": "service", "ServiceLimits": "limits", "connect": "client", "serve": "service"}

__all__ = ["Client", "Server", "ServiceLimits", "connect", "serve"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
